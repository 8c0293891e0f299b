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
"""The number of objects in a page, as in kubectl."""

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
    labels: str = "",
    fields: str = "",
) -> list[T]:
    """Return the results of ``take`` for the objects of the collection at ``path``.

    ``labels`` is a label selector, ``fields`` a field selector.

    Objects are read a page at a time, so memory holds the results and one page. If the version of
    the first page has expired (410: the API server compacts after some minutes), the list starts
    again. After 429, the page is requested again after the delay of the response.

    Raises:
        ApiError: the request is rejected (webhook.kube.client.FORBIDDEN), or there is no such
            collection.
        ClusterError: another failure.
    """
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    for _ in range(_ATTEMPTS):
        items: list[T] = []
        query = {"limit": str(PAGE)} | {name: text for name, text in selectors.items() if text}
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
    """Get a page; after 429, again after the requested delay, as client-go does."""
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
        raise UnexpectedAnswerError(f"{path} returned an invalid list: {error}") from error
