"""A webhook with a test's policy, registered with the match conditions of that policy."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from controlplane import policies
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.poll import until
from controlplane.webhooks import apply, unregister, wait_until_called
from paths import DEPLOY
from specs import policy_of
from webhook.controller.text.objects import Registration, configurations

_NUMBERS = count(1)

Spec = dict[str, Any]
"""The spec of a FencePolicy."""


class Fence:
    """A running `gpufence serve` whose policy can be replaced, and its registration.

    The registration follows the first policy: the conditions contain its pools. A server with a
    `kubeconfig` of its own knows the nodes.
    """

    def __init__(
        self,
        cluster: ControlPlane,
        directory: Path,
        policy: Spec,
        name: str = "",
        kubeconfig: Path | None = None,
    ) -> None:
        self.policy = policy
        self._cluster = cluster
        self.name = name or f"fence-{next(_NUMBERS)}"
        access = (cluster.kubeconfig, "--no-node-facts") if kubeconfig is None else (kubeconfig,)
        self.server = Server(directory, ["--fence-policy", self.name, "--kubeconfig", *access])

    def register(self, url: str = "") -> None:
        """Apply the configurations, for the server or for another `url`."""
        bundle = base64.b64encode(self.server.authority).decode()
        # This machine may be busy.
        registration = Registration(
            url=url or self.server.url,
            ca_bundle=bundle,
            timeout_seconds=10,
            fence_policy=self.name,
        )
        apply(self._cluster.api, configurations(policy_of(self.policy), registration))

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Keep the webhook registered inside the block."""
        try:
            self.register()
            wait_until_called(self._cluster)
            yield
        finally:
            unregister(self._cluster)

    @contextmanager
    def other_policy(self, policy: Spec) -> Iterator[None]:
        """Use another policy inside the block."""
        self._use(policy)
        try:
            yield
        finally:
            self._use(self.policy)

    def _use(self, policy: Spec) -> None:
        before = self._applied()
        policies.use(self._cluster.api, policy, self.name)
        until(lambda: self._applied() > before, "the new policy to be applied")

    def _applied(self) -> int:
        return len(self.server.events("policy applied"))


@contextmanager
def running(
    cluster: ControlPlane,
    directory: Path,
    policy: Spec,
    name: str = "",
    kubeconfig: Path | None = None,
) -> Iterator[Fence]:
    """Run a server inside the block; it is not registered. The default name is unique."""
    fence = Fence(cluster, directory, policy, name, kubeconfig)
    with policies.used(cluster, policy, fence.name), fence.server:
        yield fence


@contextmanager
def following(cluster: ControlPlane, directory: Path, policy: Spec) -> Iterator[Server]:
    """Run a registered replica that follows the cluster, with the rights that the chart gives."""
    # A replica is not ready while a configuration does not trust its certificate.
    unregister(cluster)
    with (
        service_account(cluster, directory) as kubeconfig,
        running(cluster, directory, policy, "gpufence", kubeconfig) as fence,
        fence.registered(),
    ):
        yield fence.server


@contextmanager
def service_account(cluster: ControlPlane, directory: Path) -> Iterator[Path]:
    """Provide the kubeconfig of a service account with the rights that the chart gives."""
    installed = yaml.safe_load_all((DEPLOY / "install.yaml").read_text())
    roles = [obj for obj in installed if obj["kind"] == "ClusterRole"]
    [rules] = [role["rules"] for role in roles if role["metadata"]["name"] == "gpufence"]
    namespace = cluster.create_namespace("gpufence-")
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": namespace}
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    objects: dict[str, dict[str, Any]] = {
        "clusterroles": {"rules": rules},
        "clusterrolebindings": {"roleRef": role, "subjects": [account]},
    }
    for kind, obj in objects.items():
        obj["metadata"] = {"name": namespace}
        cluster.api.request("POST", f"/apis/{rbac}/v1/{kind}", obj)
    path = cluster.as_account(namespace, "default", directory / "kubeconfig")
    yield path
    for kind in objects:
        cluster.api.request("DELETE", f"/apis/{rbac}/v1/{kind}/{namespace}")
