"""What one replica does in a round: its certificates first, and the rest only while it serves."""

from __future__ import annotations

import base64
import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from certs import CertificateError
from certs.authority import create_authority, issue_leaf
from certs.keypair import Names, is_trusted_by
from certs.secret import Stored, Timing, write_secret
from fake_apiserver import FakeKubeApi
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.objects import JSONObject
from policies.policy import ExceptionEntry
from reviewing import default_policy
from webhook.controller import controller as module
from webhook.controller.cel.admission_policies import POLICY_KIND
from webhook.controller.cel.configurations import Registration, configurations
from webhook.controller.certificates import SecretName
from webhook.controller.controller import ControllerOptions, RegistrationController
from webhook.controller.leader_election import lease_path, pause
from webhook.controller.registrar import KINDS, Owner
from webhook.controller.registrar import POLICY_KINDS as PATHS
from webhook.kube.client import Query, ServerClock
from webhook.kube.credentials import Access, Load
from webhook.kube.errors import ApiError, ClusterError
from webhook.serve.metrics.replica import Metrics

NOW = datetime.now(UTC)
ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/system/endpointslices"
SECRET = SecretName("system", "certificates")
LEASE = lease_path("system", "gpufence")
CONFIGURATIONS = [f"{path}/gpufence" for path in KINDS.values()]


class Api(FakeKubeApi):
    """Made where RegistrationController makes its connection."""

    def __init__(self, _load: Load, _clock: ServerClock | None = None) -> None:
        super().__init__()


class Replica:
    def __init__(self, **given: Any) -> None:
        async def load() -> Access:
            raise AssertionError("nothing is to be connected")

        options: dict[str, Any] = {
            "load": load,
            "namespace": "system",
            "registration": Registration(url="https://localhost:1"),
            "secret": SECRET,
        }
        self.can_serve = True
        self.served = b""
        policy = given.pop("policy", default_policy())
        metrics = Metrics(policy, "test")
        self.registry = metrics.registry
        self.controller = RegistrationController(
            ControllerOptions(**{**options, **given}),
            lambda: policy,
            metrics,
            lambda: self.can_serve,
            lambda: self.served,
        )
        api = self.controller._api  # noqa: SLF001 - what the test stands in for
        assert isinstance(api, Api)
        self.api = api

    async def reconcile(self) -> None:
        await self.controller.elect()
        await self.controller.reconcile()

    @property
    def registered(self) -> list[bool]:
        return [path in self.api.objects for path in CONFIGURATIONS]

    @property
    def webhooks(self) -> list[JSONObject]:
        """The registered webhooks of both configurations."""
        return [each for path in CONFIGURATIONS for each in self.api.objects[path]["webhooks"]]

    def serve_secret(self) -> bytes:
        """Serve the certificate of the Secret, and return it."""
        assert self.controller.source is not None
        self.served = self.controller.source.read().certificate_pem
        return self.served

    def register_other_ca(self) -> str:
        """Have all webhooks carry another CA, and return it."""
        other = base64.b64encode(create_authority(NOW).certificate_pem).decode()
        for webhook in self.webhooks:
            webhook["clientConfig"]["caBundle"] = other
        return other


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> type[Replica]:
    monkeypatch.setattr(module, "KubeApi", Api)
    return Replica


async def test_the_configurations_carry_the_ca_of_the_secret(make: type[Replica]) -> None:
    replica = make()
    await replica.reconcile()
    authority = replica.api.objects[SECRET.path]["data"]["ca.crt"]
    assert {each["clientConfig"]["caBundle"] for each in replica.webhooks} == {authority}
    assert replica.registry.get_sample_value("gpufence_leader") == 1


async def test_a_replica_registers_and_holds_the_lease_only_while_it_serves(
    make: type[Replica],
) -> None:
    replica = make()
    replica.can_serve = False
    await replica.reconcile()
    assert SECRET.path in replica.api.objects
    assert LEASE not in replica.api.objects
    replica.can_serve = True
    await replica.reconcile()
    assert replica.registered == [True, True]
    replica.can_serve = False
    await replica.reconcile()
    assert replica.api.objects[LEASE]["spec"]["holderIdentity"] == ""


async def test_with_register_false_only_the_secret_is_written(make: type[Replica]) -> None:
    replica = make(register=False)
    await replica.reconcile()
    assert list(replica.api.objects) == [SECRET.path]


async def test_is_leader_follows_the_lease_and_is_true_without_registration(
    make: type[Replica],
) -> None:
    registering = make()
    assert not registering.controller.is_leader
    await registering.reconcile()
    assert registering.controller.is_leader
    await registering.controller.close()
    assert not registering.controller.is_leader
    assert make(register=False).controller.is_leader


async def test_the_configurations_carry_the_current_and_previous_ca_of_the_file(
    make: type[Replica], tmp_path: Path
) -> None:
    file = tmp_path / "ca.crt"
    replica = make(secret=None, ca_file=file)
    assert replica.controller.source is None
    before = b""
    for authority in (create_authority(NOW), create_authority(NOW)):
        file.write_bytes(authority.certificate_pem)
        await replica.reconcile()
        # Other replicas may still serve a certificate of the CA that the file held before.
        assert registered_bundle(replica) == authority.certificate_pem + before
        before = authority.certificate_pem
    assert SECRET.path not in replica.api.objects


@pytest.mark.parametrize("cut", [0, 200], ids=["empty", "cut off"])
async def test_a_ca_file_without_a_certificate_is_never_registered(
    make: type[Replica], tmp_path: Path, cut: int
) -> None:
    """An API server would store it, and then fail every request that it should send."""
    file = tmp_path / "ca.crt"
    replica = make(secret=None, ca_file=file)
    whole = create_authority(NOW).certificate_pem
    file.write_bytes(whole)
    await replica.reconcile()
    file.write_bytes(whole[:cut])
    with pytest.raises(CertificateError, match=f"^{file}: contains no valid PEM certificate"):
        await replica.reconcile()
    assert registered_bundle(replica) == whole


def registered_bundle(replica: Replica) -> bytes:
    return base64.b64decode(replica.webhooks[0]["clientConfig"]["caBundle"])


async def test_only_the_first_registration_waits_for_a_ready_endpoint(make: type[Replica]) -> None:
    replica = make(registration=Registration(service=("system", "gpufence", 443)))
    with pytest.raises(ClusterError, match="has no ready endpoint"):
        await replica.reconcile()
    assert replica.registered == [False, False]
    replica.api.objects[ENDPOINTS] = {"items": [{"endpoints": [{"conditions": {"ready": True}}]}]}
    await replica.reconcile()
    assert replica.registered == [True, True]
    del replica.api.objects[ENDPOINTS], replica.api.objects[CONFIGURATIONS[0]]
    await replica.reconcile()
    assert replica.registered == [True, True]


async def test_an_unreadable_secret_does_not_prevent_registration(
    make: type[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost right or a failed encryption provider must not open the fence."""
    replica = make()
    await replica.reconcile()
    authority = registered_bundle(replica)
    read = replica.api.read

    async def refusing(path: str, query: Query | None = None) -> JSONObject | None:
        if path == SECRET.path:
            raise ApiError(403, "secrets is forbidden")
        return await read(path, query)

    monkeypatch.setattr(replica.api, "read", refusing)
    del replica.api.objects[CONFIGURATIONS[0]]
    with pytest.raises(ApiError, match="secrets is forbidden"):
        await replica.reconcile()
    assert replica.registered == [True, True]
    assert registered_bundle(replica) == authority
    # One that has never read it has nothing to register.
    fresh = make()
    monkeypatch.setattr(fresh.api, "read", refusing)
    with pytest.raises(ApiError, match="secrets is forbidden"):
        await fresh.reconcile()
    assert fresh.registered == [False, False]


async def test_nothing_is_registered_if_the_owner_does_not_exist(make: type[Replica]) -> None:
    replica = make(owner=Owner.parse("clusterrole/gpufence"))
    with pytest.raises(ClusterError, match="ClusterRole gpufence does not exist"):
        await replica.reconcile()
    assert replica.registered == [False, False]


async def test_a_pause_stops_registration_and_its_end_is_not_counted_as_drift(
    make: type[Replica],
) -> None:
    replica = make()
    await replica.reconcile()
    await pause(replica.api, "system", "gpufence", "noon")
    for path in CONFIGURATIONS:
        await replica.api.delete(path)
    with pytest.raises(ClusterError, match="at noon; gpufence unregister --undo reverts that"):
        await replica.reconcile()
    assert replica.registered == [False, False]
    await pause(replica.api, "system", "gpufence", None)
    await replica.reconcile()
    assert replica.registered == [True, True]
    for kind in KINDS:
        labels = {"kind": kind, "reason": "drift"}
        name = "gpufence_registration_writes_total"
        assert replica.registry.get_sample_value(name, labels) is None


async def test_a_follower_reconciles_certificates_but_does_not_register(
    make: type[Replica],
) -> None:
    replica = make()
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15}
    await replica.api.create(lease_path("system"), {"metadata": {"name": "gpufence"}, "spec": spec})
    await replica.reconcile()
    assert SECRET.path in replica.api.objects
    assert replica.registered == [False, False]
    assert replica.registry.get_sample_value("gpufence_leader") == 0
    assert replica.registry.get_sample_value("gpufence_ca_bundle_certificates") == 1


async def test_a_replica_is_untrusted_until_it_has_checked_the_configurations(
    make: type[Replica],
) -> None:
    """A probe that finds it ready sends it requests for the next ten seconds."""
    replica = make(registration=Registration(service=("system", "gpufence", 443)))
    replica.api.error = ClusterError("the API server is out of reach")
    with pytest.raises(ClusterError, match="out of reach"):
        await replica.controller.reconcile()
    assert replica.controller.untrusted == "the webhook configurations are not checked yet"
    replica.api.error = None
    # None is registered: the replica must become ready first.
    with pytest.raises(ClusterError, match="has no ready endpoint"):
        await replica.reconcile()
    assert replica.controller.untrusted == ""


async def test_a_replica_is_untrusted_until_its_ca_is_back_in_the_ca_bundle(
    make: type[Replica],
) -> None:
    replica = make()
    await replica.reconcile()
    replica.serve_secret()
    await replica.reconcile()
    assert replica.controller.untrusted == ""
    # Another replica leads, and registers another CA.
    replica.can_serve = False
    replica.register_other_ca()
    await replica.reconcile()
    assert replica.controller.untrusted == (
        "the caBundle of MutatingWebhookConfiguration and ValidatingWebhookConfiguration gpufence "
        "does not trust the served certificate"
    )
    # The broken configuration is why there is no endpoint, so the leader repairs it without one.
    replica.can_serve = True
    await replica.reconcile()
    assert replica.controller.untrusted == ""


async def test_no_replica_adds_its_ca_while_registration_is_paused(make: type[Replica]) -> None:
    replica = make()
    await replica.reconcile()
    replica.serve_secret()
    await pause(replica.api, "system", "gpufence", "noon")
    other = replica.register_other_ca()
    for _ in range(2):
        with pytest.raises(ClusterError, match="at noon"):
            await replica.reconcile()
    assert "does not trust" in replica.controller.untrusted
    assert {each["clientConfig"]["caBundle"] for each in replica.webhooks} == {other}


@pytest.mark.parametrize("upgraded", ["to files", "from files"])
async def test_replicas_of_two_cas_are_trusted_before_and_after_leader_change(
    make: type[Replica], tmp_path: Path, upgraded: str
) -> None:
    """While an upgrade changes where certificates come from: else it would never end."""
    authority = create_authority(NOW)
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.certificate_pem)
    timing = Timing(settle=timedelta())
    files = make(secret=None, ca_file=file, timing=timing)
    own = make(timing=timing)
    files.served = issue_leaf(authority, Names.parse(["localhost"]), NOW).certificate_pem
    old, new = (own, files) if upgraded == "to files" else (files, own)
    new.api.server = old.api.server

    async def reconcile_old_and_new() -> None:
        for replica in (old, new):
            await replica.reconcile()
            if replica is own:
                own.serve_secret()

    for _ in range(3):
        await reconcile_old_and_new()
    assert old.controller.is_leader
    assert (old.controller.untrusted, new.controller.untrusted) == ("", "")
    await old.controller.close()
    old.can_serve = False
    for _ in range(3):
        await reconcile_old_and_new()
    assert new.controller.is_leader
    assert (old.controller.untrusted, new.controller.untrusted) == ("", "")


async def test_a_starting_replica_waits_until_its_new_ca_has_propagated_or_it_leads(
    make: type[Replica], tmp_path: Path
) -> None:
    authority = create_authority(NOW)
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.certificate_pem)
    old, new = make(), make(secret=None, ca_file=file)
    new.served = issue_leaf(authority, Names.parse(["localhost"]), NOW).certificate_pem
    new.api.server = old.api.server
    await old.reconcile()
    await new.reconcile()
    assert "does not trust" in new.controller.untrusted
    await new.reconcile()
    assert new.controller.untrusted == (
        "waiting until API servers have seen the CA of the served certificate"
    )
    # Without other replicas, the wait would prolong an outage.
    await old.controller.close()
    await new.reconcile()
    assert new.controller.is_leader
    assert new.controller.untrusted == ""


async def test_a_leader_that_starts_after_a_backup_is_restored_keeps_the_served_ca(
    make: type[Replica],
) -> None:
    """It has never read the Secret with that CA, which other replicas serve until they poll."""
    old, new = make(), make()
    new.api.server = old.api.server
    await old.reconcile()
    served = old.serve_secret()
    ca = create_authority(NOW)
    backup = Stored(ca, issue_leaf(ca, Names.parse(["localhost"]), NOW))
    live = old.api.objects[SECRET.path]
    old.api.objects[SECRET.path] = write_secret(backup, SECRET.name, SECRET.namespace, live)
    # It no longer leads, and has not read the Secret.
    await old.controller.close()
    await new.reconcile()
    assert new.controller.is_leader
    assert is_trusted_by(backup.leaf.certificate_pem, registered_bundle(new))
    assert is_trusted_by(served, registered_bundle(new))


async def test_a_release_excludes_the_namespaces_of_other_releases(make: type[Replica]) -> None:
    """After an outage of both, none may wait for the other."""
    replica = make()
    other = Registration(name="second", service=("second-system", "second", 443))
    for configuration in configurations(default_policy(), other):
        await replica.api.create(KINDS[configuration["kind"]], configuration)
    foreign = {**configuration, "metadata": {"name": "foreign", "labels": {}}}
    await replica.api.create(KINDS[configuration["kind"]], foreign)
    await replica.reconcile()
    for webhook in replica.webhooks:
        [selector] = webhook["namespaceSelector"]["matchExpressions"]
        assert "second-system" in selector["values"]


async def test_registration_succeeds_without_permission_to_list_configurations(
    make: type[Replica],
) -> None:
    replica = make()
    replica.api.server.errors[KINDS["ValidatingWebhookConfiguration"]] = (403, "forbidden")
    await replica.reconcile()
    assert replica.registered == [True, True]


POLICY = f"{PATHS[POLICY_KIND]}/gpufence-pods"


def with_admission_policies(replica: Replica) -> Replica:
    """Have the API serve the collections, which are empty."""
    replica.api.objects.update({path: {"items": []} for path in PATHS.values()})
    return replica


async def test_admission_policies_are_written_before_an_endpoint_is_ready(
    make: type[Replica],
) -> None:
    registration = Registration(service=("system", "gpufence", 443))
    replica = with_admission_policies(make(registration=registration))
    with pytest.raises(ClusterError, match="has no ready endpoint"):
        await replica.reconcile()
    assert replica.registered == [False, False]
    assert POLICY in replica.api.objects


async def test_exceptions_in_admission_policies_expire_by_api_server_time(
    make: type[Replica],
) -> None:
    """The clock of the replica may be wrong."""
    exception = ExceptionEntry(
        rules=frozenset({"pool-trespass"}),
        namespaces=NameSet(["legacy"]),
        kinds=frozenset(),
        names=NameSet(["web-*"]),
        reason="moves next month",
        expires=NOW.date() + timedelta(days=10),
    )
    policy = dataclasses.replace(default_policy(), exceptions=(exception,))
    replica = with_admission_policies(make(policy=policy))
    for days, stands in ((0, True), (20, False)):
        replica.api.now = NOW + timedelta(days=days)
        await replica.reconcile()
        assert ("legacy" in str(replica.api.objects[POLICY]["spec"])) == stands


async def test_webhooks_are_registered_if_admission_policies_are_forbidden(
    make: type[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade of the image without the chart's new rights."""
    replica = with_admission_policies(make())
    apply = replica.api.apply

    async def limited(path: str, obj: JSONObject) -> JSONObject:
        if path.startswith(tuple(PATHS.values())):
            raise ApiError(403, "may not patch validatingadmissionpolicies")
        return await apply(path, obj)

    monkeypatch.setattr(replica.api, "apply", limited)
    with pytest.raises(ClusterError, match="may not patch validatingadmissionpolicies"):
        await replica.reconcile()
    assert replica.registered == [True, True]


async def test_admission_policies_are_not_written_if_disabled(make: type[Replica]) -> None:
    replica = with_admission_policies(make(admission_policies=False))
    await replica.reconcile()
    assert replica.registered == [True, True]
    assert POLICY not in replica.api.objects
