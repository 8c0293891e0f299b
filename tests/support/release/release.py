"""A release of gpufence: its namespace, ClusterRole, Service, processes, and what they write."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controlplane import policies
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Controller, Replica
from controlplane.poll import until
from controlplane.webhooks import apply, unregister, wait_until_called
from release.service import Service
from release.volume import Volume
from running import run_here
from specs import default_spec, policy_of
from webhook.controller.text.objects import BINDING_KIND, Registration, admission_policies

NAME = "gpufence"
CA, SERVING = "gpufence-ca", "gpufence-serving"
"""The names of the Secrets."""
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
WEBHOOKS = 5
"""How many webhooks are in the two of them."""
TIMEOUT = ("--timeout-seconds", "10")
"""API servers wait longer than by default: this machine may be busy."""
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@dataclass
class Running:
    """What runs of a release."""

    controller: Controller
    replicas: list[Replica]


class Release:
    """One release in one cluster, which has no other."""

    def __init__(self, cluster: ControlPlane, directory: Path, service: Service) -> None:
        self.cluster = cluster
        self.directory = directory
        self.service = service
        self.namespace = cluster.create_namespace("release-")
        self.volume = Volume(directory / SERVING)
        """The serving Secret as replicas mount it."""

    def controller(self, *flags: str, enter: Callable[[], None] | None = None) -> Controller:
        """Return a controller that is yet to be started; its process calls `enter` first."""
        own = (
            *("--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace),
            *("--url", self.service.url, "--owner", f"clusterrole/{NAME}"),
            *("--poll-seconds", "0.5", *TIMEOUT),
        )
        return Controller(self.directory, [*own, *flags], enter=enter)

    def replica(
        self,
        *flags: str,
        volume: Volume | None = None,
        enter: Callable[[], None] | None = None,
    ) -> Replica:
        """Return a replica that is yet to be started; its process calls `enter` first."""
        mounted = volume or self.volume
        own = (
            *("--kubeconfig", str(self.cluster.kubeconfig), "--drain-seconds", "1", *TIMEOUT),
            *("--tls-cert", str(mounted.file("tls.crt"))),
            *("--tls-key", str(mounted.file("tls.key"))),
        )
        return Replica(self.directory, [*own, *flags], enter=enter)

    @contextmanager
    def mounted(self, secret: str = SERVING, every: float = 0.5) -> Iterator[Volume]:
        """Keep a volume as the Secret is, as a kubelet does, in the block."""
        over = threading.Event()
        volume = self.volume if secret == SERVING else Volume(self.directory / secret)

        def mount() -> None:
            while not over.wait(every):
                with suppress(ApiError, OSError):
                    volume.write(self.secret(secret))

        thread = threading.Thread(target=mount, daemon=True)
        thread.start()
        try:
            yield volume
        finally:
            over.set()
            thread.join()

    @contextmanager
    def replicas(
        self, count: int, *flags: str, mounted: str = SERVING, controller: Sequence[str] = ()
    ) -> Iterator[Running]:
        """Run a controller and so many replicas behind the Service in the block.

        It begins once they are called. `flags` are for both, and `controller` for that alone;
        replicas mount the Secret `mounted`.
        """
        running = Running(self.controller(*flags, *controller), [])
        with ExitStack() as stack:
            stack.callback(running.controller.kill)
            running.controller.start()
            volume = stack.enter_context(self.mounted(mounted))
            until(volume.file("tls.crt").exists, "the serving certificate")
            running.replicas += [self.replica(*flags, volume=volume) for _ in range(count)]
            self.start(running.replicas, stack)
            wait_until_called(self.cluster)
            yield running

    def start(self, replicas: Sequence[Replica], stack: ExitStack) -> None:
        """Start replicas at the same time, and wait until the Service sends requests to all."""
        for replica in replicas:
            stack.callback(replica.kill)
            replica.start()
        for replica in replicas:
            replica.wait()
        self.service.select(replicas)
        until(lambda: self.service.endpoints == len(replicas), "the Service's endpoints")

    def run(self, *arguments: str, status: int | None = 0) -> str:
        """Run `gpufence ARGUMENTS` against the cluster, and return its output.

        With `status` None, it may end with any status.
        """
        done = run_here(*arguments, "--kubeconfig", self.cluster.kubeconfig)
        assert status in (None, done.status), f"{arguments}: {done.out}{done.err}"
        return done.out + done.err

    def manifests(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects of `gpufence manifests`."""
        done = run_here("manifests", *TIMEOUT, *arguments)
        assert done.status == 0, done.err
        return list(yaml.safe_load_all(done.out))

    def secret(self, name: str = SERVING) -> dict[str, bytes]:
        """Return the decoded data of a Secret."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{name}"
        data = self.cluster.api.request("GET", path)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def delete_secret(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{name}"
        self.cluster.api.request("DELETE", path)

    def secrets(self) -> list[str]:
        """Return the names of the release's Secrets that exist."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets"
        return [each["metadata"]["name"] for each in self.cluster.api.request("GET", path)["items"]]

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

    def bundles(self) -> list[bytes]:
        """Return the caBundle of every webhook."""
        return [
            base64.b64decode(webhook["clientConfig"]["caBundle"])
            for configuration in self.configurations()
            for webhook in configuration["webhooks"]
        ]


@contextmanager
def release(cluster: ControlPlane, directory: Path) -> Iterator[Release]:
    """Create a release with the default policy for the block, and delete it afterwards."""
    role = {"metadata": {"name": NAME}, "rules": []}
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    cluster.api.request("POST", roles, role)
    try:
        with policies.used(cluster, default_spec()), Service() as service:
            # The chart has the bindings of all admission policies.
            written = admission_policies(policy_of(default_spec()), Registration())
            apply(cluster.api, [each for each in written if each["kind"] == BINDING_KIND])
            yield Release(cluster, directory, service)
    finally:
        unregister(cluster)
        # A test may have deleted it.
        with suppress(ApiError):
            cluster.api.request("DELETE", f"{roles}/{NAME}")
