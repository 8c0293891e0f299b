"""The engine alone: reviews to answers, without HTTP, in microseconds of one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from functools import partial
from statistics import median

from bench import reviews
from policies.engine import mutate
from reviewing import default_policy
from webhook.admission import review
from webhook.admission.handler import Admission, Endpoint
from webhook.metrics.admission import Metrics

PATHS: dict[reviews.Endpoint, Endpoint] = {"mutate": "/mutate", "validate": "/validate"}
ROUNDS = 5
_SECONDS = 0.1


def microseconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median of what one call costs, in CPU time of this process."""
    work()
    began = time.process_time()
    work()
    once = max(time.process_time() - began, 1e-6)
    times = max(int(_SECONDS / once), 1)
    found = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - began) / times * 1e6)
    return median(found)


def answered(admission: Admission, endpoint: Endpoint, body: bytes) -> bytes:
    """Return the answer of a webhook without a cluster, which nothing is awaited for."""
    try:
        admission.answer(endpoint, body, 1.0).send(None)
    except StopIteration as done:
        answer: bytes = done.value
        return answer
    raise AssertionError("the answer was awaited")


def whole() -> dict[str, float]:
    """Return the microseconds from body to answer, by case and endpoint."""
    policy = default_policy()
    admission = Admission(policy, Metrics(policy, "default"), date.today)
    costs = {}
    for case in reviews.CASES:
        for endpoint in reviews.asked(case):
            body = reviews.body(case, endpoint)
            work = partial(answered, admission, PATHS[endpoint], body)
            costs[f"{case} {endpoint}"] = microseconds(work)
    return costs


def parts(case: reviews.Case = "gpu-pod") -> dict[str, float]:
    """Return what the parts of one answer cost."""
    policy = default_policy()
    body = reviews.body(case, "mutate")
    asked = review.decode(body)
    assert asked.object is not None
    request = asked.to_engine(date(2026, 1, 1))
    decoding = microseconds(lambda: review.decode(body))
    # A mutation changes the typed Pod, so each one gets a Pod of its own.
    both = microseconds(lambda: mutate(review.object_of(review.decode(body)), policy, request))
    return {"read the review": decoding, "mutate": both - decoding}
