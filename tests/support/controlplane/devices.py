"""Devices of dynamic resource allocation, as NVIDIA's driver offers them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controlplane.cluster import ControlPlane

JSON = dict[str, Any]

DRA = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
SELECTOR: JSON = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
"""The selector of a DeviceClass for the driver's devices."""


@contextmanager
def device_class(cluster: ControlPlane, **spec: Any) -> Iterator[None]:
    """Keep a DeviceClass with the driver's name inside the block."""
    classes = f"{DRA}/deviceclasses"
    cluster.api.request("POST", classes, {"metadata": {"name": DRIVER}, "spec": spec})
    try:
        yield
    finally:
        cluster.api.request("DELETE", f"{classes}/{DRIVER}")


@contextmanager
def driver_devices(cluster: ControlPlane, node_name: str, count: int = 1) -> Iterator[None]:
    """Let the driver offer devices of a node inside the block."""
    slices = f"{DRA}/resourceslices"
    offered = {
        "metadata": {"name": "gpu-devices"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        },
    }
    cluster.api.request("POST", slices, offered)
    try:
        yield
    finally:
        cluster.api.request("DELETE", f"{slices}/gpu-devices")
