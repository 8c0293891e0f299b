"""The objects that the benchmarks create, as a user would write them."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]


def pod(containers: list[JSON], **spec: Any) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "bench-", "labels": {"app": "bench"}},
        "spec": {"containers": containers, **spec},
    }


def container(name: str, *, devices: int = 0, **fields: Any) -> JSON:
    resources: JSON = {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "2Gi"}}
    if devices:
        resources["limits"]["nvidia.com/gpu"] = str(devices)
    return {
        "name": name,
        "image": f"registry.example.com/team/{name}:1.4.2",
        "resources": resources,
        "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "eu-west-1"}],
        "ports": [{"name": "http", "containerPort": 8080}],
        **fields,
    }


def gpu_pod() -> JSON:
    """Return a typical GPU Pod: a training container and a sidecar."""
    shm = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - where PyTorch wants it
    return pod(
        [container("train", devices=1, volumeMounts=shm), container("log-shipper")],
        volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        restartPolicy="Never",
    )


def plain_pod() -> JSON:
    return pod([container("web")])


def selecting_pod() -> JSON:
    """Return a plain Pod that selects nodes by an instance type."""
    plain = plain_pod()
    plain["spec"]["nodeSelector"] = {"node.kubernetes.io/instance-type": "m7i.large"}
    return plain
