"""A minimal kubelet for gpufence's Pods: each runs as a process in a network namespace.

It runs the Pod as specified: the container's arguments, its ports, volumes, probes and grace
period, and the token of its service account at the place where Kubernetes puts it. What is left out
is the image (the command is this environment's) and the user. Two waits are shorter.
"""

from __future__ import annotations

import base64
import ctypes
import http.client
import itertools
import os
import re
import shlex
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.api import ApiError
from controlplane.errors import ControlPlaneError
from controlplane.forked import QUICK, SOURCE, Forked
from controlplane.poll import until
from controlplane.process import runs
from relay import Relay
from release.volume import Volume

if TYPE_CHECKING:
    from controlplane.cluster import ControlPlane

Object = dict[str, Any]
Sources = dict[tuple[str, str], Object]
"""ConfigMaps and Secrets of a namespace, by resource and name."""

EVERY = 0.4
EARLIER = "localhost/earlier"
"""The image that stands for the checkout at GPUFENCE_EARLIER."""
SHORT_WAITS = ("--ca-propagation-delay=2s", "--poll-seconds=1")
"""What gpufence is started with here in addition, so that tests wait for seconds."""
_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
_MOUNT = f"""
mount --make-rslave /
mount -t tmpfs tmpfs /run
mkdir -p {os.path.dirname(_ACCOUNT)}
ln -s "$1/serviceaccount" {_ACCOUNT}
mount --bind "$1/hosts" /etc/hosts
"""  # noqa: PTH120 - text of a script
_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000  # linux/sched.h

_numbers = itertools.count(1)


@cache
def unavailable() -> str:
    """Return why network namespaces are not available; empty if they are."""
    if not shutil.which("ip"):
        return "no ip command (iproute2)"
    _sweep()
    name = f"gpufence-{os.getpid()}-probe"
    commands = [["ip", "netns", "add", name]]
    commands.append(["ip", "netns", "exec", name, "mount", "-t", "tmpfs", "tmpfs", "/run"])
    try:
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"{shlex.join(command)}: {done.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return ""


def _sweep() -> None:
    """Remove the namespaces of test runs that were killed."""
    output = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for name, pid in re.findall(r"(?m)^(gpufence-(\d+)-\w+)", output.stdout):
        if not runs(int(pid)):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


class Sandbox:
    """A network namespace with one address, which only this machine reaches, and a way back."""

    def __init__(self, port: int) -> None:
        number = next(_numbers)
        self.name = f"gpufence-{os.getpid()}-{number}"
        # RFC 2544's addresses, which are unassigned: a network of four for each sandbox.
        third, fourth = divmod(os.getpid() % 1024 * 64 + number % 16 * 4, 256)
        self.host, self.address = (f"198.18.{third % 256}.{fourth + last}" for last in (1, 2))
        outside, inside = f"gf{os.getpid()}-{number}"[:15], "eth0"
        for command in (
            f"netns add {self.name}",
            f"link add {outside} type veth peer name {inside} netns {self.name}",
            f"address add {self.host}/30 dev {outside}",
            f"link set {outside} up",
            f"-n {self.name} address add {self.address}/30 dev {inside}",
            f"-n {self.name} link set {inside} up",
            f"-n {self.name} link set lo up",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True, text=True)
        # A way to the API server, which listens on 127.0.0.1 outside.
        self._relay = Relay(lambda: port, self.host, port)

    def close(self) -> None:
        """Remove it; the pair of interfaces goes with it."""
        self._relay.close()
        subprocess.run(["ip", "netns", "delete", self.name], check=True, capture_output=True)


class RunningPod:
    """One Pod of one container."""

    def __init__(
        self, cluster: ControlPlane, pod: Object, directory: Path, sources: Sources
    ) -> None:
        self._cluster = cluster
        self.name: str = pod["metadata"]["name"]
        self._namespace: str = pod["metadata"]["namespace"]
        self.spec = pod["spec"]
        self._directory = directory
        directory.mkdir(parents=True)
        [self._container] = self.spec["containers"]
        self._mounts = {mount["name"]: mount for mount in self._container["volumeMounts"]}
        self.sandbox = Sandbox(cluster.api.port)
        self._volumes: dict[str, Volume] = {}
        self._mount_account()
        (directory / "hosts").write_text(f"{self.sandbox.host} localhost\n")
        self.process = self._process()
        self.mount_volumes(sources)
        self.process.start()
        self.ready: bool | None = None

    def mount_volumes(self, sources: Sources) -> None:
        """Write the files of the Pod's ConfigMaps and Secrets as they are now."""
        for volume in self.spec["volumes"]:
            content = _content(sources, volume)
            # As in a kubelet, a mounted volume stays until its content changes.
            if content is not None and volume["name"] in self._mounts:
                mounted = self._volumes.get(volume["name"])
                if mounted is None:
                    directory = self._directory / "volumes" / volume["name"]
                    mounted = self._volumes[volume["name"]] = Volume(directory)
                mounted.write(content)

    def look(self) -> None:
        """Run the readiness probe, and write what has changed into the Pod's status.

        Raises:
            ControlPlaneError: the process has ended, which no Pod here is meant to do by itself.
        """
        if not runs(self.process.pid or 0):
            raise ControlPlaneError(f"Pod {self.name} has ended:\n{self.process.tail()}")
        ready = self._probe("readinessProbe")
        if ready == self.ready:
            return
        self.ready = ready
        condition = {"status": "True" if ready else "False"}
        self._patch_status(
            {
                "phase": "Running",
                "podIP": self.sandbox.address,
                "podIPs": [{"ip": self.sandbox.address}],
                "conditions": [
                    {"type": kind, **condition} for kind in ("Ready", "ContainersReady")
                ],
            }
        )

    def end(self) -> None:
        """SIGTERM, the grace period, and then the Pod is gone from the API as well."""
        self.process.stop()
        self.sandbox.close()
        with suppress(ApiError):
            self._cluster.api.request(
                "DELETE",
                f"/api/v1/namespaces/{self._namespace}/pods/{self.name}",
                {"gracePeriodSeconds": 0},
            )

    def _process(self) -> Forked:
        arguments = [*map(self._inside, self._container["args"]), *SHORT_WAITS]
        environ = {
            "PATH": os.environ["PATH"],
            "HOSTNAME": self.name,
            # The relay's address, under a name that the API server's certificate has.
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(self._cluster.api.port),
        }
        if self._container["image"].startswith(EARLIER):
            environ[SOURCE] = os.environ["GPUFENCE_EARLIER"]
        return Forked(
            self.name,
            [*QUICK, *arguments],
            self._directory / "log",
            environ=environ,
            stop_within=float(self.spec["terminationGracePeriodSeconds"]),
            enter=partial(_enter, self.sandbox.name, self._directory),
        )

    def _inside(self, argument: str) -> str:
        """Return an argument with the paths of mounted volumes as they are here."""
        option, equals, value = argument.partition("=")
        for name, mount in self._mounts.items():
            if value.startswith(mount["mountPath"] + "/"):
                inside = value.removeprefix(mount["mountPath"])
                return f"{option}{equals}{self._directory}/volumes/{name}{inside}"
        return argument

    def _mount_account(self) -> None:
        directory = self._directory / "serviceaccount"
        directory.mkdir()
        account = self.spec["serviceAccountName"]
        token = self._cluster.api.request(
            "POST",
            f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token",
            {"spec": {"expirationSeconds": 3600}},
        )
        (directory / "token").write_text(token["status"]["token"])
        (directory / "namespace").write_text(self._namespace)
        # A controller writes it into each namespace, a moment after that is there.
        authority = until(self._cluster_ca, f"the authority in namespace {self._namespace}")
        (directory / "ca.crt").write_text(authority)

    def _cluster_ca(self) -> str:
        try:
            ca: str = self._get("configmaps", "kube-root-ca.crt")["data"]["ca.crt"]
        except ApiError:
            return ""
        return ca

    def metrics(self) -> str:
        """Return the metrics, as Prometheus scrapes them."""
        return self._get_text("metrics", "/metrics")

    def _probe(self, kind: str) -> bool:
        probe = self._container[kind]["httpGet"]
        try:
            self._get_text(probe["port"], probe["path"])
        except urllib.error.HTTPError as refused:
            refused.close()
            return False
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _get_text(self, port: str, path: str) -> str:
        """GET from a port by its name; OSError if there is no successful answer."""
        ports = {entry["name"]: entry["containerPort"] for entry in self._container["ports"]}
        url = f"http://{self.sandbox.address}:{ports[port]}{path}"
        with urllib.request.urlopen(url, timeout=5) as response:
            body: bytes = response.read()
        return body.decode()

    def _patch_status(self, status: Object) -> None:
        with suppress(ApiError):
            self._cluster.api.request(
                "PATCH",
                f"/api/v1/namespaces/{self._namespace}/pods/{self.name}/status",
                {"status": status},
                "application/strategic-merge-patch+json",
            )

    def _get(self, kind: str, name: str) -> Object:
        return self._cluster.api.request(
            "GET", f"/api/v1/namespaces/{self._namespace}/{kind}/{name}"
        )


def _enter(network: str, directory: Path) -> None:
    """Move this process, of one thread, to a network namespace, with mounts of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", network).open() as opened:
        failed = libc.setns(opened.fileno(), _CLONE_NEWNET) or libc.unshare(_CLONE_NEWNS)
    if failed:
        raise OSError(ctypes.get_errno(), "no namespaces of its own")
    subprocess.run(["sh", "-euc", _MOUNT, "mount", directory], check=True)


class Kubelet:
    """Runs the bound Pods of one namespace, on any node."""

    def __init__(self, cluster: ControlPlane, namespace: str, directory: Path) -> None:
        self.pods: dict[str, RunningPod] = {}
        """The Pods that run, by uid."""
        self.problem: Exception | None = None
        self._cluster = cluster
        self._namespace = namespace
        self._directory = directory
        self._stopping = threading.Event()
        self._ending: list[tuple[RunningPod, threading.Thread]] = []
        # A process ends with the thread that started it, so all are started by this one.
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End every process, and remove every namespace."""
        self._stopping.set()
        self._thread.join()

    def ready(self) -> int:
        """Return how many Pods are ready."""
        if self.problem is not None:
            raise self.problem
        return sum(bool(pod.ready) for pod in list(self.pods.values()))

    def logs(self) -> str:
        return "\n".join(pod.process.tail(100) for pod in list(self.pods.values()))

    def _run(self) -> None:
        try:
            while not self._stopping.wait(EVERY):
                self._sync()
        except Exception as error:
            self.problem = error
        finally:
            # No drain: the cluster ends as well.
            for uid, pod in list(self.pods.items()):
                pod.process.kill()
                self._end(uid)
            for pod, thread in self._ending:
                pod.process.terminate()
                thread.join()

    def _sync(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        bound = {
            pod["metadata"]["uid"]: pod for pod in self._cluster.api.request("GET", path)["items"]
        }
        sources = self._sources() if bound else {}
        for uid, pod in bound.items():
            leaving = "deletionTimestamp" in pod["metadata"]
            if uid in self.pods and leaving:
                self._end(uid)
            elif uid not in self.pods and not leaving and _may_start(pod, sources):
                directory = self._directory / pod["metadata"]["name"]
                self.pods[uid] = RunningPod(self._cluster, {**pod}, directory, sources)
        for uid in self.pods.keys() - bound.keys():
            self._end(uid)
        for pod in self.pods.values():
            pod.mount_volumes(sources)
            pod.look()

    def _sources(self) -> Sources:
        """Return what Pods of the namespace may mount: two requests, however many Pods run."""
        core = f"/api/v1/namespaces/{self._namespace}"
        return {
            (kind, each["metadata"]["name"]): each
            for kind in ("configmaps", "secrets")
            for each in self._cluster.api.request("GET", f"{core}/{kind}")["items"]
        }

    def _end(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        thread = threading.Thread(target=pod.end)
        thread.start()
        self._ending.append((pod, thread))


def _may_start(pod: Object, sources: Sources) -> bool:
    """Return whether it is bound, and its volumes can be mounted."""
    volumes = pod["spec"].get("volumes") or () if pod["spec"].get("nodeName") else ()
    contents = [_content(sources, volume) for volume in volumes]
    return bool(contents) and None not in contents


def _content(sources: Sources, volume: Object) -> dict[str, bytes] | None:
    """Return the files of a volume; None if its ConfigMap or Secret, or a key of it, is missing."""
    if source := volume.get("configMap"):
        found = sources.get(("configmaps", source["name"]))
    elif source := volume.get("secret"):
        found = sources.get(("secrets", source["secretName"]))
    else:
        return {}
    if found is None:
        return None
    data = found.get("data") or {}
    files = {
        key: text.encode() if "configMap" in volume else base64.b64decode(text)
        for key, text in data.items()
    }
    if items := source.get("items"):
        if not all(item["key"] in files for item in items):
            return None
        return {item["path"]: files[item["key"]] for item in items}
    return files


@contextmanager
def kubelet(cluster: ControlPlane, namespace: str, directory: Path) -> Iterator[Kubelet]:
    """Have a kubelet inside the block."""
    running = Kubelet(cluster, namespace, directory)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def wait_ready(running: Kubelet, count: int) -> None:
    """Wait until exactly `count` Pods are ready.

    Raises:
        TimeoutError: they are not; the message shows the ends of their logs.
    """
    try:
        until(lambda: running.ready() == count, f"{count} ready Pods")
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{running.logs()}") from error
