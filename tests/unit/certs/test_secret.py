"""The Secret: which step is due in which state, and that a rotation never breaks trust."""

from __future__ import annotations

import base64
import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair, Names, is_trusted_by, leaf_problem, parse_certificates
from certs.secret import Change, Step, Stored, Timing, next_step, read_secret, write_secret

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
NAMES = Names.parse(["gpufence.gpufence-system.svc"])
TIMING = Timing(authority=300 * DAY, leaf=30 * DAY, settle=timedelta(seconds=30), overlap=DAY / 24)

AUTHORITY = create_authority(NOW, 300 * DAY)
NEXT = create_authority(NOW, 300 * DAY)
OLD = create_authority(NOW, 300 * DAY).certificate_pem
LEAF = issue_leaf(AUTHORITY, NAMES, NOW, 30 * DAY)
GARBAGE = KeyPair(b"no certificate", b"no key")
KEYLESS = KeyPair(AUTHORITY.certificate_pem, b"lost")

STEADY = Stored(AUTHORITY, LEAF)
AGED = Stored(AUTHORITY, issue_leaf(AUTHORITY, NAMES, NOW + 200 * DAY, 30 * DAY))
OVERLAP = dataclasses.replace(STEADY, next=NEXT)
PROMOTED = Stored(AUTHORITY, LEAF, old=OLD, promoted=NOW)

CASES: dict[str, tuple[Stored | None, datetime, timedelta | None, Change | None]] = {
    "an empty Secret": (None, NOW, None, Change.CREATE),
    "a new Secret": (STEADY, NOW, None, None),
    "a leaf a second before due": (STEADY, NOW + 19 * DAY, None, None),
    "a leaf past 2/3 of its lifetime": (STEADY, NOW + 20 * DAY, None, Change.RENEW),
    "an expired leaf": (STEADY, NOW + 31 * DAY, None, Change.RENEW),
    "a leaf of another CA": (Stored(NEXT, LEAF), NOW, None, Change.RENEW),
    "an unreadable leaf": (Stored(AUTHORITY, GARBAGE), NOW, None, Change.RENEW),
    "a CA past 2/3 of its lifetime": (AGED, NOW + 200 * DAY, None, Change.PUBLISH),
    "a CA and a leaf that are due": (STEADY, NOW + 200 * DAY, None, Change.RENEW),
    "an expired CA": (STEADY, NOW + 301 * DAY, None, Change.CREATE),
    "an invalid CA and leaf": (Stored(GARBAGE, GARBAGE), NOW, None, Change.CREATE),
    "a CA without its key and a usable leaf": (Stored(KEYLESS, LEAF), NOW, None, Change.PUBLISH),
    "a CA and a leaf without their keys": (
        Stored(KEYLESS, KeyPair(LEAF.certificate_pem, b"lost")),
        NOW,
        None,
        Change.CREATE,
    ),
    "an expired CA with a published successor": (
        dataclasses.replace(OVERLAP, authority=create_authority(NOW - 2 * DAY, DAY)),
        NOW,
        None,
        Change.PROMOTE,
    ),
    "an overlap that not every configuration carries": (OVERLAP, NOW, None, None),
    "an overlap carried from this moment": (OVERLAP, NOW, 0 * SECOND, None),
    "an overlap a second before settled": (OVERLAP, NOW, 29 * SECOND, None),
    "an overlap that has settled": (OVERLAP, NOW, 30 * SECOND, Change.PROMOTE),
    "an overlap that has settled, with a leaf that is due": (
        OVERLAP,
        NOW + 20 * DAY,
        30 * SECOND,
        Change.RENEW,
    ),
    "an overlap with an invalid next CA": (
        dataclasses.replace(OVERLAP, next=GARBAGE),
        NOW,
        30 * SECOND,
        None,
    ),
    "a promotion a second before the overlap's end": (PROMOTED, NOW + DAY / 24 - SECOND, DAY, None),
    "a promotion at the overlap's end": (PROMOTED, NOW + DAY / 24, None, Change.RETIRE),
    "a promotion without a time": (
        dataclasses.replace(PROMOTED, promoted=None),
        NOW,
        None,
        Change.RETIRE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_expected_step_is_due(case: str) -> None:
    stored, now, carried_for, change = CASES[case]
    step = next_step(stored, NAMES, now, TIMING, carried_for)
    assert (step.change if step else None) is change
    if step is not None:
        assert step.reason
    if step is not None and change in (Change.CREATE, Change.RENEW, Change.PROMOTE):
        leaf, ca = step.after.leaf, step.after.authority.certificate_pem
        assert not leaf_problem(leaf, [ca], NAMES, now)
        assert stored is None or leaf != stored.leaf


def due(stored: Stored | None, names: Names, now: datetime, carried: bool = False) -> Step:
    """Return the step that is due."""
    step = next_step(stored, names, now, TIMING, DAY if carried else None)
    assert step is not None
    return step


def test_a_renewal_adds_wanted_names_and_keeps_names_of_other_replicas() -> None:
    mine, theirs = Names.parse(["a.example"], ["10.0.0.1"]), Names.parse(["b.example"])
    first = due(None, mine, NOW).after
    renewal = due(first, theirs, NOW)
    assert renewal.change is Change.RENEW
    both = renewal.after
    for names in (mine, theirs):
        assert next_step(both, names, NOW, TIMING) is None
    # What is no longer wanted goes when the serving certificate is due by its age.
    later = NOW + 20 * DAY
    renewed = due(both, theirs, later).after
    assert due(renewed, mine, later).reason == "serving certificate lacks a.example, 10.0.0.1"


def test_a_rotation_publishes_promotes_and_retires_a_ca() -> None:
    now = NOW + 200 * DAY
    published = due(AGED, NAMES, now).after
    assert published.leaf == AGED.leaf
    assert published.next is not None
    assert published.authorities == (AUTHORITY.certificate_pem, published.next.certificate_pem)

    promoted = due(published, NAMES, now, carried=True).after
    assert promoted.authority == published.next
    assert promoted.next is None
    assert promoted.promoted == now
    assert set(promoted.authorities) == set(published.authorities)
    assert AUTHORITY.key_pem not in dataclasses.astuple(promoted)

    retired = due(promoted, NAMES, now + DAY / 24)
    assert (retired.change, retired.after) == (
        Change.RETIRE,
        Stored(promoted.authority, promoted.leaf),
    )


@given(
    start=st.integers(0, 290),
    steps=st.lists(st.tuples(st.floats(0, 12), st.booleans()), min_size=1, max_size=25),
)
@settings(max_examples=60)
def test_law_a_leaf_is_trusted_by_configurations_one_step_behind(
    start: int, steps: list[tuple[float, bool]]
) -> None:
    """Configurations follow the Secret with a delay, or not at all for a while.

    At any pace, as long as nothing expires while no replica acts, they carry the issuer of the
    certificate that is in the Secret, and of the one that was there before it.
    """
    now = NOW + start * DAY
    stored: Stored | None = Stored(AUTHORITY, issue_leaf(AUTHORITY, NAMES, now, 30 * DAY))
    assert stored is not None
    carried = stored.authorities
    since: datetime | None = now
    before = stored.leaf
    for days, follows in steps:
        now += timedelta(days=days)
        carried_for = now - since if since and set(stored.authorities) <= set(carried) else None
        step = next_step(stored, NAMES, now, TIMING, carried_for)
        if now >= end_of_authority(stored):
            return  # no replica acted until a CA expired: nothing overlaps
        after = step.after if step else stored
        if after.leaf != stored.leaf:
            before = stored.leaf
        if step is not None and step.change is Change.RETIRE:
            before = after.leaf
        for leaf in (after.leaf, before):
            assert is_trusted_by(leaf.certificate_pem, b"".join(carried))
        stored = after
        if follows:
            carried, since = stored.authorities, since or now


def end_of_authority(stored: Stored) -> datetime:
    [certificate] = parse_certificates(stored.authority.certificate_pem, "test")
    return certificate.not_valid_after_utc


# The Secret as an object.


@pytest.mark.parametrize("stored", [STEADY, OVERLAP, PROMOTED])
def test_a_written_secret_can_be_read(stored: Stored) -> None:
    assert read_secret(write_secret(stored, "gpufence", "system", None)) == stored


def test_a_new_secret_has_type_kubernetes_io_tls() -> None:
    secret = write_secret(STEADY, "gpufence", "system", None)
    assert secret["type"] == "kubernetes.io/tls"
    assert secret["metadata"] == {"name": "gpufence", "namespace": "system"}
    assert base64.b64decode(secret["data"]["tls.crt"]) == LEAF.certificate_pem


def test_unrelated_fields_of_the_secret_are_kept() -> None:
    found = {
        "metadata": {
            "name": "gpufence",
            "resourceVersion": "7",
            "labels": {"team": "platform"},
            "annotations": {"note": "hands off"},
        },
        "data": {"other": "eA=="},
        "type": "Opaque",
    }
    secret = write_secret(PROMOTED, "gpufence", "system", found)
    assert secret["type"] == "Opaque"
    assert secret["data"]["other"] == "eA=="
    assert secret["metadata"]["resourceVersion"] == "7"
    assert secret["metadata"]["labels"] == {"team": "platform"}
    assert secret["metadata"]["annotations"]["note"] == "hands off"
    after = write_secret(STEADY, "gpufence", "system", secret)
    assert after["metadata"]["annotations"] == {"note": "hands off"}
    assert "old-ca.crt" not in after["data"]


@pytest.mark.parametrize(
    "secret",
    [
        {},
        {"data": None},
        {"data": {"tls.crt": "", "tls.key": "", "ca.crt": "", "ca.key": ""}},
        {"data": {**write_secret(STEADY, "a", "b", None)["data"], "ca.key": "not base64!"}},
    ],
)
def test_a_secret_without_all_four_parts_is_read_as_empty(secret: dict[str, object]) -> None:
    assert read_secret(secret) is None


def test_invalid_cas_are_not_in_the_bundle() -> None:
    broken = dataclasses.replace(STEADY, old=b"no certificate", next=GARBAGE)
    assert broken.bundle == AUTHORITY.certificate_pem


def test_is_carried_by_requires_all_cas_and_ignores_other_content() -> None:
    assert OVERLAP.is_carried_by(OVERLAP.bundle)
    assert STEADY.is_carried_by(OVERLAP.bundle)
    assert OVERLAP.is_carried_by(b"# a comment\r\n" + OVERLAP.bundle.replace(b"\n", b"\r\n"))
    assert not OVERLAP.is_carried_by(STEADY.bundle)
    assert not STEADY.is_carried_by(b"")
