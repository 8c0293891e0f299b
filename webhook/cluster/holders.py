"""Devices that Pods and resource claims hold or wait for.

Sources: ``k8s.io/api/core/v1`` and ``k8s.io/api/resource/v1``. Little is read of each: a Pod has
some 8 KB, and there are tens of thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from policies.facts import Facts
from policies.kubernetes.core_v1 import ResourceRequirements
from policies.kubernetes.pod import device_peak
from policies.policy import Policy, Pool
from policies.requests import pools_of_resource
from webhook.kube.collection import Collection
from webhook.kube.wire import Identity

# A claim that the scheduler makes of a Pod's extended resource (KEP-5004), which is counted there.
_OF_EXTENDED_RESOURCE = "resource.kubernetes.io/extended-resource-claim"

_NO_FACTS = Facts()


class Holding(NamedTuple):
    """Devices that are held (``scheduled``) or waited for: of a resource or a device class."""

    device: str
    namespace: str
    scheduled: bool
    node: str = ""
    """The node of the Pod, if several pools offer the resource."""


class ContainerDevices(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What is counted of a container."""

    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[ContainerDevices] | None = None
    init_containers: list[ContainerDevices] | None = None
    node_name: str = ""


class PodObject(msgspec.Struct, frozen=True):
    """The fields of a Pod that the inventory reads."""

    metadata: Identity
    spec: PodSpec = PodSpec()


class DeviceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A request for devices of one class; of ``firstAvailable``, one of the alternatives."""

    name: str = ""
    device_class_name: str = ""
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None


class ClaimRequest(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    exactly: DeviceRequest | None = None
    first_available: list[DeviceRequest] | None = None


class ClaimDevices(msgspec.Struct, frozen=True):
    requests: list[ClaimRequest] | None = None


class ClaimSpec(msgspec.Struct, frozen=True):
    devices: ClaimDevices = ClaimDevices()


class AllocatedDevice(msgspec.Struct, frozen=True):
    request: str = ""


class AllocatedDevices(msgspec.Struct, frozen=True):
    results: list[AllocatedDevice] | None = None


class Allocation(msgspec.Struct, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()


class ClaimStatus(msgspec.Struct, frozen=True):
    allocation: Allocation | None = None


class ClaimMetadata(Identity, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None


class ClaimObject(msgspec.Struct, frozen=True):
    """The fields that are read of a ResourceClaim."""

    metadata: ClaimMetadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


# A Pod that has ended holds no devices; one that is being deleted does.
PODS = Collection(
    "pods", "/api/v1/pods", PodObject, fields="status.phase!=Succeeded,status.phase!=Failed"
)
CLAIMS = Collection(
    "resourceclaims", "/apis/resource.k8s.io/v1/resourceclaims", ClaimObject, optional=True
)


def pools_of(device: str, policy: Policy) -> tuple[Pool, ...]:
    """Return the pools of a resource or device class, by the policy alone."""
    return policy.pools_of_class.get(device) or pools_of_resource(device, policy, _NO_FACTS)


def of_pod(pod: PodObject, policy: Policy) -> Counter[Holding]:
    """Return the devices that the scheduler reserves for a Pod, of every pool's resources."""
    spec, namespace = pod.spec, pod.metadata.namespace
    names = {name for name in _resources(spec) if _is_counted(name, policy)}
    if not names:
        return Counter()
    scheduled = bool(spec.node_name)
    holdings: Counter[Holding] = Counter()
    for name in names:
        node = spec.node_name if len(policy.pools_of_resource(name)) > 1 else ""
        peak = device_peak(spec.init_containers, spec.containers, name)
        holdings[Holding(name, namespace, scheduled, node)] = peak
    return +holdings


def of_claim(claim: ClaimObject, policy: Policy) -> Counter[Holding]:
    """Return the devices of pools' classes that a claim has, or waits for.

    How many are waited for is not known of a request for all devices of a class, and which of them
    not of one with alternatives: these count once they are allocated.
    """
    namespace, allocation = claim.metadata.namespace, claim.status.allocation
    if _OF_EXTENDED_RESOURCE in (claim.metadata.annotations or {}):
        return Counter()
    requests = dict(_device_requests(claim.spec))
    holdings: Counter[Holding] = Counter()
    if allocation is None:
        for path, request in requests.items():
            if "/" not in path and request.allocation_mode == "ExactCount":
                holdings[Holding(request.device_class_name, namespace, False)] += request.count
    else:
        for device in allocation.devices.results or ():
            if device.request in requests:
                name = requests[device.request].device_class_name
                holdings[Holding(name, namespace, True)] += 1
    return Counter({key: n for key, n in holdings.items() if key.device in policy.pools_of_class})


def _is_counted(resource: str, policy: Policy) -> bool:
    pools = pools_of(resource, policy)
    return bool(pools) and all(resource not in pool.fractional_resources for pool in pools)


def _resources(spec: PodSpec) -> Iterator[str]:
    for containers in (spec.containers, spec.init_containers):
        for container in containers or ():
            if container.resources is not None:
                yield from container.resources.limits or ()
                yield from container.resources.requests or ()


def _device_requests(spec: ClaimSpec) -> Iterator[tuple[str, DeviceRequest]]:
    """Yield the requests that reserve devices, by their names in an allocation.

    ``adminAccess`` reserves none: it observes devices of others.
    """
    for request in spec.devices.requests or ():
        if request.exactly is not None and not request.exactly.admin_access:
            yield request.name, request.exactly
        for alternative in request.first_available or ():
            yield f"{request.name}/{alternative.name}", alternative
