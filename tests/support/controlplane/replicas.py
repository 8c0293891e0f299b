"""Runs the replicas of the demo's installation, on nodes without a kubelet."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from controlplane import webhooks
from controlplane.cluster import ControlPlane
from controlplane.gpufence import COMMAND, Replica
from controlplane.poll import until
from controlplane.ports import free_ports
from deploy.chart import NAMESPACE, RELEASE
from deploy.kubelet import kubelet, unavailable, wait_ready

if TYPE_CHECKING:
    from controlplane.screen import Screen

DEPLOYMENT = f"deployment/{RELEASE}"
COUNT = 2
"""The replicas of the chart."""


class Replicas(Protocol):
    def start(self, screen: Screen) -> None:
        """Start the replicas. The API server may call them a moment later."""

    def stop(self, screen: Screen) -> None:
        """Stop all replicas, and wait until the API server reaches none."""


class Pods:
    """The Pods of the Deployment, each a process in its own network namespace."""

    def __init__(self, cluster: ControlPlane, directory: Path, stack: ExitStack) -> None:
        self._cluster = cluster
        self._stopped = False
        # The demo does not need the time in which a replica drains.
        running = kubelet(cluster, NAMESPACE, directory / "pods", longest_grace=0.1)
        self._kubelet = stack.enter_context(running)

    def start(self, screen: Screen) -> None:
        if self._stopped:
            self._scale(screen, COUNT)
            return
        wait_ready(self._kubelet, COUNT)
        screen.run("kubectl", "rollout", "status", DEPLOYMENT, "-n", NAMESPACE, "--timeout=60s")

    def stop(self, screen: Screen) -> None:
        self._scale(screen, 0)
        self._stopped = True
        probe = webhooks.Probe(self._cluster.api)

        def unreachable() -> bool:
            probe.called()
            return "failed calling webhook" in probe.outcome

        until(unreachable, "the API server to find no replica")

    def _scale(self, screen: Screen, count: int) -> None:
        screen.run("kubectl", "scale", DEPLOYMENT, "-n", NAMESPACE, f"--replicas={count}")


class OneProcess:
    """A replica outside of the cluster, at an address of this machine."""

    def __init__(self, cluster: ControlPlane, directory: Path, stack: ExitStack) -> None:
        [port] = free_ports(1)
        flags = [
            *("--register", "true", "--url", f"https://localhost:{port}"),
            *("--namespace", NAMESPACE, "--owner", f"clusterrole/{RELEASE}"),
            *("--drain-seconds", "0"),
        ]
        self._replica = Replica(
            directory / "pods",
            flags,
            command=[COMMAND],
            environ=cluster.kubectl.environ(),
            port=port,
        )
        stack.callback(self._replica.stop)

    def start(self, screen: Screen) -> None:
        screen.say("(Nothing runs Pods here: the demo runs a replica as a process.)")
        screen.command("gpufence", *self._replica.process.command[1:])
        self._replica.start()
        self._replica.wait()

    def stop(self, screen: Screen) -> None:
        self._replica.stop()
        screen.say("(gpufence is stopped: no replica answers.)")


def replicas(cluster: ControlPlane, directory: Path, stack: ExitStack) -> Replicas:
    """Return the way to run replicas on this machine; they end with `stack`."""
    kind = OneProcess if unavailable() else Pods
    return kind(cluster, directory.absolute(), stack)
