"""The CustomResourceDefinition of FencePolicy, from the types of the policy.

API servers accept *structural* schemas only: each value has a type, and what ``if``, ``const``,
``$ref`` or a pattern of keys would say is written otherwise or left to the webhook that validates
policies. The schema has no defaults, and keeps unknown fields, so that an object stays as it was
applied: a field that is misspelled is reported, and not dropped.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from policies.document import API_VERSION, KIND
from policies.policy import Policy
from policies.schema import json_schema
from policies.wording import listing

Schema = dict[str, Any]

PLURAL = "fencepolicies"
_GROUP, _, _VERSION = API_VERSION.partition("/")
_HEAD = "# The definition of FencePolicy. Written by `make generate`.\n"

# A logical junctor holds only what restricts a value (k8s.io/apiextensions-apiserver, structural).
_JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
_LEFT_OUT = ("title", "default", "if", "then", "else", "additionalProperties")

_CONDITIONS: Schema = {
    "type": "array",
    "description": "Whether the policy is accepted, registered, and fits the nodes.",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "reason": {"type": "string", "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
        },
    },
}
_STATUS: Schema = {
    "type": "object",
    "description": "What the controller of gpufence reports.",
    "properties": {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation of the policy that the status is about.",
        },
        "mode": {"type": "string", "description": "The active mode."},
        "pools": {
            "type": "array",
            "description": "The names of the active pools.",
            "items": {"type": "string"},
        },
        "conditions": _CONDITIONS,
    },
}
_COLUMNS = (
    {"name": "Mode", "type": "string", "jsonPath": ".status.mode"},
    {"name": "Pools", "type": "string", "jsonPath": ".status.pools"},
    {
        "name": "Accepted",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Accepted")].status',
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


def definition() -> Schema:
    """Return the CustomResourceDefinition."""
    root = {
        "type": "object",
        "description": "The policy of gpufence: the pools of GPU nodes, and what each rule does.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(),
            "status": _STATUS,
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Cluster",
            "names": {"kind": KIND, "plural": PLURAL, "singular": KIND.lower()},
            "versions": [
                {
                    "name": _VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(_COLUMNS),
                    "schema": {"openAPIV3Schema": root},
                }
            ],
        },
    }


def text() -> str:
    """Return the definition as YAML."""
    return _HEAD + yaml.safe_dump(definition(), sort_keys=False, width=100, allow_unicode=True)


def spec_schema() -> Schema:
    """Return the structural schema of a spec."""
    root = json_schema(Policy)
    return _structural(root, root.pop("$defs"))


def _structural(schema: Schema, parts: Schema) -> Schema:
    if "$ref" in schema:
        described = {key: schema[key] for key in ("description",) if key in schema}
        return _structural(parts[schema["$ref"].rpartition("/")[2]], parts) | described
    if {"const": "none"} in schema.get("anyOf", ()):
        return _number_or_none(schema)
    if nullable := _nullable(schema):
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return _structural(nullable | rest, parts) | {"nullable": True}
    made = {key: value for key, value in schema.items() if key not in _LEFT_OUT}
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if {"enforce", "off"} <= {*made.get("enum", ())}:
        # The action of a rule. kubectl reads an unquoted off as the boolean false.
        made.pop("type", None)
        return made | {"enum": [*made["enum"], False], "x-kubernetes-preserve-unknown-fields": True}
    if isinstance(made.get("type"), list):
        del made["type"]
        made["x-kubernetes-int-or-string"] = True
    if "properties" in made:
        made["properties"] = {
            key: _structural(value, parts) for key, value in made["properties"].items()
        }
        made["x-kubernetes-preserve-unknown-fields"] = True
    elif made.get("type") == "object":
        made["additionalProperties"] = _structural(_value_of(schema, made), parts)
    if "items" in made:
        made["items"] = _structural(made["items"], parts)
    if rules := _validations(made):
        made["x-kubernetes-validations"] = rules
    for key in _JUNCTORS:
        if key in made:
            made[key] = _restriction(made[key])
    return made


def _validations(schema: Schema) -> list[Schema]:
    """Take alternatives out of the schema, and return them as rules.

    A rule has a message of its own: API servers print the alternatives of a junctor as they are.
    Those of fields that a rule cannot read are left to the webhook.
    """
    groups = [schema.pop("anyOf")] if "anyOf" in schema else []
    groups += [each["anyOf"] for each in schema.pop("allOf", ())]
    return [_validation(group) for group in groups if _is_readable(group, schema)]


def _is_readable(alternatives: list[Schema], schema: Schema) -> bool:
    names = {name for each in alternatives for name in each.get("required", ())}
    return all(_has_type(schema["properties"][name]) for name in names)


def _has_type(schema: Schema) -> bool:
    """Return whether rules can read a value of the schema."""
    known = "type" in schema or "x-kubernetes-int-or-string" in schema
    inner = schema.get("additionalProperties")
    return known and (inner is None or _has_type(inner))


def _validation(alternatives: list[Schema]) -> Schema:
    """Return the rule that one of the alternatives holds."""
    conditions, words = zip(*map(_condition, alternatives), strict=True)
    rule = " || ".join(f"({each})" for each in conditions)
    return {"rule": rule, "message": f"set {listing(words, 'or')}"}


def _condition(schema: Schema) -> tuple[str, str]:
    """Return an alternative as an expression and in words."""
    match schema:
        case {"const": value}:
            return f"self == {value!r}", value
        case {"not": {"pattern": pattern}}:
            return f"!self.matches({json.dumps(pattern)})", f"a value without {pattern}"
    size = " && size(self.{0}) > 0" if "properties" in schema else ""
    names = schema["required"]
    return " && ".join(f"has(self.{name})" + size.format(name) for name in names), listing(names)


def _number_or_none(schema: Schema) -> Schema:
    """Return the schema of a number or none: each keyword restricts the values of its type."""
    number, _ = schema["anyOf"]
    bounds = {key: value for key, value in number.items() if key != "type"}
    described = {"description": schema["description"]}
    return described | bounds | {"pattern": "^none$", "x-kubernetes-int-or-string": True}


def _nullable(schema: Schema) -> Schema | None:
    """Return the schema of a value that may be null as well; None for others."""
    match schema.get("anyOf"):
        case [value, {"type": "null"}]:
            return dict(value)
        case _:
            return None


def _value_of(schema: Schema, made: Schema) -> Schema:
    """Return the schema of the values of a map, whose keys the webhook validates."""
    if patterns := made.pop("patternProperties", None):
        [value] = patterns.values()
        return dict(value)
    return dict(schema["additionalProperties"])


def _restriction(value: Any) -> Any:
    if isinstance(value, list):
        return [_restriction(each) for each in value]
    return {"enum": [value["const"]]} if "const" in value else value
