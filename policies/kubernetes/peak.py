"""How many devices are reserved for a Pod: what it needs at its peak.

Source: ``PodRequests`` in ``k8s.io/component-helpers/resource`` (KEP-753).
"""

from __future__ import annotations

from policies.kubernetes.pod import Container, Pod
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.policy import Policy


def device_peak(pod: Pod, resource: str) -> int:
    """Return how many devices of one extended resource the scheduler reserves for the Pod.

    Containers and sidecars run together; another init container runs before them, beside the
    sidecars that were started by then.

    Raises:
        InvalidQuantityError: (policies.kubernetes.quantity) what is requested is no quantity.
    """
    sidecars = peak = running = 0
    for container in pod.device_containers():
        count = _count(container, resource)
        if container.kind == "containers":
            running += count
        elif container.raw.get("restartPolicy") == "Always":
            sidecars += count
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + count)
    return max(peak, sidecars + running)


def device_peaks(pod: Pod, policy: Policy) -> dict[str, int]:
    """Return that number for each of the pools' resources that the Pod needs any of, by name.

    Raises:
        InvalidQuantityError: (policies.kubernetes.quantity) what is requested is no quantity.
    """
    names = {resource.name for resource in pod.device_resources()}
    offered = sorted(name for name in names if policy.pool_of_resource(name) is not None)
    counts = {name: device_peak(pod, name) for name in offered}
    return {name: count for name, count in counts.items() if count > 0}


def _count(container: Container, resource: str) -> int:
    limits = container.resources("limits")
    quantity = container.resources("requests").get(resource, limits.get(resource))
    return -(-parse_quantity(quantity) // NANOS)
