"""What counts as drift, field by field, and how it is repaired."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fake_apiserver import FakeKubeApi
from reviewing import default_policy
from webhook.cel.configurations import Registration, configurations
from webhook.kube.errors import ApiError
from webhook.registration.drift import drift as differences
from webhook.registration.drift import repaired
from webhook.registration.registrar import (
    KINDS,
    Owner,
    Registrar,
    RegistrationError,
    is_reachable,
    unregister,
)

JSON = dict[str, Any]
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


@pytest.mark.parametrize("field", sorted(VALIDATING["webhooks"][0]))
def test_a_change_of_any_webhook_field_is_drift(field: str) -> None:
    if field != "name":
        for value in ({"other": 1}, None):
            [found] = drift(VALIDATING, changed(["webhooks", 0, field], value))
            assert found.startswith(f"{field} of webhook pods.gpufence.dev ")
        # A later API's field may narrow, too.
    assert drift(VALIDATING, changed(["webhooks", 0, "newField"], {"a": 1})) == [
        "newField of webhook pods.gpufence.dev does not match the policy"
    ]


@pytest.mark.parametrize(
    ("path", "value", "difference"),
    [
        (["webhooks", 1], None, "webhook pods-placement.gpufence.dev is missing"),
        (
            ["metadata", "annotations", "admissions.enforcer/disabled"],
            "false",
            "annotation admissions.enforcer/disabled is 'false'",
        ),
        (["metadata", "ownerReferences"], None, "it is not owned by ClusterRole gpufence"),
        (
            ["metadata", "ownerReferences", 0, "uid"],
            "of an earlier release",
            "it is not owned by ClusterRole gpufence",
        ),
    ],
)
def test_drift_is_described_and_repaired(
    path: list[str | int], value: Any, difference: str
) -> None:
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


def test_an_injected_ca_bundle_is_kept_and_is_no_drift() -> None:
    wanted = configurations(default_policy(), Registration(url="https://a:1"))[0]
    found = copy.deepcopy(wanted)
    found["webhooks"][0]["clientConfig"]["caBundle"] = "aW5qZWN0ZWQ="
    assert drift(wanted, found) == []
    assert repaired(wanted, found) == found
    assert drift(MUTATING, changed(["metadata"], {})) != []


# The registrar.


class Counter:
    def __init__(self) -> None:
        self.counted: list[tuple[str, str]] = []

    def __call__(self, kind: str, reason: str) -> None:
        self.counted.append((kind.removesuffix("WebhookConfiguration"), reason))


PATHS = [f"{path}/gpufence" for path in KINDS.values()]


async def test_the_registrar_counts_a_new_configuration_as_changed_not_as_drift() -> None:
    api, counter = FakeKubeApi(), Counter()
    registrar = Registrar(api, counter, "gpufence")
    both = (MUTATING, VALIDATING)
    await registrar.register(both)
    await registrar.register(both)
    assert counter.counted == [("Mutating", "created"), ("Validating", "created")]
    api.objects[PATHS[1]]["webhooks"][0]["failurePolicy"] = "Ignore"
    await registrar.register(both)
    assert counter.counted[2:] == [("Validating", "drift")]
    rotated = configurations(default_policy(), Registration(url="https://a:1", ca_bundle="bmV3"))
    await registrar.register(rotated)
    assert counter.counted[3:] == [("Mutating", "changed"), ("Validating", "changed")]
    # A new leader finds what another one wrote.
    other = Registrar(api, counter, "gpufence")
    await other.register(both)
    assert counter.counted[5:] == [("Mutating", "changed"), ("Validating", "changed")]


async def test_fields_that_remain_after_apply_are_removed_by_replace() -> None:
    class Merging(FakeKubeApi):
        """Server-side apply leaves a condition that another field manager has added."""

        async def apply(self, path: str, obj: JSON) -> JSON:
            applied = copy.deepcopy(obj)
            if path in self.objects:
                applied["webhooks"][0]["matchConditions"].append(
                    {"name": "x", "expression": "false"}
                )
            return await super().apply(path, applied)

    api = Merging()
    registrar = Registrar(api, Counter(), "gpufence")
    await registrar.register((VALIDATING,))
    api.objects[PATHS[1]]["webhooks"][0]["failurePolicy"] = "Ignore"
    await registrar.register((VALIDATING,))
    assert drift(VALIDATING, api.objects[PATHS[1]]) == []


async def test_drift_that_remains_after_registration_is_an_error() -> None:
    def stubborn(obj: JSON) -> JSON:
        first, *others = obj["webhooks"]
        return {**obj, "webhooks": [{**first, "timeoutSeconds": 30}, *others]}

    api = FakeKubeApi()
    api.server.admit = stubborn
    with pytest.raises(RegistrationError, match=r"timeoutSeconds of webhook .*managedFields"):
        await Registrar(api, Counter(), "gpufence").register((VALIDATING,))


async def test_unregistering_is_idempotent() -> None:
    api = FakeKubeApi()
    await Registrar(api, Counter(), "gpufence").register((MUTATING, VALIDATING))
    assert list((await unregister(api, "gpufence")).values()) == [True, True]
    assert list((await unregister(api, "gpufence")).values()) == [False, False]


@pytest.mark.parametrize("text", ["gpufence", "deployment/gpufence", "clusterrole/", ""])
def test_an_owner_without_a_cluster_scoped_kind_and_a_name_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="write KIND/NAME with one of clusterrole"):
        Owner.parse(text)


async def test_a_missing_owner_is_an_error_and_an_existing_owner_is_referenced() -> None:
    api = FakeKubeApi()
    owner = Owner.parse("ClusterRole/gpufence")
    with pytest.raises(RegistrationError, match="ClusterRole gpufence does not exist"):
        await owner.reference(api)
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    created = await api.create(roles, {"metadata": {"name": "gpufence", "uid": "1234"}})
    assert created["metadata"]["uid"] == "1234"
    assert await owner.reference(api) == OWNER


@pytest.mark.parametrize(
    ("endpoints", "reachable"),
    [
        ([], False),
        ([{"conditions": {"ready": False}}], False),
        ([{"conditions": {"ready": True}}], True),
        ([{"addresses": ["10.0.0.1"]}], True),  # unknown counts as ready
    ],
)
async def test_a_service_is_reachable_if_an_endpoint_is_ready(
    endpoints: list[JSON], reachable: bool
) -> None:
    api = FakeKubeApi()
    path = "/apis/discovery.k8s.io/v1/namespaces/system/endpointslices"
    api.objects[path] = {"items": [{"endpoints": endpoints}, {"endpoints": None}]}
    assert await is_reachable(api, ("system", "gpufence", 443)) is reachable


async def test_a_service_counts_as_reachable_if_reading_endpoints_is_forbidden() -> None:
    api = FakeKubeApi()
    api.error = ApiError(403, "endpointslices is forbidden")
    assert await is_reachable(api, ("system", "gpufence", 443))
    api.error = ApiError(500, "etcd is away")
    with pytest.raises(ApiError):
        await is_reachable(api, ("system", "gpufence", 443))
