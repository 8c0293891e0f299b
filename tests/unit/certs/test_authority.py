"""The CA and its serving certificates, verified by cryptography's own path validation."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given
from hypothesis import strategies as st

from certificates import CA, alternatives, named, sign
from certs import CertificateError
from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair, parse_pair

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
NAMES = ["a.svc"]

# Lifetimes from the shortest to a hundred years, in odd fractions of a second too.
LIFETIMES = st.timedeltas(min_value=SECOND, max_value=timedelta(days=36500))
MOMENTS = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]),
)


def verify(leaf: KeyPair, authority: KeyPair, at: datetime) -> list[x509.Certificate]:
    """Validate as a TLS client does; raises VerificationError."""
    trusting = PolicyBuilder().store(Store([authority.certificate])).time(at.replace(tzinfo=None))
    return trusting.build_server_verifier(x509.DNSName("a.svc")).verify(leaf.certificate, [])


def self_signed(*extensions: x509.ExtensionType, **options: Any) -> KeyPair:
    """Return a certificate of another tool."""
    return sign(named("elsewhere"), *extensions, begin=NOW - DAY, end=NOW + 365 * DAY, **options)


def usage(*purposes: str) -> x509.KeyUsage:
    """Return a key usage of these purposes only."""
    every = inspect.signature(x509.KeyUsage).parameters
    return x509.KeyUsage(**{purpose: purpose in purposes for purpose in every})


def extensions(pair: KeyPair) -> list[x509.ExtensionType]:
    """Return the extensions, the critical ones first."""
    found = sorted(pair.certificate.extensions, key=lambda extension: not extension.critical)
    assert sum(extension.critical for extension in found) == 2
    return [extension.value for extension in found]


def identifier(pair: KeyPair) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(pair.certificate.public_key())


def test_ca_and_leaf_have_only_the_extensions_that_they_need(
    authority: KeyPair, leaf: KeyPair, names: list[str]
) -> None:
    assert extensions(authority) == [
        x509.BasicConstraints(ca=True, path_length=0),
        usage("key_cert_sign", "crl_sign"),
        identifier(authority),
    ]
    authority.certificate.verify_directly_issued_by(authority.certificate)
    assert extensions(leaf) == [
        x509.BasicConstraints(ca=False, path_length=None),
        usage("digital_signature"),
        identifier(leaf),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        alternatives(names),
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier(authority)),
    ]


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
    authorities = [create_authority(NOW) for _ in range(2)]
    pairs = [*authorities, *(issue_leaf(authorities[0], NAMES, NOW) for _ in range(2))]
    assert len({pair.certificate.serial_number for pair in pairs}) == 4
    assert len({pair.key_pem for pair in pairs}) == 4
    assert len({authority.certificate.subject for authority in authorities}) == 2


@given(now=MOMENTS, authority_life=LIFETIMES, leaf_life=LIFETIMES, data=st.data())
def test_a_leaf_is_accepted_exactly_during_its_validity_period(
    now: datetime, authority_life: timedelta, leaf_life: timedelta, data: st.DataObject
) -> None:
    authority = create_authority(now, authority_life)
    ca = authority.certificate
    issued_at = data.draw(
        st.datetimes(
            min_value=ca.not_valid_before_utc.replace(tzinfo=None),
            max_value=ca.not_valid_after_utc.replace(tzinfo=None),
            timezones=st.just(UTC),
        ),
        label="issued at",
    )
    leaf = issue_leaf(authority, NAMES, issued_at, leaf_life)
    begin, end = leaf.certificate.not_valid_before_utc, leaf.certificate.not_valid_after_utc
    assert ca.not_valid_before_utc <= begin <= issued_at
    assert begin <= end <= ca.not_valid_after_utc
    assert end <= issued_at + leaf_life
    assert end > issued_at - SECOND  # whole seconds
    for at in (begin, end, max(begin, min(end, issued_at))):
        assert verify(leaf, authority, at)
    for at in (begin - SECOND, end + SECOND):
        with pytest.raises(VerificationError):
            verify(leaf, authority, at)


@pytest.mark.parametrize("lifetime", [timedelta(milliseconds=999), -DAY, timedelta.max])
def test_a_lifetime_outside_a_second_to_100_years_is_rejected(lifetime: timedelta) -> None:
    with pytest.raises(CertificateError, match="Use one between a second and 100 years"):
        create_authority(NOW, lifetime)
    with pytest.raises(CertificateError, match="lifetime of the serving certificate: is "):
        issue_leaf(create_authority(NOW), NAMES, NOW, lifetime)


def test_an_external_ca_with_an_rsa_key_can_sign() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    usage = create_authority(NOW).certificate.extensions.get_extension_for_class(x509.KeyUsage)
    authority = self_signed(CA, usage.value, key=key)
    leaf = issue_leaf(authority, NAMES, NOW)
    leaf.certificate.verify_directly_issued_by(authority.certificate)
    # It has no subject key identifier, so the certificate names the usual one.
    named = leaf.certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    usual = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    assert named.value.key_identifier == usual.digest


def test_only_a_ca_with_an_ecdsa_or_rsa_key_can_sign(leaf: KeyPair, now: datetime) -> None:
    other = self_signed(CA, key=ed25519.Ed25519PrivateKey.generate(), algorithm=None)
    for signer, at in ((leaf, now), (self_signed(), NOW), (other, NOW)):
        with pytest.raises(CertificateError, match="is not a CA certificate"):
            issue_leaf(signer, NAMES, at)
