"""The doctor's lines on what is registered, in addition to those on a real installation."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from policies.kubernetes.objects import JSONObject
from policies.shipped import shipped_policy
from webhook.cel.admission_policies import BINDING_KIND, POLICY_KIND, admission_policies
from webhook.cel.configurations import Registration, configurations
from webhook.doctor import DoctorLine, Status
from webhook.doctor.checks import diagnosis
from webhook.doctor.installation import Deployed, Installation
from webhook.registration.registrar import POLICY_KINDS, AdmissionPolicies

SERVICE = ("fence", "gpufence", 443)
OWN = frozenset({"fence"})
NOW = datetime(2026, 11, 22, tzinfo=UTC)
REGISTRATION = Registration(service=SERVICE, excluded_namespaces=OWN)


def installation(registers: bool | None, **registration: Any) -> Installation:
    """Return an installation whose configurations say what was given beyond the command line.

    ``registers`` is None where there is no Deployment to read.
    """
    made = configurations(
        shipped_policy(),
        Registration(service=SERVICE, **{"excluded_namespaces": OWN} | registration),
    )
    return Installation(
        "fence",
        "gpufence",
        NOW,
        policy=shipped_policy(),
        deployed=None if registers is None else Deployed(REGISTRATION, "secret", registers),
        configurations={each["kind"]: each for each in made},
    )


MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


def line(found: Installation, check: str) -> DoctorLine:
    return next(line for line in diagnosis(found) if line.check == check)


@pytest.mark.parametrize("registers", [True, False, None])
def test_matching_configurations_are_ok(registers: bool | None) -> None:
    found = installation(registers)
    assert {line(found, kind).status for kind in (MUTATING, VALIDATING)} == {"ok"}


@pytest.mark.parametrize(("registers", "status"), [(True, "fail"), (False, "warn"), (None, "warn")])
def test_an_additional_excluded_namespace_fails_only_with_registration(
    registers: bool | None, status: Status
) -> None:
    found = installation(registers, excluded_namespaces=OWN | {"payments"})
    message = line(found, VALIDATING)
    assert message.status == status
    assert "excludes payments, where gpufence therefore has no effect" in message.detail


def test_a_superfluous_gpufence_webhook_is_a_warning() -> None:
    found = installation(True)
    webhooks = (found.configurations[VALIDATING] or {})["webhooks"]
    webhooks.append({"name": "other.example"})
    assert line(found, VALIDATING).status == "ok"
    webhooks.append({"name": "earlier.gpufence.dev"})
    message = line(found, VALIDATING)
    assert message.status == "warn"
    assert message.detail == "webhook earlier.gpufence.dev is not needed"


UNMATCHED = "API servers do not call gpufence for objects that do not match"
NAME = "kubernetes.io/metadata.name"


@pytest.mark.parametrize(
    ("kind", "field", "value", "status", "detail"),
    [
        (VALIDATING, "failurePolicy", "Ignore", "fail", "is Ignore, but must be Fail"),
        (MUTATING, "reinvocationPolicy", "Never", "fail", "is Never, but must be IfNeeded"),
        (MUTATING, "timeoutSeconds", 10, "warn", "is 10, but must be 3"),
        (VALIDATING, "matchConditions", [{"name": "x", "expression": "false"}], "fail", UNMATCHED),
        (MUTATING, "objectSelector", {"matchLabels": {"a": "b"}}, "fail", UNMATCHED),
        (MUTATING, "namespaceSelector", {"matchLabels": {"a": "b"}}, "fail", "does not match"),
        (
            MUTATING,
            "namespaceSelector",
            {"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["kube-system"]}]},
            "fail",
            "does not exclude ",
        ),
    ],
)
def test_a_changed_field_of_a_webhook_is_reported(
    kind: str, field: str, value: Any, status: Status, detail: str
) -> None:
    found = installation(True)
    (found.configurations[kind] or {})["webhooks"][0][field] = value
    message = line(found, kind)
    assert message.status == status
    assert f"{field} of webhook pods.gpufence.dev {detail}" in message.detail or (
        message.detail.endswith(detail)
    )


def test_remediation_of_missing_configurations_depends_on_registration() -> None:
    cures = []
    for registers in (True, False):
        found = installation(registers)
        found.configurations = dict.fromkeys(found.configurations)
        cures.append({line(found, kind).remediation for kind in (MUTATING, VALIDATING)})
    assert cures[0] == {"Check the logs of the replicas for the reason"}
    assert cures[1] == {
        "Apply the output of gpufence manifests: this release does not register itself"
    }


def compiled(*excluded: str) -> AdmissionPolicies:
    made = admission_policies(
        shipped_policy(), Registration(excluded_namespaces=frozenset(excluded)), today=NOW.date()
    )
    return by_kind(made)


def by_kind(made: Iterable[JSONObject]) -> AdmissionPolicies:
    found: AdmissionPolicies = {kind: {} for kind in POLICY_KINDS}
    for obj in made:
        found[obj["kind"]][obj["metadata"]["name"]] = copy.deepcopy(obj)
    return found


def of_policies(
    found: AdmissionPolicies, *, registers: bool = True, enabled: bool = True
) -> DoctorLine:
    installed = installation(registers)
    installed.deployed = Deployed(REGISTRATION, "secret", registers, enabled)
    installed.admission_policies = found
    return line(installed, "admission policies")


def test_compiled_policies_are_ok() -> None:
    found = of_policies(compiled("fence"))
    assert found.status == "ok"
    assert "all 1 and their bindings" in found.detail


def test_an_api_server_without_admission_policies_is_a_warning() -> None:
    found = of_policies({})
    assert found.status == "warn"
    assert "does not serve ValidatingAdmissionPolicy v1" in found.detail


def test_an_api_server_that_cannot_mutate_is_a_warning() -> None:
    installed = installation(True)
    registration = replace(REGISTRATION, mutates=True)
    installed.deployed = Deployed(registration, "secret", registers=True, admission_policies=True)
    live = compiled("fence")
    installed.admission_policies = {kind: live[kind] for kind in (POLICY_KIND, BINDING_KIND)}
    found = line(installed, "admission policies")
    assert found.status == "warn"
    assert "does not serve MutatingAdmissionPolicy v1" in found.detail
    assert "admissionPolicies.mutate" in found.remediation


def test_missing_changed_and_superfluous_policies_fail() -> None:
    live = compiled("fence")
    del live[BINDING_KIND]["gpufence-pods"]
    live[POLICY_KIND]["gpufence-pods"]["spec"]["failurePolicy"] = "Ignore"
    live[POLICY_KIND]["gpufence-pods-warn"] = {"spec": {}}
    found = of_policies(live)
    assert found.status == "fail"
    assert f"{BINDING_KIND} gpufence-pods: it does not exist" in found.detail
    assert (
        f"{POLICY_KIND} gpufence-pods: failurePolicy of the spec is Ignore, but must be Fail"
    ) in found.detail
    assert f"{POLICY_KIND} gpufence-pods-warn: it is not needed" in found.detail


@pytest.mark.parametrize(("registers", "status"), [(True, "fail"), (False, "warn")])
def test_a_namespace_that_only_the_policies_exclude_fails_only_with_registration(
    registers: bool, status: Status
) -> None:
    assert of_policies(compiled("fence", "payments"), registers=registers).status == status


@pytest.mark.parametrize(
    ("registers", "enabled", "cure"),
    [(True, False, "admissionPolicies.enabled"), (False, True, "gpufence manifests")],
)
def test_missing_policies_are_a_warning_if_no_leader_writes_policies(
    registers: bool, enabled: bool, cure: str
) -> None:
    found = of_policies(by_kind(()), registers=registers, enabled=enabled)
    assert found.status == "warn"
    assert cure in found.remediation


def test_missing_policies_fail_if_the_leader_writes_policies() -> None:
    assert of_policies(by_kind(())).status == "fail"


def test_type_check_warnings_are_reported() -> None:
    live = compiled("fence")
    warning = {"fieldRef": "spec.validations[0]", "warning": "undefined field 'x'"}
    live[POLICY_KIND]["gpufence-pods"]["status"] = {
        "typeChecking": {"expressionWarnings": [warning]}
    }
    installed = installation(True)
    installed.admission_policies = live
    found = line(installed, "admission policy types")
    assert found.status == "warn"
    assert "gpufence-pods: spec.validations[0]: undefined field 'x'" in found.detail


def test_forbidden_policies_are_skipped() -> None:
    installed = Installation("fence", "gpufence", forbidden={"admission policies": "forbidden"})
    found = line(installed, "admission policies")
    assert found.status == "skip"
    assert "forbidden" in found.detail
