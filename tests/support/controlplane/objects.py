"""Kubernetes objects that a test needs around the one that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Taint = dict[str, str]

CAPACITY = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "200Gi", "pods": "110"}
RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")
}
"""Labels of a namespace in which only Pods of Pod Security's `restricted` profile are created."""


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    resources: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a Node that is ready, as its kubelet would register it.

    `resources` come on top of CAPACITY, such as `{"nvidia.com/gpu": "8"}`.
    """
    capacity = {**CAPACITY, **(resources or {})}
    system = {"hostname": name, "os": "linux", "arch": "amd64"}
    known = {f"kubernetes.io/{key}": value for key, value in system.items()}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**known, **(labels or {})}},
        "spec": {"taints": list(taints)},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


def definition(
    group: str,
    version: str,
    kind: str,
    *,
    scope: str = "Namespaced",
    schema: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a CustomResourceDefinition; without a schema, objects may have any field."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # The API server requires it for groups of the Kubernetes project.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema or anything}}],
        },
    }


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Taint:
    return {"key": key, "value": value, "effect": effect}


def workload(kind: str, name: str, spec: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a workload of `apps/v1` whose Pods have the spec; `fields` are of its own spec."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **fields},
    }


def pod(devices: Mapping[str, Any] | None = None, name: str = "pod", **spec: Any) -> dict[str, Any]:
    """Return a Pod of one container that requests these devices."""
    container: dict[str, Any] = {"name": "main", "image": "registry.example/app"}
    if devices:
        container["resources"] = {"limits": dict(devices)}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def claim_template(name: str, device_class: str = "", **fields: Any) -> dict[str, Any]:
    """Return a ResourceClaimTemplate for one device of a class, or with other fields."""
    wanted = {"name": "gpu", **(fields or {"exactly": {"deviceClassName": device_class}})}
    return {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [wanted]}}}}


TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""What gpufence adds to a GPU Pod with the default policy."""
GPU_NODE = node(
    "gpu",
    labels={"nvidia.com/gpu.present": "true"},
    taints=[taint("nvidia.com/gpu", "present")],
    resources={"nvidia.com/gpu": "8"},
)
