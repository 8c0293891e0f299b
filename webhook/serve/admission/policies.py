"""Reviews of FencePolicies, which decide nothing about Pods."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from itertools import islice
from time import perf_counter
from typing import Literal

from policies.document import PolicyError, parsing
from policies.doubts import doubts
from policies.policy import Policy
from webhook.serve.admission import messages, review
from webhook.serve.metrics.replica import Metrics, Result, kind_label

Endpoint = Literal["/validate-policy"]
ENDPOINT: Endpoint = "/validate-policy"

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a review: the old and the new policy, and etcd takes objects of up to 1.5 MiB."""

MAX_VALUES = 200_000
"""JSON values in a review. The old and the new policy have their spec (at most
``policies.document.MOST_VALUES``), and in their metadata what managedFields and the annotation of
``kubectl apply`` say of it."""

MAX_OPEN = 8
"""Reviews at a time, all but one of which wait: each has a connection that Pods may need."""

_WORK_SECONDS = 0.002
_REST = 4
"""How much longer than a piece of work the rest is that follows it: a fifth of the time is for
policies at most, however many there are, and the other four are for Pods."""


class PolicyReviews:
    """Reviews policies one at a time, in short pieces: Pods are reviewed between two.

    Another policy than ``followed``, which is empty where replicas read a file, causes a warning.

    A review that fails is a failed call. API servers ignore that, so that the switch works
    meanwhile.
    """

    def __init__(self, metrics: Metrics, followed: str) -> None:
        self._metrics = metrics
        self._followed = followed
        self._turn = asyncio.Lock()
        self._open = 0

    async def answer(self, body: bytes, seconds: float) -> bytes:
        """Deny an invalid policy with what ``gpufence policy validate`` says.

        Raises:
            RefusedError: the body is no review, too many wait, or ``seconds`` are over.
        """
        if self._open == MAX_OPEN:
            raise _too_many()
        self._open += 1
        try:
            async with asyncio.timeout(seconds), self._turn:
                return await self._answer(body)
        except TimeoutError as error:
            raise _too_many() from error
        finally:
            self._open -= 1

    async def _answer(self, body: bytes) -> bytes:
        started = perf_counter()
        try:
            request = review.decode(body)
        finally:
            started = await _rested(started)
        result: Result = "allowed"
        policy: Policy | None = None
        try:
            for piece in parsing(None if request.is_pod else request.object):
                policy = piece
                started = await _rested(started)
            warnings = not_followed(request.name, self._followed)
            found = islice(doubts(policy), messages.MAX_WARNINGS) if policy else ()
            warnings += [messages.warning(str(each)) for each in found]
            response = review.allowed(request.uid, warnings=warnings)
        except PolicyError as error:
            text = "\n".join(f"{problem}." for problem in error.problems)
            code, message = HTTPStatus.UNPROCESSABLE_ENTITY, messages.cut(text)
            result, response = "denied", review.denied(request.uid, code, message)
            await _rested(started)
        kind = kind_label(request.kind.api_version, request.kind.kind)
        self._metrics.count_response(ENDPOINT, result, request.operation, kind)
        return review.encode(response)


def not_followed(name: str, followed: str) -> list[str]:
    """Return the warning of a FencePolicy that replicas do not follow; nothing if they do."""
    if name == followed:
        return []
    # Another installation in the cluster may follow it.
    if not followed:
        return [messages.warning(f"this gpufence reads its policy from a file and ignores {name}")]
    problem = f"this gpufence follows FencePolicy {followed} and ignores {name}"
    return [messages.warning(f"{problem}. To change its policy, set metadata.name to {followed}")]


def _too_many() -> review.RefusedError:
    problem = "gpufence receives too many policies; try again later"
    return review.RefusedError(problem, status=HTTPStatus.TOO_MANY_REQUESTS)


async def _rested(started: float) -> float:
    """Rest, if the work since ``started`` was not too short; return when the next work starts."""
    worked = perf_counter() - started
    if worked < _WORK_SECONDS:
        return started
    await asyncio.sleep(_REST * worked)
    return perf_counter()
