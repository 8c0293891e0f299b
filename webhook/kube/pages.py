"""Whole collections of an API server, page by page and item by item.

The size of an object is its author's choice: 1.4 MB of ``<`` are one object of 8.4 MB, because API
servers escape the character. A page therefore has as many items as fit into ``_PAGE_BYTES`` by the
size of those before, and is read again with fewer if it exceeds ``_MOST_PAGE_BYTES``. Its items are
decoded one at a time. Memory holds one page, one item, and what the caller keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

import msgspec

from webhook.kube.client import MOST_BYTES, KubeApi, Query, decoded
from webhook.kube.errors import (
    ApiError,
    ClusterError,
    ListMetadata,
    OversizedAnswerError,
    UnexpectedAnswerError,
    UnreachableError,
    backoff,
    spread,
)

# As in kubectl.
_MOST_ITEMS = 500
_FIRST_ITEMS = 50
_PAGE_BYTES = 2 * 1024 * 1024
_MOST_PAGE_BYTES = 8 * 1024 * 1024

# A page that is too large is requested again with an eighth of its items, and a page that is small
# is followed by one with up to twice as many.
_SHRINK = 8
_GROW = 2

_SECONDS = 60.0
_ATTEMPTS = 5

# Too many requests; an internal error, such as a new leader of etcd; and a proxy without backend.
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_FIRST_DELAY = 0.5
_LONGEST_DELAY = 5.0

ItemT = TypeVar("ItemT")


class _Page(msgspec.Struct):
    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


_decoder = msgspec.json.Decoder(_Page)


async def read_pages(
    connection: KubeApi,
    path: str,
    decoder: msgspec.json.Decoder[ItemT],
    query: Query,
    rest: str = "",
) -> AsyncIterator[tuple[str, Iterator[ItemT]]]:
    """Yield the resourceVersion of the list and the items of each page of the collection.

    The items of a page are decoded one after the other, once. A list that has begun goes on with
    the token ``rest``.

    Raises:
        ClusterError: a request failed, or a single object exceeds ``MOST_BYTES``.
    """
    limit = _FIRST_ITEMS
    while True:
        asked = {**query, "limit": str(limit), **({"continue": rest} if rest else {})}
        most_bytes = _MOST_PAGE_BYTES if limit > 1 else MOST_BYTES
        try:
            body = await get_again(connection, path, asked, most_bytes=most_bytes)
        except OversizedAnswerError:
            if limit == 1:
                raise
            limit = max(1, limit // _SHRINK)
            continue
        page = decoded(body, path, _decoder)
        items, page.items = page.items or [], None
        mean_bytes = max(1, len(body) // max(1, len(items)))
        del body
        yield page.metadata.resource_version, (decoded(item, path, decoder) for item in items)
        del items
        before, rest = rest, page.metadata.rest
        if not rest:
            return
        if rest == before:
            raise UnexpectedAnswerError(f"{path} returned the same page again: the list has no end")
        limit = max(1, min(_PAGE_BYTES // mean_bytes, limit * _GROW, _MOST_ITEMS))


async def get_again(
    connection: KubeApi,
    path: str,
    query: Query | None = None,
    *,
    most_bytes: int = MOST_BYTES,
) -> bytes:
    """Return the body of a GET, and repeat the request if the API server is not able to answer.

    That is after 429 and 5xx, with the delay of the response or a growing one. After a lost
    connection, only pages that continue a list are requested again: a cluster that was never
    reached is reported at once.

    Raises:
        ClusterError: the last attempt failed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await connection.get(path, query, seconds=_SECONDS, most_bytes=most_bytes)
        except ClusterError as error:
            if attempt == _ATTEMPTS or not _may_pass(error, query or {}):
                raise
            pause = backoff(attempt, _FIRST_DELAY, _LONGEST_DELAY)
            await asyncio.sleep(max(pause, spread(error.retry_after)))
    raise AssertionError("unreachable")


def _may_pass(error: ClusterError, query: Query) -> bool:
    if isinstance(error, ApiError):
        return error.status in _TRANSIENT
    return isinstance(error, UnreachableError) and "continue" in query
