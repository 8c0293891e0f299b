"""The fields of gpufence's documents, from the models that validate them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpufence_docs.tables import code, entry, plain, table
from policies.document import FencePolicy
from policies.kubernetes.kinds import WELL_KNOWN
from policies.registry import RULES
from policies.schema import json_schema, schema_document
from policies.shipped import default_policy_text
from webhook.tools.cli.suites import FenceTest

Schema = dict[str, Any]
_LIMITS = {
    "minimum": "from {}",
    "maximum": "to {}",
    "minLength": "not empty",
    "minItems": "at least {}",
    "minProperties": "at least {}",
}
"""Constraints of the schema in words. The lower bound of strings and lists is always 1.

Patterns are left out: those of names are Kubernetes' own.
"""


def markdown() -> str:
    """Return a table of fields for the policy document and for each of its parts."""
    return _tables(FencePolicy) + _well_known()


def fence_test_markdown() -> str:
    """Return a table of fields for a test suite and for each of its parts."""
    return _tables(FenceTest)


def write_schemas(directory: Path) -> None:
    """Write the JSON schemas of the documents, for editors."""
    directory.mkdir(exist_ok=True)
    schemas = {
        "fence-policy": schema_document(),
        "fence-test": json_schema(FenceTest),
    }
    for name, schema in schemas.items():
        text = json.dumps(schema, indent=2) + "\n"
        path = directory / f"{name}.json"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _tables(kind: type) -> str:
    root = json_schema(kind)
    parts: Schema = root["$defs"]
    order = [(kind.__name__, root), *_in_order(root, parts)]
    return "\n".join(_part(name, schema, parts) for name, schema in order) + "\n"


def default_markdown() -> str:
    """Return the default policy with its comments."""
    return f"```yaml\n{default_policy_text()}```\n"


def _in_order(root: Schema, parts: Schema) -> list[tuple[str, Schema]]:
    """Return the parts in the order in which the document refers to them, outer parts first."""
    ordered: dict[str, Schema] = {}
    waiting = [root]
    while waiting:
        for property_ in waiting.pop(0)["properties"].values():
            name = _reference(property_)
            if name and name not in ordered:
                ordered[name] = parts[name]
                waiting.append(parts[name])
    if missed := parts.keys() - ordered.keys():
        raise ValueError(f"no field refers to {', '.join(sorted(missed))}")
    return list(ordered.items())


def _part(name: str, schema: Schema, parts: Schema) -> str:
    required = set(schema.get("required", ()))
    rows = []
    for key, property_ in schema["properties"].items():
        # A field without a description of its own has that of the part that it holds.
        described = (
            property_ if "description" in property_ else parts.get(_reference(property_), {})
        )
        if "description" not in described:
            raise ValueError(f"the model has no description of {name}.{key}")
        default = "required" if key in required else _default(key, property_)
        facts = (_type(property_), default, _limits(property_))
        rows.append((code(key), entry(plain(described["description"]), *facts)))
    return f"## {name}\n\n{schema['description']}\n\n" + table(("field", "description"), rows)


def _reference(property_: Schema) -> str:
    """Return the name of the part that a field holds, alone or in a list."""
    inner = [property_, property_.get("items", {}), *property_.get("anyOf", ())]
    names = [part["$ref"].rpartition("/")[2] for part in inner if "$ref" in part]
    return names[0] if names else ""


def _type(schema: Schema) -> str:
    if "type" not in schema and not schema.keys() & {"$ref", "anyOf", "enum", "const"}:
        return "a path, or an object"
    if "$ref" in schema:
        title = _reference(schema)
        return f"[{title}](#{title.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    if schema.get("enum") == [rule.id for rule in RULES]:
        return "[rule](../rules/index.md)"
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object":
        # The schema lists the keys, or has a pattern for them, or allows any.
        keyed = schema.get("properties") or schema.get("patternProperties") or {}
        values = [value for value in [*keyed.values(), schema.get("additionalProperties")] if value]
        return f"map to {_type(values[0])}" if isinstance(values[0], dict) else "map"
    return str(schema.get("format") or schema["type"])


def _default(key: str, schema: Schema) -> str:
    """Return the default of a field. The schema has only those that are no list and no map."""
    if key == "customWorkloads":
        return "default [the well-known ones](#well-known-custom-workloads)"
    if "default" not in schema and "$ref" in schema:
        return "optional"
    empty: list[Any] | dict[str, Any] = [] if schema.get("type") == "array" else {}
    return f"default {code(json.dumps(schema.get('default', empty)))}"


def _well_known() -> str:
    rows = [
        (code(custom.group), ", ".join(code(name) for name in custom.resources))
        for custom in WELL_KNOWN
    ]
    return f"## Well-known custom workloads\n\n{table(('group', 'resources'), rows)}"


def _limits(property_: Schema) -> str:
    """Return the further constraints of a value."""
    alternatives = property_.get("anyOf", [property_])
    limits = [
        text.format(alternative[key])
        for alternative in alternatives
        for key, text in _LIMITS.items()
        if key in alternative
    ]
    return ", ".join(limits)
