"""Container that uses devices without requesting them.

## What it checks

- The variable `NVIDIA_VISIBLE_DEVICES` in a container, init container or ephemeral container that
  requests no device. Accepted values are `void`, `none` and the empty string.
- A `hostPath` volume of device files: `/dev/nvidia*`, `/dev/dri` or `/dev/kfd`, or a path below
  them.

A container requests a device in its resources, or with a resource claim (DRA).

The rule does not detect a variable that the image sets, or that comes from `envFrom`. It does not
check the variable in a container that requests a device.

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
from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.core_v1 import Container, host_path, volume_name
from policies.kubernetes.pod import Pod
from policies.requests import requesting_containers

ID = "device-leak"

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES = frozenset({"", "none", "void"})
"""Values that show a container no GPU. Source: NVIDIA Container Toolkit, environment variables."""

REMEDIATION = (
    f"Remove {VISIBLE_DEVICES}. If the container needs a GPU, request one: the device plugin then "
    "sets the variable"
)
VOLUME_REMEDIATION = (
    "Remove the volume and request a device: the container then gets the files of that device"
)

_DEVICE_PATH = re.compile(r"/dev/(nvidia[^/]*|dri|kfd)(/.*)?")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each variable and each volume that opens devices."""
    requesting = requesting_containers(pod, context.device_requests)
    for container in pod.containers():
        found = _visible_devices(container.spec)
        if found is not None and (container.kind, container.position) not in requesting:
            index, shown = found
            resources = container.spec.resources
            claims = resources.claims if resources else None
            unknown = context.describe_unresolved_claims(pod) if claims else ""
            yield Finding(
                ID,
                pod.at(f"{container.field}.env[{index}]"),
                "a container without a device request makes GPUs visible",
                f'container "{container.name}" sets {VISIBLE_DEVICES} to {shown} and requests no '
                f"device; accepted values are void, none and the empty string{unknown}",
                REMEDIATION,
            )
    for index, volume in enumerate(pod.spec.volumes or ()):
        path = host_path(volume)
        if path and _DEVICE_PATH.fullmatch(posixpath.normpath(f"/{path.lstrip('/')}")):
            yield Finding(
                ID,
                pod.at(f"spec.volumes[{index}].hostPath.path"),
                "a volume mounts device files of the node",
                f'volume "{volume_name(volume, index)}" mounts {path}, whichever device the '
                "scheduler assigns",
                VOLUME_REMEDIATION,
            )


def _visible_devices(container: Container) -> tuple[int, str] | None:
    """Return index and value of the variable that counts (the last), where it opens devices."""
    found = None
    for index, variable in enumerate(container.env or ()):
        if variable.name != VISIBLE_DEVICES:
            continue
        if variable.value_from:
            found = index, "a value from valueFrom"
        elif (variable.value or "") in NO_DEVICES:
            found = None
        else:
            found = index, f'"{variable.value}"'
    return found
