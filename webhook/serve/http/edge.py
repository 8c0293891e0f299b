"""The HTTP edge: what is checked before a review is read, and the endpoints for operators.

An API server takes every HTTP error, and every call without an answer, as a failed call, and a
failed call admits the object where the failure policy is Ignore (``k8s.io/apiserver``,
``pkg/admission/plugin/webhook/validating/dispatcher.go``). So the edge denies a review that it does
not read: too large, too late, or more than the replica has memory for. The denial needs the uid of
the review, which API servers send first. Only requests without a uid get an HTTP error.

There is no 429 with Retry-After either. An API server sleeps for the seconds in the header and
sends the review again within the same timeout (``k8s.io/client-go/rest/with_retry.go``), so that
two such answers use up the default of 3 s, and the object is admitted. A review waits here instead.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import monotonic, perf_counter, time

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from webhook.logs import event
from webhook.serve.admission import policies, review
from webhook.serve.admission.handler import ENDPOINTS, Admission, Endpoint
from webhook.serve.http.listener import Handler
from webhook.serve.metrics.replica import Metrics

JSON = "application/json"

MAX_BODY = 8 * 1024 * 1024
"""An API server takes objects of up to 3 MiB (k8s.io/apiserver, MaxRequestBodyBytes). A review
carries two, the new and the old, which makes 6 MiB; 2 more are room for the envelope, and for what
the objects grow when they are encoded as JSON. Only objects that consist of ``<``, ``>`` and ``&``,
which Go writes in six bytes each, grow by more, and are denied."""

MAX_VALUES = 1_500_000
"""JSON values in a body, counted by the characters before them: 110 MiB of Python objects in the
worst case (lists in lists, objects of one field). What API servers send takes at least 6 bytes for
each value, which makes 1.4 million at most. 8 MiB of brackets would take 330 MiB, more than a
replica may use."""

MAX_LARGE = 32 * 1024 * 1024
"""Bytes of all large bodies that arrive or are decided on. Without this limit, enough of them at a
time would take more memory than a replica has. One address gets half of it."""

MAX_WAITING = 32
"""Large bodies that wait for memory. The sockets and TLS buffer 1.2 MiB of each (100 of them took
144 MiB). One address gets half of it."""

SMALL_BODY = 64 * 1024
"""A body of up to this size never waits for others: nearly all are smaller. All connections
(``webhook.serve.http.listener.REVIEWS``) with such a body make 50 MiB."""

_Path = Endpoint | policies.Endpoint
_MOST_BYTES = {"/mutate": MAX_BODY, "/validate": MAX_BODY, policies.ENDPOINT: policies.MAX_BODY}
_MOST_VALUES = {
    "/mutate": MAX_VALUES,
    "/validate": MAX_VALUES,
    policies.ENDPOINT: policies.MAX_VALUES,
}
_BY_PATH: dict[str, _Path] = {path: path for path in (*ENDPOINTS, policies.ENDPOINT)}

# The interval at which a replica that shuts down checks for open requests.
_DRAIN_SECONDS = 0.01

_TIMEOUT = re.compile(r"(?:^|&)timeout=([0-9]{1,6})(ms|s)(?:&|$)")

_log = logging.getLogger("gpufence")


class Edge:
    """Takes reviews at ``/mutate`` and ``/validate``, and those of policies.

    ``timeout_seconds`` is the timeout in the webhook configurations, the longest that any caller
    gets, and ``followed`` the FencePolicy that replicas follow; empty if they read a file.
    """

    def __init__(
        self, admission: Admission, metrics: Metrics, timeout_seconds: float, followed: str
    ) -> None:
        self.draining = False
        """Whether answers close their connection: a caller then turns to another replica."""
        self.open_requests = 0
        """Requests that are not answered yet, including those whose body is still arriving."""
        self.reviewed_at = 0.0
        """When a review was last answered, as the clock of watches counts."""
        self._admission = admission
        self._policies = policies.PolicyReviews(metrics, followed)
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds
        self.memory = Memory()

    async def finished(self) -> None:
        """Return once no request is open."""
        # Polling at the end costs less than an event, which every request would set and clear.
        while self.open_requests:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_SECONDS)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, whatever its path."""
        # Three paths need no router, and every request would pay for one.
        endpoint = _BY_PATH.get(request.rel_url.raw_path)
        if endpoint is None:
            return _not_found(*_BY_PATH)
        started = perf_counter()
        self.open_requests += 1
        try:
            answer = await self._review(request, endpoint)
            self.reviewed_at = monotonic()
        except review.RefusedError as error:
            answer = self._refuse(request, endpoint, error)
        finally:
            self.open_requests -= 1
        self._metrics.took(endpoint, perf_counter() - started)
        if self.draining:
            answer.force_close()
        return answer

    async def _review(self, request: web.BaseRequest, endpoint: _Path) -> web.StreamResponse:
        """Check the request, and answer its review."""
        headers = request.headers
        if request.method != hdrs.METH_POST:
            problem = f"{request.method:.20} is not supported; POST an AdmissionReview"
            raise review.RefusedError(problem, status=HTTPStatus.METHOD_NOT_ALLOWED)
        # Nearly all callers send it without parameters, and then there is nothing to parse.
        if headers.get(hdrs.CONTENT_TYPE) != JSON and request.content_type != JSON:
            raise _unsupported(f"Content-Type {headers.get(hdrs.CONTENT_TYPE, '')!r:.100}")
        if headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
            raise _unsupported(f"Content-Encoding {headers[hdrs.CONTENT_ENCODING]!r:.100}")
        seconds = deadline(request.rel_url.raw_query_string, self._timeout_seconds)
        if request.content.is_eof():
            # The body arrived with the headers, as nearly all do.
            body, ends = request.content.read_nowait(), perf_counter() + seconds
            return await self._answer(request, endpoint, body, ends)
        return await self._receive(request, endpoint, seconds)

    async def _receive(
        self, request: web.BaseRequest, endpoint: _Path, seconds: float
    ) -> web.StreamResponse:
        """Answer a review that is still arriving, once there is memory for it.

        What is not read stays in the sockets, where TCP makes its sender wait.
        """
        # A body without a length may have any.
        most = _MOST_BYTES[endpoint]
        size = request.content_length or most
        ends, waits, body = perf_counter() + seconds, False, bytearray()
        try:
            async with asyncio.timeout(seconds) as limit:
                await _read(request, body, review.LEADING_BYTES)
                if size > most:
                    raise _too_large(f"is over {most // 1024**2} MiB", endpoint, body)
                waits = True
                async with self.memory.taken(request.remote or "", size):
                    waits = False
                    await _read(request, body, most + 1)
                    if len(body) > most:
                        raise _too_large(f"is over {most // 1024**2} MiB", endpoint, body)
                    limit.reschedule(None)
                    return await self._answer(request, endpoint, bytes(body), ends)
        except TimeoutError as error:
            status = HTTPStatus.REQUEST_TIMEOUT
            problem = f"the review did not arrive within {seconds:.2g} s; try again later"
            if waits:
                status = HTTPStatus.TOO_MANY_REQUESTS
                problem = "gpufence is receiving too many large reviews; try again later"
            # A call that fails does not stop a change of the policy.
            uid = "" if endpoint == policies.ENDPOINT else review.leading_uid(body)
            raise review.RefusedError(problem, uid, status=status) from error
        except (web.RequestPayloadError, HttpProcessingError) as error:
            problem = "the framing of the body is not valid HTTP/1.1"
            raise review.RefusedError(problem, review.leading_uid(body)) from error

    async def _answer(
        self, request: web.BaseRequest, endpoint: _Path, body: bytes, ends: float
    ) -> web.StreamResponse:
        """Answer the review in a complete body."""
        if not body:
            raise review.RefusedError("the body is empty; POST an AdmissionReview")
        most = _MOST_VALUES[endpoint]
        if len(body) > most and _values(body) > most:
            raise _too_large(f"holds more than {most:,} JSON values", endpoint, body)
        seconds = ends - perf_counter()
        if endpoint == policies.ENDPOINT:
            return self._response(request, await self._policies.answer(body, seconds))
        answer = await self._admission.answer(endpoint, body, seconds)
        # Decide on all requests that have arrived before the first answer is written: a system call
        # between two decisions empties the caches that the second one needs.
        await asyncio.sleep(0)
        return self._response(request, answer)

    def _refuse(
        self, request: web.BaseRequest, endpoint: _Path, error: review.RefusedError
    ) -> web.StreamResponse:
        """Respond with a review if the uid arrived, or else with an HTTP error."""
        status, problem, uid = error.status, str(error), error.uid
        is_overload = status is HTTPStatus.TOO_MANY_REQUESTS
        self._metrics.count_response(endpoint, "overloaded" if is_overload else "bad_request")
        event(
            _log,
            logging.WARNING,
            "bad request",
            path=endpoint,
            status=status.value,
            uid=uid,
            problem=problem,
        )
        if not uid:
            allow = {"Allow": "POST"} if status is HTTPStatus.METHOD_NOT_ALLOWED else None
            return web.Response(status=status, text=f"{problem}\n", headers=allow)
        answer = self._admission.refused(uid, status, problem)
        return self._response(request, review.encode(answer, error.api_version))

    def _response(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        keeps = request.keep_alive and not self.draining
        if keeps and request.version == HttpVersion11:
            return JSONResponse(body)
        return web.Response(body=body, content_type=JSON)


class Memory:
    """The bytes that large bodies may take, shared fairly between the addresses that send them.

    What becomes free goes to the waiting address that holds the least.
    """

    def __init__(self, capacity: int = MAX_LARGE) -> None:
        self.capacity = capacity
        self.held: Counter[str] = Counter()
        """Bytes by address."""
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def taken(self, address: str, size: int) -> AsyncIterator[None]:
        """Wait for so many bytes, and hold them inside the block. Small bodies never wait.

        Raises:
            TimeoutError: too many wait already.
        """
        if size <= SMALL_BODY:
            yield
            return
        own, all_waiting = len(self._waiting.get(address, ())), map(len, self._waiting.values())
        if own >= MAX_WAITING // 2 or sum(all_waiting) >= MAX_WAITING:
            raise TimeoutError
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append((size, granted))
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.cancelled():
                self._waiting[address].remove((size, granted))
            else:
                self.held -= Counter({address: size})
            self._grant()

    def _grant(self) -> None:
        """Give what is free to those who wait."""
        for address in sorted(self._waiting, key=self.held.__getitem__):
            waiting = self._waiting[address]
            while waiting and self._fits(address, waiting[0][0]):
                size, granted = waiting.popleft()
                self.held[address] += size
                granted.set_result(None)
            if not waiting:
                del self._waiting[address]

    def _fits(self, address: str, size: int) -> bool:
        own, all_held = self.held[address] + size, self.held.total() + size
        return own <= self.capacity // 2 and all_held <= self.capacity


class JSONResponse(web.StreamResponse):
    """A body of JSON with status 200, for a caller of HTTP/1.1 that keeps its connection.

    For speed: making a ``web.Response`` and its headers took a quarter of the time of aiohttp and
    TLS for a request. This class sets none of the attributes that aiohttp does not read.
    """

    _HEAD = (
        f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nDate: %b\r\nContent-Length: %d\r\n\r\n"
    ).encode()

    def __init__(self, body: bytes) -> None:
        self._whole = self._HEAD % (_date(int(time())), len(body)) + body

    @property
    def keep_alive(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        writer = request.writer
        await writer.write_eof(self._whole)
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to be written: ``prepare`` sends the body with the headers."""


def operations_handler(
    metrics: Metrics, unready: Callable[[], str], problems: Callable[[], Iterable[str]] = tuple
) -> Handler:
    """Return the handler for kubelets and Prometheus, which is served without TLS.

    ``/healthz`` says that the process responds: a restart would fix nothing else. ``/readyz`` says
    whether clients should send requests here; ``unready`` returns why not, and ``problems`` what an
    operator should look at meanwhile, one line each.
    """

    def healthz(_request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok\n")

    def readyz(_request: web.BaseRequest) -> web.Response:
        reason = unready()
        lines = [reason or "ok", *problems()]
        return web.Response(text="\n".join(lines) + "\n", status=503 if reason else 200)

    def expose(request: web.BaseRequest) -> web.Response:
        body, content_type = metrics.expose(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    pages = {"/healthz": healthz, "/readyz": readyz, "/metrics": expose}

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        page = pages.get(request.rel_url.raw_path)
        if page is None:
            return _not_found(*pages)
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            return web.Response(status=405, headers={hdrs.ALLOW: "GET, HEAD"})
        return page(request)

    return handle


def _not_found(*paths: str) -> web.Response:
    return web.Response(status=404, text=f"not found; the paths here are {', '.join(paths)}\n")


def _unsupported(found: str) -> review.RefusedError:
    return review.RefusedError(
        f"{found} is not supported; send an AdmissionReview as plain {JSON}",
        status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    )


def _too_large(why: str, endpoint: _Path, body: bytes | bytearray) -> review.RefusedError:
    cure = "move long values into a ConfigMap"
    if endpoint == policies.ENDPOINT:
        cure = "merge entries, or name namespaces and objects by a prefix"
    return review.RefusedError(
        f"gpufence cannot review this object, because the review {why}. Make the object smaller: "
        f"{cure}",
        review.leading_uid(body),
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    )


async def _read(request: web.BaseRequest, body: bytearray, size: int) -> None:
    """Add what arrives to the body, until it has at least the size or is complete."""
    while len(body) < size and (chunk := await request.content.readany()):
        body += chunk


def _values(body: bytes) -> int:
    """Return how many values JSON may hold, in a fraction of the time that parsing takes.

    Each but the first follows a comma, a colon or a bracket. Those in strings count as well.
    """
    return sum(map(body.count, (b",", b":", b"[", b"{")))


@lru_cache(maxsize=32)
def deadline(query: str, registered: float) -> float:
    """Return the seconds in which to answer, less than the caller waits.

    An API server appends ``?timeout=3s``: what is left of its timeout, rounded up to whole seconds
    (``validating/dispatcher.go``), so that up to a second less may be left. A tenth is for the
    transfer. API servers need no more than the ``registered`` timeout, others must not get more.
    """
    found = _TIMEOUT.search(query)
    given = int(found[1]) / (1000 if found[2] == "ms" else 1) if found else registered
    seconds = min(given, registered)
    return 0.9 * max(seconds - 1, seconds / 2)


@lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    """Return the time as RFC 9110 (5.6.7) has it."""
    return formatdate(seconds, usegmt=True).encode()
