"""What makes a container runtime add devices to a container, by the names that runtimes read.

The names and their meaning follow the code of the runtimes. A law compares this module with
NVIDIA's toolkit (``tests/properties/laws/test_toolkit_laws.py``). In the sources below, *toolkit*
is ``github.com/NVIDIA/nvidia-container-toolkit`` 1.20.1, and *NRI* is ``github.com/containerd/nri``
0.12.5 with its plugins.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping

from policies.kubernetes.core_v1 import EnvVar

Values = dict[str, str | None]
"""The value of each variable by its name. None is a value that the Pod does not show."""

MAX_LENGTH = 4096
"""Longer values count as unknown, because references can double them with each variable."""

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
"""``$(NAME)``, or ``$$`` for a dollar sign."""

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""Device names, separated by commas. Source: toolkit, ``internal/config/image/envvars.go``."""

CUDA_VERSION = "CUDA_VERSION"
"""Shows every GPU to a container without NVIDIA_VISIBLE_DEVICES, and with an NVIDIA_REQUIRE_CUDA
that is empty. Source: toolkit, ``internal/config/image/cuda_image.go``, ``IsLegacy``."""

REQUIRE_CUDA = "NVIDIA_REQUIRE_CUDA"

NO_DEVICES = frozenset({"", "none", "void"})
"""Values that show no device, in the variables of all vendors."""

ENABLED_DEVICES = {
    "NVIDIA_GDS": "files of GPUDirect Storage",
    "NVIDIA_MOFED": "RDMA devices",
    "NVIDIA_GDRCOPY": "the device of GDRCopy",
    "NVIDIA_NVSWITCH": "NVSwitch devices",
}
"""Devices that a container gets in addition if the variable is ``enabled``, also with
NVIDIA_VISIBLE_DEVICES=none. Source: toolkit, ``internal/modifier/cdi.go``, ``gatedDevices``."""

LISTED_DEVICES = {
    "NVIDIA_IMEX_CHANNELS": "IMEX channels",
    "NVIDIA_MIG_CONFIG_DEVICES": "the device that configures MIG",
    "NVIDIA_MIG_MONITOR_DEVICES": "the device that monitors MIG",
}
"""The same for variables with a list of devices. Source: as above, ``imexDevices`` and
``migCapsDevices``."""

DEVICE_MOUNTS = "nvidia-container-devices"
_DEVICE_MOUNT = re.compile(rf"/var/run/{DEVICE_MOUNTS}.+", re.DOTALL)
"""Mount points with a device's name, which may follow without a slash. Source: toolkit,
``internal/config/image/cuda_image.go``, ``requestsFromMounts``."""

_SPACES = " \t\n\v\f\r"
_CDI_NAME = re.compile(r"([A-Za-z][\w.-]*)/[A-Za-z][\w-]*=[\w.:-]+", re.ASCII)
_PUNCTUATION = frozenset({"", "-", "|", "|-", "|+"})
"""What YAML may have between the CDI names of a list."""

_PLAIN_YAML = re.compile(r"[\w\s./:,|+=\-'\"{}\[\]]*", re.ASCII)
"""YAML whose paths and numbers are written as they are: no escapes, tags or aliases."""

_WORD = re.compile(r"[\w./-]+", re.ASCII)
_MAJOR = re.compile(r"major[\"']?\s*:\s*[\"']?([^\s,\"'}\]]*)", re.ASCII | re.IGNORECASE)
_NUMBERED = re.compile("/dev/char/[^/]")
_DEVICE_NUMBERS = (
    range(195, 196),  # nvidia
    range(226, 227),  # dri
    range(234, 255),  # assigned at run time: nvidia-uvm, nvidia-caps, kfd, vfio
    range(261, 262),  # accel
    range(384, 512),  # assigned at run time
)
"""Major numbers of GPUs. Source: Linux, ``Documentation/admin-guide/devices.txt``."""


def values(env: Iterable[EnvVar]) -> Values:
    """Return the values of the variables in ``env``; the last of several variables counts.

    Unknown is a value from ``valueFrom``: an optional key that is missing leaves the variable as it
    was. A reference to a variable outside of ``env`` is unknown, too: ``envFrom`` may set it, or a
    Service. Source: kubelet, ``pkg/kubelet/kubelet_pods.go``, ``makeEnvironmentVariables``, and
    ``third_party/forked/golang/expansion``.
    """
    known: Values = {}
    for variable in env:
        value = None if variable.value_from else expanded(variable.value or "", known)
        known[variable.name or ""] = value
    return known


def expanded(text: str, known: Values) -> str | None:
    """Return the text with the values of the variables that it refers to, if all are known."""
    if "$" not in text:
        return text
    parts: list[str] = []
    end = length = 0
    for match in _REFERENCE.finditer(text):
        value = "$" if match[1] is None else known.get(match[1])
        if value is None:
            return None
        parts += text[end : match.start()], value
        length += match.start() - end + len(value)
        if length > MAX_LENGTH:
            return None
        end = match.end()
    parts.append(text[end:])
    return "".join(parts)


def shows_gpus(value: str | None) -> bool:
    """Return whether a value of NVIDIA_VISIBLE_DEVICES shows GPUs.

    Source: toolkit, ``internal/config/image/cuda_image.go``, ``devicesFromEnvvars``, and
    ``devices.go``, ``NewVisibleDevices``.
    """
    return value is None or not (_is_void(value) or _is_none(value))


def _is_void(value: str) -> bool:
    names = _device_names(value)
    return not names or "void" in names


def _is_none(value: str) -> bool:
    # The first of "all" and "none" counts. Go finds more spaces around a name.
    first = next((name for name in _device_names(value) if name in {"all", "none"}), "")
    return first == "none" and value.isascii()


def _device_names(value: str) -> list[str]:
    return [name for part in value.split(",") if (name := part.strip(_SPACES))]


def is_legacy(env: Values) -> bool:
    """Return whether the runtime takes the container for an image of CUDA 9: it gets all GPUs."""
    if VISIBLE_DEVICES in env or CUDA_VERSION not in env:
        return False
    return env[CUDA_VERSION] != "" and not env.get(REQUIRE_CUDA)


def devices_without_gpus(env: Values) -> Mapping[str, str]:
    """Return the variables that add other devices than GPUs to a container that gets no GPU.

    The values of the mapping say which devices. Nothing adds them to a container with ``void``.
    """
    visible = env.get(VISIBLE_DEVICES, "")
    if visible is None or _is_void(visible):
        return {}
    found = {
        name: ENABLED_DEVICES[name]
        for name in ENABLED_DEVICES.keys() & env.keys()
        if env[name] in {None, "enabled"}
    }
    for name in LISTED_DEVICES.keys() & env.keys():
        value = env[name]
        if value is None or not _is_void(value):
            found[name] = LISTED_DEVICES[name]
    return found


def is_device_mount(mount_path: str) -> bool:
    """Return whether /dev/null at this mount point selects devices."""
    return bool(_DEVICE_MOUNT.fullmatch(normal(mount_path)))


def names_cdi_device(value: str, vendors: Collection[str]) -> bool:
    """Return whether an annotation names a CDI device of these vendors.

    A name without a vendor counts: the toolkit completes ``all`` to ``nvidia.com/gpu=all``.
    """
    for name in re.split(r"[\s,\[\]\"']+", value):
        match = _CDI_NAME.fullmatch(name)
        if match is None:
            if name not in _PUNCTUATION:
                return True
        elif any(match[1] == vendor or match[1].endswith(f".{vendor}") for vendor in vendors):
            return True
    return False


def names_device_file(value: str, device_files: Iterable[str]) -> bool:
    """Return whether an annotation names a device file of GPUs, by its path or its numbers.

    The value is YAML. Where its text may not show what it means, it counts.
    """
    if not _PLAIN_YAML.fullmatch(value):
        return True
    words = (match[0] for match in _WORD.finditer(value))
    return any(is_device_file(word, device_files) for word in words if "/" in word) or any(
        not re.fullmatch(r"[1-9][0-9]{0,3}", major)
        or any(int(major) in numbers for numbers in _DEVICE_NUMBERS)
        for major in _MAJOR.findall(value)
    )


def is_device_file(path: str, device_files: Iterable[str]) -> bool:
    """Return whether a path is that of a device file, by what such paths contain.

    /dev/char has a link to each device file.
    """
    whole = f"{normal(path)}/"
    return any(each in whole for each in device_files) or bool(_NUMBERED.search(whole))


def normal(path: str) -> str:
    """Return the path from the root, without dots and repeated slashes."""
    return posixpath.normpath(f"/{path.lstrip('/')}")
