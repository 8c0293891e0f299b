"""The Secrets of the certificates, and everything that can happen to them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certificates import trusts
from certs import CertificateError
from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair
from certs.secret import (
    Timing,
    authority_data,
    read_authority,
    read_certificate,
    read_leaf,
    serving_data,
    with_data,
)
from fake_apiserver import FakeKubeApi, FakeObjects
from policies.kubernetes.objects import JSONObject
from webhook.controller.certificates import (
    CERT_MANAGER,
    ExternalCertificates,
    IssuedCertificates,
    SecretName,
)
from webhook.controller.owner import Owner
from webhook.controller.trust import Bundle
from webhook.kube.errors import ApiError, ClusterError
from webhook.registered import KINDS, bundles

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
CA, SERVING = SecretName("system", "ca"), SecretName("system", "serving")
FOREIGN = create_authority(NOW)
NAMES = ["gpufence.system.svc"]
TIMING = Timing(
    authority=300 * DAY, leaf=30 * DAY, settle=timedelta(seconds=30), overlap=timedelta(hours=1)
)
OWNER = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpufence"


class Controller:
    """One controller, at times of the test's choice."""

    def __init__(self, api: FakeKubeApi, owner: Owner | None = None) -> None:
        self.api = api
        self.clock = 0.0
        self.issued: list[str] = []
        self.is_serving = True
        self.certificates = IssuedCertificates(
            api,
            FakeObjects(api),
            CA,
            SERVING,
            NAMES[0],
            TIMING,
            configuration="gpufence",
            owner=owner,
            is_serving=self._is_serving,
            clock=lambda: self.clock,
            changed=self.issued.append,
        )
        self.bundle = Bundle(TIMING.overlap, clock=lambda: self.clock)

    async def _is_serving(self) -> bool:
        return self.is_serving

    async def reconcile(self, now: datetime = NOW, *, after: float = 0) -> bytes:
        """Reconcile when the API server has this time, so many seconds after the last time."""
        self.clock += after
        self.api.now = now
        return await self.certificates.reconcile()

    async def register(self, now: datetime = NOW, *, after: float = 0) -> None:
        """Reconcile, and publish the CAs in both configurations."""
        own = await self.reconcile(now, after=after)
        published = [bundle for each in registered(self.api) for bundle in bundles(each).values()]
        carry(self.api, self.bundle.publish(own, published))


@pytest.fixture
def api() -> FakeKubeApi:
    return FakeKubeApi()


def carry(api: FakeKubeApi, *carried: bytes) -> None:
    """Have the webhooks of each configuration carry a bundle; the last one stands for the rest."""
    for path, bundle in zip(KINDS.values(), [*carried, carried[-1]], strict=False):
        config = {"caBundle": base64.b64encode(bundle).decode()}
        webhooks = [
            {"name": "pods.gpufence.dev", "clientConfig": config},
            {"name": "pods-placement.gpufence.dev", "clientConfig": config},
            {"name": "other.example", "clientConfig": {}},
        ]
        api.objects[f"{path}/gpufence"] = {"metadata": {}, "webhooks": webhooks}


def registered(api: FakeKubeApi) -> list[JSONObject]:
    return [
        api.objects[f"{path}/gpufence"]
        for path in KINDS.values()
        if f"{path}/gpufence" in api.objects
    ]


def authority(api: FakeKubeApi) -> KeyPair:
    found = read_authority(api.objects[CA.path])
    assert found is not None
    return found


def leaf(api: FakeKubeApi) -> KeyPair:
    found = read_leaf(api.objects[SERVING.path])
    assert found is not None
    return found


def is_served_and_trusted(api: FakeKubeApi, served: KeyPair) -> bool:
    """Return whether every webhook trusts a pair that replicas may still serve."""
    found = [bundle for each in registered(api) for bundle in bundles(each).values()]
    return bool(found) and all(trusts(each, served) for each in found)


async def test_both_secrets_are_created_at_once_before_anything_is_registered(
    api: FakeKubeApi,
) -> None:
    controller = Controller(api)
    published = await controller.reconcile()
    assert published == authority(api).certificate_pem
    assert trusts(published, leaf(api))
    assert set(api.objects[SERVING.path]["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert set(api.objects[CA.path]["data"]) == {"ca.crt", "ca.key"}
    assert controller.issued == ["ca", "serving"]
    assert await controller.reconcile() == published
    assert controller.issued == ["ca", "serving"]


async def test_what_is_written_is_owned_and_labeled(api: FakeKubeApi) -> None:
    api.objects[OWNER] = {"metadata": {"name": "gpufence", "uid": "1"}}
    await Controller(api, Owner.parse("clusterrole/gpufence")).reconcile()
    for secret in (CA, SERVING):
        metadata = api.objects[secret.path]["metadata"]
        assert [owner["uid"] for owner in metadata["ownerReferences"]] == ["1"]
        assert metadata["labels"] == {"app.kubernetes.io/name": "gpufence"}


async def test_of_an_empty_secret_of_the_chart_only_the_data_changes(api: FakeKubeApi) -> None:
    before = {}
    for secret in (CA, SERVING):
        labels = {"app.kubernetes.io/managed-by": "Helm"}
        made: JSONObject = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
        made["metadata"] = {"name": secret.name, "labels": labels}
        before[secret] = api.server.put(secret.collection, made)
    # Who may create no Secrets may not look up their owner either.
    await Controller(api, Owner.parse("clusterrole/gpufence")).reconcile()
    for secret, old in before.items():
        new = api.objects[secret.path]
        assert new["metadata"].pop("resourceVersion") > old["metadata"].pop("resourceVersion")
        assert {**old, "data": new["data"], "metadata": new["metadata"]} == new
        assert new["metadata"].items() >= old["metadata"].items()


async def test_the_error_of_a_secret_that_may_not_be_created_says_what_to_do(
    api: FakeKubeApi,
) -> None:
    api.server.errors[CA.collection] = (403, "secrets is forbidden")
    with pytest.raises(
        ClusterError,
        match=r"Secret system/ca does not exist; restore the release \(helm upgrade\), or create "
        r"it empty \(kubectl --namespace system create secret generic ca\): secrets is forbidden",
    ):
        await Controller(api).reconcile()


async def test_nothing_is_written_once_the_owner_is_gone(api: FakeKubeApi) -> None:
    """While the release is uninstalled, the garbage collector deletes the Secrets."""
    with pytest.raises(ClusterError, match="ClusterRole gpufence does not exist"):
        await Controller(api, Owner.parse("clusterrole/gpufence")).reconcile()
    assert api.objects == {}


async def test_two_controllers_use_the_same_ca(api: FakeKubeApi) -> None:
    first, second = Controller(api), Controller(api)
    api.between(first.reconcile)
    with pytest.raises(ApiError, match="already exists"):
        await second.reconcile()
    assert await second.reconcile() == await first.reconcile()
    assert second.issued == []


async def test_a_renewal_that_loses_a_race_changes_nothing(api: FakeKubeApi) -> None:
    first, second = Controller(api), Controller(api)
    await first.register()
    for controller in (first, second):
        await controller.reconcile(after=0)
    later = NOW + 20 * DAY
    for controller in (first, second):
        controller.clock += 30

    api.between(lambda: first.reconcile(later))
    with pytest.raises(ApiError, match="modified"):
        await second.reconcile(later)
    assert (first.issued[-1], second.issued) == ("serving", [])


async def test_a_new_ca_signs_once_all_webhooks_have_carried_it_for_a_while(
    api: FakeKubeApi,
) -> None:
    controller, now = Controller(api), NOW + 200 * DAY
    await controller.register()
    await controller.register(NOW + 190 * DAY, after=60)
    served, old = leaf(api), authority(api)
    await controller.reconcile(now, after=5)
    new = authority(api)
    assert new != old
    # One of the configurations does not carry it yet, and then for too short a time.
    both = old.certificate_pem + new.certificate_pem
    carry(api, both, old.certificate_pem)
    await controller.reconcile(now, after=60)
    carry(api, both)
    await controller.reconcile(now, after=60)
    await controller.reconcile(now, after=29)
    assert leaf(api) == served
    # A client takes it out again: the wait starts again.
    carry(api, old.certificate_pem)
    await controller.reconcile(now, after=1)
    carry(api, both)
    await controller.reconcile(now, after=1)
    await controller.reconcile(now, after=29)
    assert leaf(api) == served
    await controller.reconcile(now, after=1)
    assert trusts(new.certificate_pem, leaf(api))


def fill(api: FakeKubeApi, data: dict[SecretName, dict[str, bytes] | None]) -> None:
    for secret, content in data.items():
        if content is None:
            del api.objects[secret.path]
        elif content == {"ca.crt": b"+"}:
            fill(api, {secret: {"ca.crt": certificate(api, secret) + FOREIGN.certificate_pem}})
        elif content:
            api.objects[secret.path] = with_data(api.objects[secret.path], content)
        else:
            api.objects[secret.path]["data"] = {}


def certificate(api: FakeKubeApi, secret: SecretName) -> bytes:
    return read_certificate(api.objects[secret.path])


FOREIGN_PAIR = serving_data(issue_leaf(FOREIGN, NAMES, NOW), FOREIGN)
LOSSES: dict[str, dict[SecretName, dict[str, bytes] | None]] = {
    "the CA": {CA: None},
    "the serving pair": {SERVING: None},
    "both": {CA: None, SERVING: None},
    "the content of both": {CA: {}, SERVING: {}},
    "the key of the CA": {CA: {"ca.key": b""}},
    "another CA": {CA: authority_data(FOREIGN)},
    "garbage as ca.crt": {SERVING: {"ca.crt": b"cut off"}},
    "a foreign CA in ca.crt": {CA: {"ca.crt": b"+"}, SERVING: {"ca.crt": b"+"}},
    "a foreign pair": {SERVING: FOREIGN_PAIR},
}
"""What can happen to the Secrets, by a person or by a backup that is restored.

None deletes a Secret, and + adds a foreign certificate.
"""


@pytest.mark.parametrize("also", ["alive", "dead", "edited", "deleted"])
@pytest.mark.parametrize("lost", LOSSES)
async def test_replicas_stay_trusted_after_a_loss(api: FakeKubeApi, lost: str, also: str) -> None:
    """Kubelets keep what is mounted until the Secret has a new pair, and a minute longer.

    In the meantime, the controller may restart, or the configurations lose their caBundles.
    """
    controller = Controller(api)
    for _ in range(2):
        await controller.register(after=30)
    mounted = leaf(api)
    fill(api, LOSSES[lost])
    if also == "dead":
        controller = Controller(api)
    for number in range(20):
        if also == "edited" and number % 8 == 7:
            carry(api, FOREIGN.certificate_pem if number > 8 else b"")
        if also == "deleted" and number % 8 == 7:
            for path in KINDS.values():
                del api.objects[f"{path}/gpufence"]
        await controller.register(after=5)
        assert is_served_and_trusted(api, mounted)
        if SERVING.path in api.objects and read_leaf(api.objects[SERVING.path]):
            assert is_served_and_trusted(api, leaf(api))
    signer = authority(api).certificate_pem
    assert trusts(signer, leaf(api))
    assert certificate(api, CA) == certificate(api, SERVING) == signer
    if also != "dead" and lost != "another CA":
        assert not is_served_and_trusted(api, FOREIGN)
    # What a replica mounts in the meantime is trusted until all have it, and then only that.
    for _ in range(3):
        await controller.register(after=3600)
    for bundle in bundles(registered(api)[0]).values():
        assert bundle == authority(api).certificate_pem


async def test_an_expired_pair_is_replaced_at_once(api: FakeKubeApi) -> None:
    """No client accepts it, so there is nothing to wait for."""
    controller = Controller(api)
    await controller.register()
    controller = Controller(api)
    later = NOW + 400 * DAY
    await controller.reconcile(later)
    assert leaf(api).certificate.not_valid_after_utc > later


async def test_a_pair_is_signed_at_once_if_no_replica_serves_another(api: FakeKubeApi) -> None:
    """The namespace was deleted and installed again: API servers trust a lost CA."""
    await Controller(api).register()
    fill(api, LOSSES["the content of both"])
    controller = Controller(api)
    controller.is_serving = False
    await controller.register()
    assert is_served_and_trusted(api, leaf(api))


async def test_a_restarted_controller_does_not_wait_for_trust_that_callers_have(
    api: FakeKubeApi,
) -> None:
    await Controller(api).register()
    for path in KINDS.values():
        since = {"manager": "gpufence", "time": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}
        api.objects[f"{path}/gpufence"]["metadata"]["managedFields"] = [since]
    for seconds, signs in ((29, False), (31, True)):
        api.objects[SERVING.path]["data"] = {}
        await Controller(api).reconcile(NOW + timedelta(seconds=seconds))
        assert bool(api.objects[SERVING.path]["data"]) == signs


async def test_a_secret_of_cert_manager_is_never_written(api: FakeKubeApi) -> None:
    annotations = {CERT_MANAGER: "gpufence"}
    api.objects[SERVING.path] = {"metadata": {"name": "serving", "annotations": annotations}}
    with pytest.raises(ClusterError, match="cert-manager writes Secret system/serving; choose"):
        await Controller(api).reconcile()
    assert "data" not in api.objects[SERVING.path]


async def test_the_ca_of_another_controller_is_read(api: FakeKubeApi) -> None:
    external = ExternalCertificates(FakeObjects(api), SERVING)
    with pytest.raises(CertificateError, match=r"^Secret system/serving: has no CA certificate in"):
        await external.reconcile()
    ca = create_authority(NOW)
    pair = issue_leaf(ca, NAMES, NOW)
    api.objects[SERVING.path] = with_data({"metadata": {}}, serving_data(pair, ca))
    assert await external.reconcile() == ca.certificate_pem
    api.objects[SERVING.path]["data"]["ca.crt"] = base64.b64encode(b"cut off").decode()
    with pytest.raises(CertificateError, match="use an issuer that is a CA"):
        await external.reconcile()
    assert read_certificate(api.objects[SERVING.path]) == b"cut off"
