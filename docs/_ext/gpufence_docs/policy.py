"""The policy document's keys, from the model that validates it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from gpufence_docs.tables import code, entry, plain, table
from policies.document import model as policy
from policies.kubernetes import custom_workloads

Schema = dict[str, Any]
_LIMITS = {
    "minimum": "from {}",
    "maximum": "to {}",
    "minLength": "not empty",
    "minItems": "at least {}",
    "minProperties": "at least {}",
}
"""What the schema's constraints are called; a bound of a string or of a list of things is 1.

Patterns are for machines: those of names are Kubernetes' own.
"""


def markdown() -> str:
    """Return a table of keys for the document and for each of its parts."""
    whole = policy.FencePolicy.model_json_schema(by_alias=True)
    parts: Schema = whole["$defs"]
    order = [("FencePolicy", whole), *_in_order(whole, parts)]
    return "\n".join([*(_part(name, schema, parts) for name, schema in order), _well_known()])


def default_markdown() -> str:
    """Return the policy that ships with gpufence, with its comments."""
    return f"```yaml\n{policy.default_policy_text()}```\n"


def _in_order(whole: Schema, parts: Schema) -> list[tuple[str, Schema]]:
    """Return the parts in the order in which the document names them, the outer ones first."""
    found: dict[str, Schema] = {}
    waiting = [whole]
    while waiting:
        for property_ in waiting.pop(0)["properties"].values():
            name = _reference(property_)
            if name and name not in found:
                found[name] = parts[name]
                waiting.append(parts[name])
    if missed := parts.keys() - found.keys():
        raise ValueError(f"no key of the policy leads to {', '.join(sorted(missed))}")
    return list(found.items())


def _part(name: str, schema: Schema, parts: Schema) -> str:
    required = set(schema.get("required", ()))
    rows = []
    for key, property_ in schema["properties"].items():
        # The model says it once where a key and the part that it holds are described alike.
        said = property_ if "description" in property_ else parts.get(_reference(property_), {})
        if "description" not in said:
            raise ValueError(f"the policy's model does not say what {name}.{key} is")
        default = "required" if key in required else _default(name, key)
        facts = (_type(property_), default, _limits(property_))
        rows.append((code(key), entry(plain(said["description"]), *facts)))
    heading = _title(name)
    return f"## {heading}\n\n{schema['description']}\n\n" + table(("key", "what it says"), rows)


def _title(part: str) -> str:
    """Return what a part is called in prose: its class without the suffix."""
    return part.removesuffix("Spec")


def _reference(property_: Schema) -> str:
    """Return the name of the part that a key holds, or holds several of."""
    inner = [property_, property_.get("items", {}), *property_.get("anyOf", ())]
    found = [each["$ref"].rpartition("/")[2] for each in inner if "$ref" in each]
    return found[0] if found else ""


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        title = _title(_reference(schema))
        return f"[{title}](#{title.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object":
        # The schema describes the values of keys that it names, or says what keys look like.
        [*values] = (schema.get("properties") or schema["patternProperties"]).values()
        return f"map to {_type(values[0])}"
    return str(schema.get("format") or schema["type"])


def _default(part: str, key: str) -> str:
    """Return what a key is where a policy does not name it, which the schema knows in part only."""
    model: type[BaseModel] = getattr(policy, part)
    [field] = [field for field in model.model_fields.values() if field.alias == key]
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "with the defaults of its keys"
    if isinstance(value, list) and value:
        return "default [the well-known ones](#well-known-custom-workloads)"
    return f"default {code(json.dumps(value))}"


def _well_known() -> str:
    rows = [
        (code(group), ", ".join(code(name) for name in names))
        for group, names in custom_workloads.WELL_KNOWN
    ]
    return f"## Well-known custom workloads\n\n{table(('group', 'resources'), rows)}"


def _limits(property_: Schema) -> str:
    """Return what else is asked of a value."""
    alternatives = property_.get("anyOf", [property_])
    limits = [
        text.format(each[key])
        for each in alternatives
        for key, text in _LIMITS.items()
        if key in each
    ]
    return ", ".join(limits)
