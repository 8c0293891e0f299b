"""A control plane with replicas of a release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Replica
from controlplane.objects import node, taint
from release.release import Release, release

GPU_NODE = node(
    "gpu-1",
    labels={"nvidia.com/gpu.present": "true"},
    taints=[taint("nvidia.com/gpu")],
    resources={"nvidia.com/gpu": "8"},
)


@contextmanager
def fenced_cluster(directory: Path, count: int) -> Iterator[tuple[Release, list[Replica]]]:
    """Run a control plane with a GPU node, and a release with `count` replicas."""
    with ControlPlane(directory / "cluster", binaries()) as cluster:
        cluster.create_nodes(GPU_NODE)
        # Dry runs store nothing: the scheduler has no work, but uses CPU.
        cluster.scheduler.stop()
        own = directory / "release"
        with release(cluster, own, forks=False) as released, ExitStack() as stack:
            replicas = stack.enter_context(released.replicas(count)).replicas if count else []
            yield released, replicas
