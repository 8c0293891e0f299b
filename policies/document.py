"""Policy documents: ``apiVersion: gpufence.dev/v1beta1``, ``kind: FencePolicy``.

This module validates documents, and says what is wrong with them. All of it follows from
``policies.policy``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from policies.api_servers import size_problems
from policies.catalog import DEFAULT_ACTIONS, TITLES
from policies.finding import ACTIONS, Action, limited
from policies.kubernetes.field_types import Part, SubdomainName, camel_case
from policies.kubernetes.paths import below
from policies.policy import Policy
from policies.wording import uncapitalized, unknown

API_VERSION = "gpufence.dev/v1beta1"
KIND = "FencePolicy"

MOST_VALUES = 20_000
"""How many values a policy may have: 1,000 exceptions have 10,000."""
MOST_VALUES_OF_ENTRY = 2000
"""How many of them a pool may have, an exception, or another entry of a list."""
MOST_CHARACTERS = 1024
"""How long a text in a policy may be."""
MOST_PROBLEMS = 20
"""How many problems of a document are reported. Each takes time, and memory."""
_FEWER_ENTRIES = dict.fromkeys(
    ("pools", "rules", "resources", "sharedResources", "fractionalResources"), 100
)

_ROOT = "the policy"
MAPPINGS = ("labels", "matchLabels", "nodeSelector", "rules", "values")
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
    """The name of the object. Replicas follow one name, by default gpufence, and ignore others."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FencePolicy(Part):
    """The policy of gpufence, as an object of Kubernetes."""

    api_version: Literal["gpufence.dev/v1beta1"]
    """The version of the object."""
    kind: Literal["FencePolicy"]
    """The kind of the object."""
    metadata: Metadata
    """The metadata of the object."""
    spec: Policy
    """The policy."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """What gpufence reports in a cluster. Files need none."""


def most_entries(key: str) -> int:
    """Return how many entries a list or a mapping with this key may have in a policy."""
    return _FEWER_ENTRIES.get(key, 1000)


def parse_policy(document: Any) -> Policy:
    """Validate a document that was read from YAML or JSON. Each rule has an action in the result.

    Raises:
        PolicyError: the document is invalid.
    """
    policy: Policy
    *_, policy = parsing(document)
    return policy


def parsing(document: Any) -> Iterator[Any]:
    """Do the same in pieces: yield None after each of them, and the policy at the end.

    A piece is short, whatever the document is: a replica answers reviews of Pods between two.
    """
    named: Collection[str] = ()
    if isinstance(document, Mapping):
        if isinstance(kind := document.get("kind"), str) and kind != KIND:
            raise PolicyError([f"kind: is {kind!r:.60}, but must be {KIND!r}"])
        whole = {key: part for key, part in document.items() if key not in ("metadata", "status")}
        _check_size(whole, MOST_VALUES)
        yield None
        if "spec" not in document:
            _reject_fields_outside_of_spec(document)
        elif isinstance(document["spec"], Mapping):
            spec = dict(document["spec"])
            exempt = spec.get("exemptions")
            if isinstance(exempt, Mapping) and exempt.get("runtimeClasses") == []:
                # The default policy of gpufence 0.2 has it.
                spec["exemptions"] = {k: v for k, v in exempt.items() if k != "runtimeClasses"}
            if isinstance(given := spec.get("rules", {}), Mapping):
                named = given
                spec["rules"] = _default_actions(spec.get("defaultAction")) | dict(given)
            document = {**document, "spec": spec}
            yield from _validate_entries(spec)
    policy = validated(document, FencePolicy, _ROOT).spec
    yield None
    if problems := [*_unstated(named, policy)]:
        raise PolicyError(problems)
    for problem in size_problems(policy):
        if problem:
            raise PolicyError([f"spec: {problem}"])
        yield None
    yield policy


def _unstated(named: Collection[str], policy: Policy) -> Iterator[str]:
    """Yield where a check that the policy does not name would deny nearly every GPU Pod.

    Without the rule that adds what it requires, the author says whether it enforces. ``named`` are
    the rules that the policy names.
    """
    check, mutation = "unrestricted-gpu-pod", "restricted-security-context"
    general = policy.effective_hardening.level
    places = [("rules", policy.rules, policy.mode, general)] * (check not in named)
    for index, each in enumerate(policy.overrides):
        actions = each.actions(policy.rules)
        if mutation in actions and check not in actions:
            level = (each.hardening and each.hardening.level) or general
            own = {**policy.rules, **actions}
            places.append((f"overrides[{index}].rules", own, each.mode or policy.mode, level))
    for place, rules, mode, level in places:
        enforces = (rules[check], mode, level) == ("enforce", "enforce", "restricted")
        if enforces and rules[mutation] != "enforce":
            yield (
                f"spec.{place}: {mutation} is {rules[mutation]}, and {check}, which requires what "
                f"it adds, denies nearly every GPU Pod; add {check}: warn, or {check}: enforce if "
                "Pods have these fields"
            )


def _default_actions(most: object) -> dict[str, Action]:
    """Return the action of each rule that a policy does not name, not stronger than ``most``."""
    if most is False:
        most = "off"
    if most not in ACTIONS:
        return dict(DEFAULT_ACTIONS)
    return {rule: limited(action, most) for rule, action in DEFAULT_ACTIONS.items()}


def _check_size(whole: Any, most_values: int, *path: Any) -> None:
    """Raise one error about a part of a policy that would take too long to validate."""
    parts: list[tuple[list[Any], Any]] = [([*path], whole)]
    steps: Collection[Any]
    count = 0
    for place, part in parts:
        if isinstance(part, dict):
            steps, texts = part, [*part, *part.values()]
        elif isinstance(part, list):
            steps, texts = range(len(part)), part
        else:
            steps, texts = (), [part]
        count += len(steps)
        most = most_entries(place[-1] if place else "")
        if len(steps) > most:
            problem = f"has {len(steps):,} entries; gpufence accepts up to {most:,}"
        elif count > most_values:
            place, problem = [*path], f"has more than {most_values:,} values, which is the limit"
        elif any(len(text) > MOST_CHARACTERS for text in texts if isinstance(text, str)):
            problem = f"has a text of more than {MOST_CHARACTERS:,} characters, which is the limit"
        else:
            inner = (step for step in steps if isinstance(part[step], dict | list))
            parts += (([*place, step], part[step]) for step in inner)
            continue
        raise PolicyError([f"{_path(place) or _ROOT}: {problem}"])


def _validate_entries(spec: dict[Any, Any]) -> Iterator[None]:
    """Replace each valid entry of the lists in a spec, and yield after each entry.

    After too many problems, the rest of a list is left out.
    """
    for name, annotation in _hints(Policy).items():
        key = camel_case(name)
        entries = spec.get(key)
        if get_origin(annotation) is not tuple or not isinstance(entries, list):
            continue
        made = spec[key] = []
        problems = 0
        for index, entry in enumerate(entries):
            _check_size(entry, MOST_VALUES_OF_ENTRY, "spec", key, index)
            try:
                made.append(_adapted(entry, get_args(annotation)[0]))
            except ValidationError as error:
                made.append(entry)
                problems += error.error_count()
                if problems > MOST_PROBLEMS:
                    break
            yield


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
        return _adapted(document, kind)
    except ValidationError as error:
        found = islice(error.errors(include_url=False), MOST_PROBLEMS)
        problems = [_sentence(each, kind, root) for each in found]
        if error.error_count() > MOST_PROBLEMS:
            problems.append(f"{root}: has more problems; correct these first")
        raise PolicyError(problems) from error


def _adapted(document: Any, kind: type[_Document]) -> _Document:
    made: TypeAdapter[_Document] = adapter(kind)  # type: ignore[arg-type]
    return made.validate_python(document, context={"rules": TITLES})


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what validates documents of a class."""
    return TypeAdapter(kind)


def _sentence(error: Any, document: type, root: str) -> str:
    """Turn one of pydantic's errors into a sentence: where, what, and what is accepted."""
    location = [step for step in error["loc"] if step != "[key]"]
    where, found = _path(location) or root, error["input"]
    match error["type"]:
        case "unexpected_keyword_argument" if location[-1] == "runtimeClasses":
            return (
                f"{where}: no longer exists, because the author of any Pod could set such a class; "
                "exempt namespaces"
            )
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
        text, previous = below(text, step, in_brackets=previous in MAPPINGS), step
    return text.removeprefix(".")


def _accepted_keys(document: type, location: list[str | int]) -> list[str]:
    """Return the keys of the part of the document at ``location``."""
    part = document
    for step in location:
        for name, annotation in _hints(part).items():
            if step == camel_case(name):
                part = _part_in(annotation) or part
    return [camel_case(each.name) for each in fields(part)]


@cache
def _hints(part: type) -> Mapping[str, Any]:
    return get_type_hints(part)


def _part_in(annotation: Any) -> type | None:
    if is_dataclass(annotation):
        return annotation  # type: ignore[return-value]
    return next(filter(None, map(_part_in, get_args(annotation))), None)
