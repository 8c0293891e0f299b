"""GPU nodes, and the specs of Pods for them."""

from __future__ import annotations

from typing import Any

from controlplane.objects import taint

Object = dict[str, Any]

LABELS = {"nvidia.com/gpu.present": "true"}
TAINT = taint("nvidia.com/gpu", "present")


def pod_spec(devices: int = 0, **more: Any) -> Object:
    """Return the spec of a Pod; one with several devices has shared memory for them."""
    resources = {"limits": {"nvidia.com/gpu": str(devices)}} if devices else {}
    only: Object = {"name": "main", "image": "registry.example/main:1", "resources": resources}
    if devices > 1:
        only["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
        more = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}], **more}
    return {"containers": [only], "restartPolicy": "Never", **more}
