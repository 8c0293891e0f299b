"""The time of an API server, and the error if it is out of reach."""

from __future__ import annotations

import errno
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane.kubeconfig import write
from webhook.kube.client import KubeApi, ServerClock
from webhook.kube.credentials import kubeconfig
from webhook.kube.errors import UnreachableError


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


async def test_a_connection_error_names_address_and_reason(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        address = f"http://127.0.0.1:{port}"
        connection = KubeApi(kubeconfig(write(tmp_path / "kubeconfig", address, {})))
        with pytest.raises(UnreachableError) as caught:
            await connection.get("/version", seconds=5)
        await connection.close()
    assert str(caught.value) == (
        f"the API server at {address} is out of reach: 127.0.0.1:{port}: "
        f"[Errno {errno.ECONNREFUSED}] Connect call failed ('127.0.0.1', {port})"
    )
