"""Measures the engine alone, from review to response without HTTP, in microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from functools import partial
from statistics import median

from bench import reviews
from reviewing import default_policy
from webhook.serve.admission.handler import Admission, Endpoint
from webhook.serve.metrics.replica import Metrics

PATHS: dict[reviews.Endpoint, Endpoint] = {"mutate": "/mutate", "validate": "/validate"}
ROUNDS = 5
_SECONDS = 0.1


def microseconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median CPU time of one call in this process."""
    work()
    start = time.process_time()
    work()
    once = max(time.process_time() - start, 1e-6)
    times = max(int(_SECONDS / once), 1)
    samples = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(times):
            work()
        samples.append((time.process_time() - start) / times * 1e6)
    return median(samples)


def answer_of(admission: Admission, endpoint: Endpoint, body: bytes) -> bytes:
    """Return the response of a webhook without a cluster, which never waits."""
    try:
        admission.answer(endpoint, body, 1.0).send(None)
    except StopIteration as done:
        answer: bytes = done.value
        return answer
    raise AssertionError("the webhook waits for something")


def whole() -> dict[str, float]:
    """Return the microseconds from request body to response, by case and endpoint."""
    policy = default_policy()
    admission = Admission(policy, Metrics(policy, "default"), date.today)
    costs = {}
    for case in reviews.CASES:
        for endpoint in reviews.endpoints(case):
            body = reviews.body(case, endpoint)
            work = partial(answer_of, admission, PATHS[endpoint], body)
            costs[f"{case} {endpoint}"] = microseconds(work)
    return costs
