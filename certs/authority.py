"""The CA and the serving certificate that it signs: ECDSA on P-256, as Go's TLS prefers.

The profile is RFC 5280's, narrowed to what a webhook server needs: a CA that can sign leaves but no
further CAs, and leaves that can do nothing but serve.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs import CertificateError
from certs.keypair import KeyPair, is_authority, parse_pair

AUTHORITY_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=365)

CLOCK_SKEW = timedelta(minutes=5)
"""Certificates are used at once, by machines whose clocks may be behind the issuer's."""

# X.509 times are whole seconds (RFC 5280 section 4.1.2.5.2), until the year 9999.
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(days=36_500)


def create_authority(now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME) -> KeyPair:
    """Create a self-signed CA that is valid until `now + lifetime`.

    Two CAs never share a name, because the name carries a part of the key's identifier: in the
    overlap of a rotation both are trusted at once, and clients look an issuer up by its name.
    Raises CertificateError for an invalid lifetime.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = _common_name(f"gpufence authority {identifier.digest.hex()[:8]}")
    certificate = (
        _builder(name, name, key, *_validity(now, lifetime, "lifetime of the CA"))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _key_pair(certificate, key)


def issue_leaf(
    authority: KeyPair, names: Iterable[str], now: datetime, lifetime: timedelta = LEAF_LIFETIME
) -> KeyPair:
    """Issue a serving certificate for `names`, with a new key, valid until `now + lifetime`.

    The names are results of `host_name`. The certificate ends with its CA at the latest, which is
    valid now. Raises CertificateError for an invalid lifetime, and for a CA that cannot sign.
    """
    where = "certificate of the CA"
    issuer, issuer_key = parse_pair(authority, where)
    if not is_authority(issuer) or not isinstance(
        issuer_key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    ):
        raise CertificateError(
            "is not a CA certificate (basic constraints) with an ECDSA or RSA key",
            where=where,
            cure="Use the certificate and the key of the CA itself, such as ca.crt and ca.key",
        )
    begin, end = _validity(now, lifetime, "lifetime of the serving certificate")
    begin, end = max(begin, issuer.not_valid_before_utc), min(end, issuer.not_valid_after_utc)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_common_name("gpufence"), issuer.subject, key, begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(general_name, names)), critical=False)
        .add_extension(_authority_key_identifier(issuer), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _key_pair(certificate, key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _validity(now: datetime, lifetime: timedelta, where: str) -> tuple[datetime, datetime]:
    if not _SHORTEST <= lifetime <= _LONGEST:
        raise CertificateError(
            f"is {lifetime}", where=where, cure="Use one between a second and 100 years"
        )
    now = now.astimezone(UTC)
    # Without the limit, renewal of a very short-lived certificate would be due at once.
    begin, end = now - min(CLOCK_SKEW, lifetime), now + lifetime
    return begin.replace(microsecond=0), end.replace(microsecond=0)


def general_name(name: str) -> x509.DNSName | x509.IPAddress:
    """Return a host name, or an IP address, as certificates have it."""
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


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
