"""The release on the node, and what creates GPU Pods while something happens to it."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from controlplane.gpufence import COMMAND
from controlplane.poll import until
from deploy.chart import NAMESPACE, RELEASE, Helm, Values
from node.image import GPUFENCE
from node.machine import Node

FIRST, SECOND = "one", "two"
"""The tags of the image: an upgrade goes from the first to the second."""


THREADS = 4
"""How many GPU Pods are created at the same time."""


class Disrupt(Protocol):
    """Runs a disruption while GPU Pods are created, and checks how many creations fail.

    Up to ``tolerated`` may fail. Failures that contain ``gone``, an error of connections to a dead
    replica, do not count, but may be at most one in five.
    """

    def __call__(
        self, name: str, disrupt: Callable[[], None], tolerated: int = 0, gone: str = ""
    ) -> None: ...


@dataclass(frozen=True)
class Installed:
    """The release on the node."""

    node: Node
    helm: Helm

    def upgrade(self, values: Values) -> None:
        """Install or upgrade with ``values``, and wait until both replicas are rolled out."""
        image = {"repository": GPUFENCE, "tag": FIRST, "pullPolicy": "Never"}
        merged = values | {"image": image | values.get("image", {})}
        command = ("upgrade", RELEASE)
        self.helm.with_values(command, merged, "--install", "--namespace", NAMESPACE)
        self.wait()

    def wait(self) -> None:
        """Wait until both Deployments are rolled out and the old replicas are gone."""
        for name in (RELEASE, f"{RELEASE}-controller"):
            self.kubectl("rollout", "status", f"deployment/{name}", "--timeout=300s", timeout=310)
        until(lambda: len(self.replicas()) == 2, "the old Pods to be gone", 120)

    def kubectl(self, *arguments: str, **options: Any) -> str:
        """Run kubectl in the namespace of the release, and return its output."""
        return self.node.cluster.kubectl("-n", NAMESPACE, *arguments, **options).stdout

    def gpufence(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run gpufence against the cluster."""
        config = ["--kubeconfig", str(self.node.cluster.kubeconfig)]
        command: list[str | Path] = [COMMAND, *arguments, *config]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def replicas(self) -> list[dict[str, Any]]:
        """Return the Pods of the replicas."""
        selector = f"--selector=app.kubernetes.io/name={RELEASE}"
        listed = self.kubectl("get", "pods", selector, "-o", "json")
        found: list[dict[str, Any]] = json.loads(listed)["items"]
        return found

    def serve(self, certificate: str) -> bool:
        """Return whether every replica serves a certificate (base64 of PEM)."""
        pem = base64.b64decode(certificate).decode().strip()
        served = (
            ssl.get_server_certificate((each["status"]["podIP"], 9443), timeout=10)
            for each in self.replicas()
        )
        return all(found.strip() == pem for found in served)

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.replicas()]
