"""Whether API servers trust the certificate that a replica serves."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import timedelta

from certs.renewal import is_trusted_by
from policies.kubernetes.objects import JSONObject
from webhook.registration.drift import bundles


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
            if not _trusts(configuration, served)
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


def _trusts(configuration: JSONObject, served: bytes) -> bool:
    carried = {base64.b64decode(bundle) for bundle in bundles(configuration) if bundle}
    return all(is_trusted_by(served, bundle) for bundle in carried)
