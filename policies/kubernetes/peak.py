"""How many devices are reserved for a Pod: what it needs at its peak.

Source: ``PodRequests`` in ``k8s.io/component-helpers/resource`` (KEP-753).
"""

from __future__ import annotations

from policies.kubernetes.pod import Container, Pod
from policies.kubernetes.quantity import NANOS, parse_quantity


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


def _count(container: Container, resource: str) -> int:
    limits = container.resources("limits")
    quantity = container.resources("requests").get(resource, limits.get(resource))
    return -(-parse_quantity(quantity) // NANOS)
