"""Whole collections of an API server, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from policies.kubernetes.objects import JSONObject
from webhook.kube.backoff import spread
from webhook.kube.connection import Connection, Query
from webhook.kube.errors import GONE, ApiError, ClusterError, UnexpectedAnswerError

PAGE = 500
"""The number of objects in a page, as kubectl has it."""

_SECONDS = 60.0
_ATTEMPTS = 5

T = TypeVar("T")


class _Metadata(msgspec.Struct):
    rest: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _Metadata
    items: list[JSONObject] | None = None


_decoder = msgspec.json.Decoder(_Page)


async def list_all(
    connection: Connection,
    path: str,
    take: Callable[[JSONObject], T],
    *,
    page: int = PAGE,
    labels: str = "",
    fields: str = "",
) -> list[T]:
    """Return what ``take`` makes of each object of the collection at ``path``.

    ``labels`` is a label selector, ``fields`` a field selector: the API server leaves out what they
    do not select.

    Objects are taken a page at a time, so that of a large collection only what is made of it is
    held. Where the API server no longer has the version that the first page was of (410 Expired:
    it compacts after some minutes), everything is listed again. A page that the API server is too
    busy for is requested again after the delay that it names.

    Raises:
        ApiError: the request is rejected (webhook.kube.client.FORBIDDEN), or there is no such
            collection.
        ClusterError: another failure.
    """
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    for _ in range(_ATTEMPTS):
        items: list[T] = []
        query = {"limit": str(page)} | {name: text for name, text in selectors.items() if text}
        try:
            while True:
                response = _decode(path, await _get(connection, path, query))
                items += map(take, response.items or ())
                if not response.metadata.rest:
                    return items
                query["continue"] = response.metadata.rest
        except ApiError as error:
            if error.status != GONE:
                raise
    raise ClusterError(
        f"{path}: the list expired {_ATTEMPTS} times before its end; the API server compacts "
        "faster than it lists: see --etcd-compaction-interval of kube-apiserver"
    )


async def _get(connection: Connection, path: str, query: Query) -> bytes:
    """Get a page. A busy API server says when to try again, as clients of client-go do."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await connection.get(path, query, seconds=_SECONDS)
        except ApiError as error:
            if not error.retry_after:
                raise
            await asyncio.sleep(spread(error.retry_after))
    return await connection.get(path, query, seconds=_SECONDS)


def _decode(path: str, body: bytes) -> _Page:
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise UnexpectedAnswerError(f"{path} is no list as it should be: {error}") from error
