"""NVIDIA's container runtime, which says what a container would get; no GPU is needed.

The runtime edits the OCI specification of a container before it calls runc. Here, it runs in the
mode ``cdi`` with a CDI specification of devices that only set a variable, and /bin/true is its
runc. The module also makes the specification as the kubelet and containerd do.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from controlplane import cache
from controlplane.gobuild import GoModule
from specs import JSON

VERSIONS = ("1.20.1", "1.19.1", "1.17.8")
"""Releases of the toolkit with a pinned Go module in this directory."""

COMMAND = "nvidia-container-runtime"
_GPU = "FAKE_GPU_"
_OTHER = "FAKE_NIC_"
_DEVICES = {
    "nvidia.com/gpu": [(name, f"{_GPU}{name}") for name in ("all", "0", "1")],
    "vendor.example/nic": [("eth1", f"{_OTHER}eth1")],
}
FILES = {
    "NVIDIA_GDS": "nvidia-fs0",
    "NVIDIA_MOFED": "infiniband/uverbs0",
    "NVIDIA_GDRCOPY": "gdrdrv",
    "NVIDIA_NVSWITCH": "nvidia-nvswitchctl",
}
"""By the variable that adds it to a container, a device file of the node."""

_CONFIGURATION = """
accept-nvidia-visible-devices-as-volume-mounts = true
[features]
disable-cuda-compat-lib-hook = true
[nvidia-container-cli]
root = {driver}
[nvidia-container-runtime]
mode = "{mode}"
runtimes = ["/bin/true"]
[nvidia-container-runtime.modes.cdi]
spec-dirs = [{directory}]
annotation-prefixes = ["cdi.k8s.io/"]
"""


def version() -> str:
    """Return the release that tests use: the newest, or what GPUFENCE_TOOLKIT says."""
    return os.environ.get("GPUFENCE_TOOLKIT", VERSIONS[0])


def binary() -> Path:
    """Return the path of the runtime, having built it where the cache has none.

    Raises:
        ControlPlaneError: no Go toolchain or C compiler is available, or the build failed.
    """
    module = GoModule(
        Path(__file__).with_name(f"v{version()}"),
        {COMMAND: f"github.com/NVIDIA/nvidia-container-toolkit/cmd/{COMMAND}"},
        "-s -w",
        f"NVIDIA's container toolkit {version()}",
        cgo=True,
    )
    return module.binaries([COMMAND], cache.root().with_name("toolkit"))[COMMAND]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the runtime does with a container."""

    starts: bool
    """Whether the runtime calls runc. An unknown device name keeps it from that."""
    gpus: tuple[str, ...]
    others: tuple[str, ...]


class Toolkit:
    """The runtime, with its configuration and a bundle in a directory."""

    def __init__(self, command: Path, directory: Path) -> None:
        self._command = command
        self._directory = directory
        self._bundle = directory / "bundle"
        devices, driver = directory / "devices", directory / "driver"
        for each in (self._bundle, devices, driver / "dev/infiniband"):
            each.mkdir(parents=True)
        for mode in ("cdi", "legacy"):
            configuration = directory / mode / COMMAND / "config.toml"
            configuration.parent.mkdir(parents=True)
            configuration.write_text(
                _CONFIGURATION.format(
                    mode=mode, directory=json.dumps(str(devices)), driver=json.dumps(str(driver))
                )
            )
        for kind, names in _DEVICES.items():
            edits = [
                {"name": name, "containerEdits": {"env": [f"{variable}=1"]}}
                for name, variable in names
            ]
            specification = {"cdiVersion": "0.6.0", "kind": kind, "devices": edits}
            (devices / f"{kind.replace('/', '-')}.json").write_text(json.dumps(specification))

    def create(self, specification: JSON) -> Outcome:
        """Return what a container with this OCI specification gets."""
        created = self._created(specification, "cdi")
        if created is None:
            return Outcome(False, (), ())
        env = created["process"].get("env", [])
        gpus, others = (
            tuple(
                each.partition("=")[0].removeprefix(kind) for each in env if each.startswith(kind)
            )
            for kind in (_GPU, _OTHER)
        )
        return Outcome(True, gpus, others)

    def make_device_files(self) -> None:
        """Make the files of devices that variables add besides GPUs.

        Raises:
            PermissionError: only root can make device files.
        """
        for name in FILES.values():
            path = self._directory / "driver/dev" / name
            if not path.exists():
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))

    def added_files(self, specification: JSON) -> list[str]:
        """Return the files of ``FILES`` that the container gets in the mode without CDI."""
        created = self._created(specification, "legacy")
        devices = created["linux"].get("devices", []) if created else []
        return [device["path"].removeprefix("/dev/") for device in devices]

    def _created(self, specification: JSON, mode: str) -> JSON | None:
        """Return the specification as the runtime gives it to runc, if it does."""
        path = self._bundle / "config.json"
        path.write_text(json.dumps(specification))
        completed = subprocess.run(
            [self._command, "create", "--bundle", self._bundle, "container"],
            env={"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(self._directory / mode)},
            capture_output=True,
            check=False,
        )
        created: JSON = json.loads(path.read_text())
        return None if completed.returncode else created


def specification(pod: JSON, keys: dict[str, str], links: dict[str, str]) -> JSON:
    """Return the OCI specification of the first container of a Pod, as containerd makes it.

    ``keys`` is the content of every ConfigMap. ``links`` are the symbolic links of the node, which
    containerd resolves (``internal/cri/opts``, WithMounts). containerd hands the annotations of
    the Pod on where its configuration says so (``pod_annotations``).
    """
    container = pod["spec"]["containers"][0]
    sources = {
        volume["name"]: volume.get("hostPath", {}).get("path", "/var/lib/kubelet/pods/1/volume")
        for volume in pod["spec"].get("volumes", [])
    }
    mounts = []
    for mount in container.get("volumeMounts", []):
        source = sources[mount["name"]]
        if mount.get("subPath"):
            source = "/var/lib/kubelet/pods/1/volume-subpaths/v/container/0"
        destination = mount["mountPath"]
        destination = destination if destination.startswith("/") else f"/{destination}"
        source = links.get(source, source)
        mounts.append({"source": source, "destination": destination, "type": "bind"})
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["sh"],
            "cwd": "/",
            "env": [f"{name}={value}" for name, value in environment(container, keys)],
        },
        "root": {"path": "rootfs"},
        "mounts": mounts,
        "annotations": pod["metadata"].get("annotations", {}),
        "linux": {},
    }


def environment(container: JSON, keys: dict[str, str]) -> list[tuple[str, str]]:
    """Return the variables of a container, as the kubelet makes them.

    Source: ``pkg/kubelet/kubelet_pods.go``, makeEnvironmentVariables.
    """
    found: dict[str, str] = {}
    variables = []
    for variable in container.get("env", []):
        if reference := variable.get("valueFrom"):
            key = reference["configMapKeyRef"]["key"]
            if key not in keys:
                continue  # an optional key; the kubelet does not start a container without others
            value = keys[key]
        else:
            value = _expanded(variable.get("value", ""), found)
        found[variable["name"]] = value
        variables.append((variable["name"], value))
    return variables


def _expanded(text: str, found: dict[str, str]) -> str:
    """Expand references character by character, as the forked Go library does."""
    result, index = "", 0
    while index < len(text):
        following = text[index + 1 : index + 2]
        if text[index] != "$" or not following:
            result += text[index]
            index += 1
        elif following == "$":
            result += "$"
            index += 2
        elif following == "(" and (end := text.find(")", index)) > 0:
            name = text[index + 2 : end]
            result += found.get(name, f"$({name})")
            index = end + 1
        else:
            result += f"${following}"
            index += 2
    return result
