"""Types of the fields of documents: names, numbers and dates that are validated.

An annotation is for pydantic, which reads it when it validates a document or prints a schema. This
module imports pydantic only then: most commands use the default policy, and start without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar

from policies.kubernetes.quantity import (
    InvalidQuantityError,
    is_extended_resource_name,
    is_label_value,
    is_qualified_name,
    is_subdomain,
    parse_quantity,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

# The names that editors and helm accept. Checks do what would need lookahead.
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DURATION = "([1-9][0-9]{0,4}h)?([1-9][0-9]{0,4}m)?([1-9][0-9]{0,4}s)?"
_LONGEST_SENTENCE = 256
_MAX_ID = 2**31 - 1
# The registration guard of the chart lets no webhook receive other resources of Kubernetes.
_OF_KUBERNETES, _SPARK = ".k8s.io", "sparkoperator.k8s.io"


def camel_case(name: str) -> str:
    """Return the key of a field in documents: ``runtimeClass`` for ``runtime_class``."""
    first, *others = name.split("_")
    return first + "".join("CPU" if word == "cpu" else word.capitalize() for word in others)


def snake_case(key: str) -> str:
    """Return the name of the field with this key in documents."""
    return re.sub("[A-Z]+(?=[A-Z])|[A-Z]", lambda word: f"_{word[0].lower()}", key)


class NameSet:
    """Names given exactly or by prefix: of resources (``nvidia.com/mig-*``), of namespaces."""

    __slots__ = ("exact", "prefixes")

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Make the set that ``patterns`` name: each exact, or a prefix followed by ``*``."""
        given = list(patterns)
        self.exact = frozenset(name for name in given if not name.endswith("*"))
        self.prefixes = tuple(name[:-1] for name in given if name.endswith("*"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NameSet) and self.patterns == other.patterns

    def __hash__(self) -> int:
        return hash((self.exact, self.prefixes))

    def __repr__(self) -> str:
        return f"NameSet({self.patterns})"

    def __contains__(self, name: str) -> bool:
        return name in self.exact or (bool(self.prefixes) and name.startswith(self.prefixes))

    def __bool__(self) -> bool:
        return bool(self.exact or self.prefixes)

    @property
    def patterns(self) -> list[str]:
        """The names, and the prefixes followed by ``*``."""
        return [*sorted(self.exact), *(f"{prefix}*" for prefix in sorted(self.prefixes))]

    def overlap(self, other: NameSet) -> str | None:
        """Return a name or pattern of this set that the other one holds, at least in part."""
        return next(filter(other.meets, self.patterns), None)

    def meets(self, pattern: str) -> bool:
        """Return whether the set holds the name, or a name with the prefix before ``*``."""
        if not pattern.endswith("*"):
            return pattern in self
        prefix = pattern[:-1]
        return prefix.startswith(self.prefixes) or any(
            own.startswith(prefix) for own in (*self.exact, *self.prefixes)
        )


NO_NAMES = NameSet()


def nested(patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each pattern with the longest prefix among them that covers it; empty if none does.

    A prefix comes before all that it covers.
    """
    prefixes: list[str] = []
    for pattern in sorted(patterns, key=lambda each: (each.removesuffix("*"), each[-1] != "*")):
        while prefixes and not pattern.startswith(prefixes[-1][:-1]):
            prefixes.pop()
        yield pattern, prefixes[-1] if prefixes else ""
        if pattern.endswith("*"):
            prefixes.append(pattern)


_T = TypeVar("_T")
IN_API_SERVER, IN_REPLICA = "API server", "replica"
InAPIServer = Annotated[_T, IN_API_SERVER]
"""A field of the policy that API servers know: the object alone decides what follows from it."""
InReplica = Annotated[_T, IN_REPLICA]
"""A field of the policy that API servers do not know: what depends on it is left to replicas."""


class Part:
    """A part of a document: a dataclass whose keys are in camel case. Others are rejected.

    Each field says whether it is ``InAPIServer`` or ``InReplica``.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "alias_generator": camel_case,
        "extra": "forbid",
    }


def described(**schema: Any) -> dict[str, Any]:
    """Return the configuration of a part that has more in its JSON schema."""
    return Part.__pydantic_config__ | {"json_schema_extra": schema}


class Validation:
    """How pydantic validates a field.

    ``make`` returns the field's core schema. It gets the module ``pydantic_core.core_schema``, the
    type of the field, and the handler that returns the schema of another type.
    """

    def __init__(self, make: Callable[[Any, Any, Any], Any]) -> None:
        self._make = make

    def __get_pydantic_core_schema__(self, type_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return self._make(core_schema, type_, handler)  # type: ignore[no-any-return]


def text(accepts: Callable[[str], bool], problem: str, **schema: Any) -> Validation:
    """Return the validation of a string that ``accepts`` accepts.

    ``problem`` is the predicate of an error message about other strings; ``{!r}`` in it stands for
    the string. ``schema`` describes the accepted strings in the JSON schema.
    """

    def accepted(given: str) -> str:
        if not accepts(given):
            raise ValueError(problem.format(given))
        return given

    def make(core: Any, type_: Any, handler: Any) -> Any:
        inner = handler(type_)
        if inner["type"] == "str":
            inner["strict"] = True
        described = {"pydantic_js_updates": schema}
        return core.no_info_after_validator_function(accepted, inner, metadata=described)

    return Validation(make)


def one_of(*values: str) -> Validation:
    """Return the validation of one of the values."""
    return Validation(lambda core, _type, _handler: core.literal_schema(list(values)))


def before(convert: Callable[[Any], Any]) -> Validation:
    """Return the validation of what ``convert`` makes of the document's value, or rejects."""
    return Validation(
        lambda core, type_, handler: core.no_info_before_validator_function(convert, handler(type_))
    )


def _whole(lowest: int, highest: int | None = None) -> Validation:
    return Validation(
        lambda core, _type, _handler: core.int_schema(strict=True, ge=lowest, le=highest)
    )


NO_USER: Final = "none"
"""In place of a user ID: the image decides."""


def _user_id_or_none(core: Any, _type: Any, _handler: Any) -> Any:
    """Return the schema of a user ID, or ``none``. A null would not survive kubectl apply."""

    def given(value: Any) -> Any:
        if value is None:
            raise ValueError("is null, which kubectl apply drops; use a number, or none")
        return None if value == NO_USER else value

    number = core.int_schema(strict=True, ge=1, le=_MAX_ID)
    alternatives = [{"type": "integer", "minimum": 1, "maximum": _MAX_ID}, {"const": "none"}]
    checked = core.no_info_before_validator_function(given, core.nullable_schema(number))
    return core.no_info_after_validator_function(
        lambda user: NO_USER if user is None else user,
        checked,
        metadata={"pydantic_js_updates": {"anyOf": alternatives}},
    )


def _price(core: Any, _type: Any, _handler: Any) -> Any:
    return core.float_schema(strict=True, ge=0, allow_inf_nan=False)


def _list_of(item: Any) -> Validation:
    """Return the validation of a class that is made of a list."""
    return Validation(
        lambda core, type_, handler: core.no_info_after_validator_function(
            type_, handler.generate_schema(list[item])
        )
    )


def _not_empty(core: Any, type_: Any, handler: Any) -> Any:
    schema = handler(type_)
    if schema["type"] == "tuple":
        # pydantic would not count items that are invalid.
        [items] = schema["items_schema"]
        return core.no_info_after_validator_function(tuple, core.list_schema(items, min_length=1))
    # The schema of a class which is made of a list is around the list's.
    schema.get("schema", schema)["min_length"] = 1
    return schema


_STRICT = Validation(lambda _core, type_, handler: handler(type_) | {"strict": True})
NOT_EMPTY = Validation(_not_empty)
"""A string, a list or a mapping that is not empty."""


def _is_resource_pattern(pattern: str) -> bool:
    name = f"{pattern[:-1]}x" if pattern.endswith("*") else pattern
    return "*" not in name and is_extended_resource_name(name)


def _is_namespace_pattern(pattern: str) -> bool:
    name = pattern.removesuffix("*")
    # A prefix can end with a dash, where a name cannot.
    return pattern == "*" or is_subdomain(name if name == pattern else f"{name}x")


def _is_custom_group(name: str) -> bool:
    is_of_kubernetes = name.endswith(_OF_KUBERNETES) and name != _SPARK
    return "." in name and is_subdomain(name) and not is_of_kubernetes


def _is_amount(text: str) -> bool:
    try:
        return parse_quantity(text) > 0
    except InvalidQuantityError:
        return False


def _day(value: Any) -> Any:
    # Some YAML readers return dates, others return text.
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise ValueError("is not a date; use the format YYYY-MM-DD") from error
    return value


Label = Annotated[
    str,
    text(
        lambda name: re.fullmatch(_LABEL, name) is not None,
        "is {!r:.60}; use up to 63 lower-case letters, digits and '-'",
        pattern=f"^{_LABEL}$",
    ),
]
SubdomainName = Annotated[
    str,
    text(
        is_subdomain,
        "is not a valid name; use up to 253 lower-case letters, digits, '-' and '.'",
        pattern=f"^{_SUBDOMAIN}$",
        maxLength=253,
    ),
]
QualifiedName = Annotated[
    str,
    text(
        is_qualified_name,
        "is not a qualified name; use name or domain.example/name",
        pattern=f"^({_SUBDOMAIN}/)?{_NAME}$",
    ),
]
LabelValue = Annotated[
    str,
    text(
        is_label_value,
        "is not a label value; use up to 63 letters, digits, '-', '_' and '.'",
        pattern=f"^({_NAME})?$",
    ),
]
NamespacePattern = Annotated[
    str,
    text(
        _is_namespace_pattern,
        "is not the name of a namespace; use a name, or a prefix followed by *",
        pattern=rf"^(\*|{_SUBDOMAIN}|{_SUBDOMAIN}[-.]?\*)$",
        maxLength=253,
    ),
]
ResourcePattern = Annotated[
    str,
    text(
        _is_resource_pattern,
        "is not the name of an extended resource; use vendor.example/name or "
        "vendor.example/prefix-*",
        pattern=rf"^{_SUBDOMAIN}/({_NAME}|([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?\*)$",
    ),
]
CustomGroup = Annotated[
    str,
    text(
        _is_custom_group,
        "is not the API group of a custom resource; use a group such as kubeflow.org, and of "
        f"those that end in {_OF_KUBERNETES} only {_SPARK}",
        pattern=rf"^{_SUBDOMAIN}\.{_SUBDOMAIN}$",
        maxLength=253,
        anyOf=[{"const": _SPARK}, {"not": {"pattern": f"{re.escape(_OF_KUBERNETES)}$"}}],
    ),
]
SchedulerName = Annotated[
    SubdomainName,
    text(
        lambda name: name != "default-scheduler",
        "is the scheduler that Pods have by default, which gives devices by resources and claims "
        "only; use the name of a scheduler that reads the annotations",
        **{"not": {"const": "default-scheduler"}},
    ),
]
NonEmpty = Annotated[str, _STRICT, NOT_EMPTY]
Sentence = Annotated[
    str,
    text(
        lambda given: given.isprintable() and len(given) <= _LONGEST_SENTENCE,
        f"is not one line of up to {_LONGEST_SENTENCE} characters",
        pattern=r"^[^\x00-\x1f\x7f]*$",
        maxLength=_LONGEST_SENTENCE,
    ),
]
Duration = Annotated[
    str,
    text(
        lambda text: bool(text) and re.fullmatch(_DURATION, text) is not None,
        "is not a duration; use hours, minutes and seconds: 24h, 90m or 1h30m",
        pattern=f"^{_DURATION}$",
        minLength=1,
    ),
]
Amount = Annotated[
    str,
    before(lambda value: str(value) if type(value) is int else value),
    text(
        _is_amount,
        'is not a quantity above 0; use a number with an optional suffix: 16, "500m" or 80Gi',
        type=["string", "integer"],
    ),
]
Flag = Annotated[bool, _STRICT]
UserID = Annotated[int, _whole(1, _MAX_ID)]
UserIDOrNone = Annotated[int | Literal["none"] | None, Validation(_user_id_or_none)]
Positive = Annotated[int, _whole(1)]
Price = Annotated[float, Validation(_price)]
ResourceNames = Annotated[NameSet, _list_of(ResourcePattern)]
NamespaceNames = Annotated[NameSet, _list_of(NamespacePattern)]
ObjectNames = Annotated[NameSet, _list_of(NonEmpty)]
Day = Annotated[date, _STRICT, before(_day)]
