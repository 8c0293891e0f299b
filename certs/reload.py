"""TLS for the webhook's listener, whose certificate changes without a restart.

Nothing says when a source has a new pair (Kubernetes updates a mounted Secret by swapping a
symbolic link), so it is asked, by content, whenever `poll` is called. There is no thread and no
task in here; the server has its own.

Each certificate gets an SSLContext of its own, which the listener's context hands to every new
handshake. Loading a successor into the one live context would be shorter, and wrong twice (both
tried, OpenSSL 3.0): a key that does not match is only refused after the old key has been dropped,
and from then on every handshake fails; and a context keeps one certificate per kind of key, so that
after a change from ECDSA to RSA the old one is still served.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import ssl
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from certs.errors import CertificateError, MaterialError
from certs.keypair import KeyPair, check_validity, parse_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from certs.source import Source

# AEAD with forward secrecy only, for what still speaks TLS 1.2; TLS 1.3 has no other suites.
_TLS12_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class Outcome(enum.StrEnum):
    """What a poll came to."""

    UNCHANGED = "unchanged"
    RELOADED = "reloaded"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Poll:
    """The outcome, and the reason for it as text for a log.

    Two polls that come to the same are equal, so that a caller can log only what differs from the
    last.
    """

    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class _Served:
    context: ssl.SSLContext
    digest: bytes
    expires: datetime
    description: str


class ServingContext:
    """A listener's SSLContext that serves the newest usable pair of a source.

    TLS 1.2 at least; ALPN offers http/1.1 alone, since over HTTP/2 an API server sends all of its
    calls down one connection, to one replica. Session tickets are on and outlast a reload.
    """

    def __init__(self, source: Source, now: datetime) -> None:
        """Load the pair for the first time; raises what `certs.files.read_pair` raises."""
        self._source = source
        self._served = self._load(source.read(), now)
        self._listener = _server_context()
        self._listener.sni_callback = self._present

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The context to give to the listener, once: it stays the same for good."""
        return self._listener

    @property
    def expires(self) -> datetime:
        """End of the life of the certificate that is served now (UTC)."""
        return self._served.expires

    def poll(self, now: datetime) -> Poll:
        """Look at the source; if its content is new and usable, serve it from now on.

        Anything else leaves the certificate that is served in place and says why: it is tried again
        at the next poll, so that a pair of which only one half was written heals by itself.
        Handshakes and connections under way keep what they began with. Costs two small reads where
        nothing changed; may be called from any thread.
        """
        try:
            pair = self._source.read()
            if _digest(pair) == self._served.digest:
                return Poll(Outcome.UNCHANGED, f"still serving {self._served.description}")
            self._served = self._load(pair, now)
        except CertificateError as error:
            return Poll(Outcome.REFUSED, f"{error} Still serving {self._served.description}.")
        return Poll(Outcome.RELOADED, f"now serving {self._served.description}")

    def _present(
        self,
        connection: ssl.SSLObject | ssl.SSLSocket,
        server_name: str | None,
        listener: ssl.SSLContext,
    ) -> None:
        """Hand the current certificate to a handshake; called with and without a server name."""
        connection.context = self._served.context

    def _load(self, pair: KeyPair, now: datetime) -> _Served:
        certificate_at, key_at = self._source.certificate_at, self._source.key_at
        leaf, _ = parse_pair(pair, certificate_at, key_at)
        check_validity(leaf, now, certificate_at)
        context = _server_context()
        try:
            with _as_file(pair) as path:
                # A passphrase is given so that it never asks for one.
                context.load_cert_chain(path, password="")
        except OSError as error:  # ssl.SSLError is one
            raise MaterialError(
                f"is refused by OpenSSL ({error})",
                where=f"{certificate_at} with {key_at}",
                cure="Use an ECDSA P-256 or an RSA 2048 key and a SHA-256 signature, or better",
            ) from error
        expires = leaf.not_valid_after_utc
        return _Served(
            context=context,
            digest=_digest(pair),
            expires=expires,
            description=f"certificate {leaf.serial_number:x}, valid until {expires.isoformat()}",
        )


@contextlib.contextmanager
def _as_file(pair: KeyPair) -> Iterator[str]:
    """Yield the path of a file with the pair in it: Python's ssl takes no keys from memory.

    On Linux it is a file in memory, so that a key from a Secret never meets a disk.
    """
    content = b"\n".join((pair.certificate_pem, pair.key_pem))
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    with os.fdopen(os.memfd_create("gpufence-key-pair"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _server_context() -> ssl.SSLContext:
    """Return a context without a certificate.

    The listener's and those that it hands out are all made here: which of them OpenSSL asks for a
    setting is its own affair.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS12_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    # A client that renegotiates (TLS 1.2) makes the server work for nothing.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _digest(pair: KeyPair) -> bytes:
    return b"".join(hashlib.sha256(pem).digest() for pem in (pair.certificate_pem, pair.key_pem))
