"""The doctor's lines on what is registered, in addition to those on a real installation."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from policies.shipped import shipped_policy
from webhook.controller.registrar import POLICY_KINDS
from webhook.controller.text.objects import (
    POLICY_KIND,
    Registration,
    admission_policies,
    configurations,
)
from webhook.tools.doctor import DoctorLine
from webhook.tools.doctor.checks import diagnosis
from webhook.tools.doctor.installation import AdmissionObjects, Deployed, Installation

SERVICE = ("fence", "gpufence", 443)
OWN = frozenset({"fence"})
NOW = datetime(2026, 11, 22, tzinfo=UTC)
REGISTRATION = Registration(service=SERVICE, excluded_namespaces=OWN)
DEPLOYED = Deployed(REGISTRATION, "serving")
CONTROLLER = {"spec": {}, "status": {"readyReplicas": 1}}


def installation(registers: bool, **registration: Any) -> Installation:
    """Return an installation whose configurations say what was given beyond the command line.

    ``registers`` says whether it has a controller.
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
        controller=CONTROLLER if registers else None,
        deployed=DEPLOYED if registers else None,
        live={each["kind"]: {"gpufence": each} for each in made},
    )


MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


def line(found: Installation, check: str) -> DoctorLine:
    return next(line for line in diagnosis(found) if line.check == check)


def test_an_additional_excluded_namespace_fails_only_with_registration() -> None:
    effect, found = "excludes payments, where gpufence therefore has no effect", {}
    for registers in (True, False):
        made = line(installation(registers, excluded_namespaces=OWN | {"payments"}), VALIDATING)
        found[registers] = made.status, effect in made.detail
    assert found == {True: ("fail", True), False: ("warn", True)}


def test_a_superfluous_gpufence_webhook_is_a_warning() -> None:
    found = installation(True)
    webhooks = found.live[VALIDATING]["gpufence"]["webhooks"]
    webhooks.append({"name": "other.example"})
    assert line(found, VALIDATING).status == "ok"
    webhooks.append({"name": "earlier.gpufence.dev"})
    message = line(found, VALIDATING)
    assert message.status == "warn"
    assert message.detail == "webhook earlier.gpufence.dev is not needed"


def test_another_followed_policy_fails_only_with_registration() -> None:
    """Without a controller, the name is one of the options of ``gpufence manifests``."""
    problem = "annotation gpufence.dev/fence-policy is 'other'"
    for registers, status in ((True, "fail"), (False, "warn")):
        made = line(installation(registers, fence_policy="other"), MUTATING)
        assert (made.status, made.detail) == (status, problem)


UNMATCHED = "API servers do not call gpufence for objects that do not match"
NAME = "kubernetes.io/metadata.name"


def test_a_changed_field_of_a_webhook_is_reported(subtests: pytest.Subtests) -> None:
    labels = {"matchLabels": {"a": "b"}}
    conditions = [{"name": "x", "expression": "false"}]
    excluding = [{"key": NAME, "operator": "NotIn", "values": ["kube-system"]}]
    for kind, field, value, status, detail in (
        (VALIDATING, "failurePolicy", "Ignore", "fail", "is Ignore, but must be Fail"),
        (MUTATING, "reinvocationPolicy", "Never", "fail", "is Never, but must be IfNeeded"),
        (MUTATING, "timeoutSeconds", 10, "warn", "is 10, but must be 3"),
        (VALIDATING, "matchConditions", conditions, "fail", UNMATCHED),
        (MUTATING, "objectSelector", labels, "fail", UNMATCHED),
        (MUTATING, "namespaceSelector", labels, "fail", "does not match"),
        (MUTATING, "namespaceSelector", {"matchExpressions": excluding}, "fail", "does not exc"),
    ):
        with subtests.test(field=field, value=value):
            found = installation(True)
            found.live[kind]["gpufence"]["webhooks"][0][field] = value
            message = line(found, kind)
            assert message.status == status
            assert f"{field} of webhook pods.gpufence.dev {detail}" in message.detail or (
                message.detail.endswith(detail)
            )


def test_remediation_of_missing_configurations_depends_on_registration() -> None:
    cures = []
    for registers in (True, False):
        found = installation(registers)
        found.live = {MUTATING: {}, VALIDATING: {}}
        cures.append({line(found, kind).remediation for kind in (MUTATING, VALIDATING)})
    [with_controller] = cures[0]
    assert with_controller.startswith("The controller repairs this within seconds")
    assert cures[1] == {"Apply the output of gpufence manifests: this release has no controller"}


def compiled(*excluded: str) -> AdmissionObjects:
    """Return the policies in a cluster, by kind; they exclude these namespaces."""
    registration = Registration(excluded_namespaces=frozenset(excluded))
    found: AdmissionObjects = {kind: {} for kind in POLICY_KINDS}
    for obj in admission_policies(shipped_policy(), registration, today=NOW.date()):
        found[obj["kind"]][obj["metadata"]["name"]] = copy.deepcopy(obj)
    return found


NONE: AdmissionObjects = {kind: {} for kind in POLICY_KINDS}


def test_admission_policies_are_compared_with_what_replicas_write(
    subtests: pytest.Subtests,
) -> None:
    # A namespace that only the policies exclude.
    narrower = compiled("fence", "payments")
    off = replace(DEPLOYED, admission_policies=False)
    superfluous = compiled("fence")
    superfluous[POLICY_KIND]["gpufence-pods"] = {"spec": {}}
    for found, deployed, status, words in (
        (compiled("fence"), DEPLOYED, "ok", "all 2 and their bindings"),
        ({}, DEPLOYED, "warn", "does not serve ValidatingAdmissionPolicy v1"),
        (narrower, DEPLOYED, "fail", "payments"),
        (narrower, None, "warn", "payments"),
        (superfluous, DEPLOYED, "fail", f"{POLICY_KIND} gpufence-pods: it is not needed"),
        # Policies that no controller writes, and those that it writes.
        (NONE, off, "warn", "admissionPolicies.enabled"),
        (NONE, None, "warn", "gpufence manifests"),
        (NONE, DEPLOYED, "fail", f"{POLICY_KIND} gpufence-pool-trespass: it does not exist"),
    ):
        with subtests.test(status=status, words=words):
            installed = replace(installation(True), deployed=deployed)
            installed.live |= found
            message = line(installed, "admission policies")
            assert message.status == status
            assert words in f"{message.detail}. {message.remediation}"


def test_a_policy_that_enforces_nothing_needs_no_admission_policies() -> None:
    installed = replace(installation(True), deployed=None)
    installed.live |= NONE
    installed.policy = replace(shipped_policy(), mode="audit")
    found = line(installed, "admission policies")
    assert (found.status, found.detail) == ("ok", "none is needed")


def test_type_check_warnings_are_reported() -> None:
    live = compiled("fence")
    warning = {"fieldRef": "spec.validations[0]", "warning": "undefined field 'x'"}
    checked = {"typeChecking": {"expressionWarnings": [warning]}}
    live[POLICY_KIND]["gpufence-pool-trespass"]["status"] = checked
    found = line(replace(installation(True), live=live), "admission policy types")
    assert found.status == "warn"
    assert "gpufence-pool-trespass: spec.validations[0]: undefined field 'x'" in found.detail
