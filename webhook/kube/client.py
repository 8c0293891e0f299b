"""A client of one API server that reads: single objects as raw JSON, and the lines of a watch.

The model objects of ``kubernetes.aio`` are not used: to make one of a Node's watch event takes
0.85 ms, and to read the fields that matter 0.01 ms.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TypeVar

import aiohttp
import msgspec

from policies.kubernetes.objects import JSONObject
from webhook.kube.credentials import Access, Load
from webhook.kube.errors import (
    INVALID,
    NOT_FOUND,
    UNAUTHORIZED,
    ApiError,
    FailureStatus,
    OversizedAnswerError,
    UnexpectedAnswerError,
    UnreachableError,
)

Query = Mapping[str, str]

SECONDS = 5.0
"""The timeout of a request for an object. A controller retries instead of waiting longer."""

JSON = "application/json"
OBJECTS = msgspec.json.Decoder(JSONObject)

T = TypeVar("T")

_CONNECT_SECONDS = 10.0

# A lost watch must be noticed soon.
_MAX_RETRY_AFTER = 5.0

_HEADERS = {
    "Accept": JSON,
    # Compression of a long list costs both sides more than it saves on a cluster's network.
    "Accept-Encoding": "identity",
}

MOST_BYTES = 32 * 1024 * 1024
"""The largest response, and the largest line of a watch, that is read.

API servers accept objects of up to 3 MiB, and send each ``<`` in them as six bytes.
"""

_ERRNO = re.compile(r"\[Errno (\d+)\]")
_MOST_SHOWN = 200

# The bytes of a response that wait to be read; aiohttp buffers up to twice as many.
_BUFFER = 256 * 1024


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that are read of ``k8s.io/apimachinery/pkg/version.Info``."""

    minor: str = ""
    emulation_minor: str = ""
    """Set if the API server behaves as an older version (KEP-4330)."""


_VERSIONS = msgspec.json.Decoder(_Version)


class ServerClock:
    """The time of the API server that last responded; before that, the time of this machine.

    Certificates are for API servers, so they are judged by the time of an API server: the clock of
    this machine may be wrong.
    """

    def __init__(self) -> None:
        self._epoch: datetime | None = None
        """The time of the API server at which the monotonic clock of this machine was 0."""

    def observe(self, date: str) -> None:
        """Set the time from a Date header (RFC 9110, 6.6.1), which has whole seconds."""
        try:
            observed = parsedate_to_datetime(date)
        except (ValueError, OverflowError):
            return
        if observed.tzinfo:
            self._epoch = observed - timedelta(seconds=time.monotonic())

    def now(self) -> datetime:
        """Return the time of the API server, or of this machine before the first response."""
        if self._epoch is None:
            return datetime.now(UTC)
        return self._epoch + timedelta(seconds=time.monotonic())


class KubeApi:
    """A client of the API server whose address and credentials ``load`` returns.

    ``load`` is called before the first request, and again once the API server no longer accepts the
    credentials, or shows a certificate that is not trusted: files and plugins may have newer ones.

    Every method raises ClusterError (webhook.kube.errors): ApiError if the API server rejects the
    request, UnreachableError if it does not respond in time.
    """

    def __init__(self, load: Load, clock: ServerClock | None = None) -> None:
        self.clock = clock or ServerClock()
        self._load = load
        self._access: Access | None = None
        self._session: aiohttp.ClientSession | None = None
        self._fresh = False
        self._connecting = asyncio.Lock()

    async def prepare(self) -> None:
        """Read the configuration, without a request.

        Raises:
            ConfigurationError: it is not usable.
        """
        await self._connected()

    async def host(self) -> str:
        """Return the address of the API server in the configuration.

        Raises:
            ConfigurationError: it is not usable.
        """
        return (await self._connected()).host

    async def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        seconds: float,
        most_bytes: int = MOST_BYTES,
    ) -> bytes:
        """Return the body of a GET of ``path``, within ``seconds``.

        Raises:
            ApiError: the API server rejects the request.
            OversizedAnswerError: the body has more than ``most_bytes``.
            UnreachableError: it does not respond in time.
            ConfigurationError: the configuration is not usable.
        """
        limits = aiohttp.ClientTimeout(total=seconds)
        async with self.request("GET", path, query or {}, _HEADERS, limits) as response:
            return await body_of(response, path, most_bytes)

    @asynccontextmanager
    async def lines(
        self, path: str, query: Query, *, seconds: float, quiet_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open ``path``, and provide its lines, of any length, as they arrive.

        A connection that is silent for ``quiet_seconds``, or open after ``seconds``, counts as
        lost.

        Raises:
            ClusterError: as ``get`` does; from inside the block, too.
        """
        limits = aiohttp.ClientTimeout(
            total=seconds, sock_connect=_CONNECT_SECONDS, sock_read=quiet_seconds
        )
        async with self.request("GET", path, query, _HEADERS, limits) as response:
            yield _lines(response, path)

    async def read(self, path: str, query: Query | None = None) -> JSONObject | None:
        """Return the object at ``path``; None if it does not exist."""
        try:
            return decoded(await self.get(path, query, seconds=SECONDS), path, OBJECTS)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def minor_version(self) -> int:
        """Return the minor version of Kubernetes 1.x that the API server behaves as.

        Every account may read it (ClusterRole ``system:public-info-viewer``).
        """
        path = "/version"
        info = decoded(await self.get(path, seconds=SECONDS), path, _VERSIONS)
        # Providers write 33+ for a version of their own.
        found = re.match(r"\d{1,4}", info.emulation_minor or info.minor)
        if found is None:
            raise UnexpectedAnswerError(f"{path} has no minor version")
        return int(found[0])

    async def close(self) -> None:
        """Close the connections."""
        session, self._session, self._access = self._session, None, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        body: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and provide its successful response.

        If credentials that were valid have expired, the request is sent again with new ones: a
        list that consists of several pages would otherwise start again.
        """
        for is_last in (False, True):
            used = self._access if self._fresh else None
            access = await self._connected()
            if self._session is None:
                self._session = aiohttp.ClientSession(
                    trust_env=True,
                    read_bufsize=_BUFFER,
                    # No response is compressed, unless to take memory, and none sets a state.
                    auto_decompress=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                )
            try:
                authorization = await access.authorization()
                credentials = {"Authorization": authorization} if authorization else {}
                async with self._session.request(
                    method,
                    access.host + path,
                    params=query,
                    headers={**headers, **credentials},
                    data=body,
                    timeout=limits,
                    ssl=access.tls,
                    server_hostname=access.server_name,
                    proxy=access.proxy,
                    # A redirect would take the body of a write, such as a key, elsewhere.
                    allow_redirects=False,
                ) as response:
                    self.clock.observe(response.headers.get("Date", ""))
                    if response.status == UNAUTHORIZED:
                        self._fresh = False
                        if access is used and not is_last:
                            continue
                    if 300 <= response.status < 400:
                        target = response.headers.get("Location", "")[:_MOST_SHOWN]
                        raise UnexpectedAnswerError(
                            f"the API server at {access.host} redirects to {target}, and gpufence "
                            "follows no redirect; use the address of an API server"
                        )
                    if response.status >= 400:
                        failure = _failure(await body_of(response, path))
                        raise ApiError(
                            response.status,
                            failure.message,
                            _retry_after(response.headers.get("Retry-After", "")),
                            failure.metadata.rest,
                        )
                    yield response
                    return
            except (aiohttp.ClientError, OSError) as error:
                if isinstance(error, aiohttp.ClientConnectorCertificateError):
                    self._fresh = False
                raise UnreachableError(
                    f"the API server at {access.host} is out of reach: {_reason(error)}"
                ) from error

    async def _connected(self) -> Access:
        """Return the current access, and load it before the first request."""
        async with self._connecting:
            if self._access is None or not self._fresh:
                self._access = await self._load()
            self._fresh = True
            return self._access


async def body_of(
    response: aiohttp.ClientResponse, path: str, most_bytes: int = MOST_BYTES
) -> bytes:
    """Return the body of a response; raises OversizedAnswerError."""
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > most_bytes:
            raise OversizedAnswerError(path, most_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


async def _lines(response: aiohttp.ClientResponse, path: str) -> AsyncIterator[bytes]:
    """Yield the lines of a response; the last one may be incomplete."""
    begun = bytearray()
    async for chunk in response.content.iter_any():
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield bytes(begun + line) if begun else line
            begun.clear()
        begun += rest
        if len(begun) > MOST_BYTES:
            raise OversizedAnswerError(path, MOST_BYTES)
    if begun:
        yield bytes(begun)


def _reason(error: aiohttp.ClientError | OSError) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        # The text of the error shows the TLS context as a memory address; the host may be a
        # proxy's.
        return f"{error.host}:{error.port}: {_in_words(error.__cause__)}"
    # The texts of these errors show the URL. Its timeout is random: the same failure has one text.
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection within {_CONNECT_SECONDS:.0f} s"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"HTTP {error.status}: {error.message}"
    return _in_words(error) or "no response in time"


def _in_words(error: BaseException | None) -> str:
    """Return the text of an error, without the numbers and calls of the operating system."""
    numbers = dict.fromkeys(map(int, _ERRNO.findall(str(error))))
    words = (os.strerror(number).lower() for number in numbers)
    return ", ".join(words) or str(error).removeprefix(f"[Errno {getattr(error, 'errno', '')}] ")


def _retry_after(seconds: str) -> float:
    """Return the seconds of a Retry-After header: an API server sends whole seconds."""
    return min(float(seconds), _MAX_RETRY_AFTER) if seconds.isdecimal() else 0.0


def _failure(body: bytes) -> FailureStatus:
    """Return a Status, with the beginning of any other body as its message."""
    try:
        return msgspec.json.decode(body, type=FailureStatus)
    except INVALID:
        return FailureStatus(message=body[:_MOST_SHOWN].decode(errors="replace").strip())


def decoded(body: bytes | msgspec.Raw, path: str, decoder: msgspec.json.Decoder[T]) -> T:
    """Return the object in an answer to a request for ``path``; raises UnexpectedAnswerError."""
    try:
        return decoder.decode(body)
    except INVALID as error:
        raise UnexpectedAnswerError(f"{path} returned an invalid object: {error}") from error
