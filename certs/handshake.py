"""What a client that trusts some CAs makes of a served certificate.

In a handshake in memory, with OpenSSL: replicas do not have the library that issues certificates.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator

from certs import CertificateError

# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python does not name.
_NO_CHECK_TIME = 0x200000

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def is_trusted_by(server: ssl.SSLContext, bundle: bytes) -> bool:
    """Return whether a client that trusts the bundle (PEM) trusts a server; time does not count.

    As in Go's crypto/x509, a bundle may hold an intermediate CA, or the certificate itself.
    """
    try:
        handshake(server, ders(bundle, "caBundle"))
    except (CertificateError, ssl.SSLError):
        return False
    return True


def server_of(chain: bytes, key: bytes) -> ssl.SSLContext:
    """Return a server with a certificate and its key (PEM).

    Raises:
        OSError: OpenSSL does not take the pair; ssl.SSLError is one.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with as_file(chain, key) as path:
        # With a passphrase, OpenSSL never prompts for one.
        server.load_cert_chain(path, password="")
    return server


def ders(pem: bytes, where: str) -> list[bytes]:
    """Return DER of every certificate in PEM, at least one; raises CertificateError."""
    try:
        found = [ssl.PEM_cert_to_DER_cert(block.decode("ascii")) for block in _PEM.findall(pem)]
    except ValueError:
        found = []
    if not found:
        raise CertificateError(
            "contains no valid PEM certificate",
            where=where,
            cure="Put the PEM of an X.509 certificate there, from"
            ' "-----BEGIN CERTIFICATE-----" to "-----END CERTIFICATE-----"',
        )
    return found


def handshake(server: ssl.SSLContext, trusted: list[bytes]) -> dict[str, object]:
    """Return what a client that trusts these certificates (DER) sees, whatever the time is.

    The standard library shows a certificate, and says whether it is trusted, in a handshake only.
    This one is in memory.

    Raises:
        ssl.SSLError: the client does not trust it.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
    client.load_verify_locations(cadata=b"".join(trusted))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    calling = client.wrap_bio(to_client, to_server)
    for _ in range(4):
        for side in (calling, serving):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return dict(calling.getpeercert() or {})


@contextlib.contextmanager
def as_file(chain: bytes, key: bytes) -> Iterator[str]:
    """Yield the path of a file with the pair in it: Python's ssl takes no keys from memory.

    The two files may change between two reads of them. On Linux it is a file in memory.
    """
    content = b"\n".join((chain, key))
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
