"""The HTTP edge: a checklist before a review is looked at, and the endpoints for operators.

Whatever arrives, the answer is a review with the caller's uid, or a plain HTTP error in text, which
an API server passes on to its user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
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
from webhook.logs import event
from webhook.metrics.admission import Metrics

MAX_BODY = 8 * 1024 * 1024
"""An API server takes objects of up to 3 MiB (k8s.io/apiserver, MaxRequestBodyBytes). A review
carries two, the new and the old, which makes 6; 2 more are room for the envelope, and for what the
objects gain by being written out as JSON anew."""

MOST_VALUES = 1_500_000
"""JSON values in a body, counted by what stands before them: 110 MiB of Python objects where all
are as dear as can be (lists in lists, objects of one field). In what API servers send, a value
takes 6 bytes and more, which makes 1.4 million at most; 8 MiB of brackets would take 330 MiB, more
than a replica may."""

MOST_ARRIVING = 32 * 1024 * 1024
"""Bytes of all the bodies that are still arriving. So many may be on their way at a time that they
would take more together than a replica has, if all were of the largest size."""

SMALL_BODY = 256 * 1024
"""A body up to this size is never refused for those of others: nearly all are smaller."""

_log = logging.getLogger("gpufence")


def admission_handler(admission: Admission, metrics: Metrics, lifecycle: Lifecycle) -> Handler:
    """Return what answers API servers, at ``/mutate`` and ``/validate``.

    It is no application: two paths need no router, and each request would pay for one.
    """
    edges: dict[str, _Edge] = {
        endpoint: _Edge(endpoint, admission, metrics, lifecycle) for endpoint in ENDPOINTS
    }

    def handle(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        edge = edges.get(request.rel_url.raw_path)
        return edge.serve(request) if edge else _not_found()

    return handle


def operations_app(
    metrics: Metrics, unready: Callable[[], str], troubles: Callable[[], Iterable[str]] = tuple
) -> web.Application:
    """Return the application for kubelets and Prometheus, which is served without TLS.

    ``/healthz`` says that the process answers; a restart would mend nothing else. ``/readyz`` says
    whether requests should be sent here: ``unready`` returns the reason why not. ``troubles`` are
    what somebody should look at meanwhile, a line each.
    """

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        reason = unready()
        lines = [reason or "ok", *troubles()]
        return web.Response(text="\n".join(lines) + "\n", status=503 if reason else 200)

    async def expose(request: web.Request) -> web.Response:
        body, content_type = metrics.expose(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", expose)
    return app


class _TooManyBytesError(Exception):
    """The bodies that are arriving are as many bytes as there may be."""


class _Edge:
    """What happens to a request before and after the admission itself."""

    def __init__(
        self, endpoint: Endpoint, admission: Admission, metrics: Metrics, lifecycle: Lifecycle
    ) -> None:
        self._endpoint = endpoint
        self._admission = admission
        self._metrics = metrics
        self._lifecycle = lifecycle

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._lifecycle.full:
            # Before anything is read: a body that waits is memory that is missing.
            return self._too_many(f"gpufence is answering {self._lifecycle.most} requests already")
        started = perf_counter()
        response: web.StreamResponse
        with self._lifecycle.request():
            try:
                answer = await self._answer(request)
            except _TooManyBytesError:
                mebibytes = MOST_ARRIVING // 1024**2
                response = self._too_many(f"bodies of {mebibytes} MiB are arriving already")
            except web.HTTPException as error:
                self._refused(error)
                response = web.Response(status=error.status, text=error.text, headers=error.headers)
            else:
                response = self._response(request, answer)
        self._metrics.took(self._endpoint, perf_counter() - started)
        if self._lifecycle.draining:
            # The caller's next request then goes to another replica, by a new connection.
            response.force_close()
        return response

    def _response(self, request: web.BaseRequest, answer: bytes) -> web.StreamResponse:
        keeps = request.keep_alive and not self._lifecycle.draining
        if keeps and request.version == HttpVersion11:
            return JSONResponse(answer)
        return web.Response(body=answer, content_type=JSON)

    def _too_many(self, why: str) -> web.Response:
        """Have the caller try again, here or elsewhere.

        Without the whole body there is no uid, and so no review that could say it: it is said in
        HTTP. An API server tries again, within the webhook's timeout, where it is told after how
        long (k8s.io/client-go/rest, with_retry.go); by a new connection, that may be another
        replica. This one stays ready: the others would only get what it does not take.
        """
        self._metrics.answered(self._endpoint, "overloaded")
        response = web.Response(
            status=web.HTTPTooManyRequests.status_code,
            text=f"{why}: try again\n",
            headers={hdrs.RETRY_AFTER: "1"},
        )
        response.force_close()
        return response

    def _refused(self, error: web.HTTPException) -> None:
        self._metrics.answered(self._endpoint, "bad_request")
        event(
            _log,
            logging.WARNING,
            "bad request",
            path=self._endpoint,
            status=error.status,
            problem=(error.text or "").strip(),
        )

    async def _answer(self, request: web.BaseRequest) -> bytes:
        headers = request.headers
        if request.method != hdrs.METH_POST:
            _refuse_method(request.method)
        # Nearly all say it without parameters, so that there is nothing to parse.
        if headers.get(hdrs.CONTENT_TYPE) != JSON and request.content_type != JSON:
            _refuse_media_type(f"Content-Type {headers.get(hdrs.CONTENT_TYPE, '')!r:.100}")
        if headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
            _refuse_media_type(f"Content-Encoding {headers[hdrs.CONTENT_ENCODING]!r:.100}")
        seconds = _seconds(request.rel_url.raw_query_string)
        ends = perf_counter() + seconds
        body = await self._read(request, seconds)
        if not body:
            raise web.HTTPBadRequest(text="the body is empty: POST an AdmissionReview\n")
        if len(body) > MOST_VALUES and _values(body) > MOST_VALUES:
            _refuse_values()
        try:
            return await self._admission.answer(self._endpoint, body, ends - perf_counter())
        except BadReviewError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error

    async def _arriving(self, request: web.BaseRequest) -> bytes:
        """Return a body that is not here yet, if its sender waits to be told that it is wanted."""
        waits = request.headers.get(hdrs.EXPECT, "").lower() == "100-continue"
        if waits and request.version == HttpVersion11:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        try:
            while chunk := await request.content.readany():
                body += chunk
                self._lifecycle.arriving += len(chunk)
                if len(body) > MAX_BODY:
                    _refuse_size()
                if len(body) > SMALL_BODY and self._lifecycle.arriving > MOST_ARRIVING:
                    raise _TooManyBytesError
            return bytes(body)
        finally:
            self._lifecycle.arriving -= len(body)

    async def _read(self, request: web.BaseRequest, seconds: float) -> bytes:
        """Return the whole body, within its size and its time."""
        if (request.content_length or 0) > MAX_BODY:
            _refuse_size()
        if request.content.is_eof():
            # It came with the headers, as nearly all do: nothing is waited for, so nothing timed.
            return request.content.read_nowait()
        try:
            # What comes after this is quick: deciding takes microseconds, and the cluster's facts,
            # where claims are to be looked up, half of what is left at most.
            async with asyncio.timeout(seconds):
                return await self._arriving(request)
        except TimeoutError as error:
            message = f"the body did not arrive within {seconds:g} s, as its caller's timeout asks"
            raise web.HTTPRequestTimeout(text=f"{message}\n") from error
        except (web.RequestPayloadError, HttpProcessingError) as error:
            message = "the body is not framed as HTTP/1.1 says, and cannot be read"
            raise web.HTTPBadRequest(text=f"{message}\n") from error


async def _not_found() -> web.Response:
    return web.Response(
        status=404, text=f"nothing is served here, but at {' and '.join(ENDPOINTS)}\n"
    )


@lru_cache(maxsize=32)
def _seconds(query: str) -> float:
    """Return the seconds in which to answer. A webhook's callers all ask with the same query."""
    try:
        return deadline(dict(parse_qsl(query, keep_blank_values=True)).get("timeout"))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"the query's timeout is at fault: {error}\n") from error


def _refuse_method(method: str) -> NoReturn:
    raise web.HTTPMethodNotAllowed(
        method, [hdrs.METH_POST], text=f"{method:.20} is not served here: POST an AdmissionReview\n"
    )


def _refuse_media_type(found: str) -> NoReturn:
    raise web.HTTPUnsupportedMediaType(
        text=f"{found} is not read here: send an AdmissionReview as plain {JSON}\n"
    )


def _values(body: bytes) -> int:
    """Return how many values JSON may hold, in a fraction of the time that reading it takes.

    Each but the first comes after a comma, a colon or a bracket. Those in strings count, too.
    """
    return sum(map(body.count, (b",", b":", b"[", b"{")))


def _refuse_values() -> NoReturn:
    raise web.HTTPRequestEntityTooLarge(
        MOST_VALUES,
        text=f"the body holds more than {MOST_VALUES:,} JSON values: no object of a cluster does\n",
    )


def _refuse_size() -> NoReturn:
    mebibytes = MAX_BODY // 1024**2
    raise web.HTTPRequestEntityTooLarge(
        MAX_BODY, text=f"the body is over {mebibytes} MiB: no review with two objects is as large\n"
    )
