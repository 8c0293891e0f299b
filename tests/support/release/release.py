"""A release of gpufence: its namespace, ClusterRole, Service and the objects that it writes."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.gpufence import COMMAND, QUICK, Replica
from controlplane.poll import until
from controlplane.webhooks import unregister, wait_until_called
from release.service import Service

NAME = "gpufence"
SECRET = "gpufence-certificates"  # noqa: S105 - its name
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
WEBHOOKS = 4
"""How many webhooks are in the two of them."""
TIMEOUT = ("--timeout-seconds", "10")
"""API servers wait longer than by default: this machine may be busy."""
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_TABLE = "hidesDevices"
"""A column of the table of pools that decides which Pods the API server mutates."""
_WRONG_CLOCK = Path(__file__).with_name("wrong_clock.py")


class Release:
    """One release in one cluster, which has no other."""

    def __init__(self, cluster: ControlPlane, directory: Path, service: Service) -> None:
        self.cluster = cluster
        self.directory = directory
        self.service = service
        self.namespace = cluster.create_namespace("release-")

    def replica(self, *flags: str, clock_ahead: timedelta = timedelta()) -> Replica:
        """Return a replica that is yet to be started; its clock is ahead by `clock_ahead`."""
        own = [
            *("--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace),
            *("--register=true", "--url", self.service.url, "--owner", f"clusterrole/{NAME}"),
            *("--poll-seconds", "0.5", "--lease-seconds", "3", "--drain-seconds", "1", *TIMEOUT),
        ]
        command = QUICK
        if clock_ahead:
            command = (sys.executable, str(_WRONG_CLOCK), str(clock_ahead.total_seconds()))
        return Replica(self.directory, [*own, *flags], command=command)

    @contextmanager
    def replicas(self, count: int, *flags: str) -> Iterator[list[Replica]]:
        """Run so many replicas behind the Service in the block, and wait until they are called."""
        running = [self.replica(*flags) for _ in range(count)]
        with ExitStack() as stack:
            self.start(running, stack)
            wait_until_called(self.cluster)
            yield running

    def start(self, replicas: Sequence[Replica], stack: ExitStack) -> None:
        """Start replicas at the same time, and wait until the Service sends requests to all."""
        stack.callback(_stop, replicas)
        for replica in replicas:
            replica.start()
        for replica in replicas:
            replica.wait()
        self.service.select(replicas)
        until(lambda: self.service.endpoints == len(replicas), "the Service's endpoints")

    def run(self, *arguments: str, status: int | None = 0) -> str:
        """Run `gpufence ARGUMENTS` against the cluster, and return its output.

        With `status` None, it may end with any status.
        """
        command = [str(COMMAND), *arguments, "--kubeconfig", str(self.cluster.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert status in (None, done.returncode), f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def manifests(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects of `gpufence manifests`."""
        command = [str(COMMAND), "manifests", *TIMEOUT, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return list(yaml.safe_load_all(done.stdout))

    def secret(self) -> dict[str, bytes]:
        """Return the decoded data of the Secret."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET}"
        data = self.cluster.api.request("GET", path)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def configurations(self) -> list[dict[str, Any]]:
        """Return the webhook configurations that there are."""
        own = []
        for kind in KINDS:
            try:
                own.append(self.cluster.api.request("GET", f"{_ADMISSION}/{kind}/{NAME}"))
            except ApiError as error:
                if error.status != 404:
                    raise
        return own

    def mutates(self) -> bool:
        """Return whether the API server mutates GPU Pods, and the webhooks leave those out."""
        listed = self.cluster.api.request("GET", f"{_ADMISSION}/mutatingadmissionpolicies")
        written = [*listed["items"], *self.configurations()]
        return [_TABLE in str(each) for each in written] == [True] * 3

    def bundles(self) -> list[bytes]:
        """Return the caBundle of every webhook."""
        return [
            base64.b64decode(webhook["clientConfig"]["caBundle"])
            for configuration in self.configurations()
            for webhook in configuration["webhooks"]
        ]


def _stop(replicas: Sequence[Replica]) -> None:
    """Stop replicas at the same time; the second signal of `stop` ends their drain."""
    for replica in replicas:
        replica.process.terminate()
    for replica in replicas:
        replica.stop()


@contextmanager
def release(cluster: ControlPlane, directory: Path) -> Iterator[Release]:
    """Create a release for the block, and delete it afterwards."""
    role = {"metadata": {"name": NAME}, "rules": []}
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    cluster.api.request("POST", roles, role)
    try:
        with Service() as service:
            yield Release(cluster, directory, service)
    finally:
        unregister(cluster)
        cluster.kubectl("delete", "clusterroles", NAME, "--ignore-not-found")
