"""The HTTP handler under any bytes: a review with the caller's uid, or a plain HTTP error.

The first byte of an input says what the rest is: a whole HTTP stream, or the body of a request that
is well framed.
"""

from __future__ import annotations

import json
import logging
from functools import cache
from typing import Any

from fuzz.wire import Webhook
from reviewing import default_policy

STREAM, MUTATE, VALIDATE = range(3)

# The statuses without a review that a client can receive; 500 is not among them.
_REFUSALS = frozenset({400, 404, 405, 408, 413, 415, 417, 429, 431, 501, 505})


class WrongAnswerError(AssertionError):
    """The response is invalid."""


def handle(data: bytes) -> None:
    """Send one input to the webhook.

    Raises:
        WrongAnswerError: the answer is neither a review nor a plain HTTP error, or it owns up to
            a fault of gpufence's own.
    """
    if not data:
        return
    sort, rest = data[0] % 3, data[1:]
    written = _webhook().exchange(rest if sort == STREAM else _framed(sort, rest))
    if sort == STREAM and not written:
        return  # The request is not whole.
    judge(written, None if sort == STREAM else rest)


def judge(written: bytes, body: bytes | None) -> None:
    """Check the first response on a connection; ``body`` is the body of the request, if known."""
    head, _, content = written.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    parts = line.split(" ")
    if len(parts) < 2 or not parts[0].startswith("HTTP/") or not parts[1].isdecimal():
        raise WrongAnswerError(f"no HTTP: {written[:200]!r}")
    status = int(parts[1])
    if status == 100:
        return judge(content, body) if content else None
    if status in _REFUSALS:
        return None
    if status != 200:
        raise WrongAnswerError(f"status {status}: {content[:500]!r}")
    if "Content-Type: application/json" not in fields:
        raise WrongAnswerError(f"no review: {fields}")
    length = next(int(f.split(":")[1]) for f in fields if f.lower().startswith("content-length:"))
    _judge_review(content[:length], body)
    return None


def _judge_review(content: bytes, body: bytes | None) -> None:
    response = json.loads(content)["response"]
    status = response.get("status") or {}
    if status.get("code") == 500:
        raise WrongAnswerError(f"an internal error: {status}")
    if not isinstance(response["allowed"], bool) or (not response["allowed"] and not status):
        raise WrongAnswerError(f"no verdict: {response}")
    uid = None if body is None else _uid(body)
    if uid is not None and response["uid"] != uid:
        raise WrongAnswerError(f"uid {response['uid']!r} answers {uid!r}")


def _uid(body: bytes) -> str | None:
    """Return the uid of the request, where Python's own reader finds one."""
    try:
        found: Any = json.loads(body)
        uid = found["request"]["uid"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return uid if isinstance(uid, str) else None


def _framed(sort: int, body: bytes) -> bytes:
    path = "/mutate" if sort == MUTATE else "/validate"
    head = (
        f"POST {path}?timeout=3s HTTP/1.1\r\nHost: gpufence\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@cache
def _webhook() -> Webhook:
    logging.getLogger("gpufence").addHandler(logging.NullHandler())
    logging.getLogger("gpufence").propagate = False
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    return Webhook(default_policy())
