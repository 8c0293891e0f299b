"""The chart's values, from values.yaml with its comments and from values.schema.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpufence_docs.tables import code, entry, table

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "gpufence"
ELSEWHERE = "policy"
"""The value whose fields have a page of their own."""


@dataclass(frozen=True)
class Value:
    """One value of values.yaml with its default."""

    path: str
    default: str
    comment: str


def markdown() -> str:
    """Return a table of values."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    root = yaml.compose("\n".join(lines))
    schema = json.loads((CHART / "values.schema.json").read_text())
    if not isinstance(root, yaml.MappingNode):
        raise TypeError("values.yaml is not a mapping")
    rows = [
        (
            code(value.path),
            entry(value.comment, value.default and f"default {code(value.default)}", accepted),
        )
        for value in _values(root, lines, "")
        for accepted in [_accepted(schema, value.path)]
    ]
    return table(("value", "description"), rows)


def _values(node: yaml.MappingNode, lines: list[str], outer: str) -> Iterator[Value]:
    for key, value in node.value:
        path = f"{outer}{key.value}"
        comment = _comment(lines, key.start_mark.line)
        if path == ELSEWHERE:
            yield Value(path, "", f"{comment} [Its fields](policy.md).")
        elif isinstance(value, yaml.MappingNode) and value.value:
            if comment:
                yield Value(path, "", comment)
            yield from _values(value, lines, f"{path}.")
        else:
            yield Value(path, _shown(value), comment)


def _shown(node: yaml.Node) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(yaml.safe_load(yaml.serialize(node)))


def _comment(lines: list[str], line: int) -> str:
    """Return the comment directly above a line, at the same indentation."""
    indent = lines[line][: len(lines[line]) - len(lines[line].lstrip())]
    found: list[str] = []
    for above in reversed(lines[:line]):
        if not above.startswith(f"{indent}# "):
            break
        found.insert(0, above.removeprefix(f"{indent}# "))
    return " ".join(found)


def _accepted(schema: dict[str, Any], path: str) -> str:
    """Return the constraints of a value in the schema."""
    for key in path.split("."):
        schema = schema.get("properties", {}).get(key, {})
    if "enum" in schema:
        return ", ".join(code(str(each)) for each in schema["enum"])
    bounds = [
        text.format(schema[key])
        for key, text in (("minimum", "from {}"), ("maximum", "to {}"), ("pattern", "`{}`"))
        if key in schema
    ]
    return ", ".join([schema.get("type", ""), *bounds]).strip(", ")
