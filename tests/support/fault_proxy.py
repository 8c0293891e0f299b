"""A proxy in front of an API server that injects faults, one at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Literal, Self, get_args

import aiohttp
from aiohttp import web

Fault = Literal["delay", "too many requests", "server error", "reset", "silence"]
"""Late responses; 429 with Retry-After; 500; aborted connections; no responses."""

FAULTS: tuple[Fault, ...] = get_args(Fault)

_HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "host")


class FaultProxy:
    """Forwards HTTP on loopback to ``upstream``, watches included.

    ``requests`` counts all requests, forwarded or not, by names such as ``LIST nodes`` or ``PUT
    leases``.
    """

    def __init__(self, upstream: str, *, delay_seconds: float) -> None:
        self.requests: Counter[str] = Counter()
        self.fault: Fault | None = None
        self._upstream = upstream
        self._delay_seconds = delay_seconds
        self._ended = asyncio.Event()
        self._ended.set()
        self._open: set[asyncio.BaseTransport] = set()
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        server = web.Server(self._serve, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()
        assert self._runner is not None
        assert self._session is not None
        self._break_connections()
        await self._runner.cleanup()
        await self._session.close()

    def begin(self, fault: Fault) -> None:
        """Inject a fault until ``end``."""
        self.fault = fault
        self._ended.clear()
        if fault == "reset":
            self._break_connections()

    def end(self) -> None:
        self.fault = None
        self._ended.set()

    def _break_connections(self) -> None:
        for transport in list(self._open):
            _abort(transport)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests[_name(request)] += 1
        transport = request.transport
        if transport is None:
            return web.Response()
        self._open.add(transport)
        try:
            return await self._inject(transport) or await self._forward(request, transport)
        finally:
            self._open.discard(transport)

    async def _inject(self, transport: asyncio.BaseTransport) -> web.StreamResponse | None:
        match self.fault:
            case "delay":
                await asyncio.sleep(self._delay_seconds)
            case "too many requests":
                return _status(429, "too many requests, please try again later", "1")
            case "server error":
                return _status(500, "etcdserver: request timed out")
            case "reset":
                _abort(transport)
                return web.Response()
            case "silence":
                await self._silence(transport)
        return None

    async def _silence(self, transport: asyncio.BaseTransport) -> None:
        await self._ended.wait()
        # The client has disconnected.
        _abort(transport)

    async def _forward(
        self, request: web.BaseRequest, transport: asyncio.BaseTransport
    ) -> web.StreamResponse:
        assert self._session is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        response = web.StreamResponse()
        # Either end may disconnect at any time.
        with suppress(aiohttp.ClientError, ConnectionError):
            async with self._session.request(
                request.method,
                self._upstream + request.raw_path,
                headers=headers,
                data=await request.read(),
            ) as upstream:
                response.set_status(upstream.status)
                for key, value in upstream.headers.items():
                    if key.lower() not in _HOP_BY_HOP:
                        response.headers[key] = value
                await response.prepare(request)
                async for chunk in upstream.content.iter_any():
                    if self.fault == "silence":
                        await self._silence(transport)
                        break
                    await response.write(chunk)
        return response


def _abort(transport: asyncio.BaseTransport) -> None:
    if isinstance(transport, asyncio.Transport):
        transport.abort()


def _name(request: web.BaseRequest) -> str:
    """Return the verb and the resource of a request, as ``LIST nodes``."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    resource = parts[0] if parts else request.path
    if request.method != "GET" or len(parts) > 1:
        return f"{request.method} {resource}"
    return f"{'WATCH' if 'watch' in request.query else 'LIST'} {resource}"


def _status(code: int, message: str, retry_after: str = "") -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}
    headers = {"Retry-After": retry_after} if retry_after else {}
    return web.json_response(body, status=code, headers=headers)
