"""The check `unrestricted-gpu-pod`: the official library has the same outcome.

The cases of the rule show what each control finds, word for word.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases.loading import Case, cases_of_check
from oracle.driver import Oracle
from oracle.pod_security_fixtures import fixtures
from pod_security_strategies import pods
from policies.context import Context
from policies.facts import Facts, Request
from policies.kubernetes.pod_security import CONTROLS, Level, violations
from policies.kubernetes.pod_security.view import HARDENED
from policies.policy import Hardening, Policy
from policies.rules.check_unrestricted_gpu_pod import ID, check
from typed import pod_of

if TYPE_CHECKING:
    from policies.finding import Finding

JSON = dict[str, Any]

LEVELS = get_args(Level)
CASES = {case.name: case for case in cases_of_check(ID) if case.name}


def example(case: Case) -> JSON:
    return case.read()[0]


EXAMPLES = [example(case) for case in CASES.values() if example(case)["kind"] == "Pod"]


def findings(raw: JSON, level: Level = "restricted") -> list[Finding]:
    policy = Policy(pools=(), hardening=Hardening(level))
    return list(check(pod_of(raw), Context(policy, Request(), Facts())))


def reasons(raw: JSON, level: Level = "restricted") -> tuple[str, ...]:
    return tuple(finding.reason for finding in findings(raw, level))


@pytest.mark.parametrize("level", LEVELS)
def test_one_pod_can_violate_every_control(level: Level) -> None:
    """And the cases show the findings in the official order."""
    assert len(reasons(example(CASES["every-control"]), level)) == len(CONTROLS[level])


@pytest.mark.timeout(900)
class TestOfficialLibrary:
    """The first of these tests may have to build it."""

    def test_reasons_equal_the_library_for_every_official_fixture(
        self, oracle: Oracle, official_testdata: Path
    ) -> None:
        official = fixtures(official_testdata)
        assert len(official) > 100
        for level in LEVELS:
            raws = [fixture.pod for fixture in official]
            verdicts = oracle.pod_security_each(raws, level=level, defaulted=True)
            for fixture, verdict in zip(official, verdicts, strict=True):
                assert reasons(fixture.pod, level) == verdict.reasons, f"{fixture} by {level}"
                if fixture.level == level:
                    assert (not findings(fixture.pod, level)) == fixture.allowed, str(fixture)

    def test_reasons_equal_the_library_for_every_case(self, oracle: Oracle) -> None:
        for level in LEVELS:
            verdicts = oracle.pod_security_each(EXAMPLES, level=level, defaulted=True, lenient=True)
            for raw, verdict in zip(EXAMPLES, verdicts, strict=True):
                known = [
                    volume for volume in raw["spec"].get("volumes") or () if "teleport" in volume
                ]
                if not known and not raw["spec"].get("hostNetwork"):
                    assert reasons(raw, level) == verdict.reasons

    @settings(max_examples=150)
    @given(batch=st.lists(pods(min_sources=1), min_size=1, max_size=10))
    def test_reasons_equal_the_library_for_generated_pods(
        self, oracle: Oracle, batch: list[JSON]
    ) -> None:
        for level in LEVELS:
            verdicts = oracle.pod_security_each(batch, level=level)
            for raw, verdict in zip(batch, verdicts, strict=True):
                assert reasons(raw, level) == verdict.reasons
                assert bool(findings(raw, level)) != verdict.allowed

    @settings(max_examples=80)
    @given(batch=st.lists(pods(min_sources=1), min_size=1, max_size=10))
    def test_details_contain_every_value_that_the_library_names(
        self, oracle: Oracle, batch: list[JSON]
    ) -> None:
        """Whatever the library puts in quotes (containers, values), the finding names too."""
        for raw, verdict in zip(batch, oracle.pod_security_each(batch), strict=True):
            if any(len(volume) > 2 for volume in raw["spec"].get("volumes") or ()):
                continue  # with two sources, which the API rejects, either is named
            for finding, detail in zip(findings(raw), verdict.details, strict=True):
                plain = re.sub(r'[\w./]+=\\?"[^"]*"', "", detail)  # annotations
                for name in re.findall(r'"([\w./-]+)"', plain):
                    assert name in finding.detail, detail

    @settings(max_examples=80)
    @given(batch=st.lists(pods(), min_size=1, max_size=10))
    def test_defaults_of_the_api_server_do_not_change_the_verdict(
        self, oracle: Oracle, batch: list[JSON]
    ) -> None:
        """A webhook sees them, a file has none yet: a volume without a source is an emptyDir."""
        defaulted = [validation.pod for validation in oracle.validate_each(batch)]
        for level in LEVELS:
            verdicts = oracle.pod_security_each(batch, level=level, defaulted=True)
            for raw, whole, verdict in zip(batch, defaulted, verdicts, strict=True):
                assert reasons(whole, level) == verdict.reasons
                assert bool(findings(raw, level)) != verdict.allowed


@settings(max_examples=300)
@given(raw=pods(), level=st.sampled_from(LEVELS))
def test_consequences_are_left_out_only_if_their_cause_is_found(raw: JSON, level: Level) -> None:
    """Where gpufence adds the fields of the profile, the author makes one edit for each finding."""
    pod = pod_of(raw)
    every = violations(pod, level)
    causes = violations(pod, level, completed=True)
    assert {violation.reason for violation in causes} <= {violation.reason for violation in every}
    assert bool(causes) == bool(every)


def test_the_check_does_not_modify_the_pod() -> None:
    for raw in EXAMPLES:
        before = copy.deepcopy(raw)
        findings(raw)
        assert raw == before


@pytest.mark.parametrize("level", LEVELS)
def test_no_control_finds_anything_in_the_context_that_gpufence_adds(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    smallest = pod_of(example(CASES["the-smallest-pod"]))
    assert smallest.containers()[0].security_context == HARDENED
    skipping = [findings(raw, level) for raw in EXAMPLES]
    # An ID that no example has: every container is judged.
    monkeypatch.setattr(HARDENED, "run_as_user", 123456789)
    assert [findings(raw, level) for raw in EXAMPLES] == skipping
