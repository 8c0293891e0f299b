"""A way from a network namespace to a port of the loopback interface outside of it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_CHUNK = 65536


class Relay:
    """Passes on connections to ``host``:``port`` to the same port of 127.0.0.1, until closed."""

    def __init__(self, host: str, port: int) -> None:
        self._port = port
        self._server = socket.create_server((host, port))
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and break every connection off."""
        for connection in (self._server, *self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open |= {near, far}
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
