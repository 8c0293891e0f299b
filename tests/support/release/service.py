"""A Service for replicas on loopback: one address, and connections to ready replicas.

A connection goes to a replica whose last /readyz was ok, as kube-proxy and the
API server do it with the endpoints that a kubelet's probes make.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Self

from controlplane.gpufence import Replica
from relay import Relay

PROBE_EVERY = 0.2


class Service:
    """Forwards connections; as a context manager it listens in the block."""

    def __init__(self) -> None:
        self._relay = Relay(self._next)
        self.url = f"https://localhost:{self._relay.port}"
        self.replicas: list[Replica] = []
        """Those behind the address, ready or not."""
        self._ready: list[int] = []
        self._turn = itertools.count()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._prober = threading.Thread(target=self._probe, daemon=True)

    def select(self, replicas: Sequence[Replica]) -> None:
        """Have these replicas behind the address from now on."""
        with self._lock:
            self.replicas = list(replicas)
        self._look()

    def end(self) -> None:
        """Have no replica behind the address, nor a connection to one."""
        self.select([])
        self._relay.break_off()

    @property
    def endpoints(self) -> int:
        """How many replicas were ready at the last probe."""
        return len(self._ready)

    def _next(self) -> int | None:
        ready = self._ready
        return ready[next(self._turn) % len(ready)] if ready else None

    def _probe(self) -> None:
        while not self._over.wait(PROBE_EVERY):
            self._look()

    def _look(self) -> None:
        replicas = self.replicas
        ready = [replica.port for replica in replicas if not replica.unready()]
        with self._lock:
            # Other replicas may be selected meanwhile.
            if replicas is self.replicas:
                self._ready = ready

    def __enter__(self) -> Self:
        self._prober.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._relay.close()
        self._prober.join()
