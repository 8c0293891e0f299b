"""TLS handshakes in memory: no socket, no thread, no timing."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from certs.keypair import KeyPair

NAME = "gpufence.gpufence.svc"


def client_context(authority: KeyPair) -> ssl.SSLContext:
    """A client that requires a chain according to RFC 5280."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.certificate_pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


class Handshake:
    """Client and server in memory, driven step by step."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        name: str | None = NAME,
    ) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        self.client = client.wrap_bio(to_client, to_server, server_hostname=name)

    @staticmethod
    def step(side: ssl.SSLObject) -> bool:
        """Advance the handshake of one side; return whether it is complete."""
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def finish(self) -> Handshake:
        over = False
        while not over:
            over = all([self.step(self.client), self.step(self.server)])
        # TLS 1.3 sends its session tickets after the handshake, before the first data.
        self.server.write(b"hello")
        assert self.client.read(5) == b"hello"
        return self

    @property
    def presented(self) -> bytes | None:
        return self.client.getpeercert(binary_form=True)
