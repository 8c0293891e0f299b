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

import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from certs import CertificateError, read_file
from certs.handshake import as_file, ders, handshake, is_trusted_by
from webhook.logs import event

# AEAD with forward secrecy only, for what still speaks TLS 1.2; TLS 1.3 has no other suites.
_TLS12_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

_log = logging.getLogger("gpufence")

Distrust = Callable[["Leaf"], Awaitable[str]]
"""Returns why callers do not trust a certificate yet; empty if they do.

Raises ClusterError if that cannot be found out.
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A serving certificate with its key: what a handshake shows of it."""

    context: ssl.SSLContext
    """A server without client certificates."""
    serial: int
    begins: datetime
    ends: datetime

    def is_trusted_by(self, bundle: bytes) -> bool:
        """Return whether a client that trusts the bundle (PEM) trusts it; time does not count."""
        return is_trusted_by(self.context, bundle)

    def problem(self, now: datetime, where: str) -> CertificateError | None:
        """Return why ``now`` is not within its life (RFC 5280, 4.1.2.5); ``None`` if it is."""
        if self.begins <= now <= self.ends:
            return None
        is_old = now > self.ends
        return CertificateError(
            f"expired at {self.ends.isoformat()}"
            if is_old
            else f"is not valid before {self.begins.isoformat()}",
            where=where,
            cure=f"{'Issue a new certificate' if is_old else 'Wait until then'}, or correct the "
            "clock of this machine",
        )


_Material = tuple[bytes, bytes, bytes | None]
"""What a context is made of: certificate, key, and the CAs of its clients."""


@dataclass(frozen=True, slots=True)
class _Served:
    context: ssl.SSLContext
    material: _Material
    leaf: Leaf


class ServedCertificate:
    """Serves the newest usable pair of two files, also while they change.

    TLS 1.2 at least; ALPN offers http/1.1 alone, since over HTTP/2 an API server sends all of its
    calls down one connection, to one replica.

    With a ``client_authority``, the file of one or more CAs, a client must show a certificate of
    one of them, made for clients. It is read again as the pair is.

    Raises:
        CertificateError: there is no usable pair.
    """

    def __init__(self, certificate: Path, key: Path, client_authority: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._client_authority = client_authority
        self._served = self._load(self._read())

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection.

        A pair outside its validity is served: its clients decide by their own clocks, and that of
        this machine may be wrong.
        """
        return self._served.context

    @property
    def leaf(self) -> Leaf:
        """What is served."""
        return self._served.leaf

    def invalid(self, now: datetime) -> str:
        """Return why the served certificate is not valid at that time; empty if it is."""
        return str(self.leaf.problem(now, str(self._certificate)) or "")

    async def poll(self, now: datetime, distrust: Distrust | None = None) -> bool:
        """Serve what is new and usable in the files; return whether it changed.

        Open connections keep what they started with. Without a change, it costs two small reads. A
        pair that callers do not trust yet is not served while the current one is valid.

        Raises:
            CertificateError: the new pair is not usable, and the current one stays in use. The next
                poll tries again: a pair that was half written is complete by then.
            ClusterError: whether callers trust it is unknown.
        """
        material = self._read()
        if material == self._served.material:
            return False
        loaded = self._load(material)
        if not self.invalid(now):
            if invalid := loaded.leaf.problem(now, str(self._certificate)):
                raise invalid
            if distrust is not None and (problem := await distrust(loaded.leaf)):
                raise CertificateError(
                    f"is not served yet, because {problem}",
                    where=str(self._certificate),
                    cure="Wait until its CA is registered",
                )
        self._served = loaded
        serial, expires = f"{loaded.leaf.serial:x}", loaded.leaf.ends.isoformat()
        event(_log, logging.INFO, "certificate reloaded", serial=serial, expires=expires)
        return True

    def _read(self) -> _Material:
        authority = self._client_authority
        clients = None if authority is None else read_file(authority)
        return read_file(self._certificate), read_file(self._key), clients

    def _load(self, material: _Material) -> _Served:
        chain, key, authorities = material
        first = ders(chain, str(self._certificate))[0]
        with as_file(chain, key) as path:
            plain = self._context_of(path)
            try:
                shown = handshake(plain, [first])
            except ssl.SSLError as error:
                raise self._unusable(error) from error
            context = plain
            if authorities is not None:
                context = self._context_of(path, asks_clients=True)
                _trust(context, authorities, str(self._client_authority))
        begins, ends = (
            datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown[field])), UTC)
            for field in ("notBefore", "notAfter")
        )
        serial = int(str(shown["serialNumber"]), 16)
        return _Served(context, material, Leaf(plain, serial, begins, ends))

    def _context_of(self, path: str, *, asks_clients: bool = False) -> ssl.SSLContext:
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
            # A session that is taken up again is not verified again: neither against CAs that have
            # changed meanwhile, nor for its time. API servers take none up. TLS 1.2 keeps sessions
            # where Python cannot turn that off.
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.num_tickets = 0
        try:
            # With a passphrase, OpenSSL never prompts for one.
            context.load_cert_chain(path, password="")
        except OSError as error:  # ssl.SSLError is one
            raise self._unusable(error) from error
        return context

    def _unusable(self, error: OSError) -> CertificateError:
        """Return why OpenSSL does not take the pair."""
        reason = getattr(error, "reason", "") or ""
        key = read_file(self._key)
        if reason == "KEY_VALUES_MISMATCH":
            return CertificateError(
                f"does not belong to {self._certificate}",
                where=str(self._key),
                cure="Replace both together; in a chain, the certificate of the key comes first",
            )
        if b"ENCRYPTED" in key:
            return CertificateError(
                "is encrypted with a passphrase, for which a server cannot prompt",
                where=str(self._key),
                cure="Store the key unencrypted and let file permissions protect it (mode 0600)",
            )
        if b"PRIVATE KEY-----" not in key:
            return CertificateError(
                "contains no valid PEM private key",
                where=str(self._key),
                cure="Put the PEM of the key there, which begins with "
                '"-----BEGIN PRIVATE KEY-----"',
            )
        return CertificateError(
            f"cannot be loaded by OpenSSL ({error})",
            where=f"{self._certificate} with {self._key}",
            cure="Use an ECDSA P-256 or an RSA 2048 key and a SHA-256 signature, or better",
        )


def _trust(context: ssl.SSLContext, authorities: bytes, where: str) -> None:
    """Accept clients with certificates of these CAs; raises CertificateError."""
    # As PEM, Python accepts only ASCII, but files often have comments between certificates.
    try:
        context.load_verify_locations(cadata=b"".join(ders(authorities, where)))
    except ssl.SSLError as error:
        raise CertificateError(
            f"contains no valid PEM certificate ({error})",
            where=where,
            cure="Put the certificate of the CA there that signs the client certificates",
        ) from error
    counts = context.cert_store_stats()
    if counts["x509"] > counts["x509_ca"]:
        raise CertificateError(
            "contains a certificate that is not a CA certificate",
            where=where,
            cure="Use the certificate of the CA that signs the client certificates",
        )
