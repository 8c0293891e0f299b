"""Types of the fields of documents: names, numbers and dates that are validated.

An annotation is for pydantic, which reads it when it validates a document or prints a schema. This
module imports pydantic only then: most commands use the default policy, and start without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from policies.kubernetes.names import NameSet
from policies.kubernetes.quantity import (
    is_extended_resource_name,
    is_label_value,
    is_qualified_name,
    is_subdomain,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

JSONSchema = dict[str, Any]

# The names that editors and helm accept. Checks do what would need lookahead.
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_MAX_ID = 2**31 - 1


def camel_case(name: str) -> str:
    """Return the key of a field in documents: ``runtimeClass`` for ``runtime_class``."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def snake_case(key: str) -> str:
    """Return the name of the field with this key in documents."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", key)


class Part:
    """A part of a document: a dataclass whose keys are in camel case. Others are rejected."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "alias_generator": camel_case,
        "extra": "forbid",
    }


def described(**schema: Any) -> dict[str, Any]:
    """Return the configuration of a part that has more in its JSON schema."""
    return Part.__pydantic_config__ | {"json_schema_extra": schema}


class Text:
    """A string that ``accepts`` accepts.

    ``problem`` is a clause about others, in which ``{!r}`` stands for the string, and ``schema``
    describes it in the JSON schema.
    """

    def __init__(self, accepts: Callable[[str], bool], problem: str, **schema: Any) -> None:
        self._accepts = accepts
        self._problem = problem
        self._schema = schema

    def __get_pydantic_core_schema__(self, type_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        schema: Any = handler(type_)
        if schema["type"] == "str":
            schema["strict"] = True
        return core_schema.no_info_after_validator_function(self._accepted, schema)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JSONSchema:
        return handler(schema) | self._schema

    def _accepted(self, text: str) -> str:
        if not self._accepts(text):
            raise ValueError(self._problem.format(text))
        return text


class Whole:
    """A whole number from ``lowest`` to ``highest``."""

    def __init__(self, lowest: int, highest: int | None = None) -> None:
        self._bounds = (lowest, highest)

    def __get_pydantic_core_schema__(self, _type: Any, _: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        lowest, highest = self._bounds
        return core_schema.int_schema(strict=True, ge=lowest, le=highest)


class OneOf:
    """One of the values."""

    def __init__(self, *values: str) -> None:
        self._values = values

    def __get_pydantic_core_schema__(self, _type: Any, _: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.literal_schema(list(self._values))


class Strict:
    """A value of exactly this type."""

    def __get_pydantic_core_schema__(self, type_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(type_)
        schema["strict"] = True
        return schema  # type: ignore[no-any-return]


class NotEmpty:
    """A string, a list or a mapping that is not empty."""

    def __get_pydantic_core_schema__(self, type_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        schema: Any = handler(type_)
        if schema["type"] == "tuple":
            # pydantic would not count items that are invalid.
            [items] = schema["items_schema"]
            entries = core_schema.list_schema(items, min_length=1)
            return core_schema.no_info_after_validator_function(tuple, entries)
        # That of a class which is made of a list is around the list's.
        inner = schema.get("schema", schema)
        inner["min_length"] = 1
        return schema  # type: ignore[no-any-return]


class Before:
    """A value that ``convert`` returns for what the document holds, or rejects."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def __get_pydantic_core_schema__(self, type_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self._convert, handler(type_))


class ListOf:
    """A class that is made of a list of ``item``."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def __get_pydantic_core_schema__(self, type_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        items = handler.generate_schema(list[self._item])  # type: ignore[name-defined]
        return core_schema.no_info_after_validator_function(type_, items)


def _is_resource_pattern(pattern: str) -> bool:
    name = f"{pattern[:-1]}x" if pattern.endswith("*") else pattern
    return "*" not in name and is_extended_resource_name(name)


def _is_namespace_pattern(pattern: str) -> bool:
    name = pattern.removesuffix("*")
    # A prefix can end with a dash, where a name cannot.
    return pattern == "*" or is_subdomain(name if name == pattern else f"{name}x")


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
    Text(
        lambda name: re.fullmatch(_LABEL, name) is not None,
        "is {!r:.60}; use up to 63 lower-case letters, digits and '-'",
        pattern=f"^{_LABEL}$",
    ),
]
SubdomainName = Annotated[
    str,
    Text(
        is_subdomain,
        "is not a valid name; use up to 253 lower-case letters, digits, '-' and '.'",
        pattern=f"^{_SUBDOMAIN}$",
        maxLength=253,
    ),
]
QualifiedName = Annotated[
    str,
    Text(
        is_qualified_name,
        "is not a qualified name; use name or domain.example/name",
        pattern=f"^({_SUBDOMAIN}/)?{_NAME}$",
    ),
]
LabelValue = Annotated[
    str,
    Text(
        is_label_value,
        "is not a label value; use up to 63 letters, digits, '-', '_' and '.'",
        pattern=f"^({_NAME})?$",
    ),
]
NamespacePattern = Annotated[
    str,
    Text(
        _is_namespace_pattern,
        "is not the name of a namespace; use a name, or a prefix followed by *",
        pattern=rf"^(\*|{_SUBDOMAIN}|{_SUBDOMAIN}[-.]?\*)$",
        maxLength=253,
    ),
]
ResourcePattern = Annotated[
    str,
    Text(
        _is_resource_pattern,
        "is not the name of an extended resource; use vendor.example/name or "
        "vendor.example/prefix-*",
        pattern=rf"^{_SUBDOMAIN}/({_NAME}|([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?\*)$",
    ),
]
CustomGroup = Annotated[
    str,
    Text(
        lambda name: "." in name and is_subdomain(name),
        "is not the API group of a custom resource; use a group such as kubeflow.org",
        pattern=rf"^{_SUBDOMAIN}\.{_SUBDOMAIN}$",
        maxLength=253,
    ),
]
SchedulerName = Annotated[
    SubdomainName,
    Text(
        lambda name: name != "default-scheduler",
        "is the scheduler that Pods have by default, which gives devices by resources and claims "
        "only; use the name of a scheduler that reads the annotations",
        **{"not": {"const": "default-scheduler"}},
    ),
]
NonEmpty = Annotated[str, Strict(), NotEmpty()]
UserID = Annotated[int, Whole(1, _MAX_ID)]
Positive = Annotated[int, Whole(1)]
ResourceNames = Annotated[NameSet, ListOf(ResourcePattern)]
NamespaceNames = Annotated[NameSet, ListOf(NamespacePattern)]
ObjectNames = Annotated[NameSet, ListOf(NonEmpty)]
Day = Annotated[date, Strict(), Before(_day)]
