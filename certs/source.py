"""The source of the serving key pair: files, or a Secret that a controller reads.

Certificates of cert-manager are mounted as files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from certs.errors import StorageError
from certs.files import read_file
from certs.keypair import KeyPair

if TYPE_CHECKING:
    from pathlib import Path


class Source(Protocol):
    """Returns the newest key pair."""

    @property
    def certificate_at(self) -> str:
        """The place of the certificate for messages: a path, or a key of a Secret."""

    @property
    def key_at(self) -> str:
        """The place of the private key for messages."""

    def read(self) -> KeyPair:
        """Return the current pair, unchecked; raises CertificateError if there is none."""


class FileSource:
    """Two files, as cert-manager's Secret is mounted, or as `certs.files.issue` writes them.

    Kubernetes updates a mounted Secret by swapping a symbolic link: each read may find new content.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key

    @property
    def certificate_at(self) -> str:
        return str(self._certificate)

    @property
    def key_at(self) -> str:
        return str(self._key)

    def read(self) -> KeyPair:
        return KeyPair(certificate_pem=read_file(self._certificate), key_pem=read_file(self._key))


class HeldSource:
    """A pair in memory, which the controller that reads the Secret provides."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._pair: KeyPair | None = None

    @property
    def certificate_at(self) -> str:
        return f"tls.crt of {self._where}"

    @property
    def key_at(self) -> str:
        return f"tls.key of {self._where}"

    def hold(self, pair: KeyPair) -> None:
        """Replace the pair."""
        self._pair = pair

    def read(self) -> KeyPair:
        if self._pair is None:
            raise StorageError(
                "has not been read yet",
                where=self._where,
                cure="Wait: the server reads it as soon as it reaches the API server",
            )
        return self._pair
