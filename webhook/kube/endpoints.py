"""The EndpointSlices of a Service."""

from __future__ import annotations

from policies.kubernetes.objects import JSONObject


def slices_query(namespace: str, service: str) -> tuple[str, dict[str, str]]:
    """Return path and query of a Service's EndpointSlices."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    return path, {"labelSelector": f"kubernetes.io/service-name={service}"}


def ready_endpoints(endpoint_slice: JSONObject) -> list[JSONObject]:
    """Return the ready endpoints of a slice; an endpoint without the condition is ready.

    Source: ``k8s.io/api/discovery/v1``, ``types.go``.
    """
    return [
        endpoint
        for endpoint in endpoint_slice.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]
