"""Whether API servers trust the certificate that a replica serves, or is about to serve.

The controller publishes a CA before it signs. But another controller, such as cert-manager, may
replace a certificate and its CA at any time, and an upgrade may change where certificates come
from. A replica that callers do not trust must not receive requests: the handshakes fail.
"""

from __future__ import annotations

import base64
import binascii

from webhook.kube.client import KubeApi
from webhook.kube.errors import FORBIDDEN, ApiError
from webhook.serve.http.tls import Leaf

_API = "/apis/admissionregistration.k8s.io/v1"
_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_OWN = ".gpufence.dev"


class Callers:
    """The API servers of a cluster: they trust what the webhook configurations carry."""

    def __init__(self, api: KubeApi, name: str) -> None:
        self._api = api
        self._name = name

    async def distrust(self, leaf: Leaf) -> str:
        """Return why API servers do not trust a certificate; empty if they do.

        A configuration that does not exist or may not be read rejects nothing, and neither does a
        webhook without a caBundle.

        Raises:
            ClusterError: a request failed.
        """
        for kind in _KINDS:
            for bundle in await self._bundles(kind):
                if not leaf.is_trusted_by(bundle):
                    return f"the caBundle of {kind} {self._name} does not trust it"
        return ""

    async def _bundles(self, kind: str) -> set[bytes]:
        try:
            configuration = await self._api.read(f"{_API}/{kind}/{self._name}")
        except ApiError as error:
            if error.status == FORBIDDEN:
                return set()
            raise
        webhooks = (configuration or {}).get("webhooks") or ()
        configs = [
            webhook.get("clientConfig") or {}
            for webhook in webhooks
            if str(webhook.get("name")).endswith(_OWN)
        ]
        return {_decoded(config["caBundle"]) for config in configs if config.get("caBundle")}


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""
