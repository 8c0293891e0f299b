"""Certificates as files, and those that `certs` does not issue: of clients, or invalid ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from certs.authority import create_authority, general_name, issue_leaf
from certs.handshake import is_trusted_by, server_of
from certs.keypair import KeyPair, parse_pair

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

CA = x509.BasicConstraints(ca=True, path_length=None)


def sign(
    subject: x509.Name,
    *extensions: x509.ExtensionType,
    begin: datetime,
    end: datetime,
    signer: KeyPair | None = None,
    key: CertificateIssuerPrivateKeyTypes | None = None,
    algorithm: hashes.SHA256 | None = hashes.SHA256(),  # noqa: B008 - it has no state
) -> KeyPair:
    """Return a certificate that `signer` has signed, or its own key."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    issuer, signing = subject, key
    if signer is not None:
        certificate, private = parse_pair(signer)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        issuer, signing = certificate.subject, private
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(end)
    for extension in extensions:
        critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical)
    return KeyPair(
        builder.sign(signing, algorithm).public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def named(name: str, *groups: str) -> x509.Name:
    """Return a subject; Kubernetes reads a user from CN and the groups from O."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def alternatives(names: Iterable[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(map(general_name, names))


def trusts(bundle: bytes, pair: KeyPair) -> bool:
    """Return whether API servers with this caBundle trust a pair."""
    return is_trusted_by(server_of(pair.certificate_pem, pair.key_pem), bundle)


def issue(names: Iterable[str], directory: Path) -> KeyPair:
    """Write a CA and a serving certificate that it signs to a directory; return the CA."""
    now = datetime.now(UTC)
    authority = create_authority(now)
    write_pairs(directory, authority, issue_leaf(authority, names, now))
    return authority


def write_pairs(directory: Path, authority: KeyPair, leaf: KeyPair) -> None:
    """Write ca.crt, ca.key, tls.crt and tls.key; each takes its place as a whole."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, pair in (("ca", authority), ("tls", leaf)):
        for suffix, content in (("crt", pair.certificate_pem), ("key", pair.key_pem)):
            part = directory / f".{name}.{suffix}"
            part.write_bytes(content)
            part.replace(directory / f"{name}.{suffix}")
