"""The CAs in the caBundle of the webhook configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.keypair import certificates_in


class Bundle:
    """The bundle that is published: the CAs of today, and for a while those of before.

    Replicas serve a certificate of an earlier CA until they have loaded the new one: after a
    rotation, and while an upgrade changes where certificates come from. So a CA stays for the
    ``overlap`` after it was last one of today, whatever configurations carry in the meantime. CAs
    that configurations carry at first are those of a controller before; later, other clients add
    them, and they go. ``clock`` returns monotonic seconds.
    """

    def __init__(self, overlap: timedelta, *, clock: Callable[[], float]) -> None:
        self._overlap = overlap.total_seconds()
        self._clock = clock
        self._used_at: dict[x509.Certificate, float] | None = None

    def publish(self, own: bytes, published: Iterable[bytes]) -> bytes:
        """Return ``own`` (PEM) with the CAs of before."""
        now = self._clock()
        if self._used_at is None:
            found = (ca for bundle in published for ca in certificates_in(bundle))
            self._used_at = dict.fromkeys(found, now)
        today = dict.fromkeys(certificates_in(own), now)
        used = self._used_at | today
        self._used_at = {ca: at for ca, at in used.items() if now - at < self._overlap}
        return b"".join(ca.public_bytes(Encoding.PEM) for ca in today | self._used_at)


def carries(bundle: bytes, authority: x509.Certificate) -> bool:
    """Return whether a client that trusts ``bundle`` (PEM) trusts the CA."""
    return authority in certificates_in(bundle)
