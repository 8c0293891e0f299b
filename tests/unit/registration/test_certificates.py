"""The Secret with several replicas at work on it, and everything that can happen in between."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from certs import CertificateError
from certs.authority import CLOCK_SKEW, create_authority, issue_leaf
from certs.keypair import Names
from certs.secret import Change, Stored, Timing, read_secret, write_secret
from fake_apiserver import FakeKubeApi
from webhook.controller.certificates import CERT_MANAGER, CertificateReconciler, SecretName
from webhook.controller.registrar import KINDS
from webhook.kube.errors import ApiError, ClusterError

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
SECRET = SecretName("system", "certificates")
NAMES = Names.parse(["gpufence.system.svc"])
TIMING = Timing(authority=300 * DAY, leaf=30 * DAY, settle=timedelta(seconds=30), overlap=DAY)


class Replica:
    def __init__(self, api: FakeKubeApi) -> None:
        self.clock = 0.0
        self.changes: list[Change] = []
        self.reconciler = CertificateReconciler(
            api,
            SECRET,
            NAMES,
            TIMING,
            configuration="gpufence",
            clock=lambda: self.clock,
            changed=self.changes.append,
        )
        self._api = api

    async def reconcile(self, now: datetime) -> Stored:
        """Reconcile when the API server has this time."""
        self._api.now = now
        return await self.reconciler.reconcile()


@pytest.fixture
def api() -> FakeKubeApi:
    return FakeKubeApi()


def carry(api: FakeKubeApi, *bundles: bytes) -> None:
    """Have each configuration's webhook carry a bundle."""
    for path, bundle in zip(KINDS.values(), bundles, strict=True):
        encoded = base64.b64encode(bundle).decode()
        webhooks = [
            {"clientConfig": {"caBundle": encoded}},
            {"clientConfig": {"caBundle": encoded}},
        ]
        api.objects[f"{path}/gpufence"] = {"metadata": {}, "webhooks": webhooks}


async def test_the_first_replica_creates_the_secret_and_the_second_reads_it(
    api: FakeKubeApi,
) -> None:
    first, second = Replica(api), Replica(api)
    with pytest.raises(CertificateError, match="has not been read yet"):
        first.reconciler.source.read()
    stored = await first.reconcile(NOW)
    assert await second.reconcile(NOW) == stored
    assert first.changes == [Change.CREATE]
    assert second.changes == []
    assert first.reconciler.source.read() == second.reconciler.source.read() == stored.leaf


@pytest.mark.parametrize("change", [Change.CREATE, Change.RENEW])
async def test_a_replica_that_loses_a_race_uses_the_secret_of_the_winner(
    api: FakeKubeApi, change: Change
) -> None:
    first, second, now = Replica(api), Replica(api), NOW
    if change is Change.RENEW:
        for replica in (first, second):
            await replica.reconcile(NOW)
        now += 20 * DAY
    api.between(lambda: first.reconcile(now))
    stored = await second.reconcile(now)
    assert stored == first.reconciler.stored == read_secret(api.objects[SECRET.path])
    assert (first.changes[-1], second.changes) == (change, [])


async def test_an_empty_secret_of_the_installer_is_filled(api: FakeKubeApi) -> None:
    await api.create(SECRET.collection, {"metadata": {"name": SECRET.name}, "type": "Opaque"})
    replica = Replica(api)
    assert read_secret(api.objects[SECRET.path]) is None
    stored = await replica.reconcile(NOW)
    assert read_secret(api.objects[SECRET.path]) == stored


@pytest.mark.parametrize("emptied", [True, False])
async def test_a_deleted_or_emptied_secret_is_restored(api: FakeKubeApi, emptied: bool) -> None:
    replica = Replica(api)
    stored = await replica.reconcile(NOW)
    if emptied:
        api.objects[SECRET.path]["data"] = {}
    else:
        del api.objects[SECRET.path]
    assert await replica.reconcile(NOW) == stored
    assert read_secret(api.objects[SECRET.path]) == stored


async def test_a_rotation_waits_until_both_cas_settle_in_all_configurations(
    api: FakeKubeApi,
) -> None:
    replica, now = Replica(api), NOW
    before = await replica.reconcile(now)
    now += 199 * DAY
    await replica.reconcile(now)  # a certificate for the time of the rotation
    now += DAY
    published = await replica.reconcile(now)
    assert published.next is not None
    old, both = before.bundle, published.bundle

    async def signs() -> bool:
        return (await replica.reconcile(now)).authority == published.next

    assert not await signs()  # there is no configuration at all
    carry(api, both, old)
    replica.clock += 100
    assert not await signs()
    carry(api, both, both)
    assert not await signs()
    replica.clock += 29
    assert not await signs()
    carry(api, old, both)  # an administrator restores an old one
    assert not await signs()
    carry(api, both, both)
    assert not await signs()
    replica.clock += 29
    assert not await signs()
    replica.clock += 1
    assert await signs()
    assert replica.changes[-2:] == [Change.PUBLISH, Change.PROMOTE]
    now += DAY
    after = await replica.reconcile(now)
    assert after.authorities == (published.next.certificate_pem,)
    assert replica.changes[-1] is Change.RETIRE


async def test_a_forbidden_write_is_not_a_conflict(api: FakeKubeApi) -> None:
    api.write_error = ApiError(403, "secrets is forbidden")
    with pytest.raises(ApiError, match="forbidden"):
        await Replica(api).reconcile(NOW)


async def test_reconcile_fails_after_five_conflicts_in_a_row(api: FakeKubeApi) -> None:
    api.write_error = ApiError(409, "the object has been modified")
    with pytest.raises(ClusterError, match=r"5 times in a row.*managedFields"):
        await Replica(api).reconcile(NOW)


# A Secret that an administrator edits under running replicas.


def put(api: FakeKubeApi, stored: Stored, **parts: bytes) -> None:
    """Have the Secret hold this, with other parts (`ca_crt`) in the place of some."""
    wanted = write_secret(stored, SECRET.name, SECRET.namespace, api.objects[SECRET.path])
    wanted["data"] |= {
        part.replace("_", "."): base64.b64encode(value).decode() for part, value in parts.items()
    }
    api.objects[SECRET.path] = wanted


OTHER = create_authority(NOW)
DAMAGE: dict[str, dict[str, bytes]] = {
    "a truncated CA": {"ca_crt": OTHER.certificate_pem[:200]},
    "a CA without its key": {"ca_crt": OTHER.certificate_pem},
    "invalid keys": {"ca_key": b"no key", "tls_key": b"no key"},
    "invalid data in every key": dict.fromkeys(("ca_crt", "ca_key", "tls_crt", "tls_key"), b"none"),
}


@pytest.mark.parametrize("parts", DAMAGE.values(), ids=DAMAGE)
async def test_a_damaged_secret_is_restored(api: FakeKubeApi, parts: dict[str, bytes]) -> None:
    first, second = Replica(api), Replica(api)
    stored = await first.reconcile(NOW)
    await second.reconcile(NOW)
    put(api, stored, **parts)
    for replica in (second, first):
        assert await replica.reconcile(NOW) == stored
    assert read_secret(api.objects[SECRET.path]) == stored
    assert (first.changes, second.changes) == ([Change.CREATE], [Change.CREATE])
    # A replica that knows no other Secret starts over.
    put(api, stored, **parts)
    assert (await Replica(api).reconcile(NOW)).authority != stored.authority


async def test_a_damaged_secret_is_replaced_if_the_served_leaf_has_expired(
    api: FakeKubeApi,
) -> None:
    replica = Replica(api)
    stored = await replica.reconcile(NOW)
    put(api, stored, ca_crt=b"none")
    after = await replica.reconcile(NOW + 31 * DAY)
    assert after.authority != stored.authority


@pytest.mark.parametrize("leaf", [True, False], ids=["with its leaf", "with the previous leaf"])
async def test_a_ca_put_into_the_secret_signs_after_configurations_trust_it(
    api: FakeKubeApi, leaf: bool
) -> None:
    first, second = Replica(api), Replica(api)
    stored = await first.reconcile(NOW)
    await second.reconcile(NOW)
    carry(api, stored.bundle, stored.bundle)
    put(api, Stored(OTHER, issue_leaf(OTHER, NAMES, NOW) if leaf else stored.leaf))
    for replica in (first, second):
        published = await replica.reconcile(NOW)
        assert published == replace(stored, next=OTHER)
    carry(api, published.bundle, published.bundle)
    await first.reconcile(NOW)
    first.clock += 30
    promoted = await first.reconcile(NOW)
    assert (promoted.authority, promoted.old) == (OTHER, stored.authority.certificate_pem)
    assert await second.reconcile(NOW) == promoted
    assert first.changes == [Change.CREATE, Change.PUBLISH, Change.PROMOTE]


async def test_a_replaced_ca_that_configurations_trust_is_adopted_at_once(api: FakeKubeApi) -> None:
    """A cluster that was restored, and a replica that could not look while others had rotated."""
    replica = Replica(api)
    stored = await replica.reconcile(NOW)
    restored = Stored(OTHER, issue_leaf(OTHER, NAMES, NOW, 30 * DAY))
    put(api, restored)
    carry(api, restored.bundle, restored.bundle)
    assert await replica.reconcile(NOW) == restored
    assert replica.changes == [Change.CREATE]
    assert restored.authority != stored.authority


@pytest.mark.parametrize("rotated", [True, False], ids=["after a rotation", "of another CA"])
async def test_the_served_ca_stays_trusted_after_a_backup_is_restored(
    api: FakeKubeApi, rotated: bool
) -> None:
    """Configurations trust both CAs, and other replicas have not read the Secret yet."""
    backup = Stored(OTHER, issue_leaf(OTHER, NAMES, NOW, 30 * DAY))
    first, second = Replica(api), Replica(api)
    served = await first.reconcile(NOW)
    both = served.bundle + backup.bundle
    carry(api, both, both)
    if rotated:
        put(api, replace(served, old=OTHER.certificate_pem, promoted=NOW))
        served = await first.reconcile(NOW)
    assert await second.reconcile(NOW) == served
    put(api, backup)

    for replica in (first, second):
        stored = await replica.reconcile(NOW)
        assert stored.authority == served.authority
        assert stored.next == backup.authority
    second.clock += 30
    stored = await second.reconcile(NOW)
    assert stored.authority == backup.authority
    assert served.authority.certificate_pem in stored.authorities


async def test_reconcile_uses_the_time_of_the_api_server(api: FakeKubeApi) -> None:
    """It is API servers that judge what is issued; a replica's own clock may be anything."""
    replica, far = Replica(api), datetime.now(UTC).replace(microsecond=0) + 1000 * DAY
    await replica.reconcile(far)
    renewed = await replica.reconcile(far + 20 * DAY)
    assert replica.changes == [Change.CREATE, Change.RENEW]
    begins = renewed.leaf.certificate.not_valid_before_utc
    assert begins == far + 20 * DAY - CLOCK_SKEW


async def test_a_secret_that_cert_manager_writes_is_not_touched(api: FakeKubeApi) -> None:
    replica = Replica(api)
    served = await replica.reconcile(NOW)
    found = api.objects[SECRET.path]
    found["metadata"]["annotations"] = {CERT_MANAGER: "gpufence"}
    found["data"] = {}
    with pytest.raises(ClusterError, match="cert-manager writes Secret system/certificates"):
        await replica.reconcile(NOW)
    assert api.objects[SECRET.path]["data"] == {}
    assert replica.reconciler.source.read() == served.leaf
