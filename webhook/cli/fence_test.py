"""The FenceTest document: test cases for a policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from policies.document import validated
from policies.kubernetes.field_types import Before, Day, NonEmpty, NotEmpty, Part, SubdomainName
from policies.policy import RuleId

KIND = "FenceTest"


def _file_or_object(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and value.get("kind"):
        return value
    raise ValueError(
        f"is {value!r:.60}; write the path of a manifest file, or an object with its kind"
    )


FileOrObject = Annotated[Any, Before(_file_or_object)]
"""A path, relative to the suite's directory, or an object that is written in the suite."""


@dataclass(frozen=True, slots=True)
class Expected(Part):
    """What a case expects. gpufence does not compare absent fields."""

    verdict: Literal["allowed", "mutated", "denied", "unknown", "skipped"] | None = None
    """The verdict of gpufence check on the object."""
    rules: tuple[RuleId, ...] | None = None
    """The rules that have findings: exactly these."""
    excepted: tuple[RuleId, ...] | None = None
    """The rules whose findings an exception of the policy covers."""
    values: dict[str, Any] = field(default_factory=dict)
    """Values of the mutated object, by field path (spec.tolerations[0].key) or JSON pointer. null
    means that the field is absent."""

    def __post_init__(self) -> None:
        if (self.verdict, self.rules, self.excepted) == (None, None, None) and not self.values:
            raise ValueError("is empty; set at least one of verdict, rules, excepted and values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Part):
    """One object, the request and the cluster around it, and the expected result."""

    name: NonEmpty
    """What the case shows, as a sentence."""
    manifest: FileOrObject
    """The object to check: a file or an object."""
    object: NonEmpty | None = None
    """Which object of a file that holds several: Job/train."""
    cluster: tuple[FileOrObject, ...] = ()
    """Objects in the cluster: Nodes, Namespaces, RuntimeClasses, DeviceClasses, ResourceClaims and
    their templates. They are added to those of the suite."""
    namespace: SubdomainName | None = None
    """The namespace of objects that do not set one."""
    username: str = ""
    """The user of the request."""
    operation: Literal["CREATE", "UPDATE"] = "CREATE"
    """The operation of the request."""
    old: dict[str, Any] | None = None
    """The old object of an UPDATE."""
    today: Day | None = None
    """The date on which exceptions are evaluated: YYYY-MM-DD."""
    expect: Expected
    """The expected result."""

    def __post_init__(self) -> None:
        if (self.operation == "UPDATE") != (self.old is not None):
            raise ValueError("sets only one of operation: UPDATE and old; set both or neither")


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceTest(Part):
    """The document."""

    api_version: Literal["gpufence.dev/v1alpha1"]
    """The API version."""
    kind: Literal["FenceTest"]
    """The kind."""
    policy: NonEmpty | None = None
    """Path of the policy file. The default is gpufence's default policy."""
    namespace: SubdomainName = "default"
    """The namespace of objects that do not set one."""
    cluster: tuple[FileOrObject, ...] = ()
    """Objects in the cluster, for every case."""
    today: Day | None = None
    """The date on which exceptions are evaluated: YYYY-MM-DD. Without a date, no exception
    expires."""
    cases: Annotated[tuple[Case, ...], NotEmpty()]
    """The cases."""

    def __post_init__(self) -> None:
        names = [case.name for case in self.cases]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"has two cases named {twice!r}; give each case its own name")


def parse_suite(document: Any) -> FenceTest:
    """Validate a FenceTest document.

    Raises:
        PolicyError: the document is invalid; its problems start with the path of a field.
    """
    return validated(document, FenceTest, "the suite")
