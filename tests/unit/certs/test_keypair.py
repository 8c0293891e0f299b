"""Names, a pair that is read, and when it is due: the boundaries to the second."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import example, given
from hypothesis import strategies as st

from certificates import alternatives, sign, trusts
from certs import CertificateError
from certs.authority import CLOCK_SKEW, create_authority, general_name, issue_leaf
from certs.keypair import (
    KeyPair,
    age_problem,
    host_name,
    leaf_problem,
    names_of,
    pair_problem,
    parse_certificates,
    parse_pair,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)

NAMES = ["gpufence.gpufence.svc", "localhost", "127.0.0.1"]
AUTHORITY = create_authority(NOW, 365 * DAY)
OTHER_AUTHORITY = create_authority(NOW, 365 * DAY)
CERTIFICATE = AUTHORITY.certificate_pem

# A life of 90 days in all, so that 60 of them are 2/3.
BEGIN = NOW - CLOCK_SKEW
LEAF = issue_leaf(AUTHORITY, NAMES, NOW, 90 * DAY - CLOCK_SKEW)
DUE = BEGIN + 60 * DAY
END = BEGIN + 90 * DAY
OVER = (
    "2/3 of its life were over at 2026-04-30T11:55:00+00:00; it ends at 2026-05-30T11:55:00+00:00"
)


def problem(
    now: datetime = NOW,
    leaf: KeyPair = LEAF,
    authorities: tuple[bytes, ...] = (CERTIFICATE,),
    name: str = NAMES[0],
) -> str:
    """Return why a serving certificate is due."""
    return leaf_problem(leaf, authorities, name, now) or age_problem(leaf.certificate, now)


# Names.


@given(
    st.text(max_size=80)
    | st.from_regex(r"[A-Za-z0-9.-]{1,80}", fullmatch=True)
    | st.ip_addresses().map(str)
    | st.sampled_from(["*.a.svc", "a.svc.", "a.svc:9443", "https://a.svc", "10.0.0.0/8", "[::1]"])
)
@example("010.0.0.7")
@example("fe80::1%eth0")
@example("FD00:0::0007")
def test_any_text_is_rejected_or_a_valid_certificate_name(text: str) -> None:
    try:
        name = host_name(text)
    except CertificateError as error:
        assert str(error).startswith(f"Name {text!r} for the serving certificate: is ")  # noqa: PT017
        return
    assert host_name(name) == name
    # cryptography's path validation has its own definition of a host name: both must agree.
    verifier = PolicyBuilder().store(Store([AUTHORITY.certificate]))
    verifier.build_server_verifier(general_name(name))
    leaf = issue_leaf(AUTHORITY, [name], NOW)
    assert not leaf_problem(leaf, [CERTIFICATE], name, NOW)


# Reading.


def test_a_key_with_a_passphrase_is_rejected() -> None:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    with pytest.raises(CertificateError, match=r"key is encrypted.*without a passphrase"):
        parse_pair(KeyPair(CERTIFICATE, pem))


def _truncated(pem: bytes) -> bytes:
    return pem[: len(pem) // 2]


def _other_base64(pem: bytes) -> bytes:
    return pem.replace(b"\nMI", b"\nAA", 1)


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"\0" * 100, _truncated, _other_base64]
)
def test_damaged_pem_raises_certificate_error_with_its_path(
    leaf: KeyPair, damage: Callable[[bytes], bytes]
) -> None:
    certificate, key = "contains no valid PEM certificate", "contains no valid PEM private key"
    with pytest.raises(CertificateError, match=rf"^/c/tls\.crt: {certificate} \(") as caught:
        parse_certificates(damage(leaf.certificate_pem), "/c/tls.crt")
    # The message has no link of the library for its developers.
    assert "http" not in str(caught.value)
    with pytest.raises(CertificateError, match=rf"^private key: {key} \(") as caught:
        parse_pair(KeyPair(CERTIFICATE, damage(leaf.key_pem)))
    assert "http" not in str(caught.value)


# A serial number that is not positive is still read, with this warning, by the library.
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@given(position=st.integers(0, 2000), byte=st.integers(0, 255))
def test_a_pair_with_one_changed_byte_is_rejected_or_has_the_same_key(
    position: int, byte: int
) -> None:
    authority = create_authority(NOW)
    certificate, key = bytearray(authority.certificate_pem), bytearray(authority.key_pem)
    certificate[position % len(certificate)] = byte
    key[position % len(key)] = byte
    for pair in (
        KeyPair(bytes(certificate), authority.key_pem),
        KeyPair(authority.certificate_pem, bytes(key)),
    ):
        with contextlib.suppress(CertificateError):
            # What is read is still the pair: the byte was outside the encoding, or the same.
            assert parse_pair(pair)[0].public_key() == parse_pair(authority)[0].public_key()


def test_the_private_key_is_not_in_repr_or_str(leaf: KeyPair) -> None:
    assert "PRIVATE KEY" not in f"{leaf!r} {leaf}"


# What is due.


def test_a_leaf_is_due_after_two_thirds_of_its_lifetime_or_if_not_valid() -> None:
    reasons = {
        BEGIN - TICK: "serving certificate is not valid before 2026-03-01T11:55:00+00:00",
        BEGIN: "",
        DUE - TICK: "",
        DUE: OVER,
        END: OVER,
        END + TICK: "serving certificate expired at 2026-05-30T11:55:00+00:00",
    }
    assert {now: problem(now) for now in reasons} == reasons
    pacific = timezone(timedelta(hours=-8))
    assert {now: problem(now.astimezone(pacific)) for now in reasons} == reasons


def test_a_leaf_is_due_when_no_current_ca_signed_it() -> None:
    other = OTHER_AUTHORITY.certificate_pem
    # An overlap is a list or one bundle.
    current = ((CERTIFICATE,), (other, CERTIFICATE), (other + CERTIFICATE,))
    assert [problem(authorities=authorities) for authorities in current] == ["", "", ""]
    reason = "serving certificate is not signed by a current CA (CN=gpufence authority "
    assert problem(authorities=(other,)).startswith(reason)
    assert problem(authorities=()).startswith(reason)


def test_a_leaf_is_due_if_the_current_ca_has_the_same_name_but_another_key() -> None:
    name = AUTHORITY.certificate.subject
    namesake = sign(name, begin=BEGIN, end=NOW + DAY).certificate_pem
    assert problem(authorities=(namesake,))
    assert not problem(authorities=(namesake, CERTIFICATE))


def test_a_leaf_is_due_when_its_ca_has_expired() -> None:
    short = create_authority(NOW, DAY)
    # A serving certificate that outlives its CA, as other tools issue them.
    issuer = short.certificate.subject
    end = NOW + 90 * DAY
    leaf = sign(issuer, alternatives(NAMES), begin=BEGIN, end=end, signer=short)
    assert not problem(NOW + DAY, leaf, (short.certificate_pem,))
    found = problem(NOW + DAY + SECOND, leaf, (short.certificate_pem,))
    assert found.startswith("serving certificate is not signed by a current CA")


def test_a_certificate_without_names_lacks_all_wanted_names() -> None:
    assert not names_of(AUTHORITY.certificate)
    for name in NAMES:
        assert problem(leaf=AUTHORITY, name=name) == f"serving certificate lacks {name}"


def test_a_new_certificate_is_not_due_with_any_lifetime(subtests: pytest.Subtests) -> None:
    for lifetime in (SECOND, timedelta(minutes=1), CLOCK_SKEW, DAY, 3650 * DAY):
        with subtests.test(lifetime=lifetime):
            authority = create_authority(NOW, lifetime)
            assert not pair_problem(authority, NOW)
            assert not age_problem(authority.certificate, NOW)
            leaf = issue_leaf(authority, NAMES, NOW, lifetime)
            assert not problem(NOW, leaf, (authority.certificate_pem,))


MOMENTS = st.datetimes(
    min_value=(NOW - 10 * DAY).replace(tzinfo=None),
    max_value=(NOW + 400 * DAY).replace(tzinfo=None),
    timezones=st.just(UTC),
)
BUNDLES = st.lists(st.sampled_from([CERTIFICATE, OTHER_AUTHORITY.certificate_pem]), max_size=3)
WANTED = st.sampled_from([*NAMES, "new.svc"])


@given(now=MOMENTS, bundle=BUNDLES, wanted=WANTED)
def test_clients_accept_certificates_that_are_not_due(
    now: datetime, bundle: list[bytes], wanted: str
) -> None:
    if problem(now, authorities=tuple(bundle), name=wanted):
        return
    store = Store([c for pem in bundle for c in parse_certificates(pem, "test")])
    policy = PolicyBuilder().store(store).time(now.replace(tzinfo=None))
    verifier = policy.build_server_verifier(general_name(wanted))
    assert verifier.verify(LEAF.certificate, [])


def test_a_ca_that_only_stands_beside_the_certificate_makes_no_client_trust_it() -> None:
    other = OTHER_AUTHORITY.certificate_pem
    chain = KeyPair(LEAF.certificate_pem + other, LEAF.key_pem)
    assert trusts(CERTIFICATE, chain)
    assert not trusts(other, chain)
