"""``gpufence test``: suites of cases for a policy, files of kind FenceTest.

Cases run with the engine of the webhook and ``check``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec.structs import replace

from policies.document import PolicyError, validated
from policies.facts import Facts, Request
from policies.kubernetes.field_types import NOT_EMPTY, Day, NonEmpty, Part, SubdomainName, before
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import descend, steps
from policies.policy import Policy, RuleId
from webhook.cluster.files import state_of
from webhook.documents.document import Document, InputError, raise_errors
from webhook.documents.files import load_documents
from webhook.documents.objects import Manifest, locate
from webhook.documents.policy_files import load_policy, located
from webhook.tools.cli.evaluate import Result, evaluate
from webhook.tools.cli.manifests import is_directory, is_special_file, read_manifests
from webhook.tools.cli.report.content import Failure, Outcome
from webhook.tools.cli.yaml_writer import difference

NAMES = ("gpufence-test.yaml", "gpufence-test.yml")
"""The names of suite files. Names that end in one of these after a dot count as well."""

KIND = "FenceTest"


def _file_or_object(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and value.get("kind"):
        return value
    raise ValueError(
        f"is {value!r:.60}; write the path of a manifest file, or an object with its kind"
    )


FileOrObject = Annotated[Any, before(_file_or_object)]
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

    api_version: Literal["gpufence.dev/v1beta1"]
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
    cases: Annotated[tuple[Case, ...], NOT_EMPTY]
    """The cases."""

    def __post_init__(self) -> None:
        names = [case.name for case in self.cases]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"has two cases named {twice!r}; give each case its own name")


class Suite(NamedTuple):
    """A suite, the document that it is read from, and its policy."""

    document: Document
    spec: FenceTest
    policy: Policy

    def line(self, case: int) -> int:
        """Return the line on which a case starts."""
        position = locate(self.document, ("cases", case), "")
        return position.line if position else self.document.line


def find(paths: Iterable[str]) -> list[str]:
    """Return the suite files that ``paths`` name: files, and directories with all below them.

    Raises:
        InputError: a directory holds no suites.
    """
    files: list[str] = []
    problems = []
    for path in paths:
        if is_directory(path):
            below = sorted(_below(path))
            files += below
            if not below:
                names = f"{NAMES[0]} or *.{NAMES[0]}"
                problems.append(f"{path}: no suites found. Name suite files {names}.")
        else:
            files.append(path)
    if problems:
        raise InputError(problems)
    return list(dict.fromkeys(files))


def read(path: str) -> list[Suite]:
    """Return the suites of a file: each document is one.

    Raises:
        InputError: a suite or its policy is invalid; with a line for each problem.
    """
    documents = load_documents(path)
    if not documents:
        raise InputError([f"{path}: is empty. Write a document of kind {KIND}, or remove it."])
    return [_suite(document) for document in documents]


def _suite(document: Document) -> Suite:
    try:
        spec = validated(document.value, FenceTest, "the suite")
    except PolicyError as error:
        raise InputError(located(document, problem) for problem in error.problems) from error
    path = spec.policy and _path(document, spec.policy)
    return Suite(document, spec, load_policy(path))


def _path(document: Document, name: str) -> str:
    """Return the path of a file that a suite names."""
    return str(Path(document.path).parent / name)


def _below(directory: str) -> Iterator[str]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in files:
            path = str(Path(parent, name))
            is_named = name in NAMES or name.endswith(tuple(f".{suffix}" for suffix in NAMES))
            if is_named and not is_special_file(path):
                yield path


def run(suite: Suite) -> Iterator[Outcome]:
    """Yield the outcome of each case, in order."""
    for number, case in enumerate(suite.spec.cases):
        path, line = suite.document.path, suite.line(number)
        try:
            result = _judged(suite, number, case)
        except InputError as error:
            yield Outcome(path, line, case.name, error=" ".join(error.lines))
            continue
        failures = tuple(_failures(case.expect, result))
        yield Outcome(path, line, case.name, failures)


def _judged(suite: Suite, number: int, case: Case) -> Result:
    """Decide on the object of a case, with the objects in its cluster.

    Raises:
        InputError: a manifest or an object of the cluster is invalid, or the case does not identify
            its object.
    """
    at = ("cases", number)
    cluster = [
        *_manifests(suite.document, ("cluster",), suite.spec.cluster),
        *_manifests(suite.document, (*at, "cluster"), case.cluster),
    ]
    own = _manifests(suite.document, at, [case.manifest], key="manifest")
    state = state_of(cluster, suite.policy)
    nodes = state.nodes.index or None

    def complete(_request: Request, facts: Facts, _obj: JSONObject) -> Facts:
        return replace(
            facts,
            nodes=nodes,
            templates=state.templates,
            runtime_classes=state.runtime_classes.by_name,
        )

    request = Request(
        namespace=case.namespace or suite.spec.namespace,
        username=case.username,
        operation=case.operation,
        old=case.old,
        # Without a date no exception expires, so that a suite does not fail later by itself.
        today=case.today or suite.spec.today or date.min,
    )
    judged = evaluate([*cluster, *own], suite.policy, request, complete)
    return _subject(case, list(judged)[len(cluster) :])


def _manifests(
    document: Document, at: tuple[str | int, ...], entries: Sequence[Any], key: str = ""
) -> list[Manifest]:
    """Return the manifests of files, and of objects that are written in the suite.

    Raises:
        InputError: a file cannot be read, or holds something else than objects.
    """
    manifests: list[Manifest] = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, str):
            path = (*at, key or index)
            manifests.append(Manifest(document, None, path, document.line, entry))
            continue
        file = _path(document, entry)
        if is_special_file(file) and not is_directory(file):
            # A device or a pipe has no end, and a suite may be of a pull request.
            cure = "Name a file or a directory"
            raise InputError([f"{file}: is not a regular file. {cure}."])
        manifests += read_manifests([file])
    raise_errors((manifest.document, manifest.error) for manifest in manifests)
    return manifests


def _subject(case: Case, judged: Sequence[Result]) -> Result:
    """Return the object of a case.

    Raises:
        InputError: the case does not identify exactly one object.
    """
    raise_errors((result.manifest.document, result.error or result.duplicate) for result in judged)
    names = {_name(result): result for result in judged}
    if case.object is not None:
        if case.object in names:
            return names[case.object]
        raise InputError([f"{case.object} is not in the manifest, which has {', '.join(names)}."])
    makers = [result for result in judged if result.decision.has_template]
    makers = makers or list(judged)
    if len(makers) == 1:
        return makers[0]
    several = f"{', '.join(_name(result) for result in makers)}; select one with object"
    raise InputError([f"the manifest has {several}." if makers else "the manifest has no object."])


def _name(result: Result) -> str:
    return f"{result.kind}/{result.name}"


def _failures(expect: Expected, result: Result) -> Iterator[Failure]:
    decision = result.decision
    findings = tuple(f"{f.action} {f.rule}: {f.message}" for f in decision.findings)
    if expect.verdict is not None and expect.verdict != result.verdict:
        yield Failure(f"expected verdict {expect.verdict}, but got {result.verdict}", findings)
        findings = ()
    for what, expected, found, lines in (
        ("findings of", expect.rules, decision.findings, findings),
        ("exceptions for", expect.excepted, decision.excepted, ()),
    ):
        rules = {finding.rule for finding in found}
        if expected is not None and set(expected) != rules:
            message = f"expected {what} {_listed(expected)}, but got {what} {_listed(rules)}"
            yield Failure(message, lines)
    for path, value in expect.values.items():
        actual = descend(decision.mutated, steps(path))
        if value != actual:
            if isinstance(value, dict | list) and isinstance(actual, dict | list):
                yield Failure(f"{path} is not as expected", tuple(difference(value, actual)))
            else:
                yield Failure(f"expected {_shown(value)} at {path}, but got {_shown(actual)}")


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


def _listed(rules: Iterable[str]) -> str:
    return ", ".join(sorted(set(rules))) or "no rule"
