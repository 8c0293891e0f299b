"""When a replica may take requests after its CA was added, and when a CA leaves the caBundle."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import Names
from clusters import Clock
from policies.kubernetes.objects import JSONObject
from webhook.controller.trust import Bundle, Trust, with_cas

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OWN, OTHER = (create_authority(NOW) for _ in range(2))
SERVED = issue_leaf(OWN, Names.parse(["localhost"]), NOW).certificate_pem
LACKING = OTHER.certificate_pem
TRUSTING = LACKING + OWN.certificate_pem


class Replica:
    """What a replica finds in the configurations, at times of the test's choice."""

    def __init__(self) -> None:
        self.now = 0.0
        self.trust = Trust("gpufence", timedelta(seconds=30), clock=lambda: self.now)

    def finds(self, bundle: bytes, *, at: float, leads: bool = False) -> str:
        self.now = at
        self.trust.check(SERVED, {"Kind": configuration(bundle)}, leads=leads)
        return self.trust.problem


def configuration(bundle: bytes) -> JSONObject:
    encoded = base64.b64encode(bundle).decode()
    return {"webhooks": [{"name": "pods.gpufence.dev", "clientConfig": {"caBundle": encoded}}]}


@pytest.fixture
def replica() -> Replica:
    return Replica()


MISSING = "the caBundle of Kind gpufence does not trust the served certificate"
WAITING = "waiting until API servers have seen the CA of the served certificate"


def test_a_starting_replica_waits_until_api_servers_have_seen_its_ca(replica: Replica) -> None:
    assert replica.finds(LACKING, at=0) == MISSING
    assert replica.finds(TRUSTING, at=5) == WAITING
    assert replica.finds(TRUSTING, at=34) == WAITING
    assert replica.finds(TRUSTING, at=35) == ""


def test_the_wait_starts_again_if_the_ca_is_removed(replica: Replica) -> None:
    replica.finds(LACKING, at=0)
    replica.finds(TRUSTING, at=5)
    assert replica.finds(LACKING, at=30) == MISSING
    assert replica.finds(TRUSTING, at=35) == WAITING
    assert replica.finds(TRUSTING, at=65) == ""


def test_a_replica_whose_ca_is_already_there_does_not_wait(replica: Replica) -> None:
    assert replica.finds(TRUSTING, at=0) == ""


def test_a_replica_does_not_wait_without_configurations(replica: Replica) -> None:
    replica.trust.check(SERVED, {"Kind": {}}, leads=False)
    assert replica.trust.problem == ""


def test_a_leader_does_not_wait(replica: Replica) -> None:
    assert replica.finds(LACKING, at=0, leads=True) == MISSING
    assert replica.finds(TRUSTING, at=5, leads=True) == ""


def test_a_replica_that_was_trusted_before_does_not_wait(replica: Replica) -> None:
    replica.finds(TRUSTING, at=0)
    assert replica.finds(LACKING, at=5) == MISSING
    assert replica.finds(TRUSTING, at=10) == ""


# The bundle of the leader.

FIRST, SECOND, THIRD = (create_authority(NOW).certificate_pem for _ in range(3))
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("rotates", [True, False])
def test_a_ca_of_another_replica_is_kept_for_the_overlap(clock: Clock, rotates: bool) -> None:
    bundle = Bundle(HOUR, clock=clock, rotates=rotates)
    published = bundle.publish(FIRST, [SECOND, b""])
    assert published == FIRST + SECOND
    clock.now += 3599
    assert bundle.publish(FIRST, [published]) == published
    clock.now += 1
    assert bundle.publish(FIRST, [published]) == FIRST
    # A replica that adds its CA again still serves.
    assert bundle.publish(FIRST, [FIRST]) == FIRST
    assert bundle.publish(FIRST, [published]) == published


def test_the_previous_ca_of_the_file_is_kept_for_the_overlap(clock: Clock) -> None:
    bundle = Bundle(HOUR, clock=clock, rotates=False)
    assert bundle.publish(FIRST, []) == FIRST
    assert bundle.publish(SECOND, [FIRST]) == SECOND + FIRST


def test_a_ca_retired_by_the_rotation_is_removed(clock: Clock) -> None:
    bundle = Bundle(HOUR, clock=clock, rotates=True)
    assert bundle.publish(FIRST + SECOND, []) == FIRST + SECOND
    assert bundle.publish(SECOND, [FIRST + SECOND + THIRD]) == SECOND + THIRD


def test_a_ca_is_added_only_to_gpufence_webhooks() -> None:
    def webhook(name: str, bundle: bytes) -> dict[str, object]:
        config = {"caBundle": base64.b64encode(bundle).decode()} if bundle else {}
        return {"name": name, "clientConfig": config}

    # A file need not end with a line feed.
    found = [
        webhook("pods.gpufence.dev", FIRST.rstrip()),
        webhook("workloads.gpufence.dev", FIRST + SECOND),
        webhook("cronjobs.gpufence.dev", b""),
        webhook("other.example", FIRST),
    ]
    assert with_cas({"kind": "A", "webhooks": found}, SECOND) == {
        "kind": "A",
        "webhooks": [webhook("pods.gpufence.dev", FIRST + SECOND), *found[1:]],
    }
