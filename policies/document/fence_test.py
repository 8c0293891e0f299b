"""The FenceTest document: test cases for a policy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from policies.document.model import Day, NonEmpty, PolicyError, RuleId, SubdomainName
from policies.document.parts import Part, sentences

KIND = "FenceTest"


def _file_or_object(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and value.get("kind"):
        return value
    raise ValueError(
        f"is {value!r:.60}; write the path of a manifest file, or an object with its kind"
    )


FileOrObject = Annotated[Any, BeforeValidator(_file_or_object)]
"""A path, relative to the suite's directory, or an object that is written in the suite."""


class ExpectSpec(Part):
    """What a case expects. gpufence does not compare absent fields."""

    verdict: Literal["allowed", "mutated", "denied", "unknown", "skipped"] | None = Field(
        None, description="The verdict of gpufence check on the object."
    )
    rules: list[RuleId] | None = Field(
        None, description="The rules that have findings: exactly these."
    )
    excepted: list[RuleId] | None = Field(
        None, description="The rules whose findings an exception of the policy covers."
    )
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of the mutated object, by field path (spec.tolerations[0].key) or JSON "
        "pointer. null means that the field is absent.",
    )

    @model_validator(mode="after")
    def _check(self) -> ExpectSpec:
        if not self.model_fields_set:
            raise ValueError("is empty; set at least one of verdict, rules, excepted and values")
        return self


class CaseSpec(Part):
    """One object, the request and the cluster around it, and the expected result."""

    name: NonEmpty = Field(description="What the case shows, as a sentence.")
    manifest: FileOrObject = Field(description="The object to check: a file or an object.")
    object: NonEmpty | None = Field(
        None, description="Which object of a file that holds several: Job/train."
    )
    cluster: list[FileOrObject] = Field(
        default_factory=list,
        description="Objects in the cluster: Nodes, Namespaces, RuntimeClasses, DeviceClasses, "
        "ResourceClaims and their templates. They are added to those of the suite.",
    )
    namespace: SubdomainName | None = Field(
        None, description="The namespace of objects that do not set one."
    )
    username: str = Field("", description="The user of the request.")
    operation: Literal["CREATE", "UPDATE"] = Field(
        "CREATE", description="The operation of the request."
    )
    old: dict[str, Any] | None = Field(None, description="The old object of an UPDATE.")
    today: Day | None = Field(
        None, description="The date on which exceptions are evaluated: YYYY-MM-DD."
    )
    expect: ExpectSpec = Field(description="The expected result.")

    @model_validator(mode="after")
    def _check(self) -> CaseSpec:
        if (self.operation == "UPDATE") != (self.old is not None):
            raise ValueError("sets only one of operation: UPDATE and old; set both or neither")
        return self


class SuiteSpec(Part):
    """The document."""

    api_version: Literal["gpufence.dev/v1alpha1"] = Field(description="The API version.")
    kind: Literal["FenceTest"] = Field(description="The kind.")
    policy: NonEmpty | None = Field(
        None, description="Path of the policy file. The default is gpufence's default policy."
    )
    namespace: SubdomainName = Field(
        "default", description="The namespace of objects that do not set one."
    )
    cluster: list[FileOrObject] = Field(
        default_factory=list, description="Objects in the cluster, for every case."
    )
    today: Day | None = Field(
        None,
        description="The date on which exceptions are evaluated: YYYY-MM-DD. Without a date, no "
        "exception expires.",
    )
    cases: list[CaseSpec] = Field(min_length=1, description="The cases.")

    @model_validator(mode="after")
    def _names_differ(self) -> SuiteSpec:
        names = [case.name for case in self.cases]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"has two cases named {twice!r}; give each case its own name")
        return self


def parse_suite(document: Any) -> SuiteSpec:
    """Validate a FenceTest document.

    Raises:
        PolicyError: the document is invalid; its problems start with the path of a field.
    """
    if not isinstance(document, dict):
        raise PolicyError([f"the suite: must be a mapping with kind: {KIND}"])
    try:
        return SuiteSpec.model_validate(document)
    except ValidationError as error:
        raise PolicyError(list(sentences(error, SuiteSpec, "the suite"))) from error
