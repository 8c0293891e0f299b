"""A control plane, replicas of a release, and GPU Pods that are created meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
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
    """GPU Pods that are created as a dry run, in a few threads, for as long as the block lasts.

    Nothing is stored, so that the cluster stays the same however long it takes.
    """

    api: Api
    threads: int = 4
    every: float = 0.05
    seconds: list[float] = field(default_factory=list)
    """How long each creation took that succeeded."""
    wrong: list[str] = field(default_factory=list)
    """Pods that were created without what gpufence adds."""
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._running = [threading.Thread(target=self._run) for _ in range(self.threads)]

    def _run(self) -> None:
        while not self._over.wait(self.every):
            began = time.monotonic()
            try:
                made = self.api.request("POST", PATH, GPU_POD)
            except (ApiError, OSError) as error:
                self.failures.append(f"after {time.monotonic() - began:.1f} s: {error}")
                continue
            tolerations = made["spec"].get("tolerations", ())
            if not any(each.get("key") == "nvidia.com/gpu" for each in tolerations):
                self.wrong.append("created without the toleration")
            self.seconds.append(time.monotonic() - began)

    def __enter__(self) -> Self:
        for thread in self._running:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._running:
            thread.join()


@contextmanager
def fenced_cluster(
    directory: Path, count: int, flags: Sequence[str] = ()
) -> Iterator[tuple[Release, list[Replica]]]:
    """Run a control plane with a GPU node, and a release with ``count`` replicas."""
    with ControlPlane(directory / "cluster", binaries()) as cluster:
        cluster.create_nodes(GPU_NODE)
        # Nothing is stored, so that this has nothing to do but to take CPU from the others.
        cluster.scheduler.stop()
        with release(cluster, directory / "release") as made, ExitStack() as stack:
            # Without any, the caller starts its own.
            running = stack.enter_context(made.replicas(count, *flags)) if count else []
            yield made, running
