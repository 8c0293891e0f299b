"""Reads and writes single objects of an API server as raw JSON.

gpufence writes only its own objects: the Secret, the Lease, webhook configurations, admission
policies and policy reports. ``webhook.cluster`` reads cluster facts.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec

from webhook.kube.connection import Connection, Query
from webhook.kube.errors import NOT_FOUND, ApiError, UnexpectedAnswerError

JSONObject = dict[str, Any]

CONFLICT = 409
FORBIDDEN = 403

FIELD_MANAGER = "gpufence"

SECONDS = 5.0
"""The timeout of a request. A controller retries instead of waiting longer."""

_JSON = "application/json"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class KubeApi(Connection):
    """A Connection that can write.

    Every method raises ClusterError (webhook.kube.errors): ApiError if the API server rejects the
    request, UnreachableError if it does not respond within ``SECONDS``.
    """

    async def read(self, path: str, query: Query | None = None) -> JSONObject | None:
        """Return the object at ``path``; None if it does not exist."""
        try:
            return _object(await self.get(path, query, seconds=SECONDS), path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

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
        content_type: str = _JSON,
    ) -> JSONObject:
        headers = {"Accept": _JSON, "Content-Type": content_type}
        sent = None if body is None else msgspec.json.encode(body)
        limits = aiohttp.ClientTimeout(total=SECONDS)
        async with self._request(method, path, query, headers, limits, sent) as response:
            return _object(await response.read(), path)


def _object(body: bytes, path: str) -> JSONObject:
    try:
        return msgspec.json.decode(body, type=JSONObject)
    except msgspec.DecodeError as error:
        raise UnexpectedAnswerError(f"{path}: the API server sent no object: {error}") from error


def slices_query(namespace: str, service: str) -> tuple[str, dict[str, str]]:
    """Return path and query of a Service's EndpointSlices."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    return path, {"labelSelector": f"kubernetes.io/service-name={service}"}


def ready_endpoints(endpoint_slice: JSONObject) -> list[JSONObject]:
    """Return the ready endpoints of a slice; an endpoint without the condition is ready.

    Source: ``k8s.io/api/discovery/v1``, ``types.go``.
    """
    return [
        endpoint
        for endpoint in endpoint_slice.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]
