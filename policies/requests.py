"""Which pools a Pod requests devices of: by extended resource, by claim, by device class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import PodResourceClaim, PodSpec
from policies.kubernetes.peak import device_peak
from policies.kubernetes.pod import ContainerKind, DeviceResource, Pod, ResourceSide
from policies.kubernetes.quantity import is_extended_resource_name, parse_quantity
from policies.policy import Policy, Pool

IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""A container can request a DeviceClass under this name in its resources (KEP-5004)."""


class DeviceRequest(msgspec.Struct, frozen=True):
    """One request of a Pod for devices of one pool.

    ``certain`` is false where the request could also be met from elsewhere (``firstAvailable``
    with classes of several pools): such a Pod may use the pool but is not confined to it.
    The kind and index of the ``container`` identify the requester, or the name that the
    Pod gives to the ``claim``. ``resource`` is the name in a container's resources.
    """

    pool: Pool
    path: str
    what: str
    certain: bool = True
    container: tuple[ContainerKind, int] | None = None
    claim: str = ""
    resource: str = ""


def device_requests(
    pod: Pod, policy: Policy, namespace: str, facts: Facts
) -> tuple[DeviceRequest, ...]:
    """Return every request of the Pod for a pool's devices; none if it is not a GPU Pod."""
    by_resource = _by_resource(pod, policy, facts) if pod.device_resources() else ()
    claims = pod.spec.resource_claims
    by_claim = _by_claim(pod, policy, namespace, facts) if claims else ()
    return (*by_resource, *by_claim)


def requesting_containers(
    pod: Pod, requests: Iterable[DeviceRequest]
) -> set[tuple[ContainerKind, int]]:
    """Return kind and position of the containers that make the device requests.

    A container requests a device in its resources, or by a claim that such a device may satisfy.
    """
    found = {request.container for request in requests if request.container}
    if claims := {request.claim for request in requests if request.claim}:
        for container in pod.containers():
            resources = container.spec.resources
            used = (resources.claims if resources else None) or ()
            if any(claim.name in claims for claim in used):
                found.add((container.kind, container.position))
    return found


def unresolved_claims(pod: Pod, namespace: str, facts: Facts) -> list[tuple[str, str]]:
    """Return path and name of each unknown claim."""
    return [
        (path, name) for path, name, claim in named_claims(pod, namespace, facts) if claim is None
    ]


def named_claims(pod: Pod, namespace: str, facts: Facts) -> Iterator[tuple[str, str, Claim | None]]:
    """Yield path and name of each claim of the Pod, and the claim if it is known."""
    for index, _, name, claim in _claims(pod.spec, namespace, facts):
        yield pod.at(f"spec.resourceClaims[{index}]"), name, claim


def may_request(pool: Pool, request: Request, facts: Facts) -> bool:
    """Return whether the namespace may request the pool's devices."""
    allowed = pool.allowed_namespaces
    if allowed is None or request.namespace in allowed.names:
        return True
    if not allowed.match_labels:
        return False
    labels = facts.namespace_labels
    if labels is None:
        return not (allowed.deny_unknown or request.fail_closed)
    return all(labels.get(key) == value for key, value in allowed.match_labels.items())


def pool_of_resource(name: str, policy: Policy, facts: Facts) -> Pool | None:
    """Return the pool that a resource name in a container's resources stands for."""
    if "/" not in name:
        return None
    pool = policy.pool_of_resource(name)
    if pool is None and policy.pool_of_class:
        device_class = facts.extended_resource_classes.get(name)
        if name.startswith(IMPLICIT_RESOURCE_PREFIX):
            device_class = name.removeprefix(IMPLICIT_RESOURCE_PREFIX)
        pool = policy.pool_of_class.get(device_class) if device_class else None
    return pool


def device_peaks(pod: Pod, policy: Policy) -> dict[str, int]:
    """Return how many devices of the pools' extended resources the Pod needs at its peak, by name.

    Raises:
        InvalidQuantityError: (policies.kubernetes.quantity) a requested quantity is invalid.
    """
    names = {resource.name for resource in pod.device_resources()}
    offered = sorted(name for name in names if policy.pool_of_resource(name) is not None)
    spec = pod.spec
    counts = {name: device_peak(spec.init_containers, spec.containers, name) for name in offered}
    return {name: count for name, count in counts.items() if count > 0}


def _by_resource(pod: Pod, policy: Policy, facts: Facts) -> Iterator[DeviceRequest]:
    for resource in pod.device_resources():
        pool = pool_of_resource(resource.name, policy, facts)
        if pool is None:
            continue
        if requested := _requested(resource):
            side, quantity = requested
            whose = resource.container
            yield DeviceRequest(
                pool,
                pod.at(resource.field(side)),
                f"{resource.name}: {quantity}",
                container=(whose.kind, whose.position),
                resource=resource.name,
            )


def _requested(resource: DeviceResource) -> tuple[ResourceSide, Any] | None:
    """Return the side and the quantity by which devices are reserved, if any are.

    A quantity of 0 is not a request. The scheduler counts requests. The limit of an extended
    resource equals its request; the limit of an implicit name, which counts as native, may be
    larger (core validation.go, ``IsOvercommitAllowed``).
    """
    quantities = resource.quantities
    for side, quantity in quantities.items():
        if parse_quantity(quantity) > 0 and (
            side == "requests"
            or "requests" not in quantities
            or is_extended_resource_name(resource.name)
        ):
            return side, quantity
    return None


def _by_claim(pod: Pod, policy: Policy, namespace: str, facts: Facts) -> Iterator[DeviceRequest]:
    for index, entry, name, claim in _claims(pod.spec, namespace, facts):
        for classes in claim.requests if claim else ():
            pools = {policy.pool_of_class.get(device_class) for device_class in classes}
            for pool in sorted(filter(None, pools), key=lambda pool: pool.name):
                path = pod.at(f"spec.resourceClaims[{index}]")
                what = f"claim {name} on device class {', '.join(sorted(classes))}"
                yield DeviceRequest(
                    pool, path, what, certain=len(pools) == 1, claim=entry.name or ""
                )


def _claims(
    spec: PodSpec, namespace: str, facts: Facts
) -> Iterator[tuple[int, PodResourceClaim, str, Claim | None]]:
    for index, entry in enumerate(spec.resource_claims or ()):
        if name := entry.resource_claim_name:
            yield index, entry, name, facts.claims.get((namespace, name))
        elif name := entry.resource_claim_template_name:
            yield index, entry, name, facts.claim_templates.get((namespace, name))
        elif isinstance(source := entry.source, dict):
            # The form before Kubernetes 1.31. API servers ignore it today.
            name = source.get("resourceClaimName") or source.get("resourceClaimTemplateName")
            yield index, entry, f"{name} (under source, which Kubernetes 1.31 removed)", None
