"""``gpufence test``: suites of cases for a policy, files of kind FenceTest.

Cases run with the engine of the webhook and ``check``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from policies.document import PolicyError
from policies.facts import Request
from policies.policy import Policy
from webhook.cli.fence_test import KIND, Case, Expected, FenceTest, parse_suite
from webhook.cli.manifests.evaluate import Complete, Result, evaluate, read_manifests
from webhook.cli.manifests.files import is_directory, is_special_file
from webhook.cli.report.content import Failure, Outcome
from webhook.cli.report.difference import difference
from webhook.cluster.state import ClusterState
from webhook.documents.documents import Document, load_documents, raise_errors
from webhook.documents.errors import InputError
from webhook.documents.fields import ABSENT, field_value, locate
from webhook.documents.objects import Manifest
from webhook.documents.policy_files import load_policy, located

NAMES = ("gpufence-test.yaml", "gpufence-test.yml")
"""The names of suite files. Names that end in one of these after a dot count as well."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite, and the document that it is read from."""

    document: Document
    spec: FenceTest

    @property
    def directory(self) -> Path:
        return Path(self.document.path).parent

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
        InputError: with a line for each problem.
    """
    documents = load_documents(path)
    if not documents:
        raise InputError([f"{path}: is empty. Write a document of kind {KIND}, or remove it."])
    return [Suite(document, _spec(document)) for document in documents]


def _spec(document: Document) -> FenceTest:
    try:
        return parse_suite(document.value)
    except PolicyError as error:
        raise InputError(located(document, problem) for problem in error.problems) from error


def _below(directory: str) -> Iterator[str]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in files:
            path = str(Path(parent, name))
            is_named = name in NAMES or name.endswith(tuple(f".{suffix}" for suffix in NAMES))
            if is_named and not is_special_file(path):
                yield path


def policy_of(suite: Suite) -> Policy:
    """Return the policy of a suite.

    Raises:
        InputError: the policy cannot be read, or is invalid.
    """
    path = suite.spec.policy
    return load_policy(None if path is None else str(suite.directory / path))


def run(suite: Suite, policy: Policy) -> Iterator[Outcome]:
    """Yield the outcome of each case, in order."""
    for number, case in enumerate(suite.spec.cases):
        path, line = suite.document.path, suite.line(number)
        try:
            result = _judged(suite, number, case, policy)
        except InputError as error:
            yield Outcome(path, line, case.name, error=" ".join(error.lines))
            continue
        failures = tuple(_failures(case.expect, result))
        yield Outcome(path, line, case.name, failures, exercised=_exercised(result))


def _judged(suite: Suite, number: int, case: Case, policy: Policy) -> Result:
    """Decide on the object of a case, with the objects in its cluster.

    Raises:
        InputError: a manifest cannot be read, or the case does not identify its object.
    """
    at = ("cases", number)
    cluster = [
        *_manifests(suite, ("cluster",), suite.spec.cluster),
        *_manifests(suite, (*at, "cluster"), case.cluster),
    ]
    own = _manifests(suite, at, [case.manifest], key="manifest")
    namespace = case.namespace or suite.spec.namespace
    # Without a date no exception expires, so that a suite does not fail later by itself.
    today = case.today or suite.spec.today or date.min
    request = Request(
        namespace=namespace,
        username=case.username,
        operation=case.operation,
        old=case.old,
        today=today,
    )
    judged = evaluate([*cluster, *own], policy, request, _facts_of(cluster, policy))
    return _subject(case, list(judged)[len(cluster) :])


def _facts_of(cluster: Iterable[Manifest], policy: Policy) -> Complete:
    """Return a function that adds the nodes and RuntimeClasses of a case's cluster to other facts.

    Raises:
        InputError: an object of the cluster is invalid.
    """
    state = ClusterState(policy)
    for manifest in cluster:
        obj = manifest.value or {}
        try:
            state.put(obj)
        except ValueError as problem:
            kind = obj.get("kind")
            raise InputError([f"a {kind} of the cluster is invalid: {problem}."]) from problem
    nodes, runtime_classes = state.nodes.index or None, state.runtime_classes.all or None
    return lambda _request, facts, _obj: replace(
        facts, nodes=nodes, templates=state.templates, runtime_classes=runtime_classes
    )


def _manifests(
    suite: Suite, at: tuple[str | int, ...], entries: Sequence[Any], key: str = ""
) -> list[Manifest]:
    """Return the manifests of files, and of objects that are written in the suite.

    Raises:
        InputError: a file cannot be read, or holds something else than objects.
    """
    manifests: list[Manifest] = []
    for index, entry in enumerate(entries):
        if isinstance(entry, str):
            manifests += read_manifests([_file(suite, entry)])
        else:
            path = (*at, key or index)
            manifests.append(Manifest(suite.document, None, path, suite.document.line, entry))
    raise_errors((manifest.document, manifest.error) for manifest in manifests)
    return manifests


def _file(suite: Suite, name: str) -> str:
    """Return the path of a file that a suite names.

    Raises:
        InputError: it is a device or a pipe, which has no end; a suite may be of a pull request.
    """
    path = str(suite.directory / name)
    if is_special_file(path) and not is_directory(path):
        raise InputError([f"{path}: is not a regular file. Name a file, a directory or a chart."])
    return path


def _subject(case: Case, judged: Sequence[Result]) -> Result:
    """Return the object of a case.

    Raises:
        InputError: the case does not identify exactly one object.
    """
    raise_errors((result.manifest.document, result.error) for result in judged)
    names = {_name(result): result for result in judged}
    if case.object is not None:
        if case.object in names:
            return names[case.object]
        raise InputError([f"{case.object} is not in the manifest, which has {', '.join(names)}."])
    makers = [r for r in judged if r.decision is not None and r.decision.has_template]
    makers = makers or list(judged)
    if len(makers) == 1:
        return makers[0]
    several = f"{', '.join(_name(result) for result in makers)}; select one with object"
    raise InputError([f"the manifest has {several}." if makers else "the manifest has no object."])


def _name(result: Result) -> str:
    return f"{result.kind}/{result.name}"


def _failures(expect: Expected, result: Result) -> Iterator[Failure]:
    decision = result.decision
    if decision is None:
        return
    findings = tuple(f"{f.action} {f.rule}: {f.message}" for f in decision.findings)
    if expect.verdict is not None and expect.verdict != result.verdict:
        yield Failure(f"expected verdict {expect.verdict}, but got {result.verdict}", findings)
        findings = ()
    if expect.rules is not None:
        rules = [finding.rule for finding in decision.findings]
        if set(expect.rules) != set(rules):
            message = f"expected findings of {_listed(expect.rules)}, but got findings of"
            yield Failure(f"{message} {_listed(rules)}", findings)
    if expect.excepted is not None:
        rules = [finding.rule for finding in decision.excepted]
        if set(expect.excepted) != set(rules):
            message = f"expected exceptions for {_listed(expect.excepted)}, but got exceptions for"
            yield Failure(f"{message} {_listed(rules)}")
    for path, value in expect.values.items():
        actual = field_value(decision.mutated, path)
        if value != (None if actual is ABSENT else actual):
            yield _other_value(path, value, actual)


def _other_value(path: str, expected: Any, actual: Any) -> Failure:
    if isinstance(expected, dict | list) and isinstance(actual, dict | list):
        return Failure(f"{path} is not as expected", tuple(difference(expected, actual)))
    return Failure(f"expected {_shown(expected)} at {path}, but got {_shown(actual)}")


def _shown(value: Any) -> str:
    return "nothing" if value is None or value is ABSENT else json.dumps(value)


def _listed(rules: Iterable[str]) -> str:
    return ", ".join(sorted(set(rules))) or "no rule"


def _exercised(result: Result) -> frozenset[str]:
    decision = result.decision
    if decision is None:
        return frozenset()
    findings = (*decision.findings, *decision.excepted)
    return frozenset({*(finding.rule for finding in findings), *decision.mutations})
