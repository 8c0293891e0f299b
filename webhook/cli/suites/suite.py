"""Suites of tests for a policy: ``apiVersion: gpufence.dev/v1alpha1``, ``kind: FenceTest``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from policies.document.model import Day, NonEmpty, RuleId, SubdomainName
from policies.document.parts import Part, sentences
from webhook.cli.errors import InputError
from webhook.cli.manifests.documents import Document, read_documents, unreadable
from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.files import is_directory, is_special_file, read_text
from webhook.cli.manifests.locate import locate
from webhook.cli.manifests.sentence import sentence
from webhook.cli.policy.policy_file import located

KIND = "FenceTest"
NAMES = ("gpufence-test.yaml", "gpufence-test.yml")
"""What the files are called, or end in after a dot."""


def _file_or_object(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and value.get("kind"):
        return value
    raise ValueError(
        f"is {value!r:.60}; write the path of a file with manifests, or an object with its kind"
    )


FileOrObject = Annotated[Any, BeforeValidator(_file_or_object)]
"""A path, relative to the suite's folder, or an object that is written out in the suite."""


class ExpectSpec(Part):
    """What a case expects; what is left out is not looked at."""

    verdict: Literal["allowed", "mutated", "denied", "skipped"] | None = Field(
        None, description="What gpufence check says of the object."
    )
    rules: list[RuleId] | None = Field(
        None, description="The rules that find something: these and no others."
    )
    excepted: list[RuleId] | None = Field(
        None, description="The rules whose findings an exception of the policy covers."
    )
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="What stands where in the object as it becomes: spec.tolerations[0].key, or a "
        "JSON pointer; null for what is not there.",
    )

    @model_validator(mode="after")
    def _check(self) -> ExpectSpec:
        if not self.model_fields_set:
            raise ValueError("expects nothing: name one of verdict, rules, excepted and values")
        return self


class CaseSpec(Part):
    """One object, what is known about it, and what is expected of the policy."""

    name: NonEmpty = Field(description="What is shown by the case, as a sentence.")
    manifest: FileOrObject = Field(description="The object that is judged.")
    object: NonEmpty | None = Field(
        None, description="Which one, where a file has several that make Pods: Job/train."
    )
    cluster: list[FileOrObject] = Field(
        default_factory=list,
        description="What the cluster has: Nodes, Namespaces, RuntimeClasses, DeviceClasses, "
        "ResourceClaims and their templates. The suite's come before them.",
    )
    namespace: SubdomainName | None = Field(
        None, description="The namespace of an object that names none."
    )
    username: str = Field("", description="Who asks.")
    operation: Literal["CREATE", "UPDATE"] = Field("CREATE", description="What is asked for.")
    old: dict[str, Any] | None = Field(None, description="The object as it was, on UPDATE.")
    today: Day | None = Field(None, description="The day on which exceptions expire or not.")
    expect: ExpectSpec = Field(description="What is expected.")

    @model_validator(mode="after")
    def _check(self) -> CaseSpec:
        if (self.operation == "UPDATE") != (self.old is not None):
            raise ValueError("operation: UPDATE and old go together: give both or neither")
        return self


class SuiteSpec(Part):
    """The document."""

    api_version: Literal["gpufence.dev/v1alpha1"] = Field(description="The document's version.")
    kind: Literal["FenceTest"] = Field(description="The document's kind.")
    policy: NonEmpty | None = Field(
        None, description="The policy's file; without one, the policy that ships with gpufence."
    )
    namespace: SubdomainName = Field(
        "default", description="The namespace of objects that name none."
    )
    cluster: list[FileOrObject] = Field(
        default_factory=list, description="What the cluster has, in every case."
    )
    today: Day | None = Field(
        None, description="The day on which exceptions expire or not; without one, none expires."
    )
    cases: list[CaseSpec] = Field(min_length=1, description="The cases.")

    @model_validator(mode="after")
    def _names_differ(self) -> SuiteSpec:
        names = [case.name for case in self.cases]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"has two cases named {twice!r}; give each its own name")
        return self


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite, and the document that it was read from."""

    document: Document
    spec: SuiteSpec

    @property
    def folder(self) -> Path:
        return Path(self.document.path).parent

    def line(self, case: int) -> int:
        """Return the line on which a case starts."""
        position = locate(self.document, ("cases", case), "")
        return position.line if position else self.document.line


def find(paths: Iterable[str]) -> list[str]:
    """Return the files of suites that ``paths`` name: files as they are, folders searched through.

    Raises:
        InputError: a folder holds no suites.
    """
    found: list[str] = []
    problems = []
    for path in paths:
        if is_directory(path):
            below = sorted(_below(path))
            found += below
            if not below:
                names = f"{NAMES[0]}, or *.{NAMES[0]}"
                problems.append(f"{path}: holds no suites: files called {names}.")
        else:
            found.append(path)
    if problems:
        raise InputError(problems)
    return list(dict.fromkeys(found))


def read(path: str) -> list[Suite]:
    """Return the suites of a file: mostly one, but every document is one.

    Raises:
        InputError: with a line for each problem.
    """
    try:
        documents = list(read_documents(path, read_text(path)))
    except ManifestError as error:
        raise InputError([sentence(unreadable(path, error), error)]) from error
    if broken := [(document, document.error) for document in documents if document.error]:
        raise InputError(sentence(document, error) for document, error in broken)
    if not documents:
        raise InputError([f"{path}: is empty. Write a document of kind {KIND}, or remove it."])
    return [Suite(document, _spec(document)) for document in documents]


def _spec(document: Document) -> SuiteSpec:
    if not isinstance(document.value, dict):
        raise InputError([f"{document.path}: a suite is a mapping with kind: {KIND}."])
    try:
        return SuiteSpec.model_validate(document.value)
    except ValidationError as error:
        raise InputError(
            located(document, problem) for problem in sentences(error, SuiteSpec, "the suite")
        ) from error


def _below(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = str(Path(parent, name))
            is_named = name in NAMES or name.endswith(tuple(f".{suffix}" for suffix in NAMES))
            if is_named and not is_special_file(path):
                yield path
