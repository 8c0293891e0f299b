"""The main job on the real control plane, with the sample for installations without the chart."""

from __future__ import annotations

import string
from base64 import b64encode
from pathlib import Path

import yaml

from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.objects import GPU_NODE, RESTRICTED, node, pod
from controlplane.webhooks import apply, unregister, wait_until_called
from paths import PROJECT

SAMPLE = PROJECT / "deploy/samples/webhook-configuration.yaml"


def test_a_gpu_pod_in_a_restricted_namespace_is_bound_to_the_gpu_node(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    restricted = control_plane.create_namespace("restricted-", RESTRICTED)
    path = f"/api/v1/namespaces/{restricted}/pods"
    with Server(tmp_path) as server, control_plane.nodes(GPU_NODE, node("plain")):
        try:
            unregister(control_plane)
            values = {"WEBHOOK_URL": server.url, "CA_BUNDLE": b64encode(server.authority).decode()}
            # As envsubst would print it.
            manifest = string.Template(SAMPLE.read_text()).substitute(values)
            apply(control_plane.api, yaml.safe_load_all(manifest))
            wait_until_called(control_plane)
            control_plane.api.request("POST", path, pod({"nvidia.com/gpu": 1}, "train"))
            assert control_plane.bound_to(restricted, "train") == "gpu"
        finally:
            unregister(control_plane)
            control_plane.delete_workloads(restricted)
