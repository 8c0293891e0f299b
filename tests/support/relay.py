"""Passes on TCP connections, bytes unread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Relay:
    """Listens, and connects each client to the port of 127.0.0.1 that `target` returns.

    If it returns None, or nothing listens there, the client's connection is closed.
    """

    def __init__(self, target: Callable[[], int | None], host: str = "127.0.0.1", port: int = 0):
        self._target = target
        self._server = socket.create_server((host, port), backlog=128)
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and break every connection off."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.break_off()

    def break_off(self) -> None:
        """Break every connection off."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        port = self._target()
        with client, suppress(OSError):
            if port is None:
                return
            with socket.create_connection(("127.0.0.1", port), timeout=5) as server:
                server.settimeout(None)
                pair = {client, server}
                self._open |= pair
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()
                self._open -= pair


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Forward the data and the end of a stream."""
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
