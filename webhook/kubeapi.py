"""Reading and writing single objects of an API server, as the raw JSON that they are.

What keeps gpufence itself going (its Secret, its Lease, its webhook configurations) is written
here; the facts about the cluster are read through ``webhook.cluster`` and never written.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec

from webhook.cluster.connection import Connection, Query
from webhook.cluster.errors import (
    NOT_FOUND,
    UNAUTHORIZED,
    ApiError,
    UnexpectedAnswerError,
    UnreachableError,
)
from webhook.cluster.wire import Status

JSONObject = dict[str, Any]

CONFLICT = 409
FORBIDDEN = 403

FIELD_MANAGER = "gpufence"

SECONDS = 5.0
"""How long one request may take: upkeep that waits longer is better begun anew."""

_JSON = "application/json"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class KubeApi(Connection):
    """A Connection that can write, too.

    Every method raises ClusterError (webhook.cluster.errors): ApiError where the API server
    refuses, UnreachableError where it does not answer within ``SECONDS``.
    """

    async def read(self, path: str, query: Query | None = None) -> JSONObject | None:
        """Return the object at ``path``; None where there is none."""
        try:
            return _object(await self.get(path, query, seconds=SECONDS), path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def create(
        self, collection: str, obj: JSONObject, *, dry_run: bool = False
    ) -> JSONObject:
        """Create an object in the collection at that path; ApiError CONFLICT where it exists.

        As a dry run, all is done but to store it.
        """
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        return await self._send("POST", collection, obj, query)

    async def replace(self, path: str, obj: JSONObject) -> JSONObject:
        """Replace an object; ApiError CONFLICT where its resourceVersion is no longer current."""
        return await self._send("PUT", path, obj, {"fieldManager": FIELD_MANAGER})

    async def apply(self, path: str, obj: JSONObject) -> JSONObject:
        """Apply an object (server-side apply), taking fields over that others manage."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._send("PATCH", path, obj, query, _APPLY)

    async def merge(self, path: str, patch: JSONObject) -> JSONObject:
        """Merge a patch into an object (RFC 7386): null takes a field away."""
        return await self._send("PATCH", path, patch, {"fieldManager": FIELD_MANAGER}, _MERGE)

    async def delete(self, path: str) -> bool:
        """Delete an object; tell whether it was there."""
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
        client = await self._connected()
        method, url, headers, sent, _ = await client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": _JSON, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        try:
            answer = await client.call_api(method, url, headers, sent, _request_timeout=timeout)
            async with answer.response as response:
                received = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            what = str(error) or "nothing came in time"
            where = client.configuration.host
            raise UnreachableError(f"the API server at {where} is out of reach: {what}") from error
        if response.status >= 400:
            self._fresh = self._fresh and response.status != UNAUTHORIZED
            raise ApiError(response.status, _message(received))
        return _object(received, path)


def _object(body: bytes, path: str) -> JSONObject:
    try:
        return msgspec.json.decode(body, type=JSONObject)
    except msgspec.DecodeError as error:
        raise UnexpectedAnswerError(f"{path}: the API server sent no object: {error}") from error


def _message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Status).message
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace").strip()
