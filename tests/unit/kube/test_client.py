"""The time of an API server, and the error if it is out of reach."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from webhook.kube.client import ServerClock


def test_the_time_is_that_of_the_last_valid_date_header(subtests: pytest.Subtests) -> None:
    noon = "Sun, 01 Mar 2026 12:00:00"
    for header, time in (
        (f"{noon} GMT", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("noon", datetime.now(UTC)),
        (f"{noon} -0000", datetime.now(UTC)),
    ):
        with subtests.test(header=header):
            clock = ServerClock()
            clock.observe(header)
            assert abs(clock.now() - time) < timedelta(minutes=5)
