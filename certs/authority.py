"""The authority and the serving leaf that it signs: ECDSA on P-256, as the API server's Go prefers.

The profile is RFC 5280's, narrowed to what a webhook server needs: an authority that can sign
leaves but no further authorities, and leaves that can do nothing but serve.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.errors import MaterialError, RequestError
from certs.keypair import KeyPair, check_validity, parse_pair

if TYPE_CHECKING:
    from certs.names import Names

AUTHORITY_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=365)

# Certificates are used at once, by machines whose clocks may be behind the issuer's.
CLOCK_SKEW = timedelta(minutes=5)

# X.509 times are whole seconds (RFC 5280 section 4.1.2.5.2).
_SHORTEST_LIFETIME = timedelta(seconds=1)


def create_authority(now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME) -> KeyPair:
    """Create a self-signed authority that is valid until `now + lifetime`.

    Two authorities never share a name, because the name carries a part of the key's identifier: in
    the overlap of a rotation both are trusted at once, and clients look an issuer up by its name.
    Raises RequestError for a lifetime that cannot be.
    """
    not_before, not_after = _validity(now, lifetime, "lifetime of the CA")
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = _common_name(f"gpufence authority {identifier.digest.hex()[:8]}")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return _key_pair(certificate, key)


def issue_leaf(
    authority: KeyPair, names: Names, now: datetime, lifetime: timedelta = LEAF_LIFETIME
) -> KeyPair:
    """Issue a serving certificate for `names`, with a new key, valid until `now + lifetime`.

    A leaf never outlives its authority: where `lifetime` would reach past the authority's end, the
    leaf ends with it. Raises RequestError for a lifetime that cannot be, MaterialError for an
    authority that cannot sign: unreadable, no authority, outside its own life.
    """
    issuer, issuer_key = parse_pair(authority, "certificate of the CA", "key of the CA")
    _check_can_sign(issuer, now)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise MaterialError(
            f"is of a kind that cannot sign here ({type(issuer_key).__name__})",
            where="key of the CA",
            cure="Use a CA with an ECDSA or an RSA key",
        )
    not_before, not_after = _validity(now, lifetime, "lifetime of the serving certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_common_name("gpufence"))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(not_before, issuer.not_valid_before_utc))
        .not_valid_after(min(not_after, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_subject_alternative_name(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_authority_key_identifier(issuer), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _key_pair(certificate, key)


def _check_can_sign(issuer: x509.Certificate, now: datetime) -> None:
    where = "certificate of the CA"
    check_validity(issuer, now, where)
    try:
        is_authority = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    if not is_authority:
        raise MaterialError(
            "is not a CA certificate (basic constraints)",
            where=where,
            cure="Use the certificate and the key of the CA itself, such as ca.crt and ca.key",
        )


def _validity(now: datetime, lifetime: timedelta, where: str) -> tuple[datetime, datetime]:
    if now.tzinfo is None:
        raise ValueError("now must be an aware datetime")
    now = now.astimezone(UTC)
    if lifetime < _SHORTEST_LIFETIME:
        raise RequestError(
            f"is {lifetime}, which is less than a second", where=where, cure="Use a longer one"
        )
    try:
        not_after = now + lifetime
    except OverflowError as error:
        raise RequestError(
            f"is {lifetime}, which reaches past the year 9999",
            where=where,
            cure="Use a shorter one",
        ) from error
    # Without the limit, renewal of a very short-lived certificate would be due at once.
    not_before = now - min(CLOCK_SKEW, lifetime)
    return not_before.replace(microsecond=0), not_after.replace(microsecond=0)


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _subject_alternative_name(names: Names) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [*map(x509.DNSName, names.dns), *map(x509.IPAddress, names.ip)]
    )


def _authority_key_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    # RFC 5280 section 4.2.1.1: the value is the issuer's subject key identifier, however that was
    # made.
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        identifier = x509.SubjectKeyIdentifier.from_public_key(issuer.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _key_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate_pem=certificate.public_bytes(Encoding.PEM),
        key_pem=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
