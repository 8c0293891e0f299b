"""When requests should be sent to a server, and when it has finished them."""

from __future__ import annotations

import asyncio

import pytest

from webhook.http.lifecycle import Lifecycle


def test_a_replica_is_ready_from_serving_until_draining() -> None:
    lifecycle = Lifecycle()
    assert lifecycle.unready() == "starting"
    lifecycle.serving = True
    assert lifecycle.unready() == ""
    lifecycle.draining = True
    assert lifecycle.unready() == "shutting down"


async def test_finished_returns_after_the_last_open_request() -> None:
    lifecycle = Lifecycle()
    await lifecycle.finished()
    with lifecycle.request():
        waiting = asyncio.create_task(lifecycle.finished())
        with lifecycle.request():
            assert lifecycle.open_requests == 2
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def test_a_failed_request_counts_as_finished() -> None:
    lifecycle = Lifecycle()
    with pytest.raises(ZeroDivisionError), lifecycle.request():
        raise ZeroDivisionError
    await lifecycle.finished()
