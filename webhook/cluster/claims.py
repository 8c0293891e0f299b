"""ResourceClaims and their templates, looked up when a Pod names one.

A cluster has as many claims as Pods, and a Pod is often created a moment after its claim: a watch
would hold all of them in memory, and still be late. A lookup is a consistent read.

Results are not reused between reviews: a claim can be deleted, and created again under the same
name for other devices. Reviews that wait at the same time share a lookup that begins after each of
them requires it.

A claim that is not found, or not in time, stays unresolved: it does not count as a request. A Pod
that is created before its claim is therefore not a GPU Pod yet: gpufence adds nothing to it, and
denies a toleration for the taint of GPU nodes. Create the claim first. The same holds for a
template if the claim of a PodGroup takes its place and does not exist yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from policies.facts import Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import PodResourceClaim, PodResourceClaimStatus
from policies.kubernetes.objects import JSONObject, MalformedObjectError
from policies.kubernetes.quantity import is_subdomain
from policies.kubernetes.workload import MOST_CLAIMS, Workload
from policies.requests import named_claims
from webhook.devices.claims import read_claim
from webhook.kube.client import KubeApi, decoded
from webhook.kube.errors import NOT_FOUND, ApiError, ClusterError
from webhook.logs import event

Kind = Literal["resourceclaims", "resourceclaimtemplates"]

LookupResult = Literal["found", "missing", "failed", "late"]
"""The result of a lookup; the last three leave the claim unresolved."""

LOOKUP_SECONDS = 1.0
"""The longest wait of a review for a lookup."""

# The timeout of a request, longer than the wait of any review.
_REQUEST_SECONDS = 5.0

_API = "/apis/resource.k8s.io/v1"
_SCHEDULING = "/apis/scheduling.k8s.io"

# With more requests in flight than this, the API server no longer responds.
_MAX_IN_FLIGHT = 256

# A claim of more bytes stays unresolved: 256 of them in flight take 128 MiB. One with ten requests,
# each with selectors and an allocation, has 20 KiB.
_MOST_BYTES = 512 * 1024


class _Owner(msgspec.Struct, frozen=True):
    uid: str
    controller: bool = False


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    creation_timestamp: str = ""
    owner_references: tuple[_Owner, ...] = ()


class _ClaimObject(msgspec.Struct, frozen=True):
    """A ResourceClaim or ResourceClaimTemplate."""

    spec: JSONObject
    status: JSONObject = {}
    metadata: _Metadata = _Metadata()


class _PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    resource_claims: tuple[PodResourceClaim, ...] | None = None


class _PodGroupStatus(msgspec.Struct, frozen=True, rename="camel"):
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None


class _PodGroup(msgspec.Struct, frozen=True):
    spec: _PodGroupSpec = _PodGroupSpec()
    status: _PodGroupStatus = _PodGroupStatus()
    metadata: _Metadata = _Metadata()


_POD_GROUP_VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
_group_decoder = msgspec.json.Decoder(_PodGroup)
_log = logging.getLogger("gpufence")
_decoder = msgspec.json.Decoder(_ClaimObject)


class ClaimName(NamedTuple):
    """The name of a claim, or of a claim template.

    For a template: the PodGroup of the Pod, and the name of the entry in the Pod.
    """

    kind: Kind
    namespace: str
    name: str
    group: str = ""
    entry: str = ""


class _Answer(NamedTuple):
    result: LookupResult
    claim: Claim | None = None


def claims_named(obj: Workload, request: Request) -> Iterator[ClaimName]:
    """Yield the claims that the object's Pods name; none if the object is malformed.

    An invalid name is left out: it names nothing, and it would become part of a URL.
    """
    if not is_subdomain(request.namespace):
        return
    try:
        pods = obj.pods()
    except MalformedObjectError:
        return
    for pod in pods:
        for named in named_claims(pod, request):
            kind: Kind = "resourceclaimtemplates" if named.is_template else "resourceclaims"
            if not is_subdomain(named.claim_name):
                continue
            if not named.group:
                yield ClaimName(kind, request.namespace, named.claim_name)
            elif is_subdomain(named.group):
                of_group = (named.group, named.name)
                yield ClaimName(kind, request.namespace, named.claim_name, *of_group)


class ClaimLookup:
    """Looks up claims, and shares one request between the reviews that wait for it.

    ``looked_up`` is called with the result of each lookup. ``wait`` is the longest wait for one, in
    seconds.
    """

    def __init__(
        self,
        connection: KubeApi,
        *,
        looked_up: Callable[[LookupResult], None] = lambda _result: None,
        wait: float = LOOKUP_SECONDS,
    ) -> None:
        self._connection = connection
        self._looked_up = looked_up
        self._wait = wait
        self._waiting: dict[ClaimName, asyncio.Task[_Answer]] = {}
        """Lookups whose request is not sent yet: further reviews can join them."""
        self._running: dict[ClaimName, asyncio.Task[_Answer]] = {}
        self.problem = ""
        """The error of the last lookup; empty if it succeeded."""

    async def resolve(self, names: Iterable[ClaimName], seconds: float) -> dict[ClaimName, Claim]:
        """Return the claims that can be looked up within ``seconds``. Never raises."""
        lookups = {name: self._look_up(name) for name in islice(dict.fromkeys(names), MOST_CLAIMS)}
        if tasks := [task for task in lookups.values() if task]:
            await asyncio.wait(tasks, timeout=min(seconds, self._wait))
        claims = {}
        for name, task in lookups.items():
            answer = _Answer("failed")
            if task is not None:
                in_time = task.done() and not task.cancelled()
                answer = task.result() if in_time else _Answer("late")
            self._looked_up(answer.result)
            if answer.claim is not None:
                claims[name] = answer.claim
        return claims

    async def close(self) -> None:
        tasks = [*self._waiting.values(), *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look_up(self, name: ClaimName) -> asyncio.Task[_Answer] | None:
        """Return a lookup whose request is sent after now; ``None`` if too many are in flight."""
        if name not in self._waiting:
            if len(self._waiting) + len(self._running) >= _MAX_IN_FLIGHT:
                return None
            task = self._waiting[name] = asyncio.create_task(self._answer(name))
            task.add_done_callback(lambda _task: self._forget(name, task))
        return self._waiting[name]

    async def _answer(self, name: ClaimName) -> _Answer:
        if earlier := self._running.get(name):
            await asyncio.wait([earlier])
        self._running[name] = self._waiting.pop(name)
        try:
            claim = await self._get(name)
        except Exception as error:
            self._report(error)
            return _Answer("failed")
        self.problem = ""
        return _Answer("found", claim) if claim else _Answer("missing")

    def _forget(self, name: ClaimName, task: asyncio.Task[_Answer]) -> None:
        for lookups in (self._waiting, self._running):
            if lookups.get(name) is task:
                del lookups[name]

    async def _get(self, name: ClaimName) -> Claim | None:
        """Return the claim, ``None`` if it does not exist or its template is not the last word."""
        if name.group:
            group = await self._group(name)
            if group is None:
                return None
            entries = group.spec.resource_claims or ()
            own = (name.entry, name.name)
            if own in [(each.name, each.resource_claim_template_name) for each in entries]:
                return await self._claim_of(group, name)
        found = await self._read(name.kind, name.namespace, name.name)
        if found is None:
            return None
        if name.kind == "resourceclaims":
            return read_claim(found.spec, found.status)
        return read_claim(found.spec.get("spec"))

    async def _claim_of(self, group: _PodGroup, name: ClaimName) -> Claim | None:
        """Return the claim of a group, which takes the place of the Pod's if the entries are equal.

        It may come from an earlier template of this name, but not if the template is older than the
        group: templates are immutable. A status counts if the group owns the claim.
        Source: ``k8s.io/api/core/v1``, ``PodResourceClaim``.
        """
        statuses = group.status.resource_claim_statuses or ()
        made = {each.name: each.resource_claim_name or "" for each in statuses}.get(name.entry, "")
        if made:
            found = await self._read("resourceclaims", name.namespace, made)
            owners = found.metadata.owner_references if found else ()
            if found and any(each.controller and each.uid == group.metadata.uid for each in owners):
                return read_claim(found.spec, found.status)
            return None
        found = await self._read(name.kind, name.namespace, name.name)
        # Timestamps are RFC 3339 in UTC and whole seconds, and sort as text.
        if found and "" < found.metadata.creation_timestamp < group.metadata.creation_timestamp:
            return read_claim(found.spec.get("spec"))
        return None

    async def _read(self, kind: Kind, namespace: str, name: str) -> _ClaimObject | None:
        path = f"{_API}/namespaces/{namespace}/{kind}/{name}"
        try:
            body = await self._connection.get(
                path, seconds=max(_REQUEST_SECONDS, self._wait), most_bytes=_MOST_BYTES
            )
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return decoded(body, path, _decoder)

    async def _group(self, name: ClaimName) -> _PodGroup | None:
        """Return the group; ``None`` if it does not exist yet, and an empty one without the API."""
        for version in _POD_GROUP_VERSIONS:
            path = f"{_SCHEDULING}/{version}/namespaces/{name.namespace}/podgroups/{name.group}"
            try:
                body = await self._connection.get(
                    path, seconds=_REQUEST_SECONDS, most_bytes=_MOST_BYTES
                )
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
                if f'"{name.group}"' in error.message:
                    return None
                # This version is not served.
                continue
            return decoded(body, path, _group_decoder)
        return _PodGroup()

    def _report(self, error: Exception) -> None:
        problem = str(error) or type(error).__name__
        # Log a continuing failure once, not for each Pod.
        if problem != self.problem:
            self.problem = problem
            unexpected = not isinstance(error, ClusterError)
            event(_log, logging.WARNING, "claim lookup failed", failure=unexpected, problem=problem)
