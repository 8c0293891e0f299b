"""Writes kubeconfig files: one user, one cluster, everything inline."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml


def write(path: Path, server: str, user: dict[str, Any], authority: Path | None = None) -> Path:
    """Write a kubeconfig that needs no other file, and return its path.

    `user` are its credentials: a token, or what `client` returns. Without an `authority`, clients
    do not verify the server.
    """
    name = "gpufence"
    # Reading the CAs of the machine would take longer than most tests.
    cluster: dict[str, object] = {"server": server, "insecure-skip-tls-verify": True}
    if authority is not None:
        cluster = {"server": server, "certificate-authority-data": encoded(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def client(pair: tuple[Path, Path]) -> dict[str, str]:
    """Return the credentials of a client certificate and its key."""
    certificate, key = pair
    return {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
