"""The doctor's lines on configurations, in addition to those on a real installation."""

from __future__ import annotations

from typing import Any

import pytest

from policies.shipped import shipped_policy
from webhook.doctor import registered
from webhook.doctor.installation import Deployed, Installation
from webhook.doctor.line import Line, Status
from webhook.registration.configurations import Registration, configurations

SERVICE = ("fence", "gpufence", 443)
OWN = frozenset({"fence"})


def installation(registers: bool | None, **registration: Any) -> Installation:
    """Return an installation whose configurations say what was given beyond the command line.

    ``registers`` is None where there is no Deployment to read.
    """
    plain = Registration(service=SERVICE, excluded_namespaces=OWN)
    made = configurations(
        shipped_policy(),
        Registration(service=SERVICE, **{"excluded_namespaces": OWN} | registration),
    )
    return Installation(
        "fence",
        "gpufence",
        policy=shipped_policy(),
        deployed=None if registers is None else Deployed(plain, "secret", registers),
        configurations={each["kind"]: each for each in made},
    )


def line(found: Installation, check: str) -> Line:
    return next(line for line in registered.check(found) if line.check == check)


@pytest.mark.parametrize("registers", [True, False, None])
def test_matching_configurations_are_ok(registers: bool | None) -> None:
    assert {each.status for each in registered.check(installation(registers))} == {"ok"}


@pytest.mark.parametrize(("registers", "status"), [(True, "fail"), (False, "warn"), (None, "warn")])
def test_an_additional_excluded_namespace_fails_only_with_registration(
    registers: bool | None, status: Status
) -> None:
    found = installation(registers, excluded_namespaces=OWN | {"payments"})
    message = line(found, "namespaceSelector")
    assert message.status == status
    assert "excludes payments, where gpufence therefore has no effect" in message.detail


def test_a_missing_excluded_namespace_fails() -> None:
    message = line(installation(True, excluded_namespaces=frozenset()), "namespaceSelector")
    assert message.status == "fail"
    assert "does not exclude fence" in message.detail


def test_a_superfluous_gpufence_webhook_is_a_warning() -> None:
    found = installation(True)
    webhooks = (found.configurations["ValidatingWebhookConfiguration"] or {})["webhooks"]
    webhooks.append({"name": "other.example"})
    assert line(found, "ValidatingWebhookConfiguration").status == "ok"
    webhooks.append({"name": "earlier.gpufence.dev"})
    message = line(found, "ValidatingWebhookConfiguration")
    assert message.status == "warn"
    assert message.detail == "has the webhooks earlier.gpufence.dev, which the policy does not need"


def test_another_timeout_is_a_warning() -> None:
    message = line(installation(True, timeout_seconds=10), "timeoutSeconds")
    assert message.status == "warn"
    assert "is 10, but must be 3" in message.detail


def test_a_namespace_selector_of_another_form_is_reported() -> None:
    found = installation(True)
    webhooks = (found.configurations["MutatingWebhookConfiguration"] or {})["webhooks"]
    webhooks[0]["namespaceSelector"] = {"matchLabels": {"gpus": "yes"}}
    message = line(found, "namespaceSelector")
    assert "is not a list of excluded namespaces" in message.detail


def test_remediation_of_missing_configurations_depends_on_registration() -> None:
    cures = []
    for registers in (True, False):
        found = installation(registers)
        found.configurations = dict.fromkeys(found.configurations)
        cures.append({each.remediation for each in registered.check(found)})
    assert cures[0] == {"Check the logs of the replicas for the reason"}
    assert cures[1] == {
        "Apply the output of gpufence manifests: this release does not register itself"
    }
