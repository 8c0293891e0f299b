"""The oracle answers what documentation states, so that a comparison with it means something."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.binaries import VERSION
from oracle.driver import Oracle, OracleError
from oracle.pod_security_fixtures import latest

pytestmark = pytest.mark.timeout(900)
"""The first test of a session may have to build the oracle."""

Pod = dict[str, Any]

CONTAINER = {
    "name": "main",
    "image": "registry.example/app",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    },
}
RESTRICTED: Pod = {
    "metadata": {"name": "pod"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [CONTAINER],
    },
}


def merged(base: Any, change: Any) -> Any:
    """Return a copy of `base` with `change` laid over it, by RFC 7386 (null removes)."""
    if not isinstance(change, dict) or not isinstance(base, dict):
        return copy.deepcopy(change)
    result = copy.deepcopy(base)
    for key, value in change.items():
        result[key] = merged(base.get(key), value)
        if value is None:
            del result[key]
    return result


def restricted(spec: Pod | None = None, *, container: Pod | None = None, **metadata: Any) -> Pod:
    """Return a Pod that `restricted` allows, with these changes."""
    containers = [merged(CONTAINER, container or {})]
    result: Pod = merged(
        RESTRICTED, {"metadata": metadata, "spec": {"containers": containers, **(spec or {})}}
    )
    return result


class TestAbout:
    def test_has_the_kubernetes_version_of_the_control_plane(self, oracle: Oracle) -> None:
        modules = oracle.about().modules
        assert modules["k8s.io/kubernetes"] == VERSION
        staging = VERSION.replace("v1.", "v0.", 1)
        for name in ("api", "apimachinery", "component-helpers", "pod-security-admission"):
            assert modules[f"k8s.io/{name}"] == staging


class TestPodSecurity:
    def test_latest_is_the_newest_version_that_has_fixtures(
        self, oracle: Oracle, official_testdata: Path
    ) -> None:
        for level in ("baseline", "restricted"):
            assert latest(official_testdata, level) == oracle.about().pod_security_latest

    def test_a_volume_without_a_source_is_allowed_only_with_defaults(self, oracle: Oracle) -> None:
        pod = restricted({"volumes": [{"name": "scratch"}]})
        assert oracle.pod_security(pod).details == (
            'volume "scratch" uses restricted volume type "unknown"',
        )
        assert oracle.pod_security(pod, defaulted=True).allowed

    def test_field_names_are_case_sensitive_unless_lenient(self, oracle: Oracle) -> None:
        pod = restricted({"hostnetwork": True})
        with pytest.raises(OracleError, match=r"unknown field .*hostnetwork"):
            oracle.pod_security(pod)
        assert oracle.pod_security(pod, lenient=True).allowed


class TestQuantities:
    def test_an_invalid_quantity_or_a_huge_exponent_is_an_error(self, oracle: Oracle) -> None:
        with pytest.raises(OracleError, match="leaves exponents beyond 4096 alone"):
            oracle.quantities(["1e-1000000000"])
        with pytest.raises(OracleError, match="quantities must match"):
            oracle.compare_each([("one", 1)])


class TestValidation:
    def test_returns_a_valid_pod_with_defaults(self, oracle: Oracle) -> None:
        pod = restricted(container={"resources": {"limits": {"nvidia.com/gpu": 1}}})
        [verdict] = oracle.validate_each([pod])
        assert verdict.valid, verdict.errors
        (container,) = verdict.pod["spec"]["containers"]
        assert container["resources"]["requests"] == {"nvidia.com/gpu": "1"}
        assert verdict.pod["spec"]["schedulerName"] == "default-scheduler"

    def test_returns_every_validation_error(self, oracle: Oracle) -> None:
        resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1500m"}}
        pod = restricted(
            {"tolerations": [{"value": "present"}]}, container={"resources": resources}
        )
        [verdict] = oracle.validate_each([pod])
        assert not verdict.valid
        message = "\n".join(verdict.errors)
        assert "must be an integer" in message
        assert "must be equal to nvidia.com/gpu limit of 1" in message
        assert "operator must be Exists when `key` is empty" in message


def test_an_invalid_question_is_an_error_and_the_next_one_is_answered(oracle: Oracle) -> None:
    with pytest.raises(OracleError, match=r"hostUsers of type bool\n.*maybe"):
        oracle.pod_security(restricted({"hostUsers": "maybe"}))
    huge = restricted(annotations={"padding": "é" * (1 << 20)})
    assert oracle.pod_security(huge).allowed


def test_the_end_of_the_process_is_an_error() -> None:
    with (
        Oracle([sys.executable, "-c", "input()"]) as oracle,
        pytest.raises(OracleError, match="has ended"),
    ):
        oracle.about()
