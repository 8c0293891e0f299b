"""The Service that stands for the real one in end-to-end tests."""

from __future__ import annotations

import threading

from controlplane.gpufence import Replica
from release.service import Service


class Probed(Replica):
    """A ready replica, which answers a probe when the test says so."""

    def __init__(self) -> None:
        self.port = 1
        self.asked, self.answers = threading.Event(), threading.Event()

    def unready(self) -> str:
        self.asked.set()
        assert self.answers.wait(10)
        return ""


def test_a_removed_replica_gets_no_connections_after_a_slow_probe() -> None:
    replica = Probed()
    with Service() as service:
        service.replicas = [replica]
        assert replica.asked.wait(10)
        service.select([])
        replica.answers.set()
    assert service.endpoints == 0
