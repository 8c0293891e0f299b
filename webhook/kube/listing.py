"""Whole collections of an API server, as audits and other tools read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from webhook.kube.client import KubeApi
from webhook.kube.errors import GONE, ApiError
from webhook.kube.pages import read_pages

ItemT = TypeVar("ItemT")
T = TypeVar("T")


async def list_all(
    connection: KubeApi,
    path: str,
    kind: type[ItemT],
    take: Callable[[ItemT], T],
    *,
    labels: str = "",
    fields: str = "",
) -> list[T]:
    """Return the results of ``take`` for the objects of the collection at ``path``.

    Of each object, the fields of ``kind`` are read. ``labels`` is a label selector, ``fields`` a
    field selector.

    If the version of the first page has expired (410: the API server compacts after some minutes),
    the pages that follow are of a newer version. Each object is in one page.

    Raises:
        ApiError: the request is rejected (webhook.kube.errors.FORBIDDEN), or there is no such
            collection.
        ClusterError: another failure.
    """
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    query = {name: text for name, text in selectors.items() if text}
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
    items: list[T] = []
    rest, goes_on = "", True
    while True:
        try:
            async for _, page in read_pages(connection, path, decoder, query, rest):
                goes_on = True
                items += map(take, page)
        except ApiError as error:
            if error.status != GONE or not (error.rest and goes_on):
                raise
            rest, goes_on = error.rest, False
        else:
            return items
