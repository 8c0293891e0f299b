"""JSON schemas of documents. All of it follows from their classes."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import is_dataclass
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from policies.catalog import TITLES
from policies.document import KIND, MOST_CHARACTERS, FencePolicy, adapter, most_entries
from policies.kubernetes.field_types import camel_case
from policies.policy import Policy

SCHEMA_ID = "https://gpufence.dev/schemas/fence-policy.json"


def schema_document() -> dict[str, Any]:
    """Return the JSON schema of policy documents."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "$id": SCHEMA_ID, "title": KIND} | json_schema(FencePolicy)


def json_schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a kind of documents. That of policies limits their size."""
    made = adapter(kind).json_schema(schema_generator=_Schema)
    if kind in (FencePolicy, Policy):
        _limit(made)
    return made


def _limit(schema: Any, key: str = "") -> None:
    """Limit the entries of each list and mapping, and the characters of each text."""
    match schema:
        case {"type": "array"}:
            schema["maxItems"] = most_entries(key)
        case {"type": "object", "additionalProperties": dict()} | {"patternProperties": _}:
            schema["maxProperties"] = most_entries(key)
        case {"type": "string"} if not {"enum", "const", "pattern", "maxLength"} & schema.keys():
            schema["maxLength"] = MOST_CHARACTERS
    if isinstance(schema, dict):
        for name, part in schema.items():
            named = part if name in ("properties", "$defs") else {key: part}
            for inner, each in named.items():
                _limit(each, inner)
    elif isinstance(schema, list):
        for each in schema:
            _limit(each, key)


class _Schema(GenerateJsonSchema):
    """Adds what documents have: described fields, keys that are names, and rules."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> dict[str, Any]:
        made = super().dataclass_schema(schema)
        part: type = schema["cls"]
        for name, text in _descriptions(part).items():
            made["properties"][camel_case(name)]["description"] = text
        return made

    def dict_schema(self, schema: core_schema.DictSchema) -> dict[str, Any]:
        made = super().dict_schema(schema)
        if "patternProperties" in made:
            made["additionalProperties"] = False
        elif "enum" in made.get("propertyNames", ()):
            # For propertyNames, helm reports a wrong path.
            names, value = made.pop("propertyNames")["enum"], made["additionalProperties"]
            made["properties"] = {name: value | {"description": TITLES[name]} for name in names}
            made["additionalProperties"] = False
        return made

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> dict[str, Any]:
        made = super().frozenset_schema(schema)
        # A document may name one thing twice.
        del made["uniqueItems"]
        return made

    def function_after_schema(
        self, schema: core_schema.AfterValidatorFunctionSchema
    ) -> dict[str, Any]:
        made = super().function_after_schema(schema)
        return made | {"enum": [*TITLES]} if "is_rule" in schema.get("metadata", ()) else made

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        if isinstance(schema.get("default"), str | int | None) and "default" in schema:
            return super().default_schema(schema)
        return self.generate_inner(schema["schema"])


@cache
def _descriptions(part: type) -> dict[str, str]:
    """Return the text below each field of a dataclass, its bases included."""
    descriptions: dict[str, str] = {}
    for base in reversed(part.__mro__):
        if is_dataclass(base):
            module = ast.parse(inspect.getsource(sys.modules[base.__module__]))
            [tree] = [
                node
                for node in module.body
                if isinstance(node, ast.ClassDef) and node.name == base.__name__
            ]
            for above, below in zip(tree.body, tree.body[1:], strict=False):
                match above, below:
                    case (
                        ast.AnnAssign(target=ast.Name(name)),
                        ast.Expr(ast.Constant(str() as text)),
                    ):
                        descriptions[name] = inspect.cleandoc(text).replace("\n", " ")
    return descriptions
