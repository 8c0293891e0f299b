"""A control plane with replicas of a release, and a load of GPU Pods."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from controlplane.api import Api, ApiError
from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.objects import node, taint
from release.load import GPU_POD
from release.release import Release, release
from release.replica import Replica

GPU_NODE = node(
    "gpu-1",
    labels={"nvidia.com/gpu.present": "true"},
    taints=[taint("nvidia.com/gpu")],
    resources={"nvidia.com/gpu": "8"},
)
PATH = "/api/v1/namespaces/default/pods?dryRun=All"


@dataclass
class Creations:
    """Creates GPU Pods in a few threads during the block.

    They are dry runs, so the cluster stays the same.
    """

    api: Api
    threads: int = 4
    every: float = 0.05
    seconds: list[float] = field(default_factory=list)
    """Durations of the creates that succeeded."""
    wrong: list[str] = field(default_factory=list)
    """Pods that were created unmutated."""
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._running = [threading.Thread(target=self._run) for _ in range(self.threads)]

    def _run(self) -> None:
        while not self._over.wait(self.every):
            start = time.monotonic()
            try:
                pod = self.api.request("POST", PATH, GPU_POD)
            except (ApiError, OSError) as error:
                self.failures.append(f"after {time.monotonic() - start:.1f} s: {error}")
                continue
            tolerations = pod["spec"].get("tolerations", ())
            if not any(toleration.get("key") == "nvidia.com/gpu" for toleration in tolerations):
                self.wrong.append("created without the toleration")
            self.seconds.append(time.monotonic() - start)

    def __enter__(self) -> Self:
        for thread in self._running:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._running:
            thread.join()


@contextmanager
def fenced_cluster(directory: Path, count: int) -> Iterator[tuple[Release, list[Replica]]]:
    """Run a control plane with a GPU node, and a release with `count` replicas."""
    with ControlPlane(directory / "cluster", binaries()) as cluster:
        cluster.create_nodes(GPU_NODE)
        # Dry runs store nothing: the scheduler has no work, but uses CPU.
        cluster.scheduler.stop()
        with release(cluster, directory / "release") as released, ExitStack() as stack:
            replicas = stack.enter_context(released.replicas(count)) if count else []
            yield released, replicas
