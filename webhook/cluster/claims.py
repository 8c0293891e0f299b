"""ResourceClaims and their templates, looked up when a Pod names one.

They are as many as Pods are, and a Pod is often created a moment after its claim: a watch would
hold all of them in memory, and still be late. A lookup is a consistent read.

What is not found, or not in time, is left unresolved: such a claim neither opens the fence nor
condemns a Pod by itself. So a Pod that is created before its claim is no GPU Pod yet: nothing is
added to it, and a toleration of the GPU nodes' taint is rejected. Create the claim first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from policies.kubernetes.claims import Claim, read_claim
from policies.kubernetes.decoding import MOST_CLAIMS, MalformedObjectError
from policies.kubernetes.quantity import is_subdomain
from policies.kubernetes.workload import Workload
from webhook.kube import wire
from webhook.kube.connection import Connection
from webhook.kube.errors import NOT_FOUND, ApiError, ClusterError, UnexpectedAnswerError
from webhook.logs import event

Kind = Literal["resourceclaims", "resourceclaimtemplates"]

LookupResult = Literal["cached", "found", "missing", "failed", "late"]
"""What became of a lookup; the last three leave the claim unresolved."""

_API = "/apis/resource.k8s.io/v1"

# With more requests in flight than this, the API server no longer responds.
_MAX_IN_FLIGHT = 256

_log = logging.getLogger("gpufence")
_decoder = msgspec.json.Decoder(wire.Claim)


class ClaimName(NamedTuple):
    """What a Pod calls a claim, or the template of one."""

    kind: Kind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class LookupTiming:
    """Seconds, all of them but ``size``, which is how many answers are remembered.

    A claim's spec is immutable: that it was found is wrong only once it is deleted. That it is
    missing is wrong as soon as it is created, and is not remembered at all: a Pod that is created
    right then would pass as one without devices, and be rejected as a GPU Pod to which nothing was
    added, if what is remembered ended between the two calls.
    """

    keep: float = 10.0
    keep_failure: float = 1.0
    keep_in_need: float = 300.0
    """How long a claim that was found stands in for one that cannot be looked up."""
    wait: float = 1.0
    """How long a review waits for a lookup, unless it has less time left."""
    request: float = 5.0
    """How long a request may take, longer than any review waits."""
    size: int = 4096


DEFAULT_LOOKUP_TIMING = LookupTiming()


class _Answer(NamedTuple):
    result: LookupResult
    claim: Claim | None
    found_at: float
    expires: float


def claims_named(obj: Workload, namespace: str) -> Iterator[ClaimName]:
    """Yield the claims that the object's Pods name; none if the object is malformed.

    An invalid name is left out: it names nothing, and it would become part of a URL.
    """
    if not is_subdomain(namespace):
        return
    try:
        pods = obj.pods()
    except MalformedObjectError:
        return
    for pod in pods:
        for entry in pod.spec.resource_claims or ():
            # The claim comes first if a Pod names both, as it does for the rules.
            kind: Kind = "resourceclaims"
            name = entry.resource_claim_name
            if not name:
                kind, name = "resourceclaimtemplates", entry.resource_claim_template_name
            if name and is_subdomain(name):
                yield ClaimName(kind, namespace, name)


class ClaimLookup:
    """Looks up claims, caches them for a short time, and shares one request between reviews.

    ``looked_up`` is called with the result of each lookup.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Callable[[], float],
        looked_up: Callable[[LookupResult], None] = lambda _result: None,
        timing: LookupTiming = DEFAULT_LOOKUP_TIMING,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._looked_up = looked_up
        self._timing = timing
        self._answers: OrderedDict[ClaimName, _Answer] = OrderedDict()
        self._in_flight: dict[ClaimName, asyncio.Task[_Answer]] = {}
        self.problem = ""
        """Why the last lookup failed, empty if it did not."""

    async def resolve(self, wanted: Iterable[ClaimName], seconds: float) -> dict[ClaimName, Claim]:
        """Return the claims that are known, or become so within ``seconds``. Never raises."""
        answers: dict[ClaimName, _Answer] = {}
        asked: dict[ClaimName, asyncio.Task[_Answer]] = {}
        for name in islice(dict.fromkeys(wanted), MOST_CLAIMS):
            known = self._answers.get(name)
            if known is not None and self._clock() < known.expires:
                answers[name] = known._replace(result="cached")
            elif task := self._ask(name):
                asked[name] = task
            else:
                answers[name] = self._in_need(name, "failed")
        if asked:
            # Late lookups continue: the next request finds their results.
            await asyncio.wait(asked.values(), timeout=min(seconds, self._timing.wait))
        for name, task in asked.items():
            in_time = task.done() and not task.cancelled()
            answers[name] = task.result() if in_time else self._in_need(name, "late")
        for answer in answers.values():
            self._looked_up(answer.result)
        return {name: answer.claim for name, answer in answers.items() if answer.claim}

    async def close(self) -> None:
        """Cancel all lookups."""
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(self, name: ClaimName) -> asyncio.Task[_Answer] | None:
        """Return the lookup of a claim, and start it if it is not running."""
        if name not in self._in_flight and len(self._in_flight) < _MAX_IN_FLIGHT:
            task = self._in_flight[name] = asyncio.create_task(self._fetch(name))
            task.add_done_callback(lambda _task: self._in_flight.pop(name))
        return self._in_flight.get(name)

    async def _fetch(self, name: ClaimName) -> _Answer:
        try:
            claim = await self._get(name)
        except Exception as error:
            answer = self._in_need(name, "failed")
            self._tell(error)
        else:
            self.problem = ""
            now = self._clock()
            if claim is None:
                self._answers.pop(name, None)
                return _Answer("missing", None, now, now)
            answer = _Answer("found", claim, now, now + self._timing.keep)
        self._answers[name] = answer
        self._answers.move_to_end(name)
        if len(self._answers) > self._timing.size:
            self._answers.popitem(last=False)
        return answer

    async def _get(self, name: ClaimName) -> Claim | None:
        """Return the claim, ``None`` if it does not exist.

        Raises:
            ClusterError: it cannot be looked up.
        """
        path = f"{_API}/namespaces/{name.namespace}/{name.kind}/{name.name}"
        try:
            body = await self._connection.get(path, seconds=self._timing.request)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        try:
            spec = _decoder.decode(body).spec
        except msgspec.DecodeError as error:
            raise UnexpectedAnswerError(f"{path} is no claim as it should be: {error}") from error
        return read_claim(spec if name.kind == "resourceclaims" else spec.get("spec"))

    def _in_need(self, name: ClaimName, result: LookupResult) -> _Answer:
        """Return the best answer that there is without a request."""
        now, old = self._clock(), self._answers.get(name)
        expires = now + self._timing.keep_failure
        if old is None or now - old.found_at > self._timing.keep_in_need:
            return _Answer(result, None, now, expires)
        return old._replace(result=result, expires=expires)

    def _tell(self, error: Exception) -> None:
        problem = str(error) or type(error).__name__
        # One line for a failure that goes on, and not one for each Pod.
        if problem != self.problem:
            self.problem = problem
            unexpected = not isinstance(error, ClusterError)
            event(_log, logging.WARNING, "claim lookup failed", failure=unexpected, problem=problem)
