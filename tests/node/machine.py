"""A real node: kubelet, kube-proxy and containerd, in a network namespace of their own.

NVIDIA's container runtime starts all containers, as on a node where it is the default runtime. A
CDI specification gives it the devices of the device plugin: each is a copy of /dev/null.

The control plane runs on the machine as in the other tests; a veth pair connects the two. So Pods
really run, Services work, and the machine's own firewall rules stay as they are.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import yaml

from controlplane import kubeconfig
from controlplane.cluster import ControlPlane
from controlplane.errors import ControlPlaneError
from controlplane.poll import until
from controlplane.process import Process
from node.binaries import CNI
from node.image import TOOLS
from toolkit.runtime import COMMAND as NVIDIA_RUNTIME

NAME = "node-1"
GPUS = 4
LABEL = "nvidia.com/gpu.present"
NAMESPACE = "gpufence-node"
OUTSIDE, INSIDE = "10.244.255.1", "10.244.255.2"
"""The ends of the veth pair: the control plane's, and the node's."""
PODS = "10.244.0.0/24"
SERVICE = "10.96.0.1"
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Not below the kubelet's root directory: the kubelet does not let it be chosen."""
_READY_WITHIN = 120.0


class Node:
    """One node with its control plane. As a context manager it runs inside the block."""

    def __init__(
        self, directory: Path, control_plane: Mapping[str, Path], programs: Mapping[str, Path]
    ) -> None:
        self.directory = directory
        self._programs = programs
        (directory / "containerd").mkdir(parents=True)
        self.cluster = ControlPlane(
            directory / "cluster",
            control_plane,
            apiserver_flags=[
                "--bind-address=0.0.0.0",
                f"--advertise-address={OUTSIDE}",
                "--endpoint-reconciler-type=lease",
                "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-client-certificate={directory}/cluster/admin.crt",
                f"--kubelet-client-key={directory}/cluster/admin.key",
            ],
            addresses=[OUTSIDE, SERVICE, "kubernetes.default.svc"],
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._network(stack)
            stack.enter_context(self.cluster)
            self._containerd(stack)
            self._kubelet(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def load(self, archive: Path) -> None:
        """Import an image archive into containerd."""
        self.ctr("images", "import", str(archive))

    def ctr(self, *arguments: str, check: bool = True) -> str:
        """Run ctr in the namespace of the kubelet's containers."""
        address = f"--address={self._socket}"
        return _run(str(self._programs["ctr"]), address, "-n", "k8s.io", *arguments, check=check)

    def crash(self, pod: str) -> None:
        """Kill the processes of a Pod's containers with SIGKILL, as the OOM killer does."""
        for container in self.containers(pod):
            self.ctr("task", "kill", "--signal", "SIGKILL", container)

    def containers(self, pod: str) -> list[str]:
        """Return the ids of a Pod's containers, without its sandbox."""
        kind = 'labels."io.cri-containerd.kind"==container'
        name = f'labels."io.kubernetes.pod.name"=={pod}'
        return self.ctr("containers", "list", "--quiet", f"{kind},{name}").split()

    def pid(self, container: str) -> Path:
        """Return the directory in /proc of a container's first process."""
        tasks = [line.split() for line in self.ctr("tasks", "list").splitlines()]
        [pid] = [task[1] for task in tasks if task[0] == container]
        return Path("/proc") / pid

    @property
    def _socket(self) -> Path:
        return self.directory / "containerd.sock"

    def _network(self, stack: ExitStack) -> None:
        # A run that was killed leaves both.
        _run("ip", "link", "delete", "gpufence-node", check=False)
        _run("ip", "netns", "delete", NAMESPACE, check=False)
        _ip("netns", "add", NAMESPACE)
        stack.callback(_ip, "netns", "delete", NAMESPACE)
        peer = ("peer", "name", "up0", "netns", NAMESPACE)
        _ip("link", "add", "gpufence-node", "type", "veth", *peer)
        stack.callback(_ip, "link", "delete", "gpufence-node")
        _ip("address", "add", f"{OUTSIDE}/30", "dev", "gpufence-node")
        _ip("link", "set", "gpufence-node", "up")
        _ip("route", "add", PODS, "via", INSIDE)
        for arguments in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{INSIDE}/30", "dev", "up0"),
            ("link", "set", "up0", "up"),
            ("route", "add", "default", "via", OUTSIDE),
        ):
            _ip("-n", NAMESPACE, *arguments)
        self._inside("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def _containerd(self, stack: ExitStack) -> None:
        home = self.directory / "containerd"
        cni = home / "cni"
        cni.mkdir()
        (cni / "10-bridge.conflist").write_text(json.dumps(_bridge()))
        config = home / "config.toml"
        config.write_text(
            _CONTAINERD.format(
                root=home / "root",
                state=home / "state",
                socket=self._socket,
                pause=TOOLS,
                plugins=CNI,
                cni=cni,
                runtime=self._nvidia_runtime(),
            )
        )
        # containerd finds its shim in its own directory.
        process = self._process("containerd", "--config", str(config), "--log-level", "warn")
        stack.callback(self._unmount, home)
        process.start()
        stack.callback(process.stop)
        process.wait(lambda: "" if self._answers() else "it does not answer", 60)
        stack.callback(self._end_containers)

    def _nvidia_runtime(self) -> Path:
        """Return a program that runs NVIDIA's container runtime with a configuration of its own."""
        home = self.directory / "nvidia"
        (home / "cdi").mkdir(parents=True)
        (home / "cdi/gpu.json").write_text(json.dumps(_devices()))
        configuration = home / NVIDIA_RUNTIME / "config.toml"
        configuration.parent.mkdir()
        configuration.write_text(_NVIDIA.format(runc=self._programs["runc"], cdi=home / "cdi"))
        program = home / "runtime"
        command = self._programs[NVIDIA_RUNTIME]
        program.write_text(f'#!/bin/sh\nXDG_CONFIG_HOME={home} exec {command} "$@"\n')
        program.chmod(0o755)
        return program

    def _kubelet(self, stack: ExitStack) -> None:
        root = self.directory / "kubelet"
        config = self.directory / "kubelet.yaml"
        config.write_text(yaml.safe_dump(_kubelet(self._socket)))
        admin = self.directory / "cluster"
        path = kubeconfig.write(
            self.directory / "kubeconfig",
            f"https://{OUTSIDE}:{self.cluster.api.port}",
            kubeconfig.client((admin / "admin.crt", admin / "admin.key")),
            admin / "ca.crt",
        )
        kubelet = self._process(
            "kubelet",
            f"--config={config}",
            f"--kubeconfig={path}",
            f"--root-dir={root}",
            f"--hostname-override={NAME}",
            f"--node-ip={INSIDE}",
        )
        proxy = self._process(
            "kube-proxy",
            f"--kubeconfig={path}",
            "--proxy-mode=iptables",
            f"--hostname-override={NAME}",
            "--conntrack-max-per-core=0",
        )
        created = not DEVICE_PLUGINS.exists()
        DEVICE_PLUGINS.mkdir(parents=True, exist_ok=True)
        if created:
            stack.callback(shutil.rmtree, DEVICE_PLUGINS.parent, ignore_errors=True)
        plugin = self._process("deviceplugin", f"--count={GPUS}")
        stack.callback(self._unmount, root)
        for process in (kubelet, proxy, plugin):
            process.start()
            stack.callback(process.stop)
        stack.callback(self._delete_pods)
        try:
            until(self.ready, "the node to be ready with its GPUs", _READY_WITHIN)
        except TimeoutError as error:
            raise ControlPlaneError(f"{error}\n{kubelet.tail()}\n{plugin.tail()}") from error
        self.cluster.kubectl("label", "node", NAME, f"{LABEL}=true")

    def ready(self) -> bool:
        """Return whether the node is ready and offers its devices."""
        found = self.cluster.kubectl("get", "node", NAME, "-o", "json", check=False)
        if found.returncode:
            return False
        status: dict[str, Any] = json.loads(found.stdout)["status"]
        conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        offered = (status.get("allocatable") or {}).get("nvidia.com/gpu")
        return conditions.get("Ready") == "True" and offered == str(GPUS)

    def _answers(self) -> bool:
        with suppress(ControlPlaneError):
            self.ctr("version")
            return True
        return False

    def _delete_pods(self) -> None:
        """Let the kubelet end all Pods, with their networks and volumes."""
        everything = ("delete", "deployments,jobs,pods", "--all", "--all-namespaces")
        with suppress(subprocess.TimeoutExpired):
            self.cluster.kubectl(*everything, "--grace-period=1", check=False, timeout=60)

    def _end_containers(self) -> None:
        """End what the kubelet has left: a shim keeps the network namespace."""
        for task in self.ctr("tasks", "list", "--quiet", check=False).split():
            self.ctr("tasks", "delete", "--force", task, check=False)

    def _unmount(self, directory: Path) -> None:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([each for each in mounts if f"{each}/".startswith(f"{directory}/")]):
            _run("umount", "--lazy", mount, check=False)

    def _process(self, name: str, *arguments: str) -> Process:
        return Process(
            name,
            [*_enter(), self._programs[name], *arguments],
            self.directory / f"{name}.log",
            stop_within=20,
        )

    def _inside(self, *command: str) -> str:
        return _run(*_enter(), *command)


def _enter() -> list[str]:
    # Not `ip netns exec`, which hides the cgroups.
    return [str(shutil.which("nsenter")), f"--net=/run/netns/{NAMESPACE}"]


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise ControlPlaneError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _bridge() -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True}
    return {"cniVersion": "1.0.0", "name": "bridge", "plugins": [{**bridge, "ipam": addresses}]}


def _devices() -> dict[str, Any]:
    """Return a CDI specification with the ids of the device plugin, and with all devices."""
    files = [{"path": f"/dev/nvidia{number}", "hostPath": "/dev/null"} for number in range(GPUS)]
    devices = {f"gpu-{number}": [file] for number, file in enumerate(files)} | {"all": files}
    return {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": of_device}}
            for name, of_device in devices.items()
        ],
    }


def _kubelet(socket: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{socket}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "enforceNodeAllocatable": [],
        # A machine that is nearly full is still a node.
        "evictionHard": {"memory.available": "100Mi"},
        "localStorageCapacityIsolation": False,
        # A ConfigMap reaches its volume at once.
        "syncFrequency": "5s",
    }


_NVIDIA = """\
accept-nvidia-visible-devices-as-volume-mounts = true
[features]
disable-cuda-compat-lib-hook = true
[nvidia-container-runtime]
mode = "cdi"
runtimes = ["{runc}"]
[nvidia-container-runtime.modes.cdi]
spec-dirs = ["{cdi}"]
annotation-prefixes = ["cdi.k8s.io/"]
"""

_CONTAINERD = """\
version = 3
root = "{root}"
state = "{state}"

[grpc]
address = "{socket}"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE, a score can only be raised.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{cni}"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
pod_annotations = ["cdi.k8s.io/*"]

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{runtime}"
SystemdCgroup = false
"""
