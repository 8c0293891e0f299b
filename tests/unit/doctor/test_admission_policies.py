"""What the doctor says of the in-tree policies."""

from __future__ import annotations

import copy
from datetime import date

import pytest

from policies.kubernetes.objects import JSONObject
from policies.shipped import shipped_policy
from webhook.cel.admission_policies import (
    BINDING_KIND,
    POLICY_KIND,
    Target,
    admission_policies,
)
from webhook.doctor.admission_policies import check
from webhook.doctor.installation import Deployed, Installation
from webhook.doctor.line import Line
from webhook.registration.configurations import Registration

TODAY = date(2026, 11, 22)
REGISTRATION = Registration(
    service=("fence", "gpufence", 443), excluded_namespaces=frozenset({"fence"})
)
Found = dict[str, dict[str, JSONObject]]


def compiled(*excluded: str) -> Found:
    found: Found = {POLICY_KIND: {}, BINDING_KIND: {}}
    target = Target(excluded_namespaces=frozenset(excluded), today=TODAY)
    for obj in admission_policies(shipped_policy(), target):
        found[obj["kind"]][obj["metadata"]["name"]] = copy.deepcopy(obj)
    return found


def lines(found: Found | None, *, registers: bool = True, enabled: bool = True) -> list[Line]:
    installation = Installation(
        "fence",
        "gpufence",
        policy=shipped_policy(),
        deployed=Deployed(REGISTRATION, "secret", registers, enabled),
        admission_policies=found,
    )
    return list(check(installation, TODAY))


def test_compiled_policies_are_ok() -> None:
    [line] = lines(compiled("fence"))
    assert line.status == "ok"
    assert "all 2 and their bindings" in line.detail


def test_an_api_server_without_admission_policies_is_a_warning() -> None:
    [line] = lines(None)
    assert line.status == "warn"
    assert "does not serve ValidatingAdmissionPolicy v1" in line.detail


def test_missing_changed_and_superfluous_policies_fail() -> None:
    found = compiled("fence")
    del found[BINDING_KIND]["gpufence-trespass"]
    found[POLICY_KIND]["gpufence-device-leak"]["spec"]["failurePolicy"] = "Ignore"
    found[POLICY_KIND]["gpufence-trespass-warn"] = {"spec": {}}
    [line] = lines(found)
    assert line.status == "fail"
    assert f"{BINDING_KIND} gpufence-trespass does not exist" in line.detail
    assert f"{POLICY_KIND} gpufence-device-leak does not match the policy" in line.detail
    assert f"{POLICY_KIND} gpufence-trespass-warn is not needed" in line.detail


def test_superfluous_policies_are_listed_in_order() -> None:
    found = compiled("fence")
    names = [f"gpufence-{number}" for number in range(9)]
    found[POLICY_KIND] |= {name: {"spec": {}} for name in names}
    [line] = lines(found)
    assert line.detail == "; ".join(f"{POLICY_KIND} {name} is not needed" for name in names)


def test_an_additional_excluded_namespace_fails_only_with_registration() -> None:
    assert lines(compiled("fence", "payments"))[0].status == "fail"
    assert lines(compiled("fence", "payments"), registers=False)[0].status == "ok"


@pytest.mark.parametrize(
    ("registers", "enabled", "cure"),
    [(True, False, "admissionPolicies.enabled"), (False, True, "gpufence manifests")],
)
def test_missing_policies_are_a_warning_if_no_leader_writes_policies(
    registers: bool, enabled: bool, cure: str
) -> None:
    [line] = lines({POLICY_KIND: {}, BINDING_KIND: {}}, registers=registers, enabled=enabled)
    assert line.status == "warn"
    assert cure in line.remediation


def test_missing_policies_fail_if_the_leader_writes_policies() -> None:
    [line] = lines({POLICY_KIND: {}, BINDING_KIND: {}})
    assert line.status == "fail"


def test_type_check_warnings_are_reported() -> None:
    found = compiled("fence")
    warning = {"fieldRef": "spec.validations[0]", "warning": "undefined field 'x'"}
    found[POLICY_KIND]["gpufence-trespass"]["status"] = {
        "typeChecking": {"expressionWarnings": [warning]}
    }
    _, line = lines(found)
    assert line.status == "warn"
    assert "gpufence-trespass: spec.validations[0]: undefined field 'x'" in line.detail


def test_forbidden_policies_are_skipped() -> None:
    installation = Installation("fence", "gpufence", forbidden={"admission policies": "forbidden"})
    [line] = check(installation, TODAY)
    assert line.status == "skip"
    assert "forbidden" in line.detail
