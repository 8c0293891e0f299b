"""NVIDIA_VISIBLE_DEVICES removed from containers that request devices.

## What it removes

The variable `NVIDIA_VISIBLE_DEVICES` from a container or init container that requests a device in
its resources, if its value shows devices: `all`, a list of devices, or a value from `valueFrom`. If
a pool offers devices of these vendors, also `AMD_VISIBLE_DEVICES`, `HABANA_VISIBLE_DEVICES` or
`ASCEND_VISIBLE_DEVICES`. Values such as `void` and `none` stay.

## Why

The device plugin sets the variable to the devices that the scheduler assigned. The kubelet appends
the variables of the container, so that a value in the manifest overrides the assigned devices: with
`nvidia.com/gpu: 1` and the value `all`, the container sees every GPU of the node, including the
GPUs of other Pods. Manifests that are copied from Docker often have both.

The container needs no variable to see the devices that it requests, so nothing is lost. gpufence
changes Pods and no workloads: a GitOps tool that compares a Deployment or a Job sees no difference.
Only for a Pod that you apply yourself, remove the variable from the manifest before you apply it
again: the tool would restore the variable, and the API server rejects a change of a Pod's
variables.

## Before

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpu: 1
      env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: all
        - name: NCCL_DEBUG
          value: WARN
```

## After

```yaml
spec:
  containers:
    - env:
        - name: NCCL_DEBUG
          value: WARN
```
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.device_injection import values
from policies.kubernetes.editor import Removal
from policies.kubernetes.pod import Pod
from policies.rules.check_device_leak import shows_devices, visible_devices_variables

ID = "assigned-devices"
SUMMARY = "a variable that overrides the devices that a container requests"


def changes(pod: Pod, context: Context) -> Iterator[Removal]:
    """Yield each variable that shows a container other devices than it gets, the last one first.

    Source: ``pkg/kubelet/kubelet_pods.go``, GenerateRunContainerOptions, appends the variables of
    the container to those of the device plugin, and the last value counts.
    """
    requesting = {request.container for request in context.device_requests if request.resource}
    names = visible_devices_variables(context.policy)
    for container in pod.containers:
        if (container.kind, container.position) not in requesting:
            continue
        found = [(i, each.name) for i, each in enumerate(container.env) if each.name in names]
        known = values(container.env) if found else {}
        for index, name in reversed(found):
            if shows_devices(name, known[name]):
                path = ("spec", container.kind, container.position, "env")
                yield Removal(container.spec, path, index)
