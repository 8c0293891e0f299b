"""Which configurations and admission policies are written, repaired and deleted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from fake_apiserver import FakeKubeApi, FakeObjects
from policies.kubernetes.objects import JSONObject
from reviewing import default_policy
from webhook.controller.registrar import POLICY_KINDS as PATHS
from webhook.controller.registrar import Registrar, RegistrationError, is_reachable
from webhook.controller.text.objects import (
    BINDING_KIND,
    POLICY_KIND,
    Registration,
    admission_policies,
    configurations,
)
from webhook.kube.errors import ApiError
from webhook.registered import KINDS

OWNER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "name": "gpufence",
    "uid": "1234",
}
SERVICE = ("gpufence-system", "gpufence", 443)
MUTATING, VALIDATING = configurations(
    default_policy(), Registration(service=SERVICE, ca_bundle="Y2E=", owner=OWNER)
)
VALIDATING_PATH = f"{KINDS[VALIDATING['kind']]}/gpufence"
WANTED = admission_policies(default_policy(), Registration())
BINDINGS = {
    f"{PATHS[BINDING_KIND]}/{each['metadata']['name']}": each
    for each in WANTED
    if each["kind"] == BINDING_KIND
}


Writes = list[tuple[str, str]]


def registrar(api: FakeKubeApi, counted: Writes | None = None) -> Registrar:
    """Return a registrar whose writes are added to the list."""
    writes = [] if counted is None else counted
    count = lambda kind, reason: writes.append((kind, reason))  # noqa: E731
    return Registrar(api, FakeObjects(api), count, "gpufence")


@pytest.fixture
def api() -> FakeKubeApi:
    """An API server with the bindings of the chart."""
    api = FakeKubeApi()
    api.objects.update(copy.deepcopy(BINDINGS))
    return api


async def test_obsolete_policies_are_deleted_and_those_of_other_products_kept(
    api: FakeKubeApi,
) -> None:
    counted = Writes()
    kept = registrar(api, counted)
    await kept.register_policies(WANTED)
    other = f"{PATHS[POLICY_KIND]}/of-another-product"
    api.objects[other] = {"metadata": {"name": "of-another-product"}, "spec": {}}
    await kept.register_policies(WANTED)
    await kept.register_policies(())
    # A binding without its policy has no effect.
    assert api.objects.keys() == {other, *BINDINGS}
    assert [reason for _, reason in counted] == ["created"] * 2 + ["deleted"] * 2


@pytest.mark.parametrize("change", [dict.clear, lambda spec: spec.update(policyName="other")])
async def test_a_binding_that_is_missing_or_differs_is_an_error_and_not_written(
    api: FakeKubeApi, change: Callable[[JSONObject], None]
) -> None:
    written = Writes()
    kept = registrar(api, written)
    await kept.register_policies(WANTED)
    path = f"{PATHS[BINDING_KIND]}/gpufence-device-leak"
    change(api.objects[path]["spec"])
    if not api.objects[path]["spec"]:
        del api.objects[path]
    before = copy.deepcopy(api.objects)
    cure = "delete ValidatingAdmissionPolicyBinding gpufence-device-leak, and restore the release"
    with pytest.raises(RegistrationError, match=cure):
        await kept.register_policies(WANTED)
    assert api.objects == before
    assert {kind for kind, _ in written} == {POLICY_KIND}


async def test_a_type_checking_warning_is_logged_once(
    api: FakeKubeApi, caplog: pytest.LogCaptureFixture
) -> None:
    kept = registrar(api)
    await kept.register_policies(WANTED)
    checked = {"expressionWarnings": [{"fieldRef": "spec.validations[0]", "warning": "no field"}]}
    policy = api.objects[f"{PATHS[POLICY_KIND]}/gpufence-pool-trespass"]
    policy["status"] = {"typeChecking": checked}
    for _ in range(2):
        await kept.register_policies(WANTED)
    [record] = [r for r in caplog.records if "second line incomplete" in r.getMessage()]
    assert "no field" in str(vars(record))


async def test_the_registrar_counts_a_new_configuration_as_changed_not_as_drift() -> None:
    api, counted = FakeKubeApi(), Writes()
    kept = registrar(api, counted)
    both = (MUTATING, VALIDATING)
    await kept.register(both)
    await kept.register(both)
    assert counted == [(MUTATING["kind"], "created"), (VALIDATING["kind"], "created")]
    api.objects[VALIDATING_PATH]["webhooks"][0]["failurePolicy"] = "Ignore"
    await kept.register(both)
    assert counted[2:] == [(VALIDATING["kind"], "drift")]
    rotated = configurations(default_policy(), Registration(url="https://a:1", ca_bundle="bmV3"))
    await kept.register(rotated)
    assert counted[3:] == [(MUTATING["kind"], "changed"), (VALIDATING["kind"], "changed")]
    # A new leader finds what another one wrote.
    await registrar(api, counted).register(both)
    assert counted[5:] == [(MUTATING["kind"], "changed"), (VALIDATING["kind"], "changed")]


async def test_repairs_are_reported_for_ten_minutes_with_the_client_that_caused_them() -> None:
    api = FakeKubeApi()
    api.now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    kept, both = registrar(api), (MUTATING, VALIDATING)
    await kept.register(both)
    assert kept.drift(api.now) == ("", False)
    for count in range(1, 4):
        changed = api.objects[VALIDATING_PATH]
        changed["webhooks"][0]["failurePolicy"] = "Ignore"
        changed["metadata"]["managedFields"] = [
            {"manager": "gpufence", "time": "2026-03-01T11:00:00Z"},
            {"manager": "kubectl-edit", "time": "2026-03-01T11:59:00Z"},
        ]
        await kept.register(both)
        text, continues = kept.drift(api.now)
        assert text.startswith(f"{count} repair")
        assert continues == (count == 3)
    assert text == (
        "3 repairs in 10 minutes, the last at 12:00:00 UTC: ValidatingWebhookConfiguration "
        "gpufence was changed by kubectl-edit: failurePolicy of webhook pods.gpufence.dev is "
        "Ignore, but must be Fail."
    )
    del api.objects[VALIDATING_PATH]
    api.now += timedelta(minutes=10)
    await kept.register(both)
    assert "ValidatingWebhookConfiguration gpufence was deleted." in kept.drift(api.now)[0]
    assert kept.drift(api.now + timedelta(minutes=11)) == ("", False)


async def test_drift_that_remains_after_registration_is_an_error() -> None:
    def stubborn(obj: JSONObject) -> JSONObject:
        first, *others = obj["webhooks"]
        return {**obj, "webhooks": [{**first, "timeoutSeconds": 30}, *others]}

    api = FakeKubeApi()
    api.server.admit = stubborn
    with pytest.raises(RegistrationError, match=r"timeoutSeconds of webhook .*managedFields"):
        await registrar(api).register((MUTATING, VALIDATING))


async def test_a_service_is_reachable_if_an_endpoint_is_ready(subtests: pytest.Subtests) -> None:
    api = FakeKubeApi()
    cases: list[tuple[list[JSONObject], bool]] = [
        ([], False),
        ([{"conditions": {"ready": False}}], False),
        ([{"conditions": {"ready": True}}], True),
        ([{"addresses": ["10.0.0.1"]}], True),  # unknown counts as ready
    ]
    path = "/apis/discovery.k8s.io/v1/namespaces/system/endpointslices"
    for endpoints, reachable in cases:
        with subtests.test(endpoints=endpoints):
            api.objects[path] = {"items": [{"endpoints": endpoints}, {"endpoints": None}]}
            assert await is_reachable(api, ("system", "gpufence", 443)) is reachable


async def test_a_service_counts_as_reachable_if_reading_endpoints_is_forbidden() -> None:
    api = FakeKubeApi()
    api.error = ApiError(403, "endpointslices is forbidden")
    assert await is_reachable(api, ("system", "gpufence", 443))
    api.error = ApiError(500, "etcd is away")
    with pytest.raises(ApiError):
        await is_reachable(api, ("system", "gpufence", 443))
