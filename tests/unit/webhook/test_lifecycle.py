"""When requests should be sent to a server, and when it has finished them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from webhook.http.lifecycle import Lifecycle

EXPIRES = datetime(2027, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("serving", "draining", "now", "reason"),
    [
        (False, False, EXPIRES - SECOND, "starting"),
        (True, False, EXPIRES - SECOND, ""),
        (True, False, EXPIRES, "the serving certificate expired at 2027-01-01T00:00:00+00:00"),
        (True, True, EXPIRES - SECOND, "shutting down"),
        (True, True, EXPIRES + SECOND, "shutting down"),
    ],
)
def test_a_server_is_ready_from_its_start_to_its_end_or_its_certificates(
    serving: bool, draining: bool, now: datetime, reason: str
) -> None:
    lifecycle = Lifecycle()
    lifecycle.serving, lifecycle.draining = serving, draining
    assert lifecycle.unready(EXPIRES, now) == reason


async def test_it_has_finished_when_the_last_of_its_requests_has() -> None:
    lifecycle = Lifecycle()
    await lifecycle.finished()
    with lifecycle.request():
        waiting = asyncio.create_task(lifecycle.finished())
        with lifecycle.request():
            assert lifecycle.open_requests == 2
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def test_a_request_that_fails_is_finished_too() -> None:
    lifecycle = Lifecycle()
    with pytest.raises(ZeroDivisionError), lifecycle.request():
        raise ZeroDivisionError
    await lifecycle.finished()
