"""A real Kubernetes control plane on the loopback interface, without kubelets.

Nodes are objects only, and a bound Pod stays Pending. The node lifecycle controller is off: nodes
stay ready and receive no taints.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from controlplane import flags, kubeconfig, pki, scheduler_cache
from controlplane.api import Api, ApiError
from controlplane.kubectl import Kubectl
from controlplane.poll import until
from controlplane.ports import free_ports
from controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ENVIRON = {"GOGC": "300", "GOMAXPROCS": "1"}
"""Collect garbage less often: saves a fifth of the CPU time, for 200 MiB. Run on one core: saves up
to an eighth, and tests keep the other cores busy."""


class ControlPlane:
    """One control plane. As a context manager it runs inside the block and leaves only its logs.

    `apiserver_flags` come last on the API server's command line, so a single value wins over the
    default. `addresses` are further names and IP addresses of its certificate.
    `checks_policy_types` reports type errors of admission policies, which takes seconds of CPU for
    each change of them.
    """

    def __init__(
        self,
        directory: Path,
        binaries: Mapping[str, Path],
        *,
        apiserver_flags: Sequence[str] = (),
        addresses: Sequence[str] = (),
        checks_policy_types: bool = True,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._binaries = binaries
        # The path of a Unix socket is limited to about 100 characters.
        self._sockets = Path(tempfile.mkdtemp(prefix="gpufence-"))
        port, self._manager_port, self._scheduler_port = free_ports(3)
        self._authority = pki.Authority(directory)
        self._layout = flags.Layout(
            directory=directory,
            sockets=self._sockets,
            port=port,
            authority=self._authority.certificate,
            serving=self._authority.server("server", "127.0.0.1", "localhost", *addresses),
            service_accounts=pki.key_pair(directory, "service-account"),
        )
        admin = self._admin = self._authority.client("admin", "system:masters")
        self.url = f"https://127.0.0.1:{port}"
        self.kubeconfig = self._kubeconfig(directory / "kubeconfig", admin)
        self.api = Api(port, self._authority.certificate, admin)
        self.kubectl = Kubectl(
            self._binaries["kubectl"], self.kubeconfig, directory / "kubectl-cache"
        )
        self.etcd = self._process("etcd", flags.etcd(self._layout))
        self.apiserver = self._process(
            "kube-apiserver", [*flags.apiserver(self._layout), *apiserver_flags]
        )
        self._manager_kubeconfig = self._component("kube-controller-manager")
        self.manager = self._manager(checks_policy_types=checks_policy_types)
        self.scheduler = self._process(
            "kube-scheduler",
            flags.scheduler(self._layout, self._scheduler_port, self._component("kube-scheduler")),
        )

    def client_context(self) -> ssl.SSLContext:
        """Return what a client of the API server trusts, with the administrator's certificate."""
        context = ssl.create_default_context(cafile=str(self._authority.certificate))
        context.load_cert_chain(*self._admin)
        return context

    def start(self) -> None:
        """Start it, with the data of an earlier run, and wait until it schedules Pods.

        Raises:
            ControlPlaneError: a component did not come up; the message shows the end of its log.
        """
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.etcd.start()
            self.etcd.wait(self._etcd_silent)
            self.start_apiserver()
            self.start_clients()
            undo.pop_all()

    def start_apiserver(self) -> None:
        """Start the API server alone, and wait until it is ready."""
        self.apiserver.start()
        self.apiserver.wait(lambda: self.api.unhealthy("/readyz"))

    def start_clients(self) -> None:
        """Start or restart controllers and scheduler, and wait until they are ready.

        Without the API server they back off: their watches resume one by one, the last half a
        minute later. A restart is faster.
        """
        for process in (self.scheduler, self.manager):
            process.stop()
        self.manager.start()
        self.scheduler.start()
        self._wait_healthy(self.manager, self._manager_port)
        self._wait_healthy(self.scheduler, self._scheduler_port)
        self.manager.wait(lambda: self._lacks_service_account("default"))

    @contextmanager
    def checks_policy_types(self) -> Iterator[None]:
        """Report type errors of admission policies inside the block."""
        usual = self.manager
        try:
            usual.stop()
            self.manager = self._manager(checks_policy_types=True)
            self.start_clients()
            yield
        finally:
            self.manager.stop()
            self.manager = usual
            self.start_clients()

    def stop(self) -> None:
        """Stop every process, the API server's clients first. The data stay."""
        for process in (self.scheduler, self.manager, self.apiserver, self.etcd):
            process.stop()

    def close(self) -> None:
        """Stop it, and remove the data; logs and kubeconfig stay in the directory."""
        self.stop()
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """Create a namespace, wait until Pods can be created in it, and return its name.

        The API server completes a name that ends in a dash. An earlier test may have left a
        namespace of another name: it gets the labels.
        """
        path, content = "/api/v1/namespaces", {"labels": dict(labels or {})}
        field = "generateName" if name.endswith("-") else "name"
        try:
            created = self.api.request("POST", path, {"metadata": {field: name, **content}})
            name = created["metadata"]["name"]
        except ApiError as error:
            if error.status != 409:
                raise
            patch, merge = {"metadata": content}, "application/merge-patch+json"
            self.api.request("PATCH", f"{path}/{name}", patch, merge)
        # Admission rejects Pods until the namespace's default service account exists.
        until(
            lambda: not self._lacks_service_account(name),
            f"the default service account of namespace {name}",
        )
        return name

    def delete_workloads(self, namespace: str) -> None:
        """Delete the Pods of a namespace, and the workloads that would create Pods again.

        One that waits would take devices of a later test.
        """
        apps = ("daemonsets", "deployments", "replicasets", "statefulsets")
        groups = {"apis/apps/v1": apps, "apis/batch/v1": ("jobs",), "api/v1": ("pods",)}
        query = "gracePeriodSeconds=0&propagationPolicy=Background"
        for group, kinds in groups.items():
            for kind in kinds:
                self.api.request("DELETE", f"/{group}/namespaces/{namespace}/{kind}?{query}")

    def delete_namespaces(self, *names: str) -> None:
        """Delete namespaces that may not exist, and wait until they are gone.

        A test that follows in the same process may create one of the same name. The namespace
        controller begins after five seconds. No kubelet confirms the end of Pods: it would wait
        half of the longest grace period of those that it finds.
        """
        path = "/api/v1/namespaces"

        def left() -> set[str]:
            items = self.api.request("GET", path)["items"]
            return {each["metadata"]["name"] for each in items} & {*names}

        found = sorted(left())
        for name in found:
            self.delete_workloads(name)
            # One whose deletion has begun may be gone.
            with suppress(ApiError):
                self.api.request("DELETE", f"{path}/{name}")
        until(lambda: not left(), f"namespaces to be gone: {', '.join(found)}")

    def create_nodes(self, *nodes: dict[str, Any]) -> None:
        """Create Node objects (objects.node) with the status that they carry.

        Raises:
            TimeoutError: the scheduler does not see them.
        """
        for node in nodes:
            self.api.request("POST", "/api/v1/nodes", node)
        scheduler_cache.wait_for(self.scheduler, {node["metadata"]["name"] for node in nodes})

    @contextmanager
    def nodes(self, *nodes: dict[str, Any]) -> Iterator[None]:
        """Create Node objects (objects.node), and delete them at the end of the block."""
        names = {node["metadata"]["name"] for node in nodes}
        try:
            self.create_nodes(*nodes)
            yield
        finally:
            for name in names:
                self.api.request("DELETE", f"/api/v1/nodes/{name}")
            scheduler_cache.wait_for_none_of(self.scheduler, names)

    @contextmanager
    def defined(self, *definitions: dict[str, Any]) -> Iterator[None]:
        """Have the kinds of these CustomResourceDefinitions served inside the block."""
        names = [definition["metadata"]["name"] for definition in definitions]
        self.kubectl.apply(*definitions)
        try:
            # An established definition may be missing from discovery for a moment, and a new one
            # has no conditions yet.
            served = ("get", ",".join(names), "--all-namespaces")
            until(
                lambda: self.kubectl(*served, check=False).returncode == 0,
                f"the API server to serve {', '.join(names)}",
            )
            yield
        finally:
            self.kubectl("delete", "crd", *names)

    def as_account(self, namespace: str, name: str, path: Path) -> Path:
        """Write a kubeconfig with a token of a service account, and return its path."""
        token = self.kubectl("create", "token", name, "-n", namespace).stdout.strip()
        return kubeconfig.write(path, self.url, {"token": token}, self._authority.certificate)

    def bound_to(self, namespace: str, name: str) -> str:
        """Wait until the scheduler has bound a Pod, and return the name of the node.

        Raises:
            TimeoutError: it did not; the message carries the scheduler's reason.
        """
        try:
            what = f"Pod {namespace}/{name} to be bound"
            return until(lambda: self.placement(namespace, name)[0], what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.placement(namespace, name)[1]}") from error

    def unschedulable(self, namespace: str, name: str) -> str:
        """Wait until the scheduler has found no node for a Pod, and return its reason.

        Raises:
            TimeoutError: it has not decided.
            AssertionError: it has bound the Pod.
        """
        what = f"the scheduler to decide on Pod {namespace}/{name}"
        until(lambda: any(self.placement(namespace, name)), what)
        node, reason = self.placement(namespace, name)
        assert not node, f"Pod {namespace}/{name} was bound to {node}"
        return reason

    def placement(self, namespace: str, name: str) -> tuple[str, str]:
        """Return the node that a Pod is bound to, and the scheduler's reason for none; "" each."""
        pod = self.api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        conditions = {c["type"]: c for c in pod["status"].get("conditions") or ()}
        reason: str = conditions.get("PodScheduled", {}).get("message", "")
        return pod["spec"].get("nodeName", ""), reason

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _process(self, name: str, flags: Sequence[str]) -> Process:
        command: list[str | Path] = [self._binaries[name], *flags]
        return Process(
            name, command, self.directory / f"{name}.log", environ={**ENVIRON, **os.environ}
        )

    def _manager(self, *, checks_policy_types: bool) -> Process:
        return self._process(
            "kube-controller-manager",
            flags.controller_manager(
                self._layout,
                self._manager_port,
                self._manager_kubeconfig,
                checks_policy_types=checks_policy_types,
            ),
        )

    def _wait_healthy(self, process: Process, port: int) -> None:
        health = Api(port, self._authority.certificate)
        process.wait(lambda: health.unhealthy("/healthz"))

    def _lacks_service_account(self, namespace: str) -> str:
        try:
            self.api.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        except ApiError as error:
            return str(error)
        return ""

    def _component(self, name: str) -> Path:
        """Write a component's kubeconfig; the user is one that default RBAC roles are bound to."""
        user = f"system:{name}"
        path = self.directory / f"{name}.kubeconfig"
        return self._kubeconfig(path, self._authority.client(user))

    def _kubeconfig(self, path: Path, client: tuple[Path, Path]) -> Path:
        return kubeconfig.write(
            path, self.url, kubeconfig.client(client), self._authority.certificate
        )

    def _etcd_silent(self) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self._layout.etcd_socket))
            except OSError as error:
                return f"{self._layout.etcd_socket}: {error}"
        return ""
