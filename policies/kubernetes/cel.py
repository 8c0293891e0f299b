"""A part of CEL: what the selectors of DeviceClasses are made of.

Field access, indexes, comparisons, ``in``, ``&&``, ``||``, ``!``, ``?:``, ``has``, ``cel.bind``,
optional fields, quantities, and a few methods of strings. What is not part of it, such as a macro
over a list, is ``UNKNOWN``: a result that depends on it is unknown as well.

Sources: ``k8s.io/dynamic-resource-allocation/cel/compile.go``, the functions of
``k8s.io/apiserver/pkg/cel/library``, and https://github.com/google/cel-spec/blob/master/doc/langdef.md.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity


class _Outcome:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


UNKNOWN = _Outcome("UNKNOWN")
"""The result of what this module cannot evaluate."""
ERROR = _Outcome("ERROR")
"""The result of what Kubernetes fails to evaluate, such as a missing key."""

Scope = Mapping[str, Any]
_Evaluate = Callable[[Scope], Any]


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


class UnsupportedError(ValueError):
    """The expression has syntax that is not part of this module."""


class Expression:
    """A CEL expression."""

    def __init__(self, text: str) -> None:
        self.names: frozenset[str] | None = frozenset()
        """The fields and keys on which the value may depend; ``None`` if it may be any."""
        try:
            parser = _Parser(text)
            self._evaluate = parser.parse()
            self.names = parser.names
        except UnsupportedError:
            self._evaluate = _unknown

    def evaluate(self, scope: Scope) -> Any:
        """Return the value, ``ERROR`` or ``UNKNOWN``, with the variables of the scope."""
        return self._evaluate(scope)


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
_CONSTANTS = {"true": True, "false": False, "null": None}
_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Python nests a few function calls for each of them.
_DEEPEST = 50
_MOST_TOKENS = 400
# Patterns that mean the same in RE2 and in Python, and that take little time to match.
_SIMPLE_PATTERN = re.compile(r"\^?(?:[\w |-]|\.\*?)*\$?", re.ASCII)
_MOST_STARS = 3


class _Parser:
    """Makes a function of an expression, by recursive descent along the grammar of CEL."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0
        self._selected: tuple[_Evaluate, str] | None = None
        """The last field access: the operand and the name of the field."""
        if len(self._tokens) > _MOST_TOKENS:
            raise UnsupportedError
        self.names: frozenset[str] | None = frozenset(
            _literal(kind, text) if kind == "string" else text for kind, text in self._tokens
        )

    def parse(self) -> _Evaluate:
        evaluate = self._conditional()
        if self._next < len(self._tokens):
            raise UnsupportedError
        return evaluate

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def _take(self, *expected: str) -> bool:
        is_operator = self._next < len(self._tokens) and self._tokens[self._next][0] != "string"
        found = is_operator and self._peek() in expected
        self._next += found
        return found

    def _require(self, expected: str) -> None:
        if not self._take(expected):
            raise UnsupportedError

    def _conditional(self) -> _Evaluate:
        self._deeper()
        condition = self._any()
        if self._take("?"):
            then = self._any()
            self._require(":")
            otherwise = self._conditional()
            first = condition
            condition = lambda scope: _choose(first(scope), then, otherwise, scope)  # noqa: E731
        self._depth -= 1
        return condition

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnsupportedError

    def _any(self) -> _Evaluate:
        parts = [self._all()]
        while self._take("||"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda scope: _joined(parts, scope, decides=True)

    def _all(self) -> _Evaluate:
        parts = [self._relation()]
        while self._take("&&"):
            parts.append(self._relation())
        return parts[0] if len(parts) == 1 else lambda scope: _joined(parts, scope, decides=False)

    def _relation(self) -> _Evaluate:
        left = self._sum()
        while (sign := self._peek()) and self._take("==", "!=", "<", "<=", ">", ">=", "in"):
            left = _applied(_RELATIONS[sign], left, self._sum())
        return left

    def _sum(self) -> _Evaluate:
        left = self._unary()
        while self._take("+", "-", "*", "/", "%"):
            self._unary()
            left = _unknown
        return left

    def _unary(self) -> _Evaluate:
        self._deeper()
        if self._take("!"):
            found = _applied(_negated, self._unary())
        elif self._take("-"):
            found = _applied(_opposite, self._unary())
        else:
            found = self._member()
        self._depth -= 1
        return found

    def _member(self) -> _Evaluate:
        found = self._primary()
        while True:
            if self._take("."):
                name = self._name()
                if self._take("("):
                    found = self._call(found, name)
                else:
                    self._selected = (found, name)
                    found = _applied(_field(name), found)
            elif self._take(".?"):
                found = _applied(_optional_field(self._name()), found)
            elif self._take("["):
                start = self._next
                index = self._conditional()
                if self._next != start + 1:
                    # The key is computed.
                    self.names = None
                self._require("]")
                found = _applied(_item, found, index)
            else:
                return found

    def _call(self, target: _Evaluate, name: str) -> _Evaluate:
        arguments = self._arguments()
        method = _METHODS.get(name)
        if method is None or len(arguments) != method[0]:
            return _unknown
        return _applied(method[1], target, *arguments)

    def _primary(self) -> _Evaluate:
        if self._next >= len(self._tokens):
            raise UnsupportedError
        kind, text = self._tokens[self._next]
        if kind in ("string", "int", "float"):
            self._next += 1
            value = _literal(kind, text)
            return lambda _scope: value
        if self._take("("):
            inner = self._conditional()
            self._require(")")
            return inner
        if self._take("["):
            items = self._list()
            return lambda scope: _listed([item(scope) for item in items])
        name = self._name()
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda _scope: constant
        if name == "cel" and self._take("."):
            return self._binding()
        if self._take("("):
            arguments = self._arguments()
            if name == "has" and self._selected:
                operand, field = self._selected
                return _applied(lambda value: _has(value, field), operand)
            if name == "quantity" and len(arguments) == 1:
                return _applied(_quantity, arguments[0])
            return _unknown
        return lambda scope: scope.get(name, UNKNOWN)

    def _binding(self) -> _Evaluate:
        """Read the rest of ``cel.bind(name, value, expression)``."""
        if self._name() != "bind":
            raise UnsupportedError
        self._require("(")
        name = self._name()
        self._require(",")
        value = self._conditional()
        self._require(",")
        expression = self._conditional()
        self._require(")")
        return lambda scope: expression({**scope, name: value(scope)})

    def _list(self) -> list[_Evaluate]:
        items = []
        while not self._take("]"):
            items.append(self._conditional())
            if not self._take(","):
                self._require("]")
                break
        return items

    def _arguments(self) -> list[_Evaluate]:
        arguments: list[_Evaluate] = []
        if self._take(")"):
            return arguments
        arguments.append(self._conditional())
        while self._take(","):
            arguments.append(self._conditional())
        self._require(")")
        return arguments

    def _name(self) -> str:
        if self._next >= len(self._tokens) or self._tokens[self._next][0] != "name":
            raise UnsupportedError
        self._next += 1
        return self._tokens[self._next - 1][1]


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position, text = 0, text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or token.lastgroup is None:
            raise UnsupportedError
        position = token.end()
        yield token.lastgroup, token[token.lastgroup]


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
        raise UnsupportedError
    return _ESCAPES[match[1]]


def _unknown(_scope: Scope) -> Any:
    return UNKNOWN


def _applied(function: Callable[..., Any], *operands: _Evaluate) -> _Evaluate:
    """Return what evaluates the operands and applies the function, unless one has no value."""

    def evaluate(scope: Scope) -> Any:
        values = [operand(scope) for operand in operands]
        if UNKNOWN in values:
            return UNKNOWN
        if ERROR in values:
            return ERROR
        return function(*values)

    return evaluate


def _joined(parts: list[_Evaluate], scope: Scope, *, decides: bool) -> Any:
    """Return ``&&`` or ``||`` of the parts: the deciding value wins over errors, in any order."""
    result: Any = not decides
    for part in parts:
        value = part(scope)
        if value is decides:
            return decides
        if value is UNKNOWN:
            result = UNKNOWN
        elif value is not (not decides) and result is not UNKNOWN:
            result = ERROR
    return result


def _choose(condition: Any, then: _Evaluate, otherwise: _Evaluate, scope: Scope) -> Any:
    if isinstance(condition, bool):
        return then(scope) if condition else otherwise(scope)
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


def _compared(sign: str) -> Callable[[Any, Any], Any]:
    compare = _COMPARISONS[sign]

    def compared(left: Any, right: Any) -> Any:
        if _are_numbers(left, right) or (isinstance(left, str) and isinstance(right, str)):
            return compare(left, right)
        return UNKNOWN if type(left) is type(right) else ERROR

    return compared


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in values)


_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": _equal,
    "!=": lambda left, right: _negated(_equal(left, right)),
    "in": _is_in,
    **{sign: _compared(sign) for sign in _COMPARISONS},
}


def _negated(value: Any) -> Any:
    return not value if isinstance(value, bool) else ERROR


def _opposite(value: Any) -> Any:
    return -value if _are_numbers(value) else ERROR


@cache
def _field(name: str) -> Callable[[Any], Any]:
    return lambda value: _item(value, name)


@cache
def _optional_field(name: str) -> Callable[[Any], Any]:
    def optional(value: Any) -> _Optional:
        if isinstance(value, _Optional):
            return value if value.value is ERROR else _Optional(_item(value.value, name))
        return _Optional(_item(value, name))

    return optional


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


def _of_strings(function: Callable[[str, str], Any]) -> Callable[[Any, Any], Any]:
    def apply(value: Any, argument: Any) -> Any:
        both = isinstance(value, str) and isinstance(argument, str)
        return function(value, argument) if both else ERROR

    return apply


def _of_quantities(function: Callable[[Quantity, Quantity], Any]) -> Callable[[Any, Any], Any]:
    def apply(value: Any, argument: Any) -> Any:
        # Versions have the same methods.
        both = isinstance(value, Quantity) and isinstance(argument, Quantity)
        return function(value, argument) if both else UNKNOWN

    return apply


def _matches(value: str, pattern: str) -> Any:
    if not _SIMPLE_PATTERN.fullmatch(pattern) or pattern.count("*") > _MOST_STARS:
        return UNKNOWN
    return re.search(pattern.replace("$", r"\Z"), value) is not None


def _lower(value: Any) -> Any:
    """Return the text with ASCII letters in lower case."""
    if not isinstance(value, str):
        return ERROR
    return re.sub("[A-Z]+", lambda letters: letters[0].lower(), value)


def _or_value(value: Any, default: Any) -> Any:
    if not isinstance(value, _Optional):
        return ERROR
    return default if value.value is ERROR else value.value


_METHODS: dict[str, tuple[int, Callable[..., Any]]] = {
    "startsWith": (1, _of_strings(str.startswith)),
    "endsWith": (1, _of_strings(str.endswith)),
    "contains": (1, _of_strings(str.__contains__)),
    "matches": (1, _of_strings(_matches)),
    "lowerAscii": (0, _lower),
    "orValue": (1, _or_value),
    "compareTo": (1, _of_quantities(lambda a, b: (a > b) - (a < b))),
    "isGreaterThan": (1, _of_quantities(operator.gt)),
    "isLessThan": (1, _of_quantities(operator.lt)),
}
"""By name: the number of arguments, and the function of the target and the arguments."""
