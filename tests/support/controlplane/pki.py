"""The certificates and keys of one short-lived control plane."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = dt.timedelta(days=7)  # a demo may run over the weekend
BACKDATED = dt.timedelta(minutes=5)


class Authority:
    """A CA whose files, and those that it issues, are in one directory."""

    def __init__(self, directory: Path, name: str = "gpufence-controlplane") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = subject(name)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = self._builder(self._name, self._key.public_key())
        self._certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = write(directory / "ca.crt", pem(self._certificate))

    def server(self, name: str, *addresses: str) -> tuple[Path, Path]:
        """Issue a serving certificate for names and IP addresses: files of (certificate, key)."""
        alternatives = x509.SubjectAlternativeName([alternative(a) for a in addresses])
        return self._issue(name, subject(name), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, *groups: str) -> tuple[Path, Path]:
        """Issue a client certificate: Kubernetes reads the user from CN and groups from O."""
        file, purpose = user.replace(":", "-"), ExtendedKeyUsageOID.CLIENT_AUTH
        return self._issue(file, subject(user, *groups), purpose)

    def _issue(
        self,
        file: str,
        name: x509.Name,
        purpose: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([purpose]), critical=False
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = pem(builder.sign(self._key, hashes.SHA256()))
        return (
            write(self._directory / f"{file}.crt", certificate),
            write(self._directory / f"{file}.key", private_pem(key)),
        )

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        """Begin a certificate, with the key identifiers that RFC 5280 (4.2.1) requires of a chain.

        Without them, no client of Python 3.13 and newer trusts it by default.
        """
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + LIFE)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(issuer, critical=False)
        )


def key_pair(directory: Path, name: str) -> tuple[Path, Path]:
    """Write a key pair, as service account tokens are signed with: files of (public, private)."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return write(directory / f"{name}.pub", public), write(
        directory / f"{name}.key", private_pem(key)
    )


def subject(name: str, *groups: str) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def alternative(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write(path: Path, data: bytes) -> Path:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path
