"""What the server is told."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from webhook.http.lifecycle import MOST_UNDER_WAY
from webhook.kube.credentials import Load
from webhook.logs import LogFormat
from webhook.registration.controller import ClusterOptions
from webhook.server.policy_reload import PolicySource


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """What one of several processes of a replica was handed by the one that started it.

    ``reviews`` and ``operations`` are listened to by all of them. ``own`` are sockets on loopback,
    one for each worker by its ``number``, from 0: there a worker answers for itself, so that
    each can answer for all. ``lifeline`` is a descriptor that can be read from, and ends, when the
    process that started them is no more.
    """

    number: int
    reviews: socket.socket
    operations: socket.socket
    own: Sequence[socket.socket]
    lifeline: int


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

    ``workers`` is how many processes serve (``server.workers``), and ``worker`` says of one of
    several which it is; one that does not live for ``settled_seconds`` is not started again. All
    else holds for each of them.
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
    workers: int = 1
    worker: Worker | None = None
    settled_seconds: float = 60.0
