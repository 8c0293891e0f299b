"""The cluster as one of its service accounts sees it."""

from __future__ import annotations

import json
from pathlib import Path

from controlplane.cluster import ControlPlane


def as_account(cluster: ControlPlane, namespace: str, name: str, path: Path) -> Path:
    """Write a kubeconfig with a token of a service account, and return its path."""
    config = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json").stdout)
    token = cluster.kubectl("create", "token", name, "-n", namespace).stdout.strip()
    config["users"][0]["user"] = {"token": token}
    path.write_text(json.dumps(config))
    return path
