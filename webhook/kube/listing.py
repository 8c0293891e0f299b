"""Whole collections of an API server, as audits and other tools read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from webhook.kube.client import KubeApi
from webhook.kube.errors import GONE, ApiError, ClusterError
from webhook.kube.pages import read_pages

_ATTEMPTS = 5

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
    the list starts again.

    Raises:
        ApiError: the request is rejected (webhook.kube.client.FORBIDDEN), or there is no such
            collection.
        ClusterError: another failure.
    """
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    query = {name: text for name, text in selectors.items() if text}
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
    for _ in range(_ATTEMPTS):
        items: list[T] = []
        try:
            async for _, page in read_pages(connection, path, decoder, query):
                items += map(take, page)
        except ApiError as error:
            if error.status != GONE:
                raise
        else:
            return items
    raise ClusterError(
        f"{path}: the list expired {_ATTEMPTS} times before its end; the API server compacts "
        "faster than it lists: see --etcd-compaction-interval of kube-apiserver"
    )
