"""The HTTP edge: what is rejected before a review is read, and that nothing exhausts it."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import zlib
from asyncio import StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.parser import BytesParser
from email.utils import parsedate_to_datetime
from time import process_time

import pytest
from aiohttp import http_parser, web_protocol

from reviewing import UID, encode, plain_pod, review, with_value
from served import Hook
from specs import JSON, default_spec, fence_policy
from webhook.serve.admission import policies
from webhook.serve.http.edge import (
    MAX_BODY,
    MAX_VALUES,
    MAX_WAITING,
    SMALL_BODY,
    Memory,
    deadline,
)

GOOD = encode(review(plain_pod()))
POST = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
JSON_TYPE = {"Content-Type": "application/json"}


async def assert_valid_reviews_are_served(hook: Hook) -> None:
    assert await hook.response("/validate", GOOD) == {"uid": UID, "allowed": True}


async def post(
    hook: Hook, body: bytes, headers: dict[str, str], query: str = ""
) -> tuple[int, str]:
    data = io.BytesIO(body)
    async with hook.client.post(f"/validate{query}", data=data, headers=headers) as response:
        return response.status, await response.text()


Connection = tuple[asyncio.StreamReader, StreamWriter]


@asynccontextmanager
async def connection(hook: Hook, source: str = "127.0.0.1") -> AsyncIterator[Connection]:
    """Yield a connection of its own, to speak byte by byte; nothing in it takes long."""
    reader, writer = await asyncio.open_connection(
        hook.client.host, hook.client.port, local_addr=(source, 0)
    )
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def wait_for_open_requests(hook: Hook, number: int = 1) -> None:
    """Return when so many requests are in flight."""
    while hook.edge.open_requests < number:  # noqa: ASYNC110 - a beginning is no event
        await asyncio.sleep(0)


async def test_policies_are_reviewed_and_an_internal_error_fails_only_the_call(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API servers ignore a failed call of this webhook."""
    spec = default_spec()
    body = encode(review(fence_policy(spec)))
    assert await hook.response("/validate-policy", body) == {"uid": UID, "allowed": True}
    other = encode(review(fence_policy(spec, "other"), dryRun=True))
    warning = "this gpufence follows FencePolicy gpufence and ignores other. To change its policy, "
    assert await hook.response("/validate-policy", other) == {
        "uid": UID,
        "allowed": True,
        "warnings": [f"{warning}set metadata.name to gpufence"],
    }
    invalid = encode(review(fence_policy(spec | {"mode": "deny"})))
    denied = await hook.response("/validate-policy", invalid)
    problem = "spec.mode: is 'deny', but must be 'enforce', 'warn' or 'audit'."
    assert denied["status"] == {"code": 422, "reason": "Invalid", "message": problem}

    def fail(_document: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(policies, "parsing", fail)
    async with hook.client.post("/validate-policy", data=body, headers=JSON_TYPE) as response:
        assert response.status == 500
    await assert_valid_reviews_are_served(hook)


async def test_pods_are_reviewed_while_one_policy_is_and_some_wait(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that takes or waits too long, or is one too many, is a failed call."""
    started = []

    def endless(document: object) -> Iterator[None]:
        started.append(document)
        while True:
            yield

    monkeypatch.setattr(policies, "parsing", endless)
    path, body = "/validate-policy?timeout=1s", review(fence_policy(default_spec()))
    reviews = [asyncio.create_task(hook.post(path, body)) for _ in range(policies.MAX_OPEN)]
    await wait_for_open_requests(hook, len(reviews))
    await assert_valid_reviews_are_served(hook)
    problem, before = "gpufence receives too many policies; try again later\n", process_time()
    assert await hook.post(path, body) == (429, problem)
    assert not any(each.done() for each in reviews)
    assert len(started) == 1
    assert await asyncio.gather(*reviews) == [(429, problem)] * len(reviews)
    # Of 0.45 s, a fifth was for the policy.
    assert process_time() - before < 0.25


async def test_the_review_of_a_large_policy_is_denied_unread(hook: Hook) -> None:
    for blob, why in (
        ("x" * policies.MAX_BODY, "is over 3 MiB"),
        ([0] * policies.MAX_VALUES, "holds more than 200,000 JSON values"),
    ):
        large = fence_policy(default_spec()) | {"status": {"x": blob}}
        denied = await hook.response("/validate-policy", review(large))
        message = f"gpufence cannot review this object, because the review {why}. Make the object "
        cure = "smaller: merge entries, or name namespaces and objects by a prefix"
        assert denied == refusal(413, "RequestEntityTooLarge", message + cure)


async def test_only_post_is_served(hook: Hook) -> None:
    wrong = []
    for path in ("/mutate", "/validate"):
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
            async with hook.client.request(method, path, data=GOOD, headers=JSON_TYPE) as response:
                found = (response.status, response.headers.get("Allow"), await response.text())
            if found != (405, "POST", f"{method} is not supported; POST an AdmissionReview\n"):
                wrong.append((path, method, found))
    assert not wrong
    await assert_valid_reviews_are_served(hook)


async def test_a_json_content_type_is_accepted_with_parameters_and_in_any_case(hook: Hook) -> None:
    parameters = ("", "; charset=utf-8", ";charset=UTF-8")
    types = [*(f"application/json{each}" for each in parameters), "Application/JSON"]
    statuses = {each: (await post(hook, GOOD, {"Content-Type": each}))[0] for each in types}
    assert statuses == dict.fromkeys(types, 200)


async def test_a_content_type_other_than_json_is_rejected(hook: Hook) -> None:
    types = ["application/json-patch+json", "application/vnd.kubernetes.protobuf", "text/plain"]
    cure = "send an AdmissionReview as plain application/json"
    given = (*types, "json", "")
    found = {each: await post(hook, GOOD, {"Content-Type": each}) for each in given}
    assert found == {t: (415, f"Content-Type '{t}' is not supported; {cure}\n") for t in given}
    await assert_valid_reviews_are_served(hook)


async def test_a_compressed_body_is_rejected(hook: Hook, subtests: pytest.Subtests) -> None:
    bomb = gzip.compress(b" " * 100_000_000, compresslevel=1)
    for coding, body in (
        ("gzip", gzip.compress(GOOD)),
        ("deflate", zlib.compress(GOOD)),
        ("gzip", bomb),
    ):
        with subtests.test(coding=coding, size=len(body)):
            status, text = await post(hook, body, JSON_TYPE | {"Content-Encoding": coding})
            assert status == 415
            assert text.startswith(f"Content-Encoding '{coding}' is not supported")
            await assert_valid_reviews_are_served(hook)


def body_of(size: int) -> bytes:
    """Return a good review of a size in bytes."""
    empty = with_value(review(plain_pod()), "request.object.metadata.annotations.a", "")
    filler = "x" * (size - len(encode(empty)))
    return encode(with_value(empty, "request.object.metadata.annotations.a", filler))


async def test_a_body_of_the_maximum_size_is_accepted(hook: Hook) -> None:
    status, answer = await hook.post("/validate", body_of(MAX_BODY))
    assert (status, answer["response"]["allowed"]) == (200, True)


SMALLER = "Make the object smaller: move long values into a ConfigMap"
TOO_LARGE = f"gpufence cannot review this object, because the review is over 8 MiB. {SMALLER}"


def refusal(code: int, reason: str, message: str) -> JSON:
    """Return the response to a review that is not read."""
    status = {"code": code, "reason": reason, "message": message}
    return {"uid": UID, "allowed": False, "status": status}


async def read_answer(reader: asyncio.StreamReader) -> JSON:
    """Return the AdmissionResponse that comes on a connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
    length = int(BytesParser().parsebytes(head.partition(b"\r\n")[2])["Content-Length"])
    answer: JSON = json.loads(await reader.readexactly(length))["response"]
    return answer


async def test_an_oversized_review_is_denied_before_it_arrives(hook: Hook) -> None:
    async with connection(hook) as (reader, writer):
        writer.write(POST + b"Content-Length: 1000000000000\r\n\r\n" + body_of(2000))
        assert await read_answer(reader) == refusal(413, "RequestEntityTooLarge", TOO_LARGE)
    await assert_valid_reviews_are_served(hook)


async def test_an_oversized_body_without_a_uid_gets_413(hook: Hook) -> None:
    spoofed = b'{"a":"b","request":{"uid":"x"}}' + b" " * MAX_BODY
    assert await post(hook, spoofed, JSON_TYPE) == (413, f"{TOO_LARGE}\n")


async def test_an_oversized_chunked_review_is_denied(hook: Hook) -> None:
    async with connection(hook) as (reader, writer):
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b" % (10 * MAX_BODY, body_of(MAX_BODY + 1)))
        assert (await read_answer(reader))["status"]["message"] == TOO_LARGE
    await assert_valid_reviews_are_served(hook)


async def test_a_review_with_too_many_json_values_is_denied(hook: Hook) -> None:
    why = "gpufence cannot review this object, because the review holds more than 1,500,000 JSON"
    denied = refusal(413, "RequestEntityTooLarge", f"{why} values. {SMALLER}")

    def of(values: int, part: bytes, counted: int) -> bytes:
        parts = b",".join([part] * (values // counted))
        return GOOD.replace(b'"spec":{', b'"spec":{"x":[%b],' % parts, 1)

    # The characters of a part that count, and the comma before it.
    for part in ((b"[]", 2), (b'{"":0}', 3)):
        assert (await hook.response("/validate", of(MAX_VALUES - 200, *part)))["allowed"] is True
        assert await hook.response("/validate", of(MAX_VALUES + 2, *part)) == denied
    await assert_valid_reviews_are_served(hook)


def head_of(body: bytes, seconds: str = "10s") -> bytes:
    head = POST.replace(b"/validate", f"/validate?timeout={seconds}".encode())
    return head + f"Content-Length: {len(body)}\r\n\r\n".encode()


async def test_large_reviews_share_a_limited_memory(hook: Hook) -> None:
    whole = body_of(8 * SMALL_BODY)
    hook.edge.memory.capacity = 4 * len(whole)
    async with AsyncExitStack() as held:
        arriving = [await held.enter_async_context(connection(hook)) for _ in range(2)]
        for _, writer in arriving:
            writer.write(head_of(whole) + whole[:-1])
        while hook.edge.memory.held.total() < 2 * len(whole):  # noqa: ASYNC110 - nor is an arrival
            await asyncio.sleep(0)
        # The address has its half: its next review waits, and is denied if it waits too long. One
        # without a length may be as large as any.
        head = head_of(whole, "100ms")
        chunked = head.replace(b"Content-Length: %d" % len(whole), b"Transfer-Encoding: chunked")
        problem = "gpufence is receiving too many large reviews; try again later"
        for start in (head, chunked + b"%x\r\n" % len(whole)):
            reader, writer = await held.enter_async_context(connection(hook))
            writer.write(start + whole)
            assert await read_answer(reader) == refusal(429, "TooManyRequests", problem)
        waits, writer = await held.enter_async_context(connection(hook))
        writer.write(head_of(whole) + whole)
        # Other addresses have the other half.
        reader, writer = await held.enter_async_context(connection(hook, "127.0.0.9"))
        writer.write(head_of(whole) + whole)
        assert (await read_answer(reader))["allowed"] is True
        # What nearly all clients send is accepted as well.
        await assert_valid_reviews_are_served(hook)
        assert (await hook.response("/validate", body_of(SMALL_BODY)))["allowed"] is True
        for reader, writer in arriving:
            writer.write(whole[-1:])
            assert (await read_answer(reader))["allowed"] is True
        assert (await read_answer(waits))["allowed"] is True
    assert not hook.edge.memory.held
    counted = await hook.metric("gpufence_admission_requests_total")
    assert sum(n for key, n in counted.items() if 'result="overloaded"' in key) == 2


LARGE = SMALL_BODY + 1


async def test_only_some_large_reviews_wait_for_memory() -> None:
    memory, denied = Memory(capacity=0), Counter[str]()

    async def wait(address: str) -> None:
        try:
            async with memory.taken(address, LARGE):
                pass
        except TimeoutError:
            denied[address] += 1

    share = MAX_WAITING // 2
    waiting = [asyncio.create_task(wait(address)) for address in "abc" for _ in range(share + 1)]
    await asyncio.sleep(0)
    assert denied == {"a": 1, "b": 1, "c": share + 1}
    async with memory.taken("a", SMALL_BODY):
        pass
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    # Those that gave up take nothing from the next one.
    memory.capacity = 2 * LARGE
    await wait("a")
    assert denied["a"] == 1


async def test_free_memory_goes_to_the_address_that_holds_the_least() -> None:
    memory, held = Memory(4 * LARGE), list[str]()
    ends = {name: asyncio.Event() for name in ("a1", "a2", "b1", "c1", "a3", "b2", "d1", "d2")}

    async def hold(name: str) -> None:
        async with memory.taken(name[0], LARGE):
            held.append(name)
            await ends[name].wait()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for name in ends:
            group.create_task(hold(name))
        await asyncio.sleep(0)
        assert held == ["a1", "a2", "b1", "c1"]
        for place, ended in enumerate(("c1", "b1", "d1", "a1"), 5):
            ends[ended].set()
            while len(held) < place:  # noqa: ASYNC110 - nor is a turn
                await asyncio.sleep(0)
        for end in ends.values():
            end.set()
    assert held[4:] == ["d1", "b2", "d2", "a3"]
    assert not memory.held


async def test_a_late_review_is_denied_before_the_timeout_of_the_caller(hook: Hook) -> None:
    message = "the review did not arrive within 0.045 s; try again later"
    async with connection(hook) as (reader, writer):
        writer.write(head_of(GOOD, "100ms") + GOOD[:-1])
        assert await read_answer(reader) == refusal(408, "Timeout", message)
    async with connection(hook) as (reader, writer):
        writer.write(head_of(GOOD, "100ms") + GOOD[:10])
        assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
        await reader.readuntil(f"\r\n\r\n{message}\n".encode())
    await assert_valid_reviews_are_served(hook)


def test_the_deadline_is_earlier_than_the_timeout_of_the_caller() -> None:
    # An API server rounds up to whole seconds.
    expected = {"timeout=3s": 1.8, "timeout=2s": 0.9, "timeout=1s": 0.45, "timeout=100ms": 0.045}
    # The registered timeout limits all others.
    limited = ("timeout=30s", "timeout=8760h", "timeout=soon", "")
    expected |= {"a=b&timeout=3s": 1.8, **dict.fromkeys(limited, 8.1)}
    assert {query: deadline(query, 10) for query in expected} == pytest.approx(expected)


async def test_a_response_has_standard_headers_and_honors_keep_alive(
    hook: Hook, subtests: pytest.Subtests
) -> None:
    for version, requested, expected, times in (
        ("1.1", None, None, 2),
        ("1.1", "close", "close", 1),
        ("1.0", None, None, 1),
        ("1.0", "keep-alive", "keep-alive", 2),
    ):
        with subtests.test(version=version, requested=requested):
            head = POST.replace(b"HTTP/1.1", f"HTTP/{version}".encode())
            if requested:
                head += f"Connection: {requested}\r\n".encode()
            request = head + f"Content-Length: {len(GOOD)}\r\n\r\n".encode() + GOOD
            async with connection(hook) as (reader, writer):
                for _ in range(times):
                    writer.write(request)
                    line, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
                    assert line == f"HTTP/{version} 200 OK".encode()
                    headers = BytesParser().parsebytes(rest)
                    assert headers["Content-Type"] == "application/json"
                    assert headers["Connection"] == expected
                    sent = parsedate_to_datetime(headers["Date"])
                    assert abs(datetime.now(UTC) - sent) < timedelta(minutes=1)
                    answer = json.loads(await reader.readexactly(int(headers["Content-Length"])))
                    assert answer["response"] == {"uid": UID, "allowed": True}
                if times == 1:
                    assert await reader.read() == b""


async def test_a_body_with_invalid_framing_gets_an_error_with_either_parser(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    late = b"the review did not arrive within 0.045 s; try again later"
    invalid = b"the framing of the body is not valid HTTP/1.1"
    for parser, seconds, status, problem in (
        (http_parser.HttpRequestParserC, b"100ms", b"408", late),
        (http_parser.HttpRequestParserPy, b"10s", b"400", invalid),
    ):
        with subtests.test(parser=parser):
            monkeypatch.setattr(web_protocol, "HttpRequestParser", parser)
            async with connection(hook) as (reader, writer):
                head = POST.replace(b"/validate", b"/validate?timeout=" + seconds)
                writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
                await wait_for_open_requests(hook)
                writer.write(b"no size\r\n\r\n")
                assert (await reader.readline()).split()[1] == status
                await reader.readuntil(b"\r\n\r\n" + problem)
            await assert_valid_reviews_are_served(hook)


async def test_a_disconnected_client_leaves_no_open_request_and_no_log(
    hook: Hook, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for sent in (0, 10, len(GOOD) - 1):
        with subtests.test(sent=sent):
            async with connection(hook) as (_, writer):
                writer.write(POST + f"Content-Length: {len(GOOD)}\r\n\r\n".encode() + GOOD[:sent])
                await wait_for_open_requests(hook)
            async with asyncio.timeout(10):
                await hook.edge.finished()
            await assert_valid_reviews_are_served(hook)
            assert caplog.records == []


async def test_unknown_paths_get_404(hook: Hook) -> None:
    for path in ("/", "/mutate/", "/healthz", "/metrics", "/validate/../mutate/x"):
        async with hook.client.post(path, data=GOOD, headers=JSON_TYPE) as response:
            assert response.status == 404
            text = "not found; the paths here are /mutate, /validate, /validate-policy\n"
            assert await response.text() == text


async def test_a_draining_server_closes_connections(hook: Hook, subtests: pytest.Subtests) -> None:
    for draining in (False, True):
        hook.edge.draining = draining
        for body in (GOOD, b"{}"):
            with subtests.test(body=body, draining=draining):
                async with hook.client.post("/validate", data=body, headers=JSON_TYPE) as response:
                    assert response.headers.get("Connection") == ("close" if draining else None)
