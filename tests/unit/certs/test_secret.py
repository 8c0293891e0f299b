"""What is due for the two Secrets of the built-in CA, and how they are read and written."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair
from certs.secret import (
    authority_data,
    authority_problem,
    read_authority,
    read_leaf,
    serving_data,
    with_data,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = ["gpufence.system.svc"]
CA = create_authority(NOW, 300 * DAY)
OTHER = create_authority(NOW, 300 * DAY)
LEAF = issue_leaf(CA, NAMES, NOW, 30 * DAY)
BROKEN = KeyPair(b"no certificate", CA.key_pem)


def test_a_new_ca_is_due_if_the_old_one_is_old_or_unusable(subtests: pytest.Subtests) -> None:
    for authority, days, reason in (
        (CA, 0, ""),
        (CA, 199, ""),
        (CA, 200, "2/3 of its life were over at 2026-09-17"),
        (CA, 301, "CA expired at"),
        (None, 0, "the Secret contains no CA"),
        (BROKEN, 0, "CA contains no valid PEM certificate"),
        (KeyPair(CA.certificate_pem, OTHER.key_pem), 0, "does not belong to CA"),
    ):
        with subtests.test(days=days, reason=reason):
            found = authority_problem(authority, NOW + days * DAY)
            assert reason in found
            assert bool(found) == bool(reason)


def test_the_secret_that_replicas_mount_has_no_key_of_the_ca() -> None:
    assert CA.key_pem not in serving_data(LEAF, CA).values()


def test_other_keys_and_fields_of_a_secret_are_kept() -> None:
    live = {"type": "Opaque", "metadata": {"uid": "1"}, "data": {"other": "YQ==", "ca.crt": "Yg=="}}
    written = with_data(live, authority_data(CA))
    assert written["metadata"] == {"uid": "1"}
    assert written["type"] == "Opaque"
    assert written["data"]["other"] == "YQ=="
    assert base64.b64decode(written["data"]["ca.crt"]) == CA.certificate_pem


def test_a_secret_without_both_parts_is_read_as_empty(subtests: pytest.Subtests) -> None:
    for data in (None, {"ca.crt": "YQ=="}, {"ca.crt": "?", "ca.key": "?"}):
        for secret in (None, {}, {"data": data}):
            with subtests.test(secret=secret, data=data):
                assert read_authority(secret) is None
                assert read_leaf(secret) is None
