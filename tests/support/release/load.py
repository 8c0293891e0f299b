"""A steady load of GPU Pods: each creation (dry-run) is tried once, and its outcome is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Self

from controlplane.api import Api, ApiError
from controlplane.poll import until

GPU_POD: dict[str, Any] = {
    "metadata": {"generateName": "load-"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "main", "image": "cuda", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ],
    },
}


ENOUGH = 20
"""A verdict needs more creations."""


class Load:
    """Creates GPU Pods in a namespace, one after the other, in a few threads, in the block."""

    def __init__(self, api: Api, namespace: str, threads: int = 2, every: float = 0.2) -> None:
        self.created = 0
        """How many were created, each with the toleration that gpufence adds."""
        self.failures: list[str] = []
        """The errors of the others."""
        self.durations: list[float] = []
        """The seconds that each creation took, successful or not."""
        self._api = api
        # Dry runs keep scheduler and controllers idle.
        self._path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        self._every = every
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def _run(self) -> None:
        while not self._over.wait(self._every):
            start = time.monotonic()
            try:
                created = self._api.request("POST", self._path, GPU_POD)
                tolerations = created["spec"]["tolerations"]
                missed = all(t.get("key") != "nvidia.com/gpu" for t in tolerations)
                problem = "created without gpufence" if missed else ""
            except (ApiError, OSError) as error:
                problem = str(error)
            with self._lock:
                self.durations.append(time.monotonic() - start)
                if problem:
                    self.failures.append(problem)
                else:
                    self.created += 1

    def seconds(self, seconds: float) -> Iterator[float]:
        """Yield the time that is left, a few times a second, for so long."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            yield remaining
            self._over.wait(min(remaining, 0.1))

    def check(self, what: str) -> None:
        """Print the counts, and fail if a creation failed."""
        self._wait_for_enough()
        print(f"\n{what}: {self.created} GPU Pods created until then, {len(self.failures)} failed")
        assert self.failures == []
        assert self.created > ENOUGH

    def _wait_for_enough(self) -> None:
        """Wait for creations: a fast machine is through with the steps of a test before."""
        until(lambda: self.created + len(self.failures) > ENOUGH, "enough creations")

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._wait_for_enough()
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()
