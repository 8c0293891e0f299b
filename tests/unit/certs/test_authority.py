"""The CA and its serving certificates, verified by cryptography's own path validation."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given
from hypothesis import strategies as st

from certificates import CA, alternatives, certificate_of, named, sign
from certs.authority import CLOCK_SKEW, create_authority, issue_leaf
from certs.errors import CertificateError
from certs.keypair import KeyPair, parse_pair
from certs.names import Names

if TYPE_CHECKING:
    from certs.names import IPAddress

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

# Lifetimes from the shortest to a hundred years, in odd fractions of a second too.
LIFETIMES = st.timedeltas(min_value=SECOND, max_value=timedelta(days=36500))
MOMENTS = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]),
)


def verify(
    leaf: KeyPair, authorities: list[KeyPair], subject: str | IPAddress, at: datetime
) -> list[x509.Certificate]:
    """Validate as a TLS client does; raises VerificationError."""
    name = x509.DNSName(subject) if isinstance(subject, str) else x509.IPAddress(subject)
    verifier = (
        PolicyBuilder()
        .store(Store([certificate_of(authority) for authority in authorities]))
        .time(at.astimezone(UTC).replace(tzinfo=None))
        .build_server_verifier(name)
    )
    return verifier.verify(certificate_of(leaf), [])


def self_signed(*extensions: x509.ExtensionType, **options: Any) -> KeyPair:
    """Return a certificate of another tool."""
    return sign(named("elsewhere"), *extensions, begin=NOW - DAY, end=NOW + 365 * DAY, **options)


def test_a_client_that_trusts_the_ca_accepts_every_name_of_the_leaf(
    authority: KeyPair, leaf: KeyPair, names: Names, now: datetime
) -> None:
    for subject in (*names.dns, *names.ip):
        chain = verify(leaf, [authority], subject, now)
        assert chain == [certificate_of(leaf), certificate_of(authority)]


def usage(*purposes: str) -> x509.KeyUsage:
    """Return a key usage of these purposes only."""
    every = inspect.signature(x509.KeyUsage).parameters
    return x509.KeyUsage(**{purpose: purpose in purposes for purpose in every})


def test_the_ca_has_only_the_extensions_for_signing_leaves(authority: KeyPair) -> None:
    certificate = certificate_of(authority)
    assert {
        extension.oid: (extension.critical, extension.value) for extension in certificate.extensions
    } == {
        x509.BasicConstraints.oid: (True, x509.BasicConstraints(ca=True, path_length=0)),
        x509.KeyUsage.oid: (
            True,
            usage("key_cert_sign", "crl_sign"),
        ),
        x509.SubjectKeyIdentifier.oid: (
            False,
            x509.SubjectKeyIdentifier.from_public_key(certificate.public_key()),
        ),
    }
    assert certificate.issuer == certificate.subject
    certificate.verify_directly_issued_by(certificate)


def test_the_leaf_has_only_the_extensions_for_server_authentication(
    authority: KeyPair, leaf: KeyPair, names: Names
) -> None:
    certificate = certificate_of(leaf)
    assert {
        extension.oid: (extension.critical, extension.value) for extension in certificate.extensions
    } == {
        x509.BasicConstraints.oid: (True, x509.BasicConstraints(ca=False, path_length=None)),
        x509.KeyUsage.oid: (
            True,
            usage("digital_signature"),
        ),
        x509.ExtendedKeyUsage.oid: (
            False,
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        ),
        x509.SubjectAlternativeName.oid: (
            False,
            alternatives(names),
        ),
        x509.SubjectKeyIdentifier.oid: (
            False,
            x509.SubjectKeyIdentifier.from_public_key(certificate.public_key()),
        ),
        x509.AuthorityKeyIdentifier.oid: (
            False,
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                certificate_of(authority)
                .extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
                .value
            ),
        ),
    }


def test_keys_are_ecdsa_on_p256_and_stored_as_plain_pkcs8(
    authority: KeyPair, leaf: KeyPair
) -> None:
    for pair in (authority, leaf):
        certificate, key = parse_pair(pair)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, ec.SECP256R1)
        assert isinstance(certificate.signature_hash_algorithm, hashes.SHA256)
        assert pair.key_pem.startswith(b"-----BEGIN PRIVATE KEY-----\n")


def test_serial_numbers_keys_and_ca_names_are_unique() -> None:
    authorities = [create_authority(NOW) for _ in range(20)]
    leaves = [issue_leaf(authorities[0], Names.parse(["a.svc"]), NOW) for _ in range(20)]
    certificates = [certificate_of(pair) for pair in (*authorities, *leaves)]
    assert len({certificate.serial_number for certificate in certificates}) == 40
    assert len({pair.key_pem for pair in (*authorities, *leaves)}) == 40
    assert len({certificate_of(authority).subject for authority in authorities}) == 20
    # RFC 5280 section 4.1.2.2: positive, 20 octets at most.
    assert all(0 < certificate.serial_number < 2**159 for certificate in certificates)


def test_not_before_is_earlier_than_now_by_the_clock_skew() -> None:
    now = NOW.replace(microsecond=999_999)
    authority = create_authority(now, 10 * DAY)
    assert certificate_of(authority).not_valid_before_utc == NOW - CLOCK_SKEW
    assert certificate_of(authority).not_valid_after_utc == NOW + 10 * DAY
    leaf = issue_leaf(authority, Names.parse(["a.svc"]), now, DAY)
    assert certificate_of(leaf).not_valid_before_utc == NOW - CLOCK_SKEW
    assert certificate_of(leaf).not_valid_after_utc == NOW + DAY


@given(now=MOMENTS, authority_life=LIFETIMES, leaf_life=LIFETIMES, data=st.data())
def test_a_leaf_is_accepted_exactly_during_its_validity_period(
    now: datetime, authority_life: timedelta, leaf_life: timedelta, data: st.DataObject
) -> None:
    authority = create_authority(now, authority_life)
    ca = certificate_of(authority)
    issued_at = data.draw(
        st.datetimes(
            min_value=ca.not_valid_before_utc.replace(tzinfo=None),
            max_value=ca.not_valid_after_utc.replace(tzinfo=None),
            timezones=st.just(UTC),
        ),
        label="issued at",
    )
    leaf = issue_leaf(authority, Names.parse(["a.svc"]), issued_at, leaf_life)
    begin, end = certificate_of(leaf).not_valid_before_utc, certificate_of(leaf).not_valid_after_utc
    assert ca.not_valid_before_utc <= begin <= issued_at
    assert begin <= end <= ca.not_valid_after_utc
    assert end <= issued_at + leaf_life
    assert end > issued_at - SECOND  # whole seconds
    for at in (begin, end, max(begin, min(end, issued_at))):
        assert verify(leaf, [authority], "a.svc", at)
    for at in (begin - SECOND, end + SECOND):
        with pytest.raises(VerificationError):
            verify(leaf, [authority], "a.svc", at)


@pytest.mark.parametrize("lifetime", [timedelta(milliseconds=999), -DAY, timedelta.max])
def test_a_lifetime_outside_a_second_to_100_years_is_rejected(lifetime: timedelta) -> None:
    with pytest.raises(CertificateError, match="Use one between a second and 100 years"):
        create_authority(NOW, lifetime)
    with pytest.raises(CertificateError, match="lifetime of the serving certificate: is "):
        issue_leaf(create_authority(NOW), Names.parse(["a.svc"]), NOW, lifetime)


def test_a_ca_outside_its_validity_period_cannot_sign() -> None:
    authority = create_authority(NOW, DAY)
    names = Names.parse(["a.svc"])
    issue_leaf(authority, names, NOW + DAY)
    with pytest.raises(CertificateError, match="certificate of the CA: expired at 2026-03-02"):
        issue_leaf(authority, names, NOW + DAY + SECOND)
    with pytest.raises(CertificateError, match="is not valid before 2026-03-01"):
        issue_leaf(authority, names, NOW - CLOCK_SKEW - SECOND)


def test_a_leaf_cannot_sign(leaf: KeyPair, names: Names, now: datetime) -> None:
    with pytest.raises(CertificateError, match="is not a CA certificate"):
        issue_leaf(leaf, names, now)
    bare = self_signed()
    with pytest.raises(CertificateError, match="is not a CA certificate"):
        issue_leaf(bare, names, NOW)


def test_an_external_ca_with_an_rsa_key_can_sign() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    usage = certificate_of(create_authority(NOW)).extensions.get_extension_for_class(x509.KeyUsage)
    authority = self_signed(CA, usage.value, key=key)
    leaf = issue_leaf(authority, Names.parse(["a.svc"]), NOW)
    certificate_of(leaf).verify_directly_issued_by(certificate_of(authority))
    # It has no subject key identifier, so the certificate names the usual one.
    named = certificate_of(leaf).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    usual = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    assert named.value.key_identifier == usual.digest


def test_a_ca_with_an_unsupported_key_type_is_rejected() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    authority = self_signed(CA, key=key, algorithm=None)
    with pytest.raises(CertificateError, match="is not a CA certificate"):
        issue_leaf(authority, Names.parse(["a.svc"]), NOW)
