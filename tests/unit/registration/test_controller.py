"""What the controller does in a round: certificates, and what API servers know of gpufence."""

from __future__ import annotations

import base64
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fake_apiserver import FakeKubeApi, FakeObjects
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.objects import JSONObject
from policies.policy import ExceptionEntry
from reviewing import default_policy
from webhook.controller.certificates import SecretName
from webhook.controller.controller import Controller, ControllerOptions
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.registrar import POLICY_KINDS as PATHS
from webhook.controller.text.objects import (
    BINDING_KIND,
    POLICY_KIND,
    Registration,
    admission_policies,
)
from webhook.kube.credentials import Access
from webhook.kube.errors import ApiError, ClusterError
from webhook.registered import KINDS

NOW = datetime.now(UTC)
ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/system/endpointslices"
READY = {"items": [{"endpoints": [{"conditions": {"ready": True}}]}]}
CA, SERVING = SecretName("system", "ca"), SecretName("system", "serving")
CONFIGURATIONS = [f"{path}/gpufence" for path in KINDS.values()]
POLICY = f"{PATHS[POLICY_KIND]}/gpufence-pool-trespass"
SERVICE = Registration(service=("system", "gpufence", 443))


class Rounds:
    """A controller, and its API server, which serves the admission policies."""

    def __init__(self, **given: Any) -> None:
        async def load() -> Access:
            raise AssertionError("nothing is to be connected")

        options: dict[str, Any] = {
            "load": load,
            "registration": Registration(url="https://localhost:1"),
            "serving_secret": SERVING,
            "ca_secret": CA,
        }
        policy = given.pop("policy", default_policy())
        metrics = ControllerMetrics()
        self.registry = metrics.registry
        self.api = FakeKubeApi()
        self.controller = Controller(
            ControllerOptions(**{**options, **given}),
            self.api,
            FakeObjects(self.api),
            lambda: policy,
            metrics,
        )
        for each in admission_policies(default_policy(), options["registration"]):
            if each["kind"] == BINDING_KIND:
                self.api.objects[f"{PATHS[BINDING_KIND]}/{each['metadata']['name']}"] = each

    async def reconcile(self) -> None:
        await self.controller.keep_certificates()
        await self.controller.register()

    @property
    def registered(self) -> list[bool]:
        return [path in self.api.objects for path in CONFIGURATIONS]

    @property
    def bundles(self) -> set[bytes]:
        """The different caBundles of all webhooks."""
        webhooks = [each for path in CONFIGURATIONS for each in self.api.objects[path]["webhooks"]]
        return {base64.b64decode(each["clientConfig"]["caBundle"]) for each in webhooks}


async def test_the_first_registration_waits_for_a_ready_endpoint() -> None:
    rounds = Rounds(registration=SERVICE)
    with pytest.raises(ClusterError, match="has no ready endpoint"):
        await rounds.reconcile()
    # Replicas need it to become ready.
    assert SERVING.path in rounds.api.objects
    assert rounds.registered == [False, False]
    assert POLICY not in rounds.api.objects
    rounds.api.objects[ENDPOINTS] = READY
    await rounds.reconcile()
    assert rounds.registered == [True, True]
    assert rounds.registry.get_sample_value("gpufence_ca_bundle_certificates") == 1
    assert POLICY in rounds.api.objects


async def test_what_is_registered_is_kept_while_no_replica_is_ready() -> None:
    rounds = Rounds(registration=SERVICE)
    rounds.api.objects[ENDPOINTS] = READY
    await rounds.reconcile()
    del rounds.api.objects[ENDPOINTS], rounds.api.objects[CONFIGURATIONS[0]]
    await rounds.reconcile()
    assert rounds.registered == [True, True]


async def test_nothing_is_registered_before_the_ca_is_known() -> None:
    rounds = Rounds()
    with pytest.raises(ClusterError, match="the CA of the replicas is not known"):
        await rounds.controller.register()
    assert rounds.registered == [False, False]


async def test_an_unreadable_secret_does_not_prevent_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost right or a failed encryption provider must not open the fence."""
    rounds = Rounds()
    await rounds.reconcile()
    before = rounds.bundles
    read = FakeObjects.read

    def refusing(self: FakeObjects, path: str) -> JSONObject | None:
        if path == CA.path:
            raise ApiError(403, "secrets is forbidden")
        return read(self, path)

    monkeypatch.setattr(FakeObjects, "read", refusing)
    del rounds.api.objects[CONFIGURATIONS[0]]
    with pytest.raises(ApiError, match="secrets is forbidden"):
        await rounds.controller.keep_certificates()
    await rounds.controller.register()
    assert rounds.bundles == before


async def test_exceptions_in_admission_policies_expire_by_api_server_time() -> None:
    """The clock of the controller may be wrong."""
    exception = ExceptionEntry(
        rules=frozenset({"pool-trespass"}),
        namespaces=NameSet(["legacy"]),
        kinds=frozenset(),
        names=NameSet(["web-*"]),
        reason="moves next month",
        expires=NOW.date() + timedelta(days=10),
    )
    policy = dataclasses.replace(default_policy(), exceptions=(exception,))
    rounds = Rounds(policy=policy)
    for days, stands in ((0, True), (20, False)):
        rounds.api.now = NOW + timedelta(days=days)
        await rounds.reconcile()
        assert ("legacy" in str(rounds.api.objects[POLICY]["spec"])) == stands


async def test_webhooks_are_registered_if_admission_policies_are_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after an upgrade of the image without the chart's new rights."""
    rounds = Rounds()
    apply = rounds.api.apply

    async def limited(path: str, obj: JSONObject) -> JSONObject:
        if path.startswith(tuple(PATHS.values())):
            raise ApiError(403, "may not patch validatingadmissionpolicies")
        return await apply(path, obj)

    monkeypatch.setattr(rounds.api, "apply", limited)
    with pytest.raises(ClusterError, match="may not patch validatingadmissionpolicies"):
        await rounds.reconcile()
    assert rounds.registered == [True, True]
