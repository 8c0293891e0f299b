"""A real Kubernetes control plane on the loopback interface: all of it but kubelets.

So nodes are Node objects, and a Pod that the scheduler has bound stays Pending. The node lifecycle
controller is off: those nodes stay ready and get no taints but their own.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from controlplane import kubeconfig, pki
from controlplane.api import Api, ApiError
from controlplane.binaries import binaries
from controlplane.kubectl import Kubectl
from controlplane.poll import until
from controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

START_WITHIN = 90.0  # seconds; five where nothing else runs, more on a CI machine that is busy
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"
NAMESPACE_READY_WITHIN = 30.0


class ControlPlane:
    """One control plane. As a context manager it runs inside the block and leaves only its logs.

    `apiserver_flags` come after the own flags of the API server and win over them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        apiserver_flags: Sequence[str] = (),
        found: Mapping[str, Path] | None = None,
    ) -> None:
        self.folder = folder
        self._binaries = found or binaries()
        self._apiserver_flags = apiserver_flags
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._port, self._manager_port, self._scheduler_port = free_ports(3)
        # The path of a Unix socket has some hundred characters at most; that of `folder` may not.
        self._sockets = Path(tempfile.mkdtemp(prefix="gpufence-"))
        self._etcd_socket = self._sockets / "etcd"
        self._authority = pki.Authority(folder)
        self._serving = self._authority.server("server", "127.0.0.1", "localhost")
        admin = self._authority.client("admin", "system:masters")
        self.url = f"https://127.0.0.1:{self._port}"
        self.kubeconfig = self._kubeconfig("admin", admin)
        self.api = Api(self._port, self._authority.certificate, admin)
        self.kubectl = Kubectl(self._binaries["kubectl"], self.kubeconfig, folder / "kubectl-cache")
        self.etcd = self._process("etcd", self._etcd_flags())
        self.apiserver = self._process("kube-apiserver", self._api_flags())
        self.manager = self._process("kube-controller-manager", self._manager_flags())
        self.scheduler = self._process("kube-scheduler", self._scheduler_flags())

    def start(self) -> None:
        """Start it, with the data it had before a stop(), and wait until it schedules Pods.

        Raises:
            ControlPlaneError: a component did not come up; the message shows the end of its log.
        """
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.etcd.start()
            self.etcd.wait(self._etcd_silent, START_WITHIN)
            self.start_apiserver()
            self.manager.start()
            self.scheduler.start()
            self._wait_healthy(self.manager, self._manager_port, "/healthz")
            self._wait_healthy(self.scheduler, self._scheduler_port, "/readyz")
            self.manager.wait(lambda: self._lacks_service_account("default"), START_WITHIN)
            undo.pop_all()

    def start_apiserver(self) -> None:
        """Start the API server alone, and wait until it is ready."""
        self.apiserver.start()
        self.apiserver.wait(lambda: self.api.unhealthy("/readyz"), START_WITHIN)

    def stop(self) -> None:
        """Stop every process, the API server's clients first. The data stay."""
        for process in (self.scheduler, self.manager, self.apiserver, self.etcd):
            process.stop()

    def close(self) -> None:
        """Stop it for good, and remove the data; logs and kubeconfig stay in the folder."""
        self.stop()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """Create a namespace, wait until Pods can be created in it, and return its name.

        The API server completes a name that ends in a dash to one that is not taken.
        """
        named = "generateName" if name.endswith("-") else "name"
        metadata = {named: name, "labels": dict(labels or {})}
        created = self.api.request("POST", "/api/v1/namespaces", {"metadata": metadata})
        name = created["metadata"]["name"]
        # Admission refuses Pods until the namespace's default service account is there.
        until(
            lambda: not self._lacks_service_account(name),
            f"the default service account of namespace {name}",
            NAMESPACE_READY_WITHIN,
        )
        return name

    def create_nodes(self, *nodes: dict[str, Any]) -> None:
        """Create Node objects (objects.node) with the status that they carry."""
        for node in nodes:
            self.api.request("POST", "/api/v1/nodes", node)

    @contextmanager
    def nodes(self, *nodes: dict[str, Any]) -> Iterator[None]:
        """Have Node objects (objects.node) inside the block only."""
        self.create_nodes(*nodes)
        try:
            yield
        finally:
            for node in nodes:
                self.api.request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")

    def bound_to(self, namespace: str, name: str, within: float = 30.0) -> str:
        """Wait until the scheduler has bound a Pod, and return the name of the node.

        Raises:
            TimeoutError: it did not; the message carries the scheduler's reason.
        """
        try:
            what = f"Pod {namespace}/{name} to be bound"
            return until(lambda: self.placement(namespace, name)[0], what, within)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.placement(namespace, name)[1]}") from error

    def unschedulable(self, namespace: str, name: str, within: float = 30.0) -> str:
        """Wait until the scheduler has found no node for a Pod, and return its reason.

        Raises:
            TimeoutError: it has not decided.
            AssertionError: it has bound the Pod.
        """
        what = f"the scheduler to decide on Pod {namespace}/{name}"
        until(lambda: any(self.placement(namespace, name)), what, within)
        node, reason = self.placement(namespace, name)
        assert not node, f"Pod {namespace}/{name} was bound to {node}"
        return reason

    def placement(self, namespace: str, name: str) -> tuple[str, str]:
        """Return the node that a Pod is bound to, and the scheduler's reason for none; "" each."""
        pod = self.api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        conditions = {c["type"]: c for c in pod.get("status", {}).get("conditions", [])}
        reason: str = conditions.get("PodScheduled", {}).get("message", "")
        return pod["spec"].get("nodeName", ""), reason

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _process(self, name: str, flags: Sequence[str]) -> Process:
        return Process(name, [self._binaries[name], *flags], self.folder / f"{name}.log")

    def _wait_healthy(self, process: Process, port: int, path: str) -> None:
        health = Api(port, self._authority.certificate)
        process.wait(lambda: health.unhealthy(path), START_WITHIN)

    def _lacks_service_account(self, namespace: str) -> str:
        try:
            self.api.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        except ApiError as error:
            return str(error)
        return ""

    def _kubeconfig(self, user: str, client: tuple[Path, Path]) -> Path:
        path = self.folder / ("kubeconfig" if user == "admin" else f"{user}.kubeconfig")
        return kubeconfig.write(path, self.url, self._authority.certificate, user, client)

    def _etcd_flags(self) -> list[str]:
        # Others are told host:port addresses only, which no other member is there to dial.
        nowhere = "http://localhost:2380"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--name=single",
            f"--listen-client-urls=unix://{self._etcd_socket}",
            f"--advertise-client-urls={nowhere}",
            f"--listen-peer-urls=unix://{self._sockets / 'peer'}",
            f"--initial-advertise-peer-urls={nowhere}",
            f"--initial-cluster=single={nowhere}",
            "--unsafe-no-fsync",  # nothing here needs to survive a power cut
            "--log-level=warn",
        ]

    def _etcd_silent(self) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self._etcd_socket))
            except OSError as error:
                return f"{self._etcd_socket}: {error}"
        return ""

    def _api_flags(self) -> list[str]:
        certificate, key = self._serving
        public, private = pki.key_pair(self.folder, "service-account")
        return [
            f"--etcd-servers=unix://{self._etcd_socket}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            # Never dialled (nobody reconciles endpoints), but without a default route there is no
            # other way to start. The address is one of RFC 5737's for documentation.
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self._authority.certificate}",
            f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={private}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction",
            # It taints each new Node, for the node lifecycle controller, which is off, to lift.
            "--disable-admission-plugins=TaintNodesByCondition",
            # Webhooks behind a Service are dialled at the addresses of its EndpointSlices.
            "--enable-aggregator-routing=true",
            "--profiling=false",
            *self._apiserver_flags,
        ]

    def _manager_flags(self) -> list[str]:
        user = "system:kube-controller-manager"
        return [
            *self._component_flags(user, self._manager_port),
            "--controllers=*,-node-lifecycle-controller",
            f"--root-ca-file={self._authority.certificate}",
            f"--service-account-private-key-file={self.folder / 'service-account.key'}",
            "--use-service-account-credentials=true",
            # By default it creates a folder below /usr/libexec.
            f"--flex-volume-plugin-dir={self.folder / 'flex-volume'}",
        ]

    def _scheduler_flags(self) -> list[str]:
        return self._component_flags("system:kube-scheduler", self._scheduler_port)

    def _component_flags(self, user: str, port: int) -> list[str]:
        certificate, key = self._serving
        config = self._kubeconfig(user.removeprefix("system:"), self._authority.client(user))
        return [
            f"--kubeconfig={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            "--leader-elect=false",
            # The defaults (20 and 50 a second) are what a start would be waiting for.
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
        ]


def free_ports(count: int) -> list[int]:
    """Return TCP ports of the loopback interface that nobody listens on at the moment."""
    with ExitStack() as held:
        # All are held at once: one closed before the next is asked for might come twice.
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
