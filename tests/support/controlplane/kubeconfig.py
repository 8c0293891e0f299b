"""Writes kubeconfig files: one user, one cluster, everything inline."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from controlplane import pki


def write(path: Path, server: str, authority: Path, user: str, client: tuple[Path, Path]) -> Path:
    """Write a kubeconfig that needs no other file, and return its path."""
    certificate, key = client
    name = "gpufence"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": encoded(authority)},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": encoded(certificate),
                    "client-key-data": encoded(key),
                },
            }
        ],
    }
    return pki.write(path, yaml.safe_dump(config, sort_keys=False).encode())


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
