"""Text of CEL (Common Expression Language): literals, and operators over several lines.

An expression is short and on one line, or it is broken at its operators, as a person would write
it: people review what ``gpufence manifests`` prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import NamedTuple

from policies.kubernetes.field_types import NameSet
from policies.kubernetes.objects import JSONObject

_WIDTH = 100


class Variable(NamedTuple):
    """A named expression that later ones can use, printed below a comment."""

    name: str
    comment: str
    expression: str

    def to_object(self) -> JSONObject:
        """Return the variable of an admission policy."""
        lines = wrap(self.comment, _WIDTH, initial_indent="// ", subsequent_indent="// ")
        return {"name": self.name, "expression": "\n".join([*lines, printed(self.expression)])}


def text(value: str) -> str:
    """Return a string literal."""
    return json.dumps(value)


def sentence(value: str) -> str:
    """Return a string literal over as many lines as it takes."""
    lines = wrap(value, _WIDTH - 10, drop_whitespace=False, break_long_words=False)
    return "\n+ ".join(map(text, lines))


def quoted(expression: str) -> str:
    """Return CEL for a string expression in quotation marks."""
    return f'"\\"" + {expression} + "\\""'


def joined(*expressions: str) -> str:
    """Return the concatenation of string expressions, on a line each."""
    return "\n+ ".join(expressions)


def names(values: Iterable[str]) -> str:
    """Return a list literal."""
    return json.dumps(sorted(values))


def any_of(*expressions: str) -> str:
    """Return the disjunction of the expressions that are not the literal false."""
    given = [each for each in expressions if each != "false"]
    return _joined("||", given) if given else "false"


def all_of(*expressions: str) -> str:
    """Return the conjunction; without any expression, true."""
    return _joined("&&", expressions) if expressions else "true"


def negated(expression: str) -> str:
    """Return the negation."""
    return f"!{expression}" if expression.startswith("(") else f"!({expression})"


def is_in(name: str, known: NameSet) -> str:
    """Return CEL that holds for the CEL string ``name`` if it is one of the set."""
    exact = [f"{name} in {names(known.exact)}"] if known.exact else []
    prefixes = [f"{name}.startsWith({text(prefix)})" for prefix in sorted(known.prefixes)]
    return any_of(*exact, *prefixes)


def call(subject: str, macro: str, variable: str, expression: str) -> str:
    """Return a macro over a list or a map, such as ``exists``."""
    if "\n" in expression or len(subject) + len(expression) > _WIDTH:
        return f"{subject}.{macro}({variable},\n{indented(expression)})"
    return f"{subject}.{macro}({variable}, {expression})"


def let(name: str, value: str, expression: str) -> str:
    """Return a condition that can use a name for a value; CEL has only macros for that."""
    return call(f"[{value}]", "exists", name, expression)


def commented(operator: str, parts: Iterable[tuple[str, str]]) -> str:
    """Return the operands, each below its comment."""
    return f"\n{operator} ".join(
        f"// {comment}\n   {below(below(operand))}" for comment, operand in parts
    )


def printed(expression: str) -> str:
    """Return a whole expression as it is printed: without parentheses around it."""
    if isinstance(expression, _Chain):
        return _on_lines(expression.operator, expression.operands)
    return expression


def indented(expression: str) -> str:
    """Return the expression two columns to the right."""
    return "  " + below(expression)


def below(expression: str) -> str:
    """Return the expression with all lines but the first two columns to the right."""
    return expression.replace("\n", "\n  ")


class _Chain(str):
    """Operands of one operator in parentheses, so that they can be one operand of another."""

    operator: str
    operands: tuple[str, ...]


def _joined(operator: str, expressions: Sequence[str]) -> str:
    """Join expressions; a chain of the same operator among them becomes part of this one."""
    operands: list[str] = []
    for each in expressions:
        if isinstance(each, _Chain) and each.operator == operator:
            operands += each.operands
        else:
            operands.append(each)
    if len(operands) == 1:
        return operands[0]
    chain = _Chain(f"({below(_on_lines(operator, operands))})")
    chain.operator, chain.operands = operator, tuple(operands)
    return chain


def _on_lines(operator: str, operands: Sequence[str]) -> str:
    """Return the operands on one line, or on a line each."""
    line = f" {operator} ".join(operands)
    if "\n" in line or len(line) > _WIDTH:
        return f"\n{operator} ".join(operands)
    return line
