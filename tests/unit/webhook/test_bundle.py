"""The CAs of other replicas in the caBundle, and when they leave it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority
from webhook.registration.bundle import Bundle, with_cas

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FIRST, SECOND, THIRD = (create_authority(NOW).certificate_pem for _ in range(3))
HOUR = timedelta(hours=1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("succession", [True, False])
def test_a_ca_of_another_replica_is_kept_for_the_overlap(clock: Clock, succession: bool) -> None:
    bundle = Bundle(HOUR, clock=clock, succession=succession)
    published = bundle.publish(FIRST, [SECOND, b""])
    assert published == FIRST + SECOND
    clock.now = 3599
    assert bundle.publish(FIRST, [published]) == published
    clock.now = 3600
    assert bundle.publish(FIRST, [published]) == FIRST
    # A replica that adds its CA again still serves.
    assert bundle.publish(FIRST, [FIRST]) == FIRST
    assert bundle.publish(FIRST, [published]) == published


def test_the_previous_ca_of_the_file_is_kept_for_the_overlap(clock: Clock) -> None:
    bundle = Bundle(HOUR, clock=clock, succession=False)
    assert bundle.publish(FIRST, []) == FIRST
    assert bundle.publish(SECOND, [FIRST]) == SECOND + FIRST


def test_a_ca_retired_by_the_succession_is_removed(clock: Clock) -> None:
    bundle = Bundle(HOUR, clock=clock, succession=True)
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
