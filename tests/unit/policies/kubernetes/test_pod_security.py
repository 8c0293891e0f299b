"""The check `unrestricted-gpu-pod`, whose cases show what each control finds, word for word.

properties/laws/test_pod_security_laws.py compares it with the official library.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases.loading import Case, cases_of_check
from pod_security_strategies import pods
from policies.context import Context
from policies.facts import Facts, Request
from policies.kubernetes.pod_security import CONTROLS, Level, violations
from policies.kubernetes.pod_security.view import HARDENED, is_hardened, view
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


@pytest.mark.parametrize("level", LEVELS)
def test_no_control_finds_anything_in_the_context_that_gpufence_adds(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    smallest = pod_of(example(CASES["the-smallest-pod"]))
    assert smallest.containers[0].security_context == HARDENED
    skipping = [findings(raw, level) for raw in EXAMPLES]
    # An ID that no example has: every container is judged.
    monkeypatch.setattr(HARDENED, "run_as_user", 123456789)
    assert [findings(raw, level) for raw in EXAMPLES] == skipping


COMPLETE: JSON = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def with_contexts(raw: JSON, of_pod: JSON) -> JSON:
    """Return the Pod with this security context, and with hardened containers."""
    hardened = copy.deepcopy(raw)
    hardened["spec"]["securityContext"] = of_pod
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in hardened["spec"].get(kind) or ():
            container["securityContext"] = {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
    return hardened


@settings(max_examples=300)
@given(raw=pods(), level=st.sampled_from(LEVELS))
def test_violations_leaves_out_consequences_and_controls_that_find_nothing(
    raw: JSON, level: Level
) -> None:
    """Where gpufence adds the fields of the profile, the author makes one edit for each finding."""
    pod = pod_of(raw)
    every = violations(pod, level)
    causes = violations(pod, level, completed=True)
    assert {violation.reason for violation in causes} <= {violation.reason for violation in every}
    assert bool(causes) == bool(every)
    hardened = pod_of(with_contexts(raw, COMPLETE))
    seen = view(hardened, completed=False)
    assert is_hardened(seen)
    found = [violation for control in CONTROLS[level] if (violation := control(seen)) is not None]
    assert [each._replace(control="") for each in violations(hardened, level)] == found


@pytest.mark.parametrize(
    "other",
    [
        {"runAsUser": 0},
        {"runAsNonRoot": None},
        {"runAsNonRoot": False},
        {"seccompProfile": None},
        {"seccompProfile": {"type": "Unconfined"}},
        {"seLinuxOptions": {"user": "root"}},
        {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]},
        {"windowsOptions": {"hostProcess": True}},
        {"appArmorProfile": {"type": "Unconfined"}},
    ],
)
def test_a_pod_with_another_security_context_is_not_hardened(other: JSON) -> None:
    pod = pod_of(with_contexts(example(CASES["the-smallest-pod"]), COMPLETE | other))
    assert not is_hardened(view(pod, completed=False))
