"""The main job on the real control plane, with the sample for installations without the chart."""

from __future__ import annotations

from pathlib import Path

from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.objects import GPU_NODE, RESTRICTED, node, pod
from controlplane.webhooks import register, unregister


def test_a_gpu_pod_in_a_restricted_namespace_is_bound_to_the_gpu_node(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    restricted = control_plane.create_namespace("restricted-", RESTRICTED)
    path = f"/api/v1/namespaces/{restricted}/pods"
    with Server(tmp_path) as server, control_plane.nodes(GPU_NODE, node("plain")):
        try:
            register(control_plane, server.url, server.authority)
            control_plane.api.request("POST", path, pod({"nvidia.com/gpu": 1}, "train"))
            assert control_plane.bound_to(restricted, "train") == "gpu"
        finally:
            unregister(control_plane)
            control_plane.delete_workloads(restricted)
