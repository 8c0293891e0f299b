"""The fence with the real kube-scheduler: only GPU Pods get GPU nodes.

`GPUFENCE_PODS` is how many Pods of either sort are generated, with every way to reach for nodes but
`nodeName`, which passes the scheduler by.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from controlplane.cluster import ControlPlane
from controlplane.fence import Fence, running
from controlplane.objects import node, taint
from controlplane.placing import Outcome, place
from laws.profile import law
from specs import JSON, default_spec
from strategies import AMD, MEMORY, NODE_TYPE, PRESENT, ZONE, gpu_pods, pods
from valid_strategies import valid_specs

pytestmark = [pytest.mark.timeout(900)]

COUNT = int(os.environ.get("GPUFENCE_PODS", "120"))

NVIDIA_GPU, AMD_GPU = "nvidia.com/gpu", "amd.com/gpu"
# In addition to the default policy's pool, one with two taints with values and two labels.
AMD_POOL = {
    "name": "amd",
    "resources": [AMD_GPU],
    "taints": [
        {"key": AMD_GPU, "value": "present"},
        {"key": "gpu", "value": "true", "effect": "NoExecute"},
    ],
    "nodeSelector": {AMD: "true", NODE_TYPE: "gpu"},
}
ROOM = {"cpu": "10000", "pods": "10000"}
NVIDIA_LABELS = {PRESENT: "true"}
AMD_LABELS = {AMD: "true", NODE_TYPE: "gpu"}
AMD_TAINTS = [taint(AMD_GPU, "present"), taint("gpu", "true", "NoExecute")]


def gpu_node(name: str, device: str, labels: dict[str, str], *taints: dict[str, str]) -> JSON:
    return node(name, labels=labels, taints=taints, resources={**ROOM, device: "10000"})


def plain_node(name: str, labels: dict[str, str], *taints: dict[str, str]) -> JSON:
    return node(name, labels=labels, taints=taints, resources=ROOM)


NODES_OF_POOL = {
    NVIDIA_GPU: [
        gpu_node("nvidia-bare", NVIDIA_GPU, NVIDIA_LABELS, taint(NVIDIA_GPU)),
        gpu_node(
            "gpu-1",
            NVIDIA_GPU,
            {**NVIDIA_LABELS, NODE_TYPE: "gpu", MEMORY: "80", ZONE: "a"},
            taint(NVIDIA_GPU, "present"),
        ),
        gpu_node(
            "gpu-2",
            NVIDIA_GPU,
            {**NVIDIA_LABELS, MEMORY: "40", ZONE: "b"},
            taint(NVIDIA_GPU, "true"),
            taint("dedicated", "ml"),
        ),
        gpu_node(
            "nvidia-preferred",
            NVIDIA_GPU,
            {**NVIDIA_LABELS, ZONE: "b"},
            taint(NVIDIA_GPU, "present"),
            taint("dedicated", "ml", "PreferNoSchedule"),
        ),
    ],
    AMD_GPU: [
        gpu_node("amd", AMD_GPU, {**AMD_LABELS, MEMORY: "192", ZONE: "a"}, *AMD_TAINTS),
        gpu_node("amd-dedicated", AMD_GPU, AMD_LABELS, *AMD_TAINTS, taint("dedicated", "ml")),
    ],
}
PLAIN_NODES = [
    plain_node("plain", {}),
    plain_node("cpu-1", {NODE_TYPE: "cpu", ZONE: "a", PRESENT: "false"}),
    plain_node("cpu-2", {NODE_TYPE: "gpu", ZONE: "b", MEMORY: "0"}),
    plain_node("plain-dedicated", {ZONE: "b"}, taint("dedicated", "ml")),
    plain_node("plain-gpu", {MEMORY: "8"}, taint("gpu", "true", "NoExecute")),
    # Nodes that offer devices, but lack labels, belong to no pool: no GPU Pod may go there.
    gpu_node("plain-nvidia", NVIDIA_GPU, {ZONE: "a"}),
    gpu_node("plain-amd", AMD_GPU, {AMD: "true", MEMORY: "192"}),
]
NODES = [*NODES_OF_POOL[NVIDIA_GPU], *NODES_OF_POOL[AMD_GPU], *PLAIN_NODES]
POOL_OF_NODE = {
    each["metadata"]["name"]: device for device, nodes in NODES_OF_POOL.items() for each in nodes
}

PLAIN_SPECS = valid_specs(pods(devices=(), claims=False))
GPU_SPECS = valid_specs(st.one_of(gpu_pods(NVIDIA_GPU), gpu_pods(NVIDIA_GPU), gpu_pods(AMD_GPU)))


def generated(specs: st.SearchStrategy[JSON], count: int = COUNT) -> list[JSON]:
    """Return so many specs; host paths are the matter of other tests."""
    found: list[JSON] = []

    @settings(law, max_examples=count, phases=[Phase.generate])
    @given(spec=specs)
    def collect(spec: JSON) -> None:
        found.append({**spec, "volumes": []})

    collect()
    return found


def pools_of(outcome: Outcome) -> Counter[str]:
    """Count the bound Pods by the device of the node's pool; other nodes are "plain"."""
    return Counter(POOL_OF_NODE.get(node, "plain") for node in outcome.bound.values())


@pytest.fixture(scope="module")
def fence(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fence]:
    spec = default_spec()
    spec["pools"].append(AMD_POOL)
    with running(control_plane, tmp_path_factory.mktemp("scheduler"), spec) as fence:
        yield fence


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with control_plane.nodes(*NODES):
        yield control_plane


def test_some_generated_plain_pods_run_on_gpu_nodes_without_gpufence(
    cluster: ControlPlane, namespace: str
) -> None:
    """Else the next test would show nothing."""
    specs = generated(PLAIN_SPECS, min(COUNT, 60))
    outcome = place(cluster, [(namespace, spec) for spec in specs])
    print(f"\nwithout a GPU request, no fence: {outcome}")
    assert pools_of(outcome)[NVIDIA_GPU] + pools_of(outcome)[AMD_GPU] > 0


@pytest.mark.slow("waits for the scheduler to place 120 Pods")
def test_no_admitted_pod_without_a_gpu_request_is_bound_to_a_gpu_node(
    cluster: ControlPlane, fence: Fence, namespace: str
) -> None:
    specs = generated(PLAIN_SPECS)
    with fence.registered():
        outcome = place(cluster, [(namespace, spec) for spec in specs])
    print(f"\nwithout a GPU request: {outcome}")
    trespassers = {n: node for n, node in outcome.bound.items() if node in POOL_OF_NODE}
    assert {node: specs[number] for number, node in trespassers.items()} == {}
    # None of the outcomes is missing: each says something about the others.
    assert all(re.search("pool-trespass|device-leak", each) for each in outcome.denials.values())
    assert any("pool-trespass" in denial for denial in outcome.denials.values())
    assert outcome.pending
    assert pools_of(outcome)["plain"] > COUNT / 10


@pytest.mark.slow("waits for the scheduler to place 120 Pods")
def test_each_bound_gpu_pod_is_on_a_node_of_the_requested_pool(
    cluster: ControlPlane, fence: Fence, namespace: str
) -> None:
    specs = generated(GPU_SPECS)
    with fence.registered():
        outcome = place(cluster, [(namespace, spec) for spec in specs])
    print(f"\nwith a GPU request: {outcome}")
    rules = Counter(
        rule
        for denial in outcome.denials.values()
        for rule in ("pool-trespass", "unschedulable-gpu-pod", "unrestricted-gpu-pod")
        if rule in denial
    )
    print(f"denied by {dict(rules)}")
    for number, where in outcome.bound.items():
        assert devices(specs[number]) - {"cpu"} == {POOL_OF_NODE.get(where)}, (where, number)
    assert rules["unrestricted-gpu-pod"] == 0
    assert rules["unschedulable-gpu-pod"] > 0
    assert pools_of(outcome)[NVIDIA_GPU] > COUNT / 20
    assert pools_of(outcome)[AMD_GPU] > 0


def devices(spec: JSON) -> set[str]:
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    return {key for c in containers for key in c.get("resources", {}).get("limits", {})}
