"""The options of a replica."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from webhook.kube.credentials import Load
from webhook.logs import LogFormat
from webhook.registration.controller import ControllerOptions
from webhook.server.policy_reload import PolicySource


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of ``gpufence serve``, as plain values. Port 0 selects a free port."""

    policy: PolicySource
    policy_name: str = "default"
    """The name of the policy in the log and the metrics: the path of its file, or ``default``."""
    tls_cert: Path | None = None
    """Required, with ``tls_key``, unless ``controller`` names a Secret."""
    tls_key: Path | None = None
    client_ca_file: Path | None = None
    """A PEM file of CAs. If set, clients must present a certificate that one of them signed."""
    controller: ControllerOptions | None = None
    facts: Load | None = None
    """The cluster whose nodes, classes and claims the policy considers."""
    devices: Load | None = None
    """The cluster whose devices the metrics count."""
    host: str = "0.0.0.0"  # noqa: S104 - clients connect to the address of the Pod
    port: int = 9443
    metrics_host: str = "0.0.0.0"  # noqa: S104 - the kubelet probes the address of the Pod
    metrics_port: int = 8080
    drain_seconds: float = 5.0
    """How long the replica keeps serving after SIGTERM, unready, while clients learn of it."""
    grace_seconds: float = 10.0
    """How long the replica then waits for the requests in flight."""
    reload_seconds: float = 2.0
    """The interval between two looks at the policy and the key pair."""
    timeout_seconds: float = 10.0
    """``timeoutSeconds`` of the webhook configurations: no request may take longer."""
    log_format: LogFormat = "json"
