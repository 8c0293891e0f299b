"""Container that uses devices without requesting them.

## What it checks

- The variable `NVIDIA_VISIBLE_DEVICES` in a container, init container or ephemeral container that
  requests no device. Accepted values are `void`, `none` and the empty string. If a pool offers
  devices of these vendors, also `AMD_VISIBLE_DEVICES`, `HABANA_VISIBLE_DEVICES` or
  `ASCEND_VISIBLE_DEVICES`.
- The variable `CUDA_VERSION` in such a container, without `NVIDIA_VISIBLE_DEVICES` and
  `NVIDIA_REQUIRE_CUDA`. The NVIDIA runtime then exposes every GPU, as to an image of CUDA 9.
- A `hostPath` volume of device files: `/dev/nvidia*`, `/dev/dri`, `/dev/kfd`, a file in
  `/dev/char`, or a path below them. If a pool offers devices of these vendors, also the files of
  Habana (`/dev/accel`, `/dev/hl*`) or Ascend (`/dev/davinci*`). A `subPath` below a volume of `/`,
  `/dev` or `/proc` counts as well.
- A volume mount at `/var/run/nvidia-container-devices`, with which the NVIDIA runtime selects GPUs.
- An annotation `cdi.k8s.io/*` that names a device of a pool's vendor.

A container requests a device in its resources, or with a resource claim (DRA). If an annotation of
the Pod requests the device (`pools[].annotationRequests`), no device plugin sets the variable, but
the scheduler does, by `valueFrom`. In this container, a value is a finding, and `valueFrom` is not.

The rule does not detect a variable that the image sets, or that comes from `envFrom`. It does not
check the variable in a container that requests a device. A `hostPath` of `/dev` or `/` is not a
finding: only a privileged container can open devices there, and `privileged-near-devices` reports
it.

## Why

The NVIDIA container runtime gives a container every GPU that the variable names, whether or not the
scheduler assigned it. The container then shares a GPU with the Pod that requested it, or uses a GPU
that Kubernetes counts as free.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: peek
spec:
  containers:
    - name: peek
      image: nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04
      env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: all
```

## Use instead

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: peek
spec:
  containers:
    - name: peek
      image: nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04
      resources:
        limits:
          nvidia.com/gpu: 1
```

## Settings

None beyond the rule's action.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.core_v1 import EnvVar, host_path, volume_name
from policies.kubernetes.pod import Container, Pod
from policies.policy import Policy, Pool
from policies.requests import requesting_containers

ID = "device-leak"

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES = frozenset({"", "none", "void"})
"""Values that show a container no GPU. Source: NVIDIA Container Toolkit, environment variables."""

LEGACY_IMAGE = "CUDA_VERSION"
"""Shows every GPU to a container without NVIDIA_VISIBLE_DEVICES and NVIDIA_REQUIRE_CUDA.

Source: NVIDIA Container Toolkit, ``internal/config/image/cuda_image.go``, ``IsLegacy``."""

_MODERN_IMAGE = frozenset({VISIBLE_DEVICES, "NVIDIA_REQUIRE_CUDA"})

CDI_PREFIX = "cdi.k8s.io/"
"""Annotations in which a runtime reads CDI devices."""

DEVICE_MOUNTS = "nvidia-container-devices"
_DEVICE_MOUNTS = re.compile(rf"/(var/)?run/{DEVICE_MOUNTS}(/.*)?")

_VENDOR_OF = {"volcano.sh": "nvidia.com"}
"""Vendors of devices whose resources have the domain of a scheduler."""

_VARIABLES = {
    "amd.com": "AMD_VISIBLE_DEVICES",
    "habana.ai": "HABANA_VISIBLE_DEVICES",
    "huawei.com": "ASCEND_VISIBLE_DEVICES",
}
"""By the domain of a vendor's devices, the variable in which its runtime reads device numbers."""

# The sentences that the admission policies share with this rule.
SHOWS_GPUS = "a container without a device request makes GPUs visible"
MOUNTS_FILES = "a volume mounts device files of the node"
ACCEPTED_VALUES = "accepted values are void, none and the empty string"
REMEDIATION = (
    "Remove {}. If the container needs a GPU, request one: the device plugin then sets the variable"
)
VOLUME_REMEDIATION = (
    "Remove the volume and request a device: the container then gets the files of that device"
)

_DEVICE_FILES = r"nvidia[^/]*|dri|kfd"
_VENDOR_FILES = {"habana.ai": r"accel|hl(_controlD)?[0-9]+", "huawei.com": r"davinci[^/]*"}
"""Names below /dev: those of any policy, and those of the vendors that a pool has devices of."""


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each variable, volume and annotation that opens devices."""
    requests = context.device_requests
    requesting = requesting_containers(pod, requests) if requests else ()
    host_paths = [
        (index, volume_name(volume, index), path)
        for index, volume in enumerate(pod.spec.volumes or ())
        if "hostPath" in volume and (path := host_path(volume))
    ]
    paths = {name: path for _, name, path in host_paths}
    by_scheduler = {
        request.container: request.scheduler_name for request in requests if request.scheduler_name
    }
    for container in pod.containers():
        place = container.kind, container.position
        if place not in requesting:
            if container.spec.env:
                yield from _by_variable(pod, container, context)
        elif scheduler := by_scheduler.get(place):
            yield from _with_scheduler(pod, container, scheduler, context.policy)
        for index, mount in enumerate(container.spec.volume_mounts or ()):
            if mount.sub_path or DEVICE_MOUNTS in (mount.mount_path or ""):
                yield from _by_mount(pod, container, index, paths, context.policy)
    for index, name, path in host_paths:
        if _is_device_file(path, context.policy):
            yield Finding(
                ID,
                pod.at(f"spec.volumes[{index}].hostPath.path"),
                MOUNTS_FILES,
                f'volume "{name}" mounts {path}, whichever device the scheduler assigns',
                VOLUME_REMEDIATION,
            )
    if pod.metadata.annotations:
        yield from _by_annotation(pod, context)


@lru_cache(maxsize=16)
def visible_devices_variables(policy: Policy) -> tuple[str, ...]:
    """Return the variables that show devices: NVIDIA's, and those of the pools' vendors."""
    vendors = _vendors(policy)
    return (VISIBLE_DEVICES, *(_VARIABLES[vendor] for vendor in _VARIABLES if vendor in vendors))


@lru_cache(maxsize=16)
def _vendors(policy: Policy) -> frozenset[str]:
    return frozenset[str]().union(*map(vendors, policy.pools))


@lru_cache(maxsize=256)
def vendors(pool: Pool) -> frozenset[str]:
    """Return the vendors of the pool's devices by domain, as nvidia.com of nvidia.com/gpu."""
    names = {*pool.resources.exact, *pool.resources.prefixes}
    domains = {name.partition("/")[0] for name in names}
    domains |= {".".join(name.split(".")[-2:]) for name in pool.device_classes}
    return frozenset(_VENDOR_OF.get(domain, domain) for domain in domains)


def _by_variable(pod: Pod, container: Container, context: Context) -> Iterator[Finding]:
    env, resources = container.spec.env or (), container.spec.resources
    visible_devices = visible_devices_variables(context.policy)
    opening = [
        variable.name
        for variable in env
        if (variable.name in visible_devices or variable.name == LEGACY_IMAGE) and _opens(variable)
    ]
    if not opening:
        return
    variables_set = {variable.name for variable in env}
    names = [name for name in visible_devices if name in opening]
    if LEGACY_IMAGE in variables_set and variables_set.isdisjoint(_MODERN_IMAGE):
        names.append(LEGACY_IMAGE)
    for index, shown in filter(None, [_last_opening(env, name) for name in names]):
        name = env[index].name
        consequence = ACCEPTED_VALUES
        remediation = REMEDIATION.format(name)
        if name == LEGACY_IMAGE:
            consequence = f"without {VISIBLE_DEVICES}, the NVIDIA runtime shows it every GPU"
            remediation = f"Add {VISIBLE_DEVICES} with value void, or remove {name}"
        if resources and resources.claims:
            consequence += context.describe_unresolved_claims(pod)
        yield Finding(
            ID,
            pod.at(f"{container.field}.env[{index}]"),
            SHOWS_GPUS,
            f'container "{container.name}" sets {name} to {shown} and requests no device; '
            f"{consequence}",
            remediation,
        )


def _with_scheduler(
    pod: Pod, container: Container, scheduler: str, policy: Policy
) -> Iterator[Finding]:
    """Yield a finding for each variable by which a container chooses other devices than it gets."""
    for name in visible_devices_variables(policy):
        env = container.spec.env or ()
        opening = _last_opening(env, name)
        if opening and not env[opening[0]].value_from:
            yield Finding(
                ID,
                pod.at(f"{container.field}.env[{opening[0]}]"),
                "a container with a part of a GPU makes other GPUs visible",
                f'container "{container.name}" sets {name} to {opening[1]}, but the scheduler '
                f"{scheduler} chooses the GPU and sets the variable",
                f"Remove {name}",
            )


def _last_opening(env: Sequence[EnvVar], name: str) -> tuple[int, str] | None:
    """Return index and value of the variable that counts (the last), where it opens devices."""
    opening = None
    for index, variable in enumerate(env):
        if variable.name != name:
            continue
        if not _opens(variable):
            opening = None
        elif variable.value_from:
            opening = index, "a value from valueFrom"
        else:
            opening = index, f'"{variable.value}"'
    return opening


def _opens(variable: EnvVar) -> bool:
    """Return whether the value of the variable shows devices."""
    return bool(variable.value_from) or (variable.value or "") not in NO_DEVICES


def _by_mount(
    pod: Pod, container: Container, index: int, paths: Mapping[str, str], policy: Policy
) -> Iterator[Finding]:
    """Yield the findings about a volume mount; ``paths`` has the hostPath volumes."""
    mount = (container.spec.volume_mounts or [])[index]
    mount_path = mount.mount_path or ""
    if _DEVICE_MOUNTS.fullmatch(_normal(mount_path)):
        yield Finding(
            ID,
            pod.at(f"{container.field}.volumeMounts[{index}].mountPath"),
            "a volume mount selects GPUs of the node",
            f'container "{container.name}" mounts a volume at {mount_path}, with which '
            "the NVIDIA runtime selects GPUs",
            "Remove the volume mount and request a device",
        )
    path = paths.get(mount.name or "", "")
    if path and mount.sub_path and _is_device_file(f"{path}/{mount.sub_path}", policy):
        yield Finding(
            ID,
            pod.at(f"{container.field}.volumeMounts[{index}].subPath"),
            MOUNTS_FILES,
            f'container "{container.name}" mounts {mount.sub_path} below {path}, whichever '
            "device the scheduler assigns",
            VOLUME_REMEDIATION,
        )


def _by_annotation(pod: Pod, context: Context) -> Iterator[Finding]:
    for key, value in (pod.metadata.annotations or {}).items():
        if not key.startswith(CDI_PREFIX):
            continue
        vendors = {name.strip().partition("/")[0] for name in (value or "").split(",")}
        own = _vendors(context.policy)
        if any(
            vendor == known or vendor.endswith(f".{known}") for vendor in vendors for known in own
        ):
            yield Finding(
                ID,
                pod.at(f"metadata.annotations[{key}]"),
                "an annotation adds devices of the node",
                f"{key} is {value}, and the container runtime adds these devices, whichever device "
                "the scheduler assigns",
                "Remove the annotation and request a device",
            )


def device_files(policy: Policy) -> str:
    """Return a regular expression for the names of device files directly in /dev."""
    vendors = _vendors(policy)
    return "|".join(
        [_DEVICE_FILES, *(_VENDOR_FILES[vendor] for vendor in _VENDOR_FILES if vendor in vendors)]
    )


def _is_device_file(path: str, policy: Policy) -> bool:
    return bool(_device_path(policy).fullmatch(_normal(path)))


@lru_cache(maxsize=16)
def _device_path(policy: Policy) -> re.Pattern[str]:
    return re.compile(rf"(/proc/[^/]+/root)*/dev/({device_files(policy)}|char/[^/]+)(/.*)?")


def _normal(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")
