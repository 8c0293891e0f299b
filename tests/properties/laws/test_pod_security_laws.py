"""Check and mutation agree with Kubernetes' own Pod Security library and validation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import strategies
from cases.loading import cases_of_check
from laws.profile import law
from oracle.driver import Oracle
from oracle.pod_security_fixtures import fixtures
from pod_security_strategies import HARDENING, creatable_pods, pods
from policies.context import Context
from policies.engine import decide, validate
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes.pod_security import Level
from policies.policy import Hardening, Policy
from policies.rules.check_unrestricted_gpu_pod import ID, check
from specs import JSON
from typed import hardened, pod_of

pytestmark = pytest.mark.timeout(3600)

MINORS = st.integers(30, 37)
"""The minor versions of Kubernetes whose Pod Security is known."""
PINS = st.integers(26, 38)
"""Versions that a namespace may pin. The restricted profile of older ones lacks controls."""
NO_FACTS = Facts()
POLICY = strategies.policies()["one taint"]
LEVELS = get_args(Level)
CASES = [case.read()[0] for case in cases_of_check(ID) if case.name]
EXAMPLES = [obj for obj in CASES if obj["kind"] == "Pod"]


def findings(
    raw: JSON, level: Level = "restricted", facts: Facts = NO_FACTS, **settings: Any
) -> list[Finding]:
    policy = Policy(pools=(), hardening=Hardening(level, **settings))
    return list(check(pod_of(raw), Context(policy, Request(), facts)))


def reasons(
    raw: JSON, level: Level = "restricted", facts: Facts = NO_FACTS, **settings: Any
) -> tuple[str, ...]:
    return tuple(finding.reason for finding in findings(raw, level, facts, **settings))


def test_reasons_equal_the_library_for_every_official_fixture(
    oracle: Oracle, official_testdata: Path
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


def test_reasons_equal_the_library_for_every_case(oracle: Oracle) -> None:
    for level in LEVELS:
        verdicts = oracle.pod_security_each(EXAMPLES, level=level, defaulted=True, lenient=True)
        for raw, verdict in zip(EXAMPLES, verdicts, strict=True):
            known = [volume for volume in raw["spec"].get("volumes") or () if "teleport" in volume]
            if not known and not raw["spec"].get("hostNetwork"):
                assert reasons(raw, level) == verdict.reasons


@law
@given(batch=st.lists(pods(min_sources=1), min_size=1, max_size=10), minor=MINORS)
def test_reasons_equal_the_library_for_generated_pods(
    oracle: Oracle, batch: list[JSON], minor: int
) -> None:
    for level in LEVELS:
        verdicts = oracle.pod_security_each(batch, level=level, version=f"v1.{minor}")
        for raw, verdict in zip(batch, verdicts, strict=True):
            found = reasons(raw, level, Facts(kubernetes=minor))
            # Before 1.35, restricted had no control of its own for procMount.
            assert sorted(found) == sorted(verdict.reasons)


@law
@given(
    batch=st.lists(pods(min_sources=1), min_size=1, max_size=10),
    minor=MINORS,
    version=st.none() | MINORS,
    pinned=st.none() | PINS,
)
def test_a_pod_meets_the_version_of_the_policy_and_that_of_its_namespace(
    oracle: Oracle, batch: list[JSON], minor: int, version: int | None, pinned: int | None
) -> None:
    label = "pod-security.kubernetes.io/enforce"
    own, of_namespace = (f"v1.{each}" if each else "latest" for each in (version, pinned))
    labels = {label: "restricted", f"{label}-version": of_namespace}
    facts = Facts(kubernetes=minor, namespace_labels=labels)
    both = [oracle.pod_security_each(batch, version=f"v1.{v or minor}") for v in (version, pinned)]
    for raw, one, other in zip(batch, *both, strict=True):
        found = reasons(raw, facts=facts, version=own)
        assert set(found) == {*one.reasons, *other.reasons}


@law
@given(batch=st.lists(pods(min_sources=1), min_size=1, max_size=10), minor=MINORS, version=MINORS)
def test_a_profile_that_only_warns_says_what_it_would_reject_and_denies_nothing(
    oracle: Oracle, batch: list[JSON], minor: int, version: int
) -> None:
    own = f"v1.{version}"
    each = [oracle.pod_security_each(batch, level=level, version=own) for level in LEVELS]
    for raw, baseline, restricted in zip(batch, *each, strict=True):
        found = findings(raw, "baseline", Facts(kubernetes=minor), warn="restricted", version=own)
        denied = [finding.reason for finding in found if finding.action == "enforce"]
        warned = [finding.reason for finding in found if finding.action == "warn"]
        assert sorted(denied) == sorted(baseline.reasons)
        assert {*warned} <= {*restricted.reasons}
        assert bool(found) != (baseline.allowed and restricted.allowed)
        if baseline.allowed:
            assert sorted(warned) == sorted(restricted.reasons)


@law
@given(batch=st.lists(pods(min_sources=1), min_size=1, max_size=10))
def test_details_contain_every_value_that_the_library_names(
    oracle: Oracle, batch: list[JSON]
) -> None:
    """Whatever the library puts in quotes (containers, values), the finding names too."""
    for raw, verdict in zip(batch, oracle.pod_security_each(batch), strict=True):
        if any(len(volume) > 2 for volume in raw["spec"].get("volumes") or ()):
            continue  # with two sources, which the API rejects, either is named
        for finding, detail in zip(findings(raw), verdict.details, strict=True):
            plain = re.sub(r'[\w./]+=\\?"[^"]*"', "", detail)  # annotations
            for name in re.findall(r'"([\w./-]+)"', plain):
                assert name in finding.detail, detail


@law
@given(batch=st.lists(pods(), min_size=1, max_size=10))
def test_defaults_of_the_api_server_do_not_change_the_verdict(
    oracle: Oracle, batch: list[JSON]
) -> None:
    """A webhook sees them, a file has none yet: a volume without a source is an emptyDir."""
    defaulted = [validation.pod for validation in oracle.validate_each(batch)]
    for level in LEVELS:
        verdicts = oracle.pod_security_each(batch, level=level, defaulted=True)
        for raw, whole, verdict in zip(batch, defaulted, verdicts, strict=True):
            assert reasons(whole, level) == verdict.reasons
            assert bool(findings(raw, level)) != verdict.allowed


@law
@given(strategies.gpu_pods(), st.booleans())
def test_a_gpu_pod_without_security_fields_passes_after_mutation(
    oracle: Oracle, pod: JSON, on_windows: bool
) -> None:
    spec = pod["spec"]
    for unset in ("securityContext", "volumes", "hostNetwork", "hostPID", "hostIPC"):
        spec.pop(unset, None)
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            container.pop("securityContext", None)
    if on_windows:
        spec["os"] = {"name": "windows"}
    mutated = decide(pod, POLICY).mutated
    assert all(finding.rule != ID for finding in validate(mutated, POLICY).findings)
    assert oracle.pod_security(mutated, lenient=True).allowed


@law
@given(batch=st.lists(creatable_pods(), min_size=1, max_size=10), policy=HARDENING)
def test_the_api_server_still_accepts_a_valid_pod_after_the_mutation(
    oracle: Oracle, batch: list[JSON], policy: Policy
) -> None:
    verdicts = zip(batch, oracle.validate_each(batch), strict=True)
    valid = [raw for raw, verdict in verdicts if verdict.valid]
    assume(valid)
    after = [hardened(raw, policy) for raw in valid]
    for raw, verdict in zip(after, oracle.validate_each(after), strict=True):
        assert verdict.valid, (raw, verdict.errors)
