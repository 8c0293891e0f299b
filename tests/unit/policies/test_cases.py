"""Every case on disk has the outcome in its expected file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cases.loading import (
    HERE,
    Case,
    as_written,
    cases_of_check,
    cases_of_mutation,
    compiled,
    dump,
    load_all,
)
from each import each
from policies.decision import Decision
from policies.engine import decide
from policies.kubernetes.objects import MalformedObjectError
from policies.registry import CHECKS, MUTATIONS, RULES, Rule

GOLDEN = bool(os.environ.get("GPUFENCE_GOLDEN"))
"""Write the expected outcomes instead of comparing with them."""


def cases_of(rule: Rule) -> list[Case]:
    return [*cases_of_check(rule.id), *cases_of_mutation(rule.id)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_has_the_expected_findings(check: Rule) -> None:
    def finds(case: Case) -> None:
        decision = case.decide()
        fixes = case.fixes(case.object, decision.findings)
        findings = [as_written(found, fixes.get(found, ())) for found in decision.findings]
        assert bool(findings) is not case.passes, findings
        assert_outcome(case, case.expected, findings or None)
        assert_same_in_a_deployment(case, decision)

    cases = cases_of_check(check.id)
    assert {case.passes for case in cases} == {True, False}, "a case of either kind"
    each(cases, finds)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_a_mutation_has_the_expected_result(mutation: Rule) -> None:
    found = set()

    def changes(case: Case) -> None:
        decision = case.decide()
        found.add(bool(decision.operations))
        findings = [as_written(finding) for finding in decision.findings]
        assert_outcome(case, case.expected, findings or None)
        assert case.after is not None
        assert_outcome(case, case.after, decision.mutated if decision.operations else None)
        assert_same_in_a_deployment(case, decision)

    each(cases_of_mutation(mutation.id), changes)
    assert found == {True, False}, "a case of either kind"


def assert_same_in_a_deployment(case: Case, alone: Decision) -> None:
    """Compare the decision on a Pod with that on a Deployment of the Pod."""
    pod = case.object
    # API servers validate the limits in a template before they call gpufence.
    if pod["kind"] != "Pod" or case.is_update or case.manifest.stem == "a-request-only-in-a-pod":
        return
    template = {field: pod[field] for field in ("metadata", "spec")}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": pod["metadata"]}
    inside = case.decide(deployment | {"spec": {"template": template}})
    assert inside.mutated["spec"]["template"]["spec"] == alone.mutated["spec"]
    findings = [(f.rule, f"spec.template.{f.path}", f.reason) for f in alone.findings]
    assert [(f.rule, f.path, f.reason) for f in inside.findings] == findings


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_an_object_without_one_of_its_fields_is_judged_or_malformed(rule: Rule) -> None:
    def without(case: Case) -> None:
        obj, document, request, facts = case.read()
        policy = compiled(document)
        for parent, key in fields(obj):
            value, parent[key] = parent[key], None
            with suppress(MalformedObjectError):
                assert not decide(obj, policy, request, facts).checked().failures
            parent[key] = value

    each(cases_of(rule), without)


def fields(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each field of an object: what contains it, and its key or index."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from fields(item)


def test_every_file_in_the_cases_directory_is_used() -> None:
    cases = [case for rule in RULES for case in cases_of(rule)]
    read = {file for case in cases for file in (case.manifest, case.expected, case.after)}
    ours = {HERE / "README.md", *HERE.glob("*.py"), *(HERE / "policies").glob("*.yaml")}
    found = {path for path in HERE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert found - ours - read == set()


def test_case_names_are_words_in_kebab_case() -> None:
    names = [Path(str(case)).name for rule in RULES for case in cases_of(rule)]
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)] == []


def assert_outcome(case: Case, file: Path, outcome: Any) -> None:
    """Compare with the file, where ``None`` stands for nothing; or write it if it differs.

    A file for several cases has their outcomes by their names.
    """
    if GOLDEN and as_json(expected(case, file)) != as_json(outcome):
        content = (content_of(file) or {}) | {case.name: outcome} if case.name else outcome
        if case.name:
            content = {name: each for name, each in content.items() if each is not None} or None
        if content is None:
            file.unlink()
        else:
            file.write_text(dump(content))
    assert as_json(expected(case, file)) == as_json(outcome), file.relative_to(HERE)


def expected(case: Case, file: Path) -> Any:
    content = content_of(file)
    return (content or {}).get(case.name) if case.name else content


def content_of(file: Path) -> Any:
    (content,) = load_all(file.read_text()) if file.exists() else (None,)
    return content


def as_json(content: Any) -> str:
    """Return JSON text: to Python, 1, True and 1.0 are equal; not to Kubernetes."""
    return json.dumps(content, indent=1)
