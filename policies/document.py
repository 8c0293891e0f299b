"""Policy documents: ``apiVersion: gpufence.dev/v1alpha1``, ``kind: FencePolicy``.

This module validates documents, and says what is wrong with them. All of it follows from
``policies.policy``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from policies.kubernetes.field_types import Part, SubdomainName, camel_case
from policies.kubernetes.paths import below
from policies.policy import Policy
from policies.registry import RULES
from policies.wording import uncapitalized, unknown

API_VERSION = "gpufence.dev/v1alpha1"
KIND = "FencePolicy"

TITLES = {rule.id: rule.title for rule in RULES}
_DEFAULT_ACTIONS = {rule.id: rule.default for rule in RULES}
_MAPPINGS = ("labels", "matchLabels", "nodeSelector", "rules", "values")
"""The fields whose keys are free."""

_Document = TypeVar("_Document")


class PolicyError(ValueError):
    """The document is not valid; ``problems`` has a sentence for each problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True)
class Metadata(Part):
    """The metadata of the object. The API server knows more fields, which gpufence ignores."""

    __pydantic_config__ = Part.__pydantic_config__ | {"extra": "ignore"}

    name: SubdomainName
    """The name of the object. Replicas follow the object with the name gpufence by default."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FencePolicy(Part):
    """The policy of gpufence, as an object of Kubernetes."""

    api_version: Literal["gpufence.dev/v1alpha1"]
    """The version of the object."""
    kind: Literal["FencePolicy"]
    """The kind of the object."""
    metadata: Metadata
    """The metadata of the object."""
    spec: Policy
    """The policy."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """What gpufence reports in a cluster. Files need none."""


def parse_policy(document: Any) -> Policy:
    """Validate a document that was read from YAML or JSON. Each rule has an action in the result.

    Raises:
        PolicyError: the document is invalid.
    """
    if isinstance(document, Mapping) and "spec" not in document:
        _reject_fields_outside_of_spec(document)
    policy = validated(document, FencePolicy, "the policy").spec
    return replace(policy, rules=_DEFAULT_ACTIONS | dict(policy.rules))


def _reject_fields_outside_of_spec(document: Mapping[Any, Any]) -> None:
    """Raise one error about a policy without spec, in place of one for each of its fields."""
    known = {camel_case(each.name) for each in fields(Policy)}
    if outside := [key for key in document if key in known]:
        problem = (
            f"{outside[0]}: belongs under spec; write metadata: {{name: gpufence}} and spec: below "
            f"kind, and indent {', '.join(outside)} by two spaces"
        )
        raise PolicyError([problem])


def validated(document: Any, kind: type[_Document], root: str) -> _Document:
    """Return a document as an object of its class; ``root`` stands for the document in messages.

    Raises:
        PolicyError: the document is invalid.
    """
    if not isinstance(document, Mapping):
        problem = f"must be a mapping with kind: {kind.__name__}, but is {document!r:.60}"
        raise PolicyError([f"{root}: {problem}"])
    try:
        made: TypeAdapter[_Document] = adapter(kind)  # type: ignore[arg-type]
        return made.validate_python(document, context={"rules": TITLES})
    except ValidationError as error:
        raise PolicyError(_sentence(one, kind, root) for one in error.errors()) from error


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what validates documents of a class."""
    return TypeAdapter(kind)


def _sentence(error: Any, document: type, root: str) -> str:
    """Turn one of pydantic's errors into a sentence: where, what, and what is accepted."""
    location = [step for step in error["loc"] if step != "[key]"]
    where, found = _path(location) or root, error["input"]
    match error["type"]:
        case "unexpected_keyword_argument":
            accepted = _accepted_keys(document, location[:-1])
            return f"{where}: {unknown('field', location[-1], accepted)}"
        case "missing":
            return f"{where}: this field is required"
        case "value_error":
            return f"{where}: {error['ctx']['error']}"
        case "literal_error":
            return f"{where}: is {found!r:.60}, but must be {error['ctx']['expected']}"
        case "too_short" | "string_too_short":
            return f"{where}: is empty; add at least one entry"
        case "string_type":
            quote = "; put the value in quotes" if isinstance(found, bool | int | float) else ""
            return f"{where}: must be a string, but is {found!r:.60}{quote}"
        case "int_type" | "float_type":
            number = "whole number" if error["type"] == "int_type" else "number"
            return f"{where}: must be a {number}, but is {found!r:.60}"
        case "greater_than_equal" | "less_than_equal":
            bound = "at least" if error["type"].startswith("greater") else "at most"
            limit = error["ctx"].get("ge", error["ctx"].get("le"))
            return f"{where}: must be {bound} {int(limit)}, but is {found}"
        case "dataclass_type" | "dict_type" | "mapping_type":
            return f"{where}: must be a mapping, but is {found!r:.60}"
        case "list_type" | "tuple_type" | "frozen_set_type":
            return f"{where}: must be a list, but is {found!r:.60}"
        case _:
            return f"{where}: {uncapitalized(error['msg'])} (found {found!r:.60})"


def _path(location: list[str | int]) -> str:
    """Return the path as Kubernetes prints it: free keys of a mapping are in brackets."""
    text, previous = "", None
    for step in location:
        text, previous = below(text, step, in_brackets=previous in _MAPPINGS), step
    return text.removeprefix(".")


def _accepted_keys(document: type, location: list[str | int]) -> list[str]:
    """Return the keys of the part of the document at ``location``."""
    part = document
    for step in location:
        for name, annotation in get_type_hints(part).items():
            if step == camel_case(name):
                part = _part_in(annotation) or part
    return [camel_case(each.name) for each in fields(part)]


def _part_in(annotation: Any) -> type | None:
    if is_dataclass(annotation):
        return annotation  # type: ignore[return-value]
    return next(filter(None, map(_part_in, get_args(annotation))), None)
