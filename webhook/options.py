"""What the server is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from webhook.cluster.access import Load
from webhook.lifecycle import MOST_UNDER_WAY
from webhook.logs import LogFormat
from webhook.policy_reload import PolicySource
from webhook.upkeep import ClusterOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Everything that the server is told, as plain values.

    ``policy`` is where the policy comes from; ``policy_name`` is what it is called in the log and
    in the metrics (the file's path, or ``default``). ``tls_cert`` and ``tls_key`` may only be left
    out where ``cluster`` names a Secret. With ``client_authority``, reviews are taken only from
    clients with a certificate of one of the authorities in that file. ``facts`` is the way to the
    cluster whose nodes and claims are taken into account; without it, none are. ``estate`` is the
    way to the cluster whose devices are counted, for the metrics. Port 0 takes a free one.
    ``drain_seconds`` is how long the server goes on serving after SIGTERM, already not ready, so
    that whoever sends it requests can learn so; ``grace_seconds`` how long it then waits for
    requests that are under way. ``reload_seconds`` is how often policy and key pair are looked at.
    Of requests that come while ``most_under_way`` are being answered, the caller is told at once to
    try again.
    """

    policy: PolicySource
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_authority: Path | None = None
    cluster: ClusterOptions | None = None
    facts: Load | None = None
    estate: Load | None = None
    policy_name: str = "default"
    host: str = "0.0.0.0"  # noqa: S104 - a Pod is reached on its own address
    port: int = 9443
    metrics_host: str = "0.0.0.0"  # noqa: S104 - the kubelet probes it there
    metrics_port: int = 8080
    drain_seconds: float = 5.0
    grace_seconds: float = 10.0
    reload_seconds: float = 2.0
    most_under_way: int = MOST_UNDER_WAY
    log_format: LogFormat = "json"
