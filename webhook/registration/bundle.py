"""The CAs in the caBundle: those of the leader, and for a while those of other replicas.

While an upgrade changes where certificates come from, replicas with certificates of different CAs
serve at the same time, and API servers must trust all of them. A replica whose CA is missing adds
it. The leader keeps a CA that is not its own for the overlap, and then removes it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.errors import MaterialError
from certs.keypair import parse_certificates
from policies.kubernetes.objects import JSONObject
from webhook.registration.drift import is_own


class Bundle:
    """The bundle that a leader publishes. ``clock`` returns monotonic seconds.

    With ``succession``, the own CAs change by ``certs.succession``, which has an overlap itself:
    one that is no longer among them is not kept.
    """

    def __init__(self, overlap: timedelta, *, clock: Callable[[], float], succession: bool) -> None:
        self._overlap = overlap.total_seconds()
        self._clock = clock
        self._succession = succession
        self._found_at: dict[x509.Certificate, float] = {}
        self._retired: set[x509.Certificate] = set()

    def publish(self, own: bytes, published: Iterable[bytes]) -> bytes:
        """Return ``own`` (PEM) with the CAs of others, found less than the overlap ago."""
        now = self._clock()
        own_cas = _certificates(own)
        if self._succession:
            self._retired |= set(own_cas)
        present = dict.fromkeys(ca for bundle in published for ca in _certificates(bundle))
        others = [ca for ca in present if ca not in self._retired and ca not in own_cas]
        self._found_at = {ca: self._found_at.get(ca, now) for ca in others}
        return _joined(own, (x for x, at in self._found_at.items() if now - at < self._overlap))


def with_cas(configuration: JSONObject, own: bytes) -> JSONObject:
    """Return a configuration whose bundles carry the CAs of ``own`` (PEM) as well."""
    webhooks = [_with_cas(webhook, own) for webhook in configuration.get("webhooks") or ()]
    return {**configuration, "webhooks": webhooks}


def _with_cas(webhook: JSONObject, own: bytes) -> JSONObject:
    config = webhook.get("clientConfig") or {}
    # Without a bundle, another controller writes it.
    if not is_own(webhook.get("name")) or not config.get("caBundle"):
        return webhook
    published = base64.b64decode(config["caBundle"])
    carried = _certificates(published)
    bundle = _joined(published, (ca for ca in _certificates(own) if ca not in carried))
    return {**webhook, "clientConfig": {**config, "caBundle": base64.b64encode(bundle).decode()}}


def _certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(parse_certificates(pem, "bundle"))
    except MaterialError:
        return ()


def _joined(bundle: bytes, others: Iterable[x509.Certificate]) -> bytes:
    added = b"".join(ca.public_bytes(Encoding.PEM) for ca in others)
    return bundle.rstrip(b"\n") + b"\n" + added if added else bundle
