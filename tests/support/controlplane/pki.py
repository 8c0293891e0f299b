"""The certificates and keys of one short-lived control plane."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from certificates import named, sign
from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair, parse_pair

LIFE = timedelta(days=7)  # a demo may run over the weekend
BACKDATED = timedelta(minutes=5)


class Authority:
    """A CA whose files, and those that it issues, are in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._now = datetime.now(UTC)
        self._pair = create_authority(self._now)
        self.certificate = write(directory / "ca.crt", self._pair.certificate_pem)

    def server(self, name: str, *addresses: str) -> tuple[Path, Path]:
        """Issue a serving certificate for names and IP addresses: files of (certificate, key)."""
        return self._write(name, issue_leaf(self._pair, addresses, self._now, LIFE))

    def client(self, user: str, *groups: str) -> tuple[Path, Path]:
        """Issue a client certificate: Kubernetes reads the user from CN and groups from O."""
        # Without the key identifiers of RFC 5280 (4.2.1), Python 3.13 trusts no certificate.
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = parse_pair(self._pair)[0].public_key()
        assert isinstance(issuer, ec.EllipticCurvePublicKey)
        pair = sign(
            named(user, *groups),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer),
            begin=self._now - BACKDATED,
            end=self._now + LIFE,
            signer=self._pair,
            key=key,
        )
        return self._write(user.replace(":", "-"), pair)

    def _write(self, name: str, pair: KeyPair) -> tuple[Path, Path]:
        return (
            write(self._directory / f"{name}.crt", pair.certificate_pem),
            write(self._directory / f"{name}.key", pair.key_pem),
        )


def key_pair(directory: Path, name: str) -> tuple[Path, Path]:
    """Write a key pair, as service account tokens are signed with: files of (public, private)."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return write(directory / f"{name}.pub", public), write(directory / f"{name}.key", private)


def write(path: Path, data: bytes) -> Path:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path
