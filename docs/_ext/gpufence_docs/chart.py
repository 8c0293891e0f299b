"""The chart's values, from values.yaml with its comments and from values.schema.json."""

from __future__ import annotations

import json
import re
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
    """One value of values.yaml: its comment, and its default and constraints if it has no parts."""

    path: str
    comment: str
    default: str = ""
    accepted: str = ""


def markdown() -> str:
    """Return a table of values."""
    rows = [
        (
            code(value.path),
            entry(
                re.sub(r"https://\S+", r"<\g<0>>", value.comment),
                value.default and f"default {code(value.default)}",
                value.accepted,
            ),
        )
        for value in values()
    ]
    return table(("value", "description"), rows)


def values() -> list[Value]:
    """Return the values in the order of values.yaml."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    root = yaml.compose("\n".join(lines))
    schema = json.loads((CHART / "values.schema.json").read_text())
    if not isinstance(root, yaml.MappingNode):
        raise TypeError("values.yaml is not a mapping")
    return list(_values(root, schema, lines, ""))


def _values(
    node: yaml.MappingNode, schema: dict[str, Any], lines: list[str], outer: str
) -> Iterator[Value]:
    for key, value in node.value:
        path = f"{outer}{key.value}"
        comment = _comment(lines, key.start_mark.line)
        accepted = schema["properties"][key.value]
        if path == ELSEWHERE:
            yield Value(path, f"{comment} [Its fields](policy.md).")
        elif isinstance(value, yaml.MappingNode) and value.value and "properties" in accepted:
            if comment:
                yield Value(path, comment)
            yield from _values(value, accepted, lines, f"{path}.")
        else:
            default = json.dumps(yaml.safe_load(yaml.serialize(value)))
            yield Value(path, comment, default, _accepted(accepted))


def _comment(lines: list[str], line: int) -> str:
    """Return the comment directly above a line, at the same indentation."""
    indent = lines[line][: len(lines[line]) - len(lines[line].lstrip())]
    comment: list[str] = []
    for above in reversed(lines[:line]):
        if not above.startswith(f"{indent}# "):
            break
        comment.insert(0, above.removeprefix(f"{indent}# "))
    return " ".join(comment)


def _accepted(schema: dict[str, Any]) -> str:
    """Return the constraints of a value."""
    if "enum" in schema:
        return ", ".join(code(_word(value)) for value in schema["enum"] if value != "")
    if "anyOf" in schema:
        return " or ".join(part["type"] for part in schema["anyOf"])
    bounds = [
        text.format(schema[key])
        for key, text in (("minimum", "from {}"), ("maximum", "to {}"), ("pattern", "`{}`"))
        if key in schema
    ]
    return ", ".join([schema["type"], *bounds])


def _word(value: Any) -> str:
    """Return a value as it is written in YAML."""
    return value if isinstance(value, str) else json.dumps(value)
