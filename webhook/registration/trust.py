"""Whether API servers trust the certificate that a replica serves."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from certs.renewal import is_trusted_by
from policies.kubernetes.objects import JSONObject
from webhook.registration.drift import bundles


class Trust:
    """What the webhook configurations of that ``name`` say about the served certificate."""

    def __init__(self, name: str) -> None:
        self.problem = "the webhook configurations are not checked yet"
        """Why API servers may reject the served certificate; empty if they trust it."""
        self.is_missing = False
        """Whether a caBundle did not trust the certificate when it was last checked."""
        self._name = name

    def check(self, served: bytes, registered: Mapping[str, JSONObject]) -> dict[str, JSONObject]:
        """Return the configurations, by kind, that do not trust ``served`` (PEM)."""
        distrusting = {
            kind: configuration
            for kind, configuration in registered.items()
            if not _trusts(configuration, served)
        }
        self.is_missing = bool(distrusting)
        kinds = " and ".join(distrusting)
        self.problem = (
            f"the caBundle of {kinds} {self._name} does not trust the served certificate"
            if distrusting
            else ""
        )
        return distrusting


def _trusts(configuration: JSONObject, served: bytes) -> bool:
    carried = {base64.b64decode(bundle) for bundle in bundles(configuration) if bundle}
    return all(is_trusted_by(served, bundle) for bundle in carried)
