"""The endpoints of a Service."""

from __future__ import annotations

from webhook.kube.client import KubeApi


async def ready_endpoints(api: KubeApi, namespace: str, service: str) -> int:
    """Return how many endpoints of a Service are ready; one without the condition is.

    Source: ``k8s.io/api/discovery/v1``, ``types.go``.

    Raises:
        ClusterError: the request failed.
    """
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    found = await api.read(path, {"labelSelector": f"kubernetes.io/service-name={service}"})
    return sum(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for item in (found or {}).get("items") or ()
        for endpoint in item.get("endpoints") or ()
    )
