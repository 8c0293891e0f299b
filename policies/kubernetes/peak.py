"""How many devices are reserved for a Pod: what it needs at its peak.

Source: ``PodRequests`` in ``k8s.io/component-helpers/resource`` (KEP-753).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from policies.kubernetes.core_v1 import ResourceRequirements
from policies.kubernetes.quantity import NANOS, parse_quantity


class RequestingContainer(Protocol):
    """What the peak depends on: ``core_v1.Container`` has it."""

    @property
    def resources(self) -> ResourceRequirements | None: ...

    @property
    def restart_policy(self) -> str | None: ...


def device_peak(
    init_containers: Iterable[RequestingContainer] | None,
    containers: Iterable[RequestingContainer] | None,
    resource: str,
) -> int:
    """Return how many devices of one extended resource the scheduler reserves for the Pod.

    Containers and sidecars run together; another init container runs before them, along with the
    sidecars that were started by then.

    Raises:
        InvalidQuantityError: (policies.kubernetes.quantity) what is requested is no quantity.
    """
    sidecars = peak = 0
    for container in init_containers or ():
        count = _count(container, resource)
        if container.restart_policy == "Always":
            sidecars += count
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + count)
    running = sum(_count(container, resource) for container in containers or ())
    return max(peak, sidecars + running)


def _count(container: RequestingContainer, resource: str) -> int:
    if container.resources is None:
        return 0
    limits, requests = container.resources.limits or {}, container.resources.requests or {}
    return -(-parse_quantity(requests.get(resource, limits.get(resource))) // NANOS)
