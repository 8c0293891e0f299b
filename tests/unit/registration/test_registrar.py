"""Which configurations and admission policies are written, repaired and deleted."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from fake_apiserver import FakeKubeApi
from policies.kubernetes.objects import JSONObject
from reviewing import default_policy
from webhook.controller.registrar import KINDS, Registrar, RegistrationError, is_reachable
from webhook.controller.registrar import POLICY_KINDS as PATHS
from webhook.controller.text.objects import (
    BINDING_KIND,
    POLICY_KIND,
    Registration,
    admission_policies,
    configurations,
)
from webhook.kube.client import Query
from webhook.kube.errors import ApiError

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


class Api(FakeKubeApi):
    """Lists both collections, and has the bindings of the chart."""

    def __init__(self, *, served: bool = True) -> None:
        super().__init__()
        self.served = served
        if served:
            self.objects.update(copy.deepcopy(BINDINGS))

    async def read(self, path: str, query: Query | None = None) -> JSONObject | None:
        if path not in PATHS.values():
            return await super().read(path, query)
        if not self.served:
            return None
        below = [obj for at, obj in self.objects.items() if at.startswith(f"{path}/")]
        return {"items": copy.deepcopy(below)}


Writes = list[tuple[str, str]]


def registrar(api: FakeKubeApi, counted: Writes | None = None) -> Registrar:
    """Return a registrar whose writes are added to the list."""
    writes = [] if counted is None else counted
    return Registrar(api, lambda kind, reason: writes.append((kind, reason)), "gpufence")


async def test_obsolete_policies_are_deleted_and_those_of_other_products_kept() -> None:
    api = Api()
    kept = registrar(api)
    await kept.register_policies(WANTED)
    for name in ("of-another-product", "gpufence-pods"):
        api.objects[f"{PATHS[POLICY_KIND]}/{name}"] = {"metadata": {"name": name}, "spec": {}}
    await kept.register_policies(WANTED)
    await kept.register_policies(())
    assert f"{PATHS[POLICY_KIND]}/of-another-product" in api.objects
    # A binding without its policy has no effect.
    assert api.objects.keys() == {f"{PATHS[POLICY_KIND]}/of-another-product", *BINDINGS}


@pytest.mark.parametrize("change", [dict.clear, lambda spec: spec.update(policyName="other")])
async def test_a_binding_that_is_missing_or_differs_is_an_error_and_not_written(
    change: Callable[[JSONObject], None],
) -> None:
    api, written = Api(), Writes()
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


async def test_the_error_of_a_former_policy_that_may_not_be_deleted_says_what_to_do() -> None:
    api = Api()
    api.objects[f"{PATHS[POLICY_KIND]}/gpufence-pods"] = {"metadata": {"name": "gpufence-pods"}}
    api.write_error = ApiError(403, "you may not")
    with pytest.raises(ApiError, match="delete ValidatingAdmissionPolicy gpufence-pods, which"):
        await registrar(api).register_policies(())


async def test_nothing_is_written_if_the_policy_api_is_not_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api(served=False)
    kept = registrar(api)
    await kept.register_policies(WANTED)
    await kept.register_policies(WANTED)
    assert not api.objects
    assert caplog.text.count("second line incomplete") == 1


async def test_a_type_checking_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
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


async def test_drift_that_remains_after_registration_is_an_error() -> None:
    def stubborn(obj: JSONObject) -> JSONObject:
        first, *others = obj["webhooks"]
        return {**obj, "webhooks": [{**first, "timeoutSeconds": 30}, *others]}

    api = FakeKubeApi()
    api.server.admit = stubborn
    with pytest.raises(RegistrationError, match=r"timeoutSeconds of webhook .*managedFields"):
        await registrar(api).register((VALIDATING,))


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
