"""Whether API servers trust the certificate that a replica serves, or is about to serve.

The controller publishes a CA before it signs. But another controller, such as cert-manager, may
replace a certificate and its CA at any time, and an upgrade may change where certificates come
from. A replica that callers do not trust must not receive requests: the handshakes fail.
"""

from __future__ import annotations

from webhook.kube.client import KubeApi
from webhook.kube.errors import FORBIDDEN, ApiError
from webhook.registered import KINDS, bundles
from webhook.serve.http.tls import Leaf


class Callers:
    """The API servers of a cluster: they trust what the webhook configurations carry."""

    def __init__(self, api: KubeApi, name: str) -> None:
        self.api = api
        self._name = name

    async def distrust(self, leaf: Leaf) -> str:
        """Return why API servers do not trust a certificate; empty if they do.

        A configuration that does not exist or may not be read rejects nothing, and neither does a
        webhook without a caBundle.

        Raises:
            ClusterError: a request failed.
        """
        for path in KINDS.values():
            for bundle in await self._bundles(f"{path}/{self._name}"):
                if not leaf.is_trusted_by(bundle):
                    kind = path.rpartition("/")[2]
                    return f"the caBundle of {kind} {self._name} does not trust it"
        return ""

    async def _bundles(self, path: str) -> set[bytes]:
        try:
            configuration = await self.api.read(path)
        except ApiError as error:
            if error.status == FORBIDDEN:
                return set()
            raise
        return {*filter(None, bundles(configuration or {}).values())}
