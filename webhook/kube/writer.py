"""A client of one API server that writes. Replicas have none.

gpufence writes only its own objects: its Secrets, webhook configurations and admission policies.
"""

from __future__ import annotations

import aiohttp
import msgspec

from policies.kubernetes.objects import JSONObject
from webhook.kube.client import JSON, OBJECTS, SECONDS, KubeApi, body_of, decoded
from webhook.kube.errors import NOT_FOUND, ApiError

FIELD_MANAGER = "gpufence"

_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class KubeWriter(KubeApi):
    """A client that can change objects; its errors are those of ``KubeApi``."""

    async def create(
        self, collection: str, obj: JSONObject, *, dry_run: bool = False
    ) -> JSONObject:
        """Create an object in the collection at ``path``; ApiError CONFLICT if it exists.

        A dry run does not store it.
        """
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        return await self._send("POST", collection, obj, query)

    async def replace(self, path: str, obj: JSONObject) -> JSONObject:
        """Replace an object; ApiError CONFLICT if its resourceVersion is not current."""
        return await self._send("PUT", path, obj, {"fieldManager": FIELD_MANAGER})

    async def apply(self, path: str, obj: JSONObject) -> JSONObject:
        """Apply an object (server-side apply), and take over fields of other managers."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._send("PATCH", path, obj, query, _APPLY)

    async def merge(self, path: str, patch: JSONObject) -> JSONObject:
        """Merge a patch into an object (RFC 7386): null removes a field."""
        return await self._send("PATCH", path, patch, {"fieldManager": FIELD_MANAGER}, _MERGE)

    async def delete(self, path: str) -> bool:
        """Delete an object; return whether it existed."""
        try:
            await self._send("DELETE", path, None, {})
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return True

    async def _send(
        self,
        method: str,
        path: str,
        body: JSONObject | None,
        query: dict[str, str],
        content_type: str = JSON,
    ) -> JSONObject:
        headers = {"Accept": JSON, "Content-Type": content_type}
        sent = None if body is None else msgspec.json.encode(body)
        limits = aiohttp.ClientTimeout(total=SECONDS)
        async with self.request(method, path, query, headers, limits, sent) as response:
            return decoded(await body_of(response, path), path, OBJECTS)
