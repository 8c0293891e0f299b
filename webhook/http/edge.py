"""The HTTP edge: what is checked before a review is read, and the endpoints for operators.

The response is a review with the uid of the caller, or a plain HTTP error with one line of text,
which an API server passes on to its user.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from time import perf_counter
from typing import NoReturn
from urllib.parse import parse_qsl

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from webhook.admission.handler import ENDPOINTS, Admission, Endpoint
from webhook.admission.review import BadReviewError
from webhook.http.deadline import deadline
from webhook.http.json_response import JSON, JSONResponse
from webhook.http.lifecycle import Lifecycle
from webhook.http.listener import Handler
from webhook.http.slots import NoSlotError, Slots
from webhook.logs import event
from webhook.metrics.admission import Metrics

MAX_BODY = 8 * 1024 * 1024
"""An API server takes objects of up to 3 MiB (k8s.io/apiserver, MaxRequestBodyBytes). A review
carries two, the new and the old, which makes 6 MiB; 2 more are room for the envelope, and for what
the objects grow when they are encoded as JSON."""

MAX_VALUES = 1_500_000
"""JSON values in a body, counted by the characters before them: 110 MiB of Python objects in the
worst case (lists in lists, objects of one field). What API servers send takes at least 6 bytes for
each value, which makes 1.4 million at most. 8 MiB of brackets would take 330 MiB, more than a
replica may use."""

MAX_ARRIVING = 32 * 1024 * 1024
"""Bytes of all bodies that are still arriving. Without this limit, enough large bodies at a time
would take more memory than a replica has. One address gets half of it."""

SMALL_BODY = 256 * 1024
"""A body of up to this size is never rejected because of others: nearly all are smaller."""

_BY_PATH: dict[str, Endpoint] = {endpoint: endpoint for endpoint in ENDPOINTS}

_log = logging.getLogger("gpufence")


class Edge:
    """Takes reviews at ``/mutate`` and ``/validate``.

    ``timeout_seconds`` is the timeout in the webhook configurations, the longest that any caller
    gets.
    """

    def __init__(
        self,
        admission: Admission,
        metrics: Metrics,
        lifecycle: Lifecycle,
        slots: Slots,
        timeout_seconds: float,
    ) -> None:
        self._admission = admission
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._slots = slots
        self._timeout_seconds = timeout_seconds
        self._arriving: Counter[str] = Counter()
        self._busy: set[web.RequestHandler] = set()

    def is_busy(self, connection: web.RequestHandler) -> bool:
        """Return whether a review whose body is complete waits for its answer on the connection."""
        return connection in self._busy

    @property
    def arriving_bytes(self) -> int:
        """The bytes of bodies that are not complete yet."""
        return self._arriving.total()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, whatever its path."""
        # Two paths need no router, and every request would pay for one.
        endpoint = _BY_PATH.get(request.rel_url.raw_path)
        if endpoint is None:
            return _not_found(*ENDPOINTS)
        started = perf_counter()
        response: web.StreamResponse
        with self._lifecycle.request():
            try:
                body = await self._review(request, endpoint)
            except NoSlotError as error:
                response = self._too_many(endpoint, str(error))
            except web.HTTPException as error:
                self._rejected(endpoint, error)
                response = web.Response(status=error.status, text=error.text, headers=error.headers)
            else:
                response = self._response(request, body)
        self._metrics.took(endpoint, perf_counter() - started)
        if self._lifecycle.draining:
            # The caller then opens a new connection, to another replica.
            response.force_close()
        return response

    async def _review(self, request: web.BaseRequest, endpoint: Endpoint) -> bytes:
        """Check the request, read its body, and return the body of the response."""
        headers = request.headers
        if request.method != hdrs.METH_POST:
            _reject_method(request.method)
        # Nearly all callers send it without parameters, and then there is nothing to parse.
        if headers.get(hdrs.CONTENT_TYPE) != JSON and request.content_type != JSON:
            _reject_media_type(f"Content-Type {headers.get(hdrs.CONTENT_TYPE, '')!r:.100}")
        if headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
            _reject_media_type(f"Content-Encoding {headers[hdrs.CONTENT_ENCODING]!r:.100}")
        seconds = _seconds(request.rel_url.raw_query_string, self._timeout_seconds)
        ends = perf_counter() + seconds
        address = request.remote or ""
        if request.content.is_eof():
            # It arrived with the headers, as nearly all do.
            body = request.content.read_nowait()
        else:
            body = await self._read(request, address, seconds)
        if len(body) > MAX_BODY:
            _reject_size()
        if not body:
            raise web.HTTPBadRequest(text="the body is empty; POST an AdmissionReview\n")
        if len(body) > MAX_VALUES and _values(body) > MAX_VALUES:
            _reject_values()
        connection = request.protocol
        self._busy.add(connection)
        try:
            # Only a complete body takes a slot: a client that sends none holds up no other.
            if not self._slots.take_free(address):
                await self._slots.take(address, ends - perf_counter())
            try:
                answer = await self._admission.answer(endpoint, body, ends - perf_counter())
            finally:
                self._slots.release(address)
            # Decide on all requests that have arrived before the first answer is written: a system
            # call between two decisions empties the caches that the second one needs.
            await asyncio.sleep(0)
        except BadReviewError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        else:
            return answer
        finally:
            self._busy.discard(connection)

    async def _read(self, request: web.BaseRequest, address: str, seconds: float) -> bytes:
        """Return a body that is not complete yet, within its size and its time."""
        self._slots.check(address)
        if (request.content_length or 0) > MAX_BODY:
            _reject_size()
        try:
            # The decision takes microseconds, and the lookup of claims half of the time that is
            # left, so that the body may take nearly all of it.
            async with asyncio.timeout(seconds):
                return await self._arrive(request, address)
        except TimeoutError as error:
            message = f"the body did not arrive within the timeout of the call, {seconds:g} s"
            raise web.HTTPRequestTimeout(text=f"{message}\n") from error
        except (web.RequestPayloadError, HttpProcessingError) as error:
            message = "the framing of the body is not valid HTTP/1.1"
            raise web.HTTPBadRequest(text=f"{message}\n") from error

    async def _arrive(self, request: web.BaseRequest, address: str) -> bytes:
        """Return a body that is still arriving, or that its sender holds back until requested."""
        waits = request.headers.get(hdrs.EXPECT, "").lower() == "100-continue"
        if waits and request.version == HttpVersion11:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        try:
            while chunk := await request.content.readany():
                body += chunk
                self._arriving[address] += len(chunk)
                if len(body) > MAX_BODY:
                    _reject_size()
                if len(body) > SMALL_BODY:
                    self._check_arriving(address)
            return bytes(body)
        finally:
            self._arriving[address] -= len(body)
            if not self._arriving[address]:
                del self._arriving[address]

    def _check_arriving(self, address: str) -> None:
        if self._arriving[address] > MAX_ARRIVING // 2 or self.arriving_bytes > MAX_ARRIVING:
            raise NoSlotError("gpufence is receiving too many large bodies")

    def _response(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        keeps = request.keep_alive and not self._lifecycle.draining
        if keeps and request.version == HttpVersion11:
            return JSONResponse(body)
        return web.Response(body=body, content_type=JSON)

    def _too_many(self, endpoint: Endpoint, why: str) -> web.Response:
        """Let the caller retry, on this replica or another.

        An API server retries within the webhook's timeout if the response says after how long
        (k8s.io/client-go/rest, with_retry.go). It does so on a new connection, which may lead to
        another replica. This replica stays ready: the others would only get what it does not take.
        """
        self._metrics.count_response(endpoint, "overloaded")
        response = web.Response(
            status=web.HTTPTooManyRequests.status_code,
            text=f"{why}; try again\n",
            headers={hdrs.RETRY_AFTER: "1"},
        )
        response.force_close()
        return response

    def _rejected(self, endpoint: Endpoint, error: web.HTTPException) -> None:
        self._metrics.count_response(endpoint, "bad_request")
        problem = (error.text or "").strip()
        event(
            _log,
            logging.WARNING,
            "bad request",
            path=endpoint,
            status=error.status,
            problem=problem,
        )


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


@lru_cache(maxsize=32)
def _seconds(query: str, timeout_seconds: float) -> float:
    """Return the seconds in which to answer. All calls of a webhook have the same query."""
    try:
        timeout = dict(parse_qsl(query, keep_blank_values=True)).get("timeout")
        return deadline(timeout, timeout_seconds)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"invalid timeout in the query: {error}\n") from error


def _reject_method(method: str) -> NoReturn:
    raise web.HTTPMethodNotAllowed(
        method, [hdrs.METH_POST], text=f"{method:.20} is not supported; POST an AdmissionReview\n"
    )


def _reject_media_type(found: str) -> NoReturn:
    raise web.HTTPUnsupportedMediaType(
        text=f"{found} is not supported; send an AdmissionReview as plain {JSON}\n"
    )


def _values(body: bytes) -> int:
    """Return how many values JSON may hold, in a fraction of the time that parsing takes.

    Each but the first follows a comma, a colon or a bracket. Those in strings count as well.
    """
    return sum(map(body.count, (b",", b":", b"[", b"{")))


def _reject_values() -> NoReturn:
    raise web.HTTPRequestEntityTooLarge(
        MAX_VALUES,
        text=f"the body holds more than {MAX_VALUES:,} JSON values, more than any object has\n",
    )


def _reject_size() -> NoReturn:
    mebibytes = MAX_BODY // 1024**2
    raise web.HTTPRequestEntityTooLarge(
        MAX_BODY, text=f"the body is over {mebibytes} MiB, more than any review with two objects\n"
    )
