"""Objects as a dump of a cluster has them, for tests that read one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specs import JSON
from webhook.documents.document import Document
from webhook.documents.objects import Manifest

RESOURCE = "resource.k8s.io/v1"


def manifests(objects: Iterable[JSON]) -> list[Manifest]:
    """Return objects as if they were read from a file."""
    document = Document(0, "", path="cluster")
    return [Manifest(document, None, (), 0, obj) for obj in objects]


def device_class(name: str, driver: str, **spec: Any) -> JSON:
    """Return a DeviceClass that accepts all devices of a driver."""
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    return {
        "apiVersion": RESOURCE,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def resource_slice(driver: str, pool: str, /, **spec: Any) -> JSON:
    """Return a ResourceSlice with one device, unless ``spec`` has others."""
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{pool}-{driver}"},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
            **spec,
        },
    }


def node_pool(name: str, labels: JSON, **spec: Any) -> JSON:
    """Return a NodePool of Karpenter whose nodes have the labels."""
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template},
    }
