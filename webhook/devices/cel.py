"""A part of CEL: what the selectors of DeviceClasses are made of.

Field access, indexes, comparisons, ``in``, ``&&``, ``||``, ``!``, ``?:``, ``has``, ``cel.bind``,
optional fields, quantities, and a few methods of strings. What is not part of it, such as a macro
over a list, is ``UNKNOWN``: a result that depends on it is unknown as well.

Sources: ``k8s.io/dynamic-resource-allocation/cel/compile.go``, the functions of
``k8s.io/apiserver/pkg/cel/library``, and https://github.com/google/cel-spec/blob/master/doc/langdef.md.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity


class _Outcome(Enum):
    UNKNOWN = "the result of what this module cannot evaluate"
    ERROR = "the result of what Kubernetes fails to evaluate, such as a missing key"


UNKNOWN, ERROR = _Outcome

Scope = Mapping[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A quantity of Kubernetes, in nanos."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version. Its methods and ``semver()`` are not part of this module."""

    text: str


@dataclass(frozen=True, slots=True)
class _Optional:
    """The value of an optional field; ``ERROR`` if the field is missing."""

    value: Any


class Attributes(dict[str, Any]):
    """Attributes or capacities by domain: a domain that a device does not have is empty."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


class Expression:
    """A CEL expression."""

    def __init__(self, text: str) -> None:
        self.names: frozenset[str] | None = frozenset()
        """The fields and keys on which the value may depend; ``None`` if it may be any."""
        self._tree: ast.expr | None = None
        try:
            tokens = list(_tokens(text))
            if len(tokens) > _MOST_TOKENS:
                return
            self._tree = ast.parse(_python(iter(tokens)), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        self.names = frozenset(text for _, text in tokens)
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
                # The key is computed.
                self.names = None

    def evaluate(self, scope: Scope) -> Any:
        """Return the value, ``ERROR`` or ``UNKNOWN``, with the variables of the scope."""
        try:
            return UNKNOWN if self._tree is None else _value(self._tree, scope)
        except RecursionError:
            return UNKNOWN


_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>[rR]?(?:"(?!"")(?:[^"\\\n]|\\.)*"|'(?!'')(?:[^'\\\n]|\\.)*'))
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)(?![\w.])
    |(?P<name>[A-Za-z_]\w*)
    |(?P<operator>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%<>!?:.,()\[\]])
    )""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
_WORDS = {"true": " True ", "false": " False ", "null": " None ", "in": " in "}
_OPTIONAL = "é"
"""Marks an optional field; names in CEL have ASCII letters only."""
_OPERATORS = {"&&": " and ", "||": " or ", "!": "~", ".?": f".{_OPTIONAL}"}
"""Those that Python writes in another way. As in CEL, ``~`` binds closer than a comparison."""
_BRACKETS = {"(": ")", "[": "]"}
_MOST_TOKENS = 400
# Patterns that mean the same in RE2 and in Python, and that take little time to match.
_SIMPLE_PATTERN = re.compile(r"\^?(?:[\w |-]|\.\*?)*\$?", re.ASCII)
_MOST_STARS = 3


def _tokens(text: str) -> Iterator[tuple[str, Any]]:
    """Yield kind and text of each token, and the value of a literal."""
    position, text = 0, text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or token.lastgroup is None:
            raise ValueError(text)
        position = token.end()
        kind, found = token.lastgroup, token[token.lastgroup]
        yield kind, found if kind in ("name", "operator") else _literal(kind, found)


def _python(tokens: Iterator[tuple[str, Any]], end: str = "") -> str:
    """Return the tokens up to the closing bracket as an expression in Python.

    Python parses most of the grammar as CEL has it. Names end with an underscore here, because some
    of them are keywords of Python.
    """
    # The items before, and the parts of this one: a condition, its value, and so on.
    items, parts, before = "", [""], ""
    for kind, text in tokens:
        if kind == "name":
            is_word = text in _WORDS and before not in (".", ".?")
            parts[-1] += _WORDS[text] if is_word else f"{text}_ "
        elif kind != "operator":
            parts[-1] += f" {text!r} "
        elif text == end:
            return f"{items}{_conditional(parts)}{end}"
        elif text in _BRACKETS:
            parts[-1] += text + _python(tokens, _BRACKETS[text])
        elif text == ",":
            items, parts = f"{items}{_conditional(parts)},", [""]
        elif text in ("?", ":"):
            if (text == "?") is (len(parts) % 2 == 0):
                raise ValueError(text)
            parts.append("")
        else:
            parts[-1] += _OPERATORS.get(text, text)
        before = text
    return items + _conditional(parts)


def _conditional(parts: list[str]) -> str:
    """Return ``a ? b : c``, whose parts are given, in Python."""
    if len(parts) < 3:
        return " ? ".join(parts).strip()
    return f"(({parts[1]}) if ({parts[0]}) else ({_conditional(parts[2:])}))"


def _literal(kind: str, text: str) -> Any:
    if kind == "int":
        return int(text, 0) if text.startswith("0x") else int(text)
    if kind == "float":
        return float(text)
    if text[0] in "rR":
        return text[2:-1]
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    if match[1] not in _ESCAPES:
        raise ValueError(match[0])
    return _ESCAPES[match[1]]


def _value(node: ast.expr, scope: Scope) -> Any:
    """Return the value of an expression that Python has parsed."""
    match node:
        case ast.Attribute(target, name):
            return _applied(partial(_field, name=name[:-1]), scope, target)
        case ast.Constant(value):
            return value
        case ast.Subscript(target, key):
            return _applied(_item, scope, target, key)
        case ast.Name(name):
            return scope.get(name[:-1], UNKNOWN)
        case ast.Compare(left, relations, others):
            value = _value(left, scope)
            for relation, other in zip(relations, others, strict=True):
                # From left to right, which Python would not do.
                value = _result(_RELATIONS[type(relation)], value, _value(other, scope))
            return value
        case ast.BoolOp(operator_, parts):
            return _joined(parts, scope, decides=isinstance(operator_, ast.Or))
        case ast.UnaryOp(operator_, operand) if type(operator_) in _UNARY:
            return _applied(_UNARY[type(operator_)], scope, operand)
        case ast.IfExp(condition, then, otherwise):
            return _choose(_value(condition, scope), then, otherwise, scope)
        case ast.List(items):
            return _listed([_value(item, scope) for item in items])
        case ast.Call(ast.Name("has_"), [ast.Attribute(target, name)]):
            return _applied(partial(_has, field=name[:-1]), scope, target)
        case ast.Call(ast.Name("quantity_"), [argument]):
            return _applied(_quantity, scope, argument)
        case ast.Call(ast.Attribute(ast.Name("cel_"), "bind_"), [ast.Name(name), value, result]):
            return _value(result, {**scope, name[:-1]: _value(value, scope)})
        case ast.Call(ast.Attribute(target, name), arguments) if name[:-1] in _METHODS:
            return _applied(partial(_called, name[:-1]), scope, target, *arguments)
    return UNKNOWN


def _applied(function: Callable[..., Any], scope: Scope, *operands: ast.expr) -> Any:
    return _result(function, *[_value(operand, scope) for operand in operands])


def _result(function: Callable[..., Any], *values: Any) -> Any:
    """Return what the function makes of the values, unless one is missing."""
    if UNKNOWN in values:
        return UNKNOWN
    return ERROR if ERROR in values else function(*values)


def _joined(parts: list[ast.expr], scope: Scope, *, decides: bool) -> Any:
    """Return ``&&`` or ``||`` of the parts: the deciding value wins over errors, in any order."""
    result: Any = not decides
    for part in parts:
        value = _value(part, scope)
        if value is decides:
            return decides
        if value is UNKNOWN:
            result = UNKNOWN
        elif value is not (not decides) and result is not UNKNOWN:
            result = ERROR
    return result


def _choose(condition: Any, then: ast.expr, otherwise: ast.expr, scope: Scope) -> Any:
    if isinstance(condition, bool):
        return _value(then if condition else otherwise, scope)
    return UNKNOWN if condition is UNKNOWN else ERROR


def _listed(items: list[Any]) -> Any:
    return next((each for each in (UNKNOWN, ERROR) if each in items), items)


def _equal(left: Any, right: Any) -> Any:
    """Return whether two values are equal; values of different types are not.

    A quantity or a version on the left equals no value of another type: that is an error (``Equal``
    in ``k8s.io/apiserver/pkg/cel``).
    """
    if isinstance(left, (Quantity, Version)) and type(left) is not type(right):
        return ERROR
    if isinstance(left, dict) and isinstance(right, dict):
        # They have the values that selectors name, and no others.
        return UNKNOWN
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _is_in(value: Any, container: Any) -> Any:
    if isinstance(container, list):
        # In a list of literals, Kubernetes fails to hash a version.
        if isinstance(value, Version):
            return UNKNOWN
        return any(_equal(value, item) is True for item in container)
    if not isinstance(container, dict):
        return ERROR
    return isinstance(value, str) and value in container


def _compared(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compared(left: Any, right: Any) -> Any:
        if _are_numbers(left, right) or (isinstance(left, str) and isinstance(right, str)):
            return compare(left, right)
        return UNKNOWN if type(left) is type(right) else ERROR

    return compared


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in values)


def _negated(value: Any) -> Any:
    return not value if isinstance(value, bool) else ERROR


def _opposite(value: Any) -> Any:
    return -value if _are_numbers(value) else ERROR


def _field(value: Any, name: str) -> Any:
    if not name.startswith(_OPTIONAL):
        return _item(value, name)
    if isinstance(value, _Optional):
        if value.value is ERROR:
            return value
        value = value.value
    return _Optional(_item(value, name.removeprefix(_OPTIONAL)))


def _item(value: Any, key: Any) -> Any:
    if isinstance(value, (_Optional, list)):
        return UNKNOWN
    if not (isinstance(value, dict) and isinstance(key, str)):
        return ERROR
    return value[key] if isinstance(value, Attributes) else value.get(key, ERROR)


def _has(value: Any, field: str) -> Any:
    if isinstance(value, _Optional):
        return UNKNOWN
    if isinstance(value, Attributes):
        return True
    return field in value if isinstance(value, dict) else ERROR


def _quantity(text: Any) -> Any:
    try:
        return Quantity(parse_quantity(text)) if isinstance(text, str) else ERROR
    except InvalidQuantityError:
        return ERROR


def _called(name: str, *operands: Any) -> Any:
    """Return what a method makes of its target and arguments."""
    types, function = _METHODS[name]
    if len(operands) != len(types):
        return UNKNOWN
    if all(map(isinstance, operands, types)):
        return function(*operands)
    # Versions have the same methods as quantities.
    return UNKNOWN if Quantity in types else ERROR


def _matches(value: str, pattern: str) -> Any:
    if not _SIMPLE_PATTERN.fullmatch(pattern) or pattern.count("*") > _MOST_STARS:
        return UNKNOWN
    return re.search(pattern.replace("$", r"\Z"), value) is not None


def _lower(value: str) -> str:
    """Return the text with ASCII letters in lower case."""
    return re.sub("[A-Z]+", lambda letters: letters[0].lower(), value)


def _or_value(value: _Optional, default: Any) -> Any:
    return default if value.value is ERROR else value.value


_UNARY: Mapping[type, Callable[[Any], Any]] = {ast.Invert: _negated, ast.USub: _opposite}
_RELATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: _negated(_equal(left, right)),
    ast.In: _is_in,
    ast.Lt: _compared(operator.lt),
    ast.LtE: _compared(operator.le),
    ast.Gt: _compared(operator.gt),
    ast.GtE: _compared(operator.ge),
}
_METHODS: Mapping[str, tuple[tuple[type, ...], Callable[..., Any]]] = {
    "startsWith": ((str, str), str.startswith),
    "endsWith": ((str, str), str.endswith),
    "contains": ((str, str), str.__contains__),
    "matches": ((str, str), _matches),
    "lowerAscii": ((str,), _lower),
    "orValue": ((_Optional, object), _or_value),
    "compareTo": ((Quantity, Quantity), lambda a, b: (a > b) - (a < b)),
    "isGreaterThan": ((Quantity, Quantity), operator.gt),
    "isLessThan": ((Quantity, Quantity), operator.lt),
}
"""By name: the types of the target and the arguments, and the function of them."""
