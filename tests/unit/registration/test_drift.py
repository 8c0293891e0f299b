"""What counts as drift, field by field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from reviewing import default_policy
from specs import JSON
from webhook.controller.drift import drift as differences
from webhook.controller.drift import repaired
from webhook.controller.text.objects import Registration, admission_policies, configurations

OWNER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "name": "gpufence",
    "uid": "1234",
}
REGISTRATION = Registration(
    service=("gpufence-system", "gpufence", 443),
    ca_bundle="Y2E=",
    annotations={"admissions.enforcer/disabled": "true"},
    owner=OWNER,
)
MUTATING, VALIDATING = configurations(default_policy(), REGISTRATION)


def drift(desired: JSON, live: JSON) -> list[str]:
    return [str(difference) for difference in differences(desired, live)]


def changed(path: list[str | int], value: Any) -> JSON:
    """The validating configuration with a field set, or taken away where the value is None."""
    found = copy.deepcopy(VALIDATING)
    *parents, last = path
    target: Any = found
    for step in parents:
        target = target[step]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return found


def test_a_change_of_any_webhook_field_is_drift(subtests: pytest.Subtests) -> None:
    for field in {*VALIDATING["webhooks"][0]} - {"name"}:
        for value in ({"other": 1}, None):
            with subtests.test(value=value, field=field):
                [found] = drift(VALIDATING, changed(["webhooks", 0, field], value))
                assert found.startswith(f"{field} of webhook pods.gpufence.dev ")
    # A later API's field may narrow, too.
    assert drift(VALIDATING, changed(["webhooks", 0, "newField"], {"a": 1})) == [
        "newField of webhook pods.gpufence.dev does not match the policy"
    ]


def test_drift_is_described_and_repaired(subtests: pytest.Subtests) -> None:
    annotation, name = "admissions.enforcer/disabled", "app.kubernetes.io/name"
    not_owned = "it is not owned by ClusterRole gpufence"
    changes: list[tuple[list[str | int], Any, str]] = [
        (["webhooks", 1], None, "webhook pods-placement.gpufence.dev is missing"),
        (["metadata", "annotations", annotation], "false", f"annotation {annotation} is 'false'"),
        (["metadata", "labels", name], None, f"label {name} is None"),
        (["metadata", "ownerReferences"], None, not_owned),
        (["metadata", "ownerReferences", 0, "uid"], "of an earlier release", not_owned),
    ]
    for path, value, difference in changes:
        with subtests.test(difference=difference, path=path):
            found = changed(path, value)
            assert drift(VALIDATING, found) == [difference]
            assert drift(VALIDATING, repaired(VALIDATING, found)) == []


def test_webhooks_and_metadata_of_other_owners_are_kept_and_are_no_drift() -> None:
    found = copy.deepcopy(VALIDATING)
    found["metadata"]["labels"]["team"] = "platform"
    found["metadata"]["resourceVersion"] = "7"
    found["metadata"]["annotations"]["note"] = "x"
    found["webhooks"].append({"name": "other.example"})
    found["webhooks"].reverse()
    assert drift(VALIDATING, found) == []
    after = repaired(VALIDATING, found)
    assert after["metadata"] == found["metadata"]
    assert {webhook["name"] for webhook in after["webhooks"]} == {
        webhook["name"] for webhook in found["webhooks"]
    }


def test_an_obsolete_gpufence_webhook_is_drift_and_removed() -> None:
    """An earlier policy, or a later version, has left it."""
    without = {**VALIDATING, "webhooks": VALIDATING["webhooks"][:-1]}
    found = {**VALIDATING, "webhooks": [*VALIDATING["webhooks"], {"name": "other.example"}]}
    assert drift(without, found) == ["webhook custom-workloads.gpufence.dev is not needed"]
    after = repaired(without, found)
    assert drift(without, after) == []
    assert after["webhooks"][-1] == {"name": "other.example"}


def test_a_field_of_another_manager_in_an_admission_policy_is_removed() -> None:
    wanted = next(iter(admission_policies(default_policy(), REGISTRATION)))
    found = {**wanted, "spec": {**wanted["spec"], "paramKind": {"kind": "ConfigMap"}}}
    assert drift(wanted, found) == ["paramKind of the spec does not match the policy"]
    assert drift(wanted, repaired(wanted, found)) == []


def test_an_injected_ca_bundle_is_kept_and_is_no_drift() -> None:
    wanted = configurations(default_policy(), Registration(url="https://a:1"))[0]
    found = copy.deepcopy(wanted)
    found["webhooks"][0]["clientConfig"]["caBundle"] = "aW5qZWN0ZWQ="
    assert drift(wanted, found) == []
    assert repaired(wanted, found) == found
    assert drift(MUTATING, changed(["metadata"], {})) != []
