"""TLS for the webhook's listener, whose certificate changes without a restart.

Nothing says when a source has a new pair (Kubernetes updates a mounted Secret by swapping a
symbolic link), so its content is read whenever `poll` is called. There is no thread and no
task in here; the server has its own.

Each certificate gets an SSLContext of its own, and the listener takes the current one for each
connection. Loading a successor into the one live context would be shorter, and wrong twice (both
tried, OpenSSL 3.0): a key that does not match fails only after the old key has been dropped,
and from then on every handshake fails; and a context keeps one certificate per kind of key, so that
after a change from ECDSA to RSA the old one is still served.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs import CertificateError
from certs.files import PairSource, read_file
from certs.keypair import (
    KeyPair,
    check_validity,
    is_authority,
    parse_certificates,
    parse_pair,
)
from webhook.logs import event

_NEVER = datetime.max.replace(tzinfo=UTC)

# AEAD with forward secrecy only, for what still speaks TLS 1.2; TLS 1.3 has no other suites.
_TLS12_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

_log = logging.getLogger("gpufence")


_Material = tuple[KeyPair, bytes | None]
"""What a context is made of: the pair that it serves, and the CAs of its clients."""


@dataclass(frozen=True, slots=True)
class _Served:
    context: ssl.SSLContext
    material: _Material
    leaf: x509.Certificate


class ServedCertificate:
    """Serves the newest usable pair of a source, also while it changes.

    TLS 1.2 at least; ALPN offers http/1.1 alone, since over HTTP/2 an API server sends all of its
    calls down one connection, to one replica.

    With a ``client_authority``, the file of one or more CAs, a client must show a certificate of
    one of them, made for clients. It is read again as the pair is.
    """

    def __init__(self, source: PairSource, client_authority: Path | None = None) -> None:
        self._source = source
        self._client_authority = client_authority
        self._served: _Served | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection; load everything before the first.

        A pair outside its validity is served: its clients decide by their own clocks, and that of
        this machine may be wrong.

        Raises:
            CertificateError: there is no usable pair.
        """
        if self._served is None:
            self._served = self._load(self._read())
        return self._served.context

    @property
    def expires(self) -> datetime:
        """The expiry of the served certificate; a date that never comes without one."""
        return self._served.leaf.not_valid_after_utc if self._served else _NEVER

    def chain(self) -> bytes:
        """Return PEM of the chain that is served; empty if nothing is served yet."""
        return self._served.material[0].certificate_pem if self._served else b""

    def invalid(self, now: datetime) -> str:
        """Return why the served certificate is not valid at that time; empty if it is."""
        try:
            if self._served is not None:
                check_validity(self._served.leaf, now, self._source.certificate_at)
        except CertificateError as error:
            return str(error)
        return ""

    def poll(self, now: datetime) -> bool:
        """Serve what is new and usable in source and client CA; return whether it changed.

        Open connections keep what they started with. Without a change, it costs two small reads.

        Raises:
            CertificateError: the new pair is not usable, and the current one stays in use. The next
                poll tries again: a pair that was half written is complete by then.
        """
        if self._served is None:
            return False
        material = self._read()
        if material == self._served.material:
            return False
        loaded = self._load(material)
        if not self.invalid(now):
            check_validity(loaded.leaf, now, self._source.certificate_at)
        self._served = loaded
        serial, expires = f"{loaded.leaf.serial_number:x}", self.expires.isoformat()
        event(_log, logging.INFO, "certificate reloaded", serial=serial, expires=expires)
        return True

    def _read(self) -> _Material:
        authority = self._client_authority
        return self._source.read(), None if authority is None else read_file(authority)

    def _load(self, material: _Material) -> _Served:
        pair, authorities = material
        certificate_at, key_at = self._source.certificate_at, self._source.key_at
        leaf, _ = parse_pair(pair, certificate_at, key_at)
        context = _server_context(asks_clients=authorities is not None)
        if authorities is not None:
            _trust(context, authorities, str(self._client_authority))
        try:
            with _as_file(pair) as path:
                # With a passphrase, OpenSSL never prompts for one.
                context.load_cert_chain(path, password="")
        except OSError as error:  # ssl.SSLError is one
            raise CertificateError(
                f"cannot be loaded by OpenSSL ({error})",
                where=f"{certificate_at} with {key_at}",
                cure="Use an ECDSA P-256 or an RSA 2048 key and a SHA-256 signature, or better",
            ) from error
        return _Served(context, material, leaf)


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


def _server_context(*, asks_clients: bool = False) -> ssl.SSLContext:
    """Return a context without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS12_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    # Renegotiation (TLS 1.2) costs the server work without any use.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if asks_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        # Trust every certificate in the file, also an intermediate CA.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # A session that is taken up again is not verified again: neither against CAs that
        # have changed meanwhile, nor for its time. API servers take none up. TLS 1.2 keeps sessions
        # where Python cannot turn that off.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
    return context


def _trust(context: ssl.SSLContext, authorities: bytes, where: str) -> None:
    """Accept clients with certificates of these CAs; raises CertificateError."""
    certificates = parse_certificates(authorities, where)
    for certificate in certificates:
        if not is_authority(certificate):
            subject = certificate.subject.rfc4514_string()
            raise CertificateError(
                f"contains a certificate that is not a CA certificate ({subject})",
                where=where,
                cure="Use the certificate of the CA that signs the client certificates",
            )
    # As PEM, Python accepts only ASCII, but files often have comments between certificates.
    der = b"".join(certificate.public_bytes(Encoding.DER) for certificate in certificates)
    context.load_verify_locations(cadata=der)
