"""The CAs in the caBundle: which ones the leader publishes, and whether they suffice for a replica.

While an upgrade changes where certificates come from, replicas with certificates of different CAs
serve at the same time, and API servers must trust all of them. A replica whose CA is missing adds
it. The leader keeps a CA that is not its own for the overlap, and then removes it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs import CertificateError
from certs.keypair import is_trusted_by, parse_certificates
from policies.kubernetes.objects import JSONObject
from webhook.controller.drift import is_own


class Trust:
    """What the webhook configurations say about the served certificate.

    A replica that starts with a new CA waits for ``delay`` after the configurations of that
    ``name`` carry it, because API servers learn of it by watching. Other replicas answer meanwhile.
    Without others, the wait would only prolong an outage. So the leader does not wait: it may be
    the only replica. A replica that was trusted before does not either: others lost trust as well.
    ``clock`` returns monotonic seconds.
    """

    def __init__(self, name: str, delay: timedelta, *, clock: Callable[[], float]) -> None:
        self.problem = "the webhook configurations are not checked yet"
        """Why API servers may reject the served certificate; empty if they trust it."""
        self._name = name
        self._delay = delay.total_seconds()
        self._clock = clock
        self._was_trusted = False
        # Most replicas start with a CA that the configurations have carried for long.
        self._carried_since: float | None = float("-inf")

    @property
    def is_missing(self) -> bool:
        """Whether a caBundle did not trust the certificate when it was last checked."""
        return self._carried_since is None

    def check(
        self, served: bytes, registered: Mapping[str, JSONObject], *, leads: bool
    ) -> dict[str, JSONObject]:
        """Return the webhook configurations, by kind, that do not trust ``served`` (PEM)."""
        distrusting = {
            kind: configuration
            for kind, configuration in registered.items()
            if not all(is_trusted_by(served, ca) for ca in ca_bundles(configuration) if ca)
        }
        if distrusting:
            self._carried_since = None
            kinds = " and ".join(distrusting)
            self.problem = (
                f"the caBundle of {kinds} {self._name} does not trust the served certificate"
            )
            return distrusting
        now = self._clock()
        if self._carried_since is None:
            self._carried_since = now
        if leads or self._was_trusted or now - self._carried_since >= self._delay:
            self._was_trusted = True
            self.problem = ""
        else:
            self.problem = "waiting until API servers have seen the CA of the served certificate"
        return {}


class Bundle:
    """The bundle that a leader publishes. ``clock`` returns monotonic seconds.

    With ``rotates``, the own CAs change by the rotation in `certs.secret`, which has an overlap
    itself: one that is no longer among them is not kept.
    """

    def __init__(self, overlap: timedelta, *, clock: Callable[[], float], rotates: bool) -> None:
        self._overlap = overlap.total_seconds()
        self._clock = clock
        self._rotates = rotates
        self._found_at: dict[x509.Certificate, float] = {}
        self._retired: set[x509.Certificate] = set()

    def publish(self, own: bytes, published: Iterable[bytes]) -> bytes:
        """Return ``own`` (PEM) with the CAs of others, found less than the overlap ago."""
        now = self._clock()
        own_cas = _certificates(own)
        if self._rotates:
            self._retired |= set(own_cas)
        present = dict.fromkeys(ca for bundle in published for ca in _certificates(bundle))
        others = [ca for ca in present if ca not in self._retired and ca not in own_cas]
        self._found_at = {ca: self._found_at.get(ca, now) for ca in others}
        return _joined(own, (x for x, at in self._found_at.items() if now - at < self._overlap))


def with_cas(configuration: JSONObject, own: bytes) -> JSONObject:
    """Return a configuration whose bundles carry the CAs of ``own`` (PEM) as well."""
    webhooks = []
    for webhook, published in zip(
        configuration.get("webhooks") or (), ca_bundles(configuration), strict=True
    ):
        # Without a bundle, another controller writes it.
        if is_own(webhook.get("name")) and published:
            carried = _certificates(published)
            bundle = _joined(published, (ca for ca in _certificates(own) if ca not in carried))
            encoded = base64.b64encode(bundle).decode()
            webhook = {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": encoded}}
        webhooks.append(webhook)
    return {**configuration, "webhooks": webhooks}


def ca_bundles(configuration: JSONObject) -> list[bytes]:
    """Return the caBundle of each webhook (PEM); empty if there is none, or no base64."""
    configs = (webhook.get("clientConfig") or {} for webhook in configuration.get("webhooks") or ())
    return [_decoded(config.get("caBundle") or "") for config in configs]


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""


def _certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return parse_certificates(pem, "bundle")
    except CertificateError:
        return ()


def _joined(bundle: bytes, others: Iterable[x509.Certificate]) -> bytes:
    added = b"".join(ca.public_bytes(Encoding.PEM) for ca in others)
    return bundle.rstrip(b"\n") + b"\n" + added if added else bundle
