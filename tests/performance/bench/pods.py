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


def large_pod(containers: int) -> JSON:
    """Return a GPU Pod in which every fourth container requests a device."""
    return pod(
        [container(f"worker-{n}", devices=int(n % 4 == 0)) for n in range(containers)],
        restartPolicy="Never",
    )


def megabyte_pod() -> JSON:
    """Return a GPU Pod of 1 MB, most of it environment variables."""
    env = [{"name": f"SETTING_{n}", "value": f"{n:04}" * 120} for n in range(400)]
    workers = [container(f"worker-{n}", devices=1) for n in range(5)]
    return pod([worker | {"env": env} for worker in workers], restartPolicy="Never")


def deployment() -> JSON:
    gpu = gpu_pod()
    template = {"metadata": {"labels": {"app": "bench"}}, "spec": gpu["spec"]}
    del template["spec"]["restartPolicy"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"generateName": "bench-"},
        "spec": {"selector": {"matchLabels": {"app": "bench"}}, "template": template},
    }
