"""Which CAs are in the caBundle, and when one leaves it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority
from clusters import Clock
from webhook.controller.trust import Bundle, carries
from webhook.registered import bundles

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CAS = [create_authority(NOW) for _ in range(3)]
FIRST, SECOND, THIRD = (each.certificate_pem for each in CAS)
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_ca_is_kept_for_the_overlap_after_it_was_used(clock: Clock) -> None:
    bundle = Bundle(HOUR, clock=clock)
    # What configurations carry at first is of a controller before.
    assert bundle.publish(FIRST, [SECOND, b""]) == FIRST + SECOND
    clock.now += 3599
    # Another client has emptied them, or added a CA.
    assert bundle.publish(FIRST, [b"", THIRD]) == FIRST + SECOND
    clock.now += 1
    assert bundle.publish(FIRST, [SECOND]) == FIRST
    assert bundle.publish(SECOND, []) == SECOND + FIRST
    clock.now += 3600
    assert bundle.publish(SECOND, [FIRST]) == SECOND


def test_a_ca_is_published_once(clock: Clock) -> None:
    # A file need not end with a line feed.
    assert Bundle(HOUR, clock=clock).publish(FIRST.rstrip() + b"\n" + FIRST, [FIRST]) == FIRST


def test_the_bundles_of_gpufence_webhooks_are_read() -> None:
    def webhook(name: str, bundle: bytes) -> dict[str, object]:
        return {"name": name, "clientConfig": {"caBundle": base64.b64encode(bundle).decode()}}

    found = bundles(
        {
            "webhooks": [
                webhook("pods.gpufence.dev", FIRST),
                {"name": "workloads.gpufence.dev", "clientConfig": {}},
                {"name": "cronjobs.gpufence.dev", "clientConfig": {"caBundle": "?"}},
                webhook("other.example", SECOND),
            ]
        }
    )
    assert found == {
        "pods.gpufence.dev": FIRST,
        "workloads.gpufence.dev": b"",
        "cronjobs.gpufence.dev": b"",
    }


def test_carries_compares_certificates_and_not_text() -> None:
    assert carries(b"# a comment\n" + SECOND + FIRST.rstrip(), CAS[0].certificate)
    assert not carries(SECOND + THIRD, CAS[0].certificate)
    assert not carries(FIRST[:200], CAS[0].certificate)
