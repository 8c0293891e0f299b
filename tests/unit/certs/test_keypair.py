"""Names, a pair that is read, and when it is due: the boundaries to the second."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from ipaddress import IPv4Address, IPv6Address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given
from hypothesis import strategies as st

from certificates import alternatives, sign
from certs import CertificateError
from certs.authority import CLOCK_SKEW, create_authority, issue_leaf
from certs.keypair import (
    KeyPair,
    Names,
    age_problem,
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

NAMES = Names.parse(["gpufence.gpufence.svc", "localhost"], ["127.0.0.1"])
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
    names: Names = NAMES,
) -> str:
    """Return why a serving certificate is due."""
    return leaf_problem(leaf, authorities, names, now) or age_problem(leaf.certificate, now)


# Names.


NO_ADDRESSES = ("", "localhost", "10.0.0.0/8", "10.0.0.7:9443", "[::1]", "010.0.0.7")
NO_SERVERS = ("fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1")  # noqa: S104 - invalid


def test_an_invalid_ip_address_is_rejected_with_the_reason(subtests: pytest.Subtests) -> None:
    complaints = {
        **dict.fromkeys(NO_ADDRESSES, "is neither an IPv4 nor an IPv6 address"),
        **dict.fromkeys(NO_SERVERS, "is not the address of a server"),
    }
    for text, complaint in complaints.items():
        with subtests.test(text=text):
            with pytest.raises(CertificateError) as caught:
                Names.parse([], [text])
            assert str(caught.value).startswith(f"IP address {text!r}: {complaint}. ")


def test_repeated_names_count_once_and_keep_their_order() -> None:
    names = Names.parse(["b.svc", "a.svc", "B.svc"], ["FD00:0::0007", "127.0.0.1", "fd00::7"])
    assert names == Names(("b.svc", "a.svc"), (IPv6Address("fd00::7"), IPv4Address("127.0.0.1")))
    assert str(names) == "b.svc, a.svc, fd00::7, 127.0.0.1"


@given(st.text(max_size=80) | st.from_regex(r"[A-Za-z0-9.-]{1,80}", fullmatch=True))
def test_any_text_is_rejected_or_a_valid_certificate_name(text: str) -> None:
    try:
        [name] = Names.parse([text]).dns
    except CertificateError as error:
        assert str(error).startswith(f"DNS name {text!r}: ")  # noqa: PT017 - or there is none
        return
    assert Names.parse([name]).dns == (name,) == (text.lower(),)
    # cryptography's path validation has its own definition of a host name: both must agree.
    PolicyBuilder().store(Store([AUTHORITY.certificate])).build_server_verifier(x509.DNSName(name))


@given(st.ip_addresses().map(str) | st.text(max_size=40))
def test_any_text_is_rejected_or_parsed_as_the_same_ip_address(text: str) -> None:
    try:
        [address] = Names.parse([], [text]).ip
    except CertificateError as error:
        assert str(error).startswith(f"IP address {text!r}: ")  # noqa: PT017 - or there is none
        return
    assert address == ipaddress.ip_address(text)


# Reading.


def test_a_key_with_a_passphrase_is_rejected_with_a_remediation() -> None:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    with pytest.raises(CertificateError) as caught:
        parse_pair(KeyPair(CERTIFICATE, pem), key_at="/certs/tls.key")
    assert str(caught.value) == (
        "/certs/tls.key: is encrypted with a passphrase, for which a server cannot prompt."
        " Store the key unencrypted and let file permissions protect it (mode 0600)."
    )


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
    with pytest.raises(CertificateError, match=rf"^/c/tls\.key: {key} \(") as caught:
        parse_pair(KeyPair(CERTIFICATE, damage(leaf.key_pem)), key_at="/c/tls.key")
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
    assert names_of(AUTHORITY.certificate) == Names((), ())
    lacking = "serving certificate lacks gpufence.gpufence.svc, localhost, 127.0.0.1"
    assert problem(leaf=AUTHORITY) == lacking


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
WANTED = st.sampled_from([NAMES, Names.parse(["localhost"]), Names.parse(["new.svc"])])


@given(now=MOMENTS, bundle=BUNDLES, wanted=WANTED)
def test_clients_accept_certificates_that_are_not_due(
    now: datetime, bundle: list[bytes], wanted: Names
) -> None:
    if problem(now, authorities=tuple(bundle), names=wanted):
        return
    store = Store([c for pem in bundle for c in parse_certificates(pem, "test")])
    policy = PolicyBuilder().store(store).time(now.replace(tzinfo=None))
    for name in wanted.dns:
        assert policy.build_server_verifier(x509.DNSName(name)).verify(LEAF.certificate, [])
    for address in wanted.ip:
        verifier = policy.build_server_verifier(x509.IPAddress(address))
        assert verifier.verify(LEAF.certificate, [])


def test_a_ca_that_only_stands_beside_the_certificate_makes_no_client_trust_it() -> None:
    other = OTHER_AUTHORITY.certificate_pem
    chain = KeyPair(LEAF.certificate_pem + other, LEAF.key_pem)
    assert chain.is_trusted_by(CERTIFICATE)
    assert not chain.is_trusted_by(other)
    assert not KeyPair(LEAF.certificate_pem, AUTHORITY.key_pem).is_trusted_by(CERTIFICATE)
