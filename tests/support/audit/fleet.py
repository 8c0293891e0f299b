"""A simulated cluster: nodes with and without GPUs, and thousands of running Pods.

The objects are those that controllers and the scheduler would create, without waiting for them.
The Jobs name another controller than Kubernetes' own (``managedBy``), so that their Pods, which
are created here with their place, are theirs and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from controlplane.objects import node, taint

Object = dict[str, Any]
Create = Callable[[str, Object], Object]
"""Creates an object in the collection at that path, and returns it with its uid."""

LABELS = {"nvidia.com/gpu.present": "true"}
TAINT = taint("nvidia.com/gpu", "present")
NAMESPACES = ("ml-vision", "ml-language", "ml-speech", "simulation", "web", "batch")
PER_NODE = 8
_MANAGER = "example.com/fleet"


def nodes(count: int, with_devices: int) -> Iterator[Object]:
    """Yield nodes; of those with devices, the first has no taint and the second no label."""
    for index in range(with_devices):
        yield node(
            f"gpu-{index + 1}",
            labels={} if index == 1 else LABELS,
            taints=[] if index == 0 else [TAINT],
            resources={"nvidia.com/gpu": str(PER_NODE)},
        )
    for index in range(count - with_devices):
        yield node(f"cpu-{index + 1}")


def container(devices: int = 0) -> Object:
    resources = {"limits": {"nvidia.com/gpu": str(devices)}} if devices else {}
    return {"name": "main", "image": "registry.example/main:1", "resources": resources}


def pod_spec(devices: int = 0, **more: Any) -> Object:
    """Return the spec of a Pod; one with several devices has shared memory for them."""
    only = container(devices)
    if devices > 1:
        only["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
        more = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}], **more}
    return {"containers": [only], "restartPolicy": "Never", **more}


def job(namespace: str, name: str, spec: Object, create: Create) -> Object:
    """Create a Job that no controller of Kubernetes touches, and return it."""
    obj = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"managedBy": _MANAGER, "template": {"spec": spec}},
    }
    return create(f"/apis/batch/v1/namespaces/{namespace}/jobs", obj)


def pod_of(owner: Object, name: str, node_name: str, **more: Any) -> Object:
    """Return a Pod of a Job with the fields that its controller and the scheduler set."""
    metadata = owner["metadata"]
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    labels = owner["spec"]["selector"]["matchLabels"]
    obj = bare_pod(
        metadata["namespace"], name, {**owner["spec"]["template"]["spec"], **more}, node_name
    )
    obj["metadata"] |= {"labels": dict(labels), "ownerReferences": [reference]}
    return obj


def bare_pod(namespace: str, name: str, spec: Object, node_name: str = "") -> Object:
    placed = {"nodeName": node_name} if node_name else {"schedulerName": "nobody"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, **placed},
    }


def fill(create: Create, node_count: int, with_devices: int, pod_count: int) -> int:
    """Create nodes, Jobs and Pods, and return the number of Pods.

    Most GPU nodes are held in parts; some Pods wait; some plain ones sit on GPU nodes or want to.
    """
    for obj in nodes(node_count, with_devices):
        create("/api/v1/nodes", obj)
    gpu_pods = sum(create("/pods", pod) is not None for pod in _gpu_pods(create, with_devices))
    plain = _plain_pods(create, node_count - with_devices, with_devices, pod_count - gpu_pods)
    return gpu_pods + sum(create("/pods", pod) is not None for pod in plain)


def _gpu_pods(create: Create, with_devices: int) -> Iterator[Object]:
    shapes = ((4, 2, 1), (8,), (2, 2, 2, 2), (4, 4), (1, 1, 1), ())
    fenced: Object = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
    for index in range(with_devices):
        for number, devices in enumerate(shapes[index % len(shapes)]):
            namespace = NAMESPACES[(index + number) % 4]
            owner = job(
                namespace, f"train-{index + 1}-{number}", pod_spec(devices, **fenced), create
            )
            yield pod_of(owner, f"train-{index + 1}-{number}-x7k2p", f"gpu-{index + 1}")
    waiting = job("ml-language", "pretrain", pod_spec(8), create)
    for number in range(3):
        yield {**pod_of(waiting, f"pretrain-{number}", ""), "status": {"phase": "Pending"}}


def _plain_pods(
    create: Create, without_devices: int, with_devices: int, count: int
) -> Iterator[Object]:
    reaching: Object = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
    intruder = job("web", "cache-warmer", pod_spec(**reaching), create)
    yield pod_of(intruder, "cache-warmer-1", "gpu-1")
    yield pod_of(intruder, "cache-warmer-2", "gpu-4")
    yield pod_of(intruder, "cache-warmer-3", f"gpu-{with_devices}")
    yield bare_pod("batch", "debug-shell", pod_spec(), "gpu-1")
    per_job = 12
    owner: Object = {}
    for number in range(count - 4):
        if number % per_job == 0:
            namespace = NAMESPACES[number // per_job % len(NAMESPACES)]
            owner = job(namespace, f"work-{number // per_job}", pod_spec(), create)
        place = f"cpu-{number % without_devices + 1}"
        yield pod_of(owner, f"work-{number // per_job}-{number % per_job}", place)
