"""GPU Pods meet Pod Security exactly when Kubernetes' own library says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import strategies
from laws.profile import law
from oracle.driver import Oracle
from oracle.pod_security_fixtures import fixtures
from pod_security_strategies import creatable_pods, pods
from policies.engine import decide, validate
from policies.kubernetes.editor import clone
from policies.rules.check_unrestricted_gpu_pod import ID
from strategies import JSON

pytestmark = pytest.mark.timeout(3600)

POLICY = strategies.policies()["one taint"]


def as_gpu_pod(pod: JSON) -> JSON:
    """Return the Pod with a GPU in its first container, or in one of its own where it has none."""
    changed: JSON = clone(pod)
    changed.setdefault("apiVersion", "v1")
    changed.setdefault("kind", "Pod")
    containers = changed["spec"].get("containers") or [{"name": "gpu", "image": "cuda"}]
    containers[0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    changed["spec"]["containers"] = containers
    return changed


def passes(pod: JSON) -> bool:
    return all(finding.rule != ID for finding in validate(pod, POLICY).findings)


@law
@given(pods(min_sources=1))
def test_a_gpu_pod_passes_exactly_if_the_official_library_allows_it(
    oracle: Oracle, pod: JSON
) -> None:
    gpu_pod = as_gpu_pod(pod)
    allowed = oracle.pod_security(gpu_pod).allowed
    event(f"allowed: {allowed}")
    assert passes(gpu_pod) is allowed


@law
@given(creatable_pods())
def test_mutated_pods_get_the_verdict_of_the_official_library(oracle: Oracle, pod: JSON) -> None:
    mutated = decide(as_gpu_pod(pod), POLICY).mutated
    allowed = oracle.pod_security(mutated, defaulted=True).allowed
    event(f"allowed: {allowed}")
    assert passes(mutated) is allowed


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
    assert passes(mutated)
    assert oracle.pod_security(mutated, lenient=True).allowed


def test_official_fixtures_as_gpu_pods_have_the_official_verdict(
    oracle: Oracle, official_testdata: Path
) -> None:
    official = [fixture for fixture in fixtures(official_testdata) if fixture.level == "restricted"]
    assert len(official) > 50
    for fixture in official:
        gpu_pod = as_gpu_pod(fixture.pod)
        allowed = oracle.pod_security(gpu_pod, defaulted=True).allowed
        assert allowed is fixture.allowed, str(fixture)
        assert passes(gpu_pod) is allowed, str(fixture)
