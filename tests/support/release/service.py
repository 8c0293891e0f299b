"""A Service for replicas on loopback: one address, and connections to ready replicas.

A connection goes to a replica whose last /readyz was ok, as kube-proxy and the
API server do it with the endpoints that a kubelet's probes make. Bytes are passed on unread.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from typing import Self

from controlplane.gpufence import Replica

PROBE_EVERY = 0.2


class Service:
    """Forwards connections; as a context manager it listens in the block."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"https://localhost:{self.port}"
        self.replicas: list[Replica] = []
        """Those behind the address, ready or not."""
        self._ready: list[int] = []
        self._turn = itertools.count()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._prober = threading.Thread(target=self._probe, daemon=True)

    def select(self, replicas: Sequence[Replica]) -> None:
        """Have these replicas behind the address from now on."""
        with self._lock:
            self.replicas = list(replicas)
        self._look()

    @property
    def endpoints(self) -> int:
        """How many replicas were ready at the last probe."""
        return len(self._ready)

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

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        ready = self._ready
        with client:
            if not ready:
                return
            port = ready[next(self._turn) % len(ready)]
            try:
                server = socket.create_connection(("127.0.0.1", port), timeout=5)
            except OSError:
                return
            with server:
                server.settimeout(None)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()

    def __enter__(self) -> Self:
        self._acceptor.start()
        self._prober.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._prober.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Forward the data and the end of a stream."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
