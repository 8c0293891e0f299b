"""Devices of dynamic resource allocation, as NVIDIA's driver offers them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controlplane.cluster import ControlPlane
from specs import JSON

DRA = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
SELECTOR: JSON = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
"""The selector of a DeviceClass for the driver's devices."""


@contextmanager
def device_class(cluster: ControlPlane, name: str = DRIVER, **spec: Any) -> Iterator[None]:
    """Keep a DeviceClass inside the block; the default is the one with the driver's name."""
    classes = f"{DRA}/deviceclasses"
    cluster.api.request("POST", classes, {"metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        cluster.api.request("DELETE", f"{classes}/{name}")


@contextmanager
def driver_devices(
    cluster: ControlPlane, node_name: str, count: int = 1, kind: str = "gpu", **placement: Any
) -> Iterator[None]:
    """Let the driver offer devices of a node inside the block, or devices that are placed so."""
    slices = f"{DRA}/resourceslices"
    name = f"{node_name}-{kind}"
    devices = [
        {"name": f"{kind}-{number}", "attributes": {"type": {"string": kind}}}
        for number in range(count)
    ]
    offered = {
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            **(placement or {"nodeName": node_name}),
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
    cluster.api.request("POST", slices, offered)
    try:
        yield
    finally:
        cluster.api.request("DELETE", f"{slices}/{name}")
