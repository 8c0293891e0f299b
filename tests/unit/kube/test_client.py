"""The time of an API server, and the error if it is out of reach."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from webhook.kube.client import ServerClock


@pytest.mark.parametrize(
    ("date_header", "time"),
    [
        ("Sun, 01 Mar 2026 12:00:00 GMT", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("noon", None),
        ("Sun, 01 Mar 2026 12:00:00 -0000", None),
    ],
)
def test_the_time_is_that_of_the_last_valid_date_header(
    date_header: str, time: datetime | None
) -> None:
    clock = ServerClock()
    clock.observe(date_header)
    elapsed = clock.now() - (time or datetime.now(UTC))
    assert abs(elapsed) < timedelta(minutes=5)
