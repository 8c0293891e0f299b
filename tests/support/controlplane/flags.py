"""The command lines of the control plane's components."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ISSUER = "https://kubernetes.default.svc.cluster.local"
LARGE_METRICS = (
    *("apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds"),
    *("apiserver_watch_list_duration_seconds", "etcd_request_duration_seconds"),
    *("apiserver_request_body_size_bytes", "apiserver_watch_cache_read_wait_seconds"),
    "apiserver_watch_events_sizes",
)
"""More than half of /metrics, which tests read to see that webhooks are called."""


@dataclass(frozen=True)
class Layout:
    """Where the files of one control plane are, and the port of its API server."""

    directory: Path
    sockets: Path
    port: int
    authority: Path
    serving: tuple[Path, Path]
    """The (certificate, key) that every component serves with."""
    service_accounts: tuple[Path, Path]
    """The (public, private) keys of service account tokens."""

    @property
    def etcd_socket(self) -> Path:
        return self.sockets / "etcd"


def etcd(layout: Layout) -> list[str]:
    # etcd requires a URL with host and port; no other member dials it.
    unused = "http://localhost:2380"
    return [
        f"--data-dir={layout.directory / 'etcd'}",
        "--name=single",
        f"--listen-client-urls=unix://{layout.etcd_socket}",
        f"--advertise-client-urls={unused}",
        f"--listen-peer-urls=unix://{layout.sockets / 'peer'}",
        f"--initial-advertise-peer-urls={unused}",
        f"--initial-cluster=single={unused}",
        "--unsafe-no-fsync",  # nothing here needs to survive a power cut
        "--log-level=warn",
    ]


def apiserver(layout: Layout) -> list[str]:
    public, private = layout.service_accounts
    return [
        f"--etcd-servers=unix://{layout.etcd_socket}",
        f"--secure-port={layout.port}",
        *serving(layout),
        # Never dialed (no controller reconciles endpoints), but required on a machine without a
        # default route. The address is one of RFC 5737's for documentation.
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={layout.directory}",
        f"--client-ca-file={layout.authority}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={public}",
        f"--service-account-signing-key-file={private}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--enable-admission-plugins=NodeRestriction",
        # This plugin taints new Nodes, and the node lifecycle controller, which removes the taint,
        # is off.
        "--disable-admission-plugins=TaintNodesByCondition",
        # Webhooks behind a Service are dialed at the addresses of its EndpointSlices.
        "--enable-aggregator-routing=true",
        "--profiling=false",
        f"--disabled-metrics={','.join(LARGE_METRICS)}",
    ]


def controller_manager(
    layout: Layout, port: int, kubeconfig: Path, *, checks_policy_types: bool
) -> list[str]:
    _, private = layout.service_accounts
    disabled = ["node-lifecycle-controller"]
    if not checks_policy_types:
        disabled.append("validatingadmissionpolicy-status-controller")
    return [
        *client(layout, port, kubeconfig),
        f"--controllers=*,{','.join(f'-{name}' for name in disabled)}",
        f"--root-ca-file={layout.authority}",
        f"--service-account-private-key-file={private}",
        "--use-service-account-credentials=true",
        # By default it creates a directory below /usr/libexec.
        f"--flex-volume-plugin-dir={layout.directory / 'flex-volume'}",
    ]


def scheduler(layout: Layout, port: int, kubeconfig: Path) -> list[str]:
    return client(layout, port, kubeconfig)


def client(layout: Layout, port: int, kubeconfig: Path) -> list[str]:
    """Return the common flags of the API server's clients."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--secure-port={port}",
        *serving(layout),
        "--leader-elect=false",
        # The defaults (20 and 50 a second) delay the start.
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
    ]


def serving(layout: Layout) -> list[str]:
    certificate, key = layout.serving
    return [
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
    ]
