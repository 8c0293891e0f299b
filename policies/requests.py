"""Which pools a Pod requests devices of: by extended resource, claim, device class, annotation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from policies.facts import Facts, Request
from policies.kubernetes.claims import (
    Ask,
    Claim,
    class_of_resource,
    implicit_resource,
    least_of_host,
)
from policies.kubernetes.core_v1 import PodObject
from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.pod import Container, ContainerKind, DeviceResource, Pod, ResourceSide
from policies.kubernetes.quantity import NANOS, is_extended_resource_name
from policies.kubernetes.workload import convert
from policies.policy import Actions, AnnotationRequest, Policy, Pool
from policies.pool_nodes import nodes_of_pools
from policies.vocabulary import describe_pools

_AMOUNT = re.compile(r"[0-9]{0,18}(\.[0-9]{1,18})?", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
_MOST_NAMES = 8

Condition = Literal["devices", "selection", "namespace", "size", "shares"]
"""What a pool does not meet that offers a requested device and is not a candidate."""


class Exclusion(NamedTuple):
    """A pool that is not a candidate, and the first condition that it does not meet."""

    pool: Pool
    condition: Condition


class DeviceRequest(msgspec.Struct, frozen=True, gc=False):
    """One request of a Pod for devices, and its candidate pools: those that may meet it.

    ``devices`` are the names by which nodes offer what meets it: resources, and implicit names of
    DeviceClasses. ``certain`` is false if the request can also be met from elsewhere
    (``firstAvailable`` with classes of different pools): such a Pod may use the pools but is not
    confined to them. The kind and index of the ``container`` identify the requester, or the name
    that the Pod gives to the ``claim``. ``resource`` is the name in a container's resources.
    """

    pools: tuple[Pool, ...]
    path: str
    what: str
    devices: tuple[str, ...] = ()
    certain: bool = True
    container: tuple[ContainerKind, int] | None = None
    claim: str = ""
    resource: str = ""
    scheduler_name: str = ""
    """Of a request by annotation, the scheduler that gives the device to the container."""
    excluded: tuple[Exclusion, ...] = ()
    """The other pools that offer the devices (``policies.candidates``)."""

    @property
    def pool_names(self) -> str:
        """The candidate pools, for messages: ``pool a100``, or ``pools a100 and h100``."""
        return describe_pools(self.pools)


class NamedClaim(msgspec.Struct, frozen=True):
    """An entry of a Pod's ``resourceClaims``: its path and name, and the claim that it names."""

    path: str
    name: str
    claim_name: str
    uses: tuple[str, ...]
    """The requests that containers use, by name; an empty name stands for all of them."""
    is_template: bool = False
    group: str = ""
    """Of a template, the PodGroup of the Pod. Its claim, which may have been made from an earlier
    template of this name, takes the place of the Pod's if both entries are equal."""
    claim: Claim | None = None
    """What the claim requests; ``None`` if that is unknown."""

    @property
    def is_used(self) -> bool:
        """Whether a container uses the claim, or one of its requests."""
        return bool(self.uses)

    @property
    def used_requests(self) -> tuple[frozenset[str], ...]:
        """The device classes of each request whose devices a container gets, if that is known.

        Source: ``k8s.io/kubernetes/pkg/kubelet/cm/dra/claiminfo.go``, cdiDevicesAsList.
        """
        if self.claim is None or not self.uses:
            return ()
        if "" in self.uses or not self.claim.names:
            return self.claim.requests
        pairs = zip(self.claim.names, self.claim.requests, strict=True)
        return tuple(classes for name, classes in pairs if name in self.uses)


def named_claims(pod: Pod, request: Request) -> Iterator[NamedClaim]:
    """Yield the claims and the claim templates that the Pod names.

    What was generated from a template for an existing Pod stands in the Pod's status, and stays
    when the template changes. Where the source is unknown, the entry has no valid name of a claim.
    """
    generated = _generated_claims(pod, request)
    group = pod.spec.scheduling_group
    of_group = (group.pod_group_name or "") if group else ""
    used: dict[str | None, list[str]] = {}
    for container in pod.containers:
        for use in (container.spec.resources.claims if container.spec.resources else None) or ():
            used.setdefault(use.name, []).append(use.request or "")
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        name = entry.name or ""
        path, uses = pod.at(f"spec.resourceClaims[{index}]"), tuple(used.get(name, ()))
        if claim := entry.resource_claim_name or generated.get(name):
            yield NamedClaim(path, name, claim, uses)
        elif claim := entry.resource_claim_template_name:
            yield NamedClaim(path, name, claim, uses, is_template=True, group=of_group)
        else:
            # A later Kubernetes may have other sources than a claim and a template.
            why = (
                "under source, which Kubernetes 1.31 removed"
                if entry.source
                else "from a source that gpufence does not know"
            )
            yield NamedClaim(path, name, f"{name} ({why})", uses)


class Scope(msgspec.Struct, frozen=True, gc=False):
    """What a decision depends on besides the object."""

    policy: Policy
    request: Request
    facts: Facts

    @property
    def actions(self) -> Actions:
        """Each rule's action in the namespace."""
        return self.policy.actions_in(self.request.namespace, self.facts.namespace_labels)

    @property
    def needs_labels(self) -> bool:
        """Whether labels of the namespace are unknown, and decide on overrides or exceptions."""
        labels, namespace = self.facts.namespace_labels, self.request.namespace
        return labels is None and self.policy.needs_labels(namespace)

    def may_request(self, pool: Pool) -> bool:
        """Return whether the namespace may request the pool's devices."""
        allowed, request = pool.allowed_namespaces, self.request
        if allowed is None or request.namespace in allowed.names:
            return True
        verdict = allowed.selects(request.namespace, self.facts.namespace_labels)
        if verdict is None:
            return not (allowed.unknown == "deny" or request.fail_closed)
        return verdict

    def pools_of_resource(self, name: str) -> tuple[Pool, ...]:
        """Return the pools that offer what a resource name of a container stands for."""
        if pools := self.policy.pools_of_resource(name):
            return pools
        own = self.facts.extended_resource_classes.get(name, "")
        return self.policy.pools_of_class.get(class_of_resource(name) or own, ())

    def claims(self, pod: Pod) -> Iterator[NamedClaim]:
        """Yield each claim of the Pod, also one whose source is unknown."""
        # For speed: most Pods have none, and several rules call this.
        for named in named_claims(pod, self.request) if pod.spec.resource_claims else ():
            known = self.facts.claim_templates if named.is_template else self.facts.claims
            yield replace(named, claim=known.get((self.request.namespace, named.claim_name)))


def device_requests(pod: Pod, scope: Scope) -> tuple[DeviceRequest, ...]:
    """Return every request of the Pod for a pool's devices; none if it is not a GPU Pod."""
    by_resource = _by_resource(pod, scope) if pod.device_resources else ()
    by_annotation = _by_annotation(pod, scope) if scope.policy.pools_of_annotations else ()
    by_claim = _by_claim(pod, scope) if pod.spec.resource_claims else ()
    return (*by_resource, *by_claim, *by_annotation)


def _generated_claims(pod: Pod, request: Request) -> dict[str | None, str | None]:
    """Return the claims that were generated for an existing Pod, by the names of their entries.

    Only of the stored object: a client can send any status.
    """
    if pod.kind != "Pod" or request.operation != "UPDATE":
        return {}
    old = request.old or {}
    try:
        status = convert(old, PodObject).status if isinstance(old, dict) else old.status
    except MalformedObjectError:
        return {}
    statuses = (status.resource_claim_statuses if status else None) or ()
    return {status.name: status.resource_claim_name for status in statuses}


def describe_counts(counts: Mapping[str, int], conjunction: str = "and") -> str:
    """Return numbers of devices, for messages: ``2 nvidia.com/gpu and 1 rdma/hca``."""
    return f" {conjunction} ".join(f"{count} {resource}" for resource, count in counts.items())


def devices_in_pool(pod: Pod, pool: Pool, scope: Scope, which: Callable[..., float] = max) -> float:
    """Return how many devices are reserved for the Pod if it runs on the pool's nodes.

    Of the alternatives of a claim's request, the one with the most devices counts, or with ``min``
    the one with the fewest. A request for all devices of a node is for as many as a known node of
    the pool offers, and infinite if no node is known.
    """
    by_resource = sum(
        count
        for name, count in pod.device_peaks().items()
        if pool in scope.pools_of_resource(name) and name not in pool.fractional_resources
    )
    by_annotation = max(
        (_count(pod, annotation) for annotation in pool.annotation_requests), default=0
    )
    # Two entries can name one claim.
    claims = {
        (named.is_template and named.name, named.claim_name): named.claim
        for named in scope.claims(pod)
        if named.claim
    }
    by_claim = sum(
        which(
            (
                _number(ask, pool, scope)
                for ask in asks
                if ask.device_class in pool.device_classes and not ask.is_admin
            ),
            default=0,
        )
        for claim in claims.values()
        for asks in claim.asks
    )
    return by_resource + by_annotation + by_claim


def _number(ask: Ask, pool: Pool, scope: Scope) -> float:
    if not ask.is_all:
        return ask.number
    if (nodes := scope.facts.nodes) is None:
        return inf
    of_pool = nodes_of_pools(scope.policy, nodes).of(pool)
    return max(nodes.offers(implicit_resource(ask.device_class), of_pool), default=inf)


def offered_by(pool: Pool, scope: Scope) -> list[str]:
    """Return the names by which Pods can request the pool's devices, as known nodes offer them."""
    nodes = scope.facts.nodes
    names = [*pool.resources.patterns]
    if nodes is not None and (numbers := nodes_of_pools(scope.policy, nodes).of(pool)):
        own = sorted(name for name in nodes.resources() if name in pool.resources)
        offered = [name for name in own if nodes.offering(name) & numbers]
        if offered or pool.device_classes:
            names = offered
    return names[:_MOST_NAMES] or [f"a claim on {min(pool.device_classes)}"]


def claimed_of_host(pod: Pod, resource: str, scope: Scope) -> int:
    """Return how much of a resource of its node the Pod's claims take at least, in nanos.

    The scheduler adds it to the Pod's own requests.
    """
    return sum(
        least_of_host(named.claim, resource, len(named.uses), scope.facts.host_shares)
        for named in scope.claims(pod)
        if named.claim
    )


def requests_several(resource: DeviceResource) -> bool:
    """Return whether a container requests more than one of a device resource."""
    return max(resource.nanos.values()) > NANOS


def device_peaks(pod: Pod, policy: Policy) -> dict[str, int]:
    """Return how many devices of the pools' extended resources the Pod needs at its peak, by name.

    Raises:
        InvalidQuantityError: (policies.kubernetes.quantity) a requested quantity is invalid.
    """
    peaks = sorted(pod.device_peaks().items())
    return {name: count for name, count in peaks if count > 0 and policy.counts(name)}


def needed_devices(pod: Pod, scope: Scope) -> dict[str, int]:
    """Return how many devices the Pod needs for itself at least, by the names that nodes offer.

    A claim that is not made from a template is that of several Pods, and so may be one of a
    PodGroup. A request for capacities may share a device.
    """
    needed = Counter(device_peaks(pod, scope.policy))
    for named in scope.claims(pod):
        claim = named.claim if named.is_template and not named.group else None
        for ask, *others in claim.asks if claim else ():
            is_exact = not (others or ask.capacity or ask.is_admin)
            if is_exact and scope.policy.pools_of_class.get(ask.device_class):
                needed[implicit_resource(ask.device_class)] += ask.number
    return dict(needed)


def _by_resource(pod: Pod, scope: Scope) -> Iterator[DeviceRequest]:
    for resource in pod.device_resources:
        pools = scope.pools_of_resource(resource.name)
        if not pools:
            continue
        if requested := _requested(resource):
            side, quantity = requested
            whose = resource.container
            yield DeviceRequest(
                pools,
                pod.at(resource.field(side)),
                f"{resource.name}: {quantity}",
                (resource.name,),
                container=(whose.kind, whose.position),
                resource=resource.name,
            )


def ignored_annotations(pod: Pod, policy: Policy) -> Iterator[tuple[str, AnnotationRequest]]:
    """Yield the annotations of the Pod that would request a device of another scheduler."""
    for annotation in policy.pools_of_annotations:
        if annotation.scheduler_name != pod.spec.scheduler_name:
            for name, _ in _amounts(pod, annotation):
                yield name, annotation


def _by_annotation(pod: Pod, scope: Scope) -> Iterator[DeviceRequest]:
    """Yield the requests by annotations that the Pod's scheduler reads.

    Any client can write an annotation, and only the scheduler keeps a Pod off the nodes that have
    no device for it. So it counts for the Pods of this scheduler only, and not if the author
    bypasses the scheduler with ``nodeName``. An existing Pod has its node from the scheduler.
    """
    if pod.spec.node_name and not (pod.kind == "Pod" and scope.request.operation == "UPDATE"):
        return
    for annotation, pools in scope.policy.pools_of_annotations.items():
        if annotation.scheduler_name == pod.spec.scheduler_name:
            container = _container(pod, annotation)
            for name, amount in _amounts(pod, annotation):
                yield DeviceRequest(
                    pools,
                    pod.at(f"metadata.annotations[{name}]"),
                    f"{name}: {amount}",
                    container=(container.kind, container.position) if container else None,
                    scheduler_name=annotation.scheduler_name,
                )


def _amounts(pod: Pod, request: AnnotationRequest) -> Iterator[tuple[str, str]]:
    """Yield the annotations that request an amount of a device: their value is above 0."""
    for name in request.annotations:
        value = pod.annotations.get(name) or ""
        if _AMOUNT.fullmatch(value) and value.strip("0."):
            yield name, value


def _container(pod: Pod, request: AnnotationRequest) -> Container | None:
    """Return the container that gets the device of a request by annotation."""
    name = pod.annotations.get(request.container_annotation or "")
    for container in pod.containers:
        if container.kind == "ephemeralContainers":
            continue
        if container.spec.name == name or (name is None and container.kind == "containers"):
            return container
    return None


def _count(pod: Pod, request: AnnotationRequest) -> int:
    """Return how many devices the Pod requests by annotations; a part of a device counts as one."""
    if request.scheduler_name != pod.spec.scheduler_name or not any(_amounts(pod, request)):
        return 0
    count = pod.annotations.get(request.count_annotation or "") or ""
    return int(count) if _COUNT.fullmatch(count) else 1


def _requested(resource: DeviceResource) -> tuple[ResourceSide, Any] | None:
    """Return the side and the quantity by which devices are reserved, if any are.

    A quantity of 0 is not a request. The scheduler counts requests. The limit of an extended
    resource equals its request; the limit of an implicit name, which counts as native, may be
    larger (core validation.go, ``IsOvercommitAllowed``).
    """
    for side, nanos in resource.nanos.items():
        if nanos > 0 and (
            side == "requests"
            or "requests" not in resource.nanos
            or is_extended_resource_name(resource.name)
        ):
            return side, resource.quantities[side]
    return None


def _by_claim(pod: Pod, scope: Scope) -> Iterator[DeviceRequest]:
    """Yield the requests of claims that a container uses.

    One that no container uses would reserve a device without giving it to a container.
    """
    for named in scope.claims(pod):
        for classes in named.used_requests:
            offers = {scope.policy.pools_of_class.get(device_class, ()) for device_class in classes}
            for pools in sorted(filter(None, offers), key=lambda pools: [p.name for p in pools]):
                what = f"claim {named.claim_name} on device class {', '.join(sorted(classes))}"
                certain = len(offers) == 1
                devices = tuple(map(implicit_resource, sorted(classes)))
                yield DeviceRequest(
                    pools, named.path, what, devices, certain=certain, claim=named.name
                )
