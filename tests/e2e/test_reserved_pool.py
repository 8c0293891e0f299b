"""A pool that is reserved for a namespace, on nodes that another pool selects as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster import ControlPlane
from controlplane.fence import following
from controlplane.objects import node, pod, taint
from controlplane.placing import place
from controlplane.poll import until
from specs import default_spec

pytestmark = pytest.mark.timeout(900)

GPU, PRESENT, RESERVED = "nvidia.com/gpu", "nvidia.com/gpu.present", "example.com/reserved"


def gpu_node(name: str, devices: int, **labels: str) -> dict[str, Any]:
    labels |= {"kubernetes.io/hostname": name, PRESENT: "true"}
    offered = {GPU: str(devices), "cpu": "64", "memory": "512Gi", "pods": "110"}
    return node(name, labels=labels, taints=[taint(GPU, "present")], resources=offered)


def test_pods_of_other_namespaces_get_no_reserved_node_by_any_way(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    research = control_plane.create_namespace(f"{namespace}-research")
    spec = default_spec()
    reserved = {"name": "h100", "nodeSelector": {RESERVED: "h100"}}
    allowed = {"allowedNamespaces": {"names": [research]}}
    spec["pools"].append(spec["pools"][0] | reserved | allowed)
    # Without the policy, the third Pod runs on the reserved node.
    nodes = [gpu_node("open-1", 2), gpu_node("reserved-1", 8, **{RESERVED: "h100"})]
    anywhere, by_host, by_name = (
        pod({GPU: 1}, **where)["spec"]
        for where in (
            {},
            {"nodeSelector": {"kubernetes.io/hostname": "reserved-1"}},
            {"nodeName": "reserved-1"},
        )
    )
    with control_plane.nodes(*nodes), following(control_plane, tmp_path, spec) as server:
        metric = 'gpufence_cluster_objects{resource="nodes"}'
        until(lambda: server.metric(metric) == 2, "gpufence to know the nodes")
        outcome = place(control_plane, [(namespace, anywhere)] * 3)
        assert [*outcome.bound.values()] == ["open-1"] * 2
        assert len(outcome.pending) == 1
        outcome = place(control_plane, [(namespace, by_host), (namespace, by_name)])
        assert outcome.denials.keys() == {0, 1}
        for denial in outcome.denials.values():
            assert f"pool h100 is reserved for namespaces {research}" in denial
        outcome = place(control_plane, [(research, each) for each in (by_host, by_name)])
        assert outcome.bound == {0: "reserved-1", 1: "reserved-1"}
