"""A registered replica that follows the cluster, with the rights that the chart gives it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.webhooks import apply, unregister, wait_until_called
from paths import DEPLOY
from specs import fence_policy, policy_of
from webhook.controller.text.objects import Registration, configurations


@contextmanager
def following(
    control_plane: ControlPlane, directory: Path, spec: dict[str, Any]
) -> Iterator[Server]:
    """Run a replica with this policy, registered inside the block."""
    policy_file = directory / "policy.yaml"
    policy_file.write_text(yaml.safe_dump(fence_policy(spec)))
    with service_account(control_plane, directory) as kubeconfig:
        flags = ["--policy", str(policy_file), "--kubeconfig", str(kubeconfig), "--node-facts"]
        # A replica is not ready while a configuration does not trust its certificate.
        unregister(control_plane)
        with Server(directory, flags) as running:
            registration = Registration(
                url=running.url,
                ca_bundle=base64.b64encode(running.authority).decode(),
                timeout_seconds=10,
            )
            apply(control_plane.api, configurations(policy_of(spec), registration))
            try:
                wait_until_called(control_plane)
                yield running
            finally:
                unregister(control_plane)


@contextmanager
def service_account(control_plane: ControlPlane, directory: Path) -> Iterator[Path]:
    """Provide the kubeconfig of a service account with the rights that the chart gives."""
    installed = yaml.safe_load_all((DEPLOY / "install.yaml").read_text())
    roles = [obj for obj in installed if obj["kind"] == "ClusterRole"]
    [rules] = [role["rules"] for role in roles if role["metadata"]["name"] == "gpufence"]
    namespace = control_plane.create_namespace("gpufence-")
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": namespace}
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    objects: dict[str, dict[str, Any]] = {
        "clusterroles": {"rules": rules},
        "clusterrolebindings": {"roleRef": role, "subjects": [account]},
    }
    for kind, obj in objects.items():
        obj["metadata"] = {"name": namespace}
        control_plane.api.request("POST", f"/apis/{rbac}/v1/{kind}", obj)
    path = control_plane.as_account(namespace, "default", directory / "kubeconfig")
    yield path
    for kind in objects:
        control_plane.api.request("DELETE", f"/apis/{rbac}/v1/{kind}/{namespace}")
