"""Container that reaches devices which it does not request.

## What it checks

- `NVIDIA_VISIBLE_DEVICES` in a container (of any kind) that requests no device, with any value
  but `void`, `none` or empty.
- A `hostPath` volume of device files: `/dev/nvidia*`, `/dev/dri`, `/dev/kfd` and what is below
  them.

A container requests a device by its resources, or by a claim that is known to be for one.

Not seen: an image that sets the variable itself, variables that come in by `envFrom`, and what a
container that requests a device sets it to.

## Why

The NVIDIA container runtime gives a container the GPUs that the variable names, whether the
scheduler assigned them or not. Such a container uses GPUs that Kubernetes counts as free, or as
another Pod's.

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
                "a container that requests no device makes GPUs visible to itself",
                f'container "{container.name}" sets {VISIBLE_DEVICES} to {shown} and requests no '
                f"device; accepted are void, none or empty{unknown}",
                f"Remove {VISIBLE_DEVICES}, or request a device: the device plugin then sets it",
            )
    for index, volume in enumerate(pod.spec.volumes or ()):
        path = host_path(volume)
        if path and _DEVICE_PATH.fullmatch(posixpath.normpath(f"/{path.lstrip('/')}")):
            yield Finding(
                ID,
                pod.at(f"spec.volumes[{index}].hostPath.path"),
                "a volume opens the node's device files",
                f'volume "{volume_name(volume, index)}" mounts {path} of the node, past '
                "what the scheduler assigned",
                "Remove the volume and request a device: its files are mounted with it",
            )


def _visible_devices(container: Container) -> tuple[int, str] | None:
    """Return index and value of the variable that counts (the last), where it opens devices."""
    found = None
    for index, variable in enumerate(container.env or ()):
        if variable.name != VISIBLE_DEVICES:
            continue
        if variable.value_from:
            found = index, "a value from elsewhere"
        elif (variable.value or "") in NO_DEVICES:
            found = None
        else:
            found = index, f'"{variable.value}"'
    return found
