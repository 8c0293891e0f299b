"""Pages of a list, by the size of its items."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fake_apiserver import NODES, FakeApiServer
from webhook.cluster.state import NamedObject
from webhook.kube.client import KubeApi
from webhook.kube.errors import ApiError, OversizedAnswerError, UnexpectedAnswerError
from webhook.kube.kubeconfig import kubeconfig
from webhook.kube.listing import list_all

KIB = 1024


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer(NODES)
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def connection(api: FakeApiServer, tmp_path: Path) -> AsyncIterator[KubeApi]:
    connection = KubeApi(kubeconfig(api.kubeconfig(tmp_path / "kubeconfig")))
    yield connection
    await connection.close()


def fill(api: FakeApiServer, *sizes: int) -> list[str]:
    """Create a node of each size, and return their names."""
    names = [f"n{number}" for number in range(len(sizes))]
    for name, size in zip(names, sizes, strict=True):
        api.put(NODES, {"metadata": {"name": name, "annotations": {"a": "x" * size}}})
    return names


async def names_of(connection: KubeApi) -> list[str]:
    return await list_all(connection, NODES, NamedObject, lambda item: item.metadata.name)


def limits(api: FakeApiServer) -> list[int]:
    return [int(request.query["limit"]) for request in api.lists(NODES)]


async def test_pages_of_small_items_grow_to_500(api: FakeApiServer, connection: KubeApi) -> None:
    names = fill(api, *[100] * 1000)
    assert await names_of(connection) == names
    assert limits(api) == [50, 100, 200, 400, 500]


async def test_a_list_that_expires_goes_on_with_newer_versions(
    api: FakeApiServer, connection: KubeApi
) -> None:
    names, expired = fill(api, *[100] * 500), set[int]()

    def expire(_path: str, offset: int) -> None:
        if offset and offset not in expired:
            expired.add(offset)
            api.compact()

    api.before_page = expire
    assert await names_of(connection) == names
    assert len(expired) > 2


async def test_a_list_that_expires_without_progress_fails(
    api: FakeApiServer, connection: KubeApi
) -> None:
    fill(api, *[100] * 100)

    def expire(_path: str, offset: int) -> None:
        if offset:
            raise ApiError(410, "expired", rest=f"{api.version}/{offset}")

    api.before_page = expire
    with pytest.raises(ApiError, match="expired"):
        await names_of(connection)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_page_that_failed_once_is_requested_again(
    api: FakeApiServer, connection: KubeApi, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.kube.pages.backoff", lambda *_: 0.0)
    names = fill(api, *[100] * 100)

    def fail(_path: str, offset: int) -> None:
        if offset == 50:
            api.before_page = lambda _path, _offset: None
            raise ApiError(status, "try again")

    api.before_page = fail
    assert await names_of(connection) == names
    assert limits(api) == [50, 100, 100]


async def test_a_page_above_8_mib_is_read_again_with_fewer_items(
    api: FakeApiServer, connection: KubeApi
) -> None:
    names = fill(api, *[10] * 5, *[9 * KIB * KIB] * 2, *[10] * 5)
    assert await names_of(connection) == names
    assert limits(api)[:5] == [50, 6, 1, 2, 4]
    assert len(limits(api)) < 16


async def test_an_object_above_32_mib_fails_the_list(
    api: FakeApiServer, connection: KubeApi
) -> None:
    fill(api, 33 * KIB * KIB)
    with pytest.raises(OversizedAnswerError, match=f"{NODES} returned more than 32,768 KiB"):
        await names_of(connection)


async def test_an_object_of_an_unexpected_type_fails_the_list(
    api: FakeApiServer, connection: KubeApi
) -> None:
    api.put(NODES, {"metadata": {"name": "n1", "labels": []}})
    with pytest.raises(UnexpectedAnswerError, match=f"{NODES} returned an invalid object"):
        await names_of(connection)
