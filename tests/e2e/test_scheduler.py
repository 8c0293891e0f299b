"""The fence with the real kube-scheduler: only GPU Pods get GPU nodes.

`GPUFENCE_PODS` is how many Pods of either sort are generated; the same ones each time, unless
`GPUFENCE_SEED` is another number.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.fence import Fence, running
from controlplane.objects import node, taint
from controlplane.placing import Outcome, place
from policies.shipped import default_policy_text

pytestmark = [pytest.mark.timeout(900)]

JSON = dict[str, Any]

COUNT = int(os.environ.get("GPUFENCE_PODS", "60"))
SEED = int(os.environ.get("GPUFENCE_SEED", "20261121"))

PRESENT = "nvidia.com/gpu.present"
AMD = "feature.node.kubernetes.io/amd-gpu"
NODE_TYPE = "node-type"
MEMORY = "gpu-memory"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"

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
            "nvidia-present",
            NVIDIA_GPU,
            {**NVIDIA_LABELS, NODE_TYPE: "gpu", MEMORY: "80", ZONE: "a"},
            taint(NVIDIA_GPU, "present"),
        ),
        gpu_node(
            "nvidia-dedicated",
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
    plain_node("plain-a", {NODE_TYPE: "cpu", ZONE: "a", PRESENT: "false"}),
    plain_node("plain-b", {NODE_TYPE: "gpu", ZONE: "b", MEMORY: "0"}),
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

# ---------------------------------------------------------------------------------------- Pods

_VALUES = {
    PRESENT: ("true", "false"),
    AMD: ("true",),
    NODE_TYPE: ("gpu", "cpu"),
    MEMORY: ("0", "8", "40", "80", "192"),
    ZONE: ("a", "b"),
    HOSTNAME: tuple(each["metadata"]["name"] for each in NODES),
}
_TAINT_VALUES = ("", "present", "true", "ml")


class Generator:
    """Makes Pods' specs that the API server accepts, with every way to reach for nodes but one.

    That one is `nodeName`, which passes the scheduler by.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def plain_spec(self) -> JSON:
        """Return a spec that requests no device, or none of one."""
        container: JSON = {"name": "main", "image": "registry.example/app"}
        if self._chance(0.3):
            container["resources"] = {"limits": {self._one((NVIDIA_GPU, AMD_GPU)): "0"}}
        return {"containers": [container], **self._placement()}

    def gpu_spec(self) -> JSON:
        """Return a spec that requests devices of one pool; rarely, of both."""
        devices = (
            [NVIDIA_GPU, AMD_GPU]
            if self._chance(0.05)
            else [self._one((NVIDIA_GPU, NVIDIA_GPU, AMD_GPU))]
        )
        containers = [
            {
                "name": f"main-{index}",
                "image": "registry.example/train",
                "resources": {"limits": {device: str(self._random.randint(1, 2))}},
            }
            for index, device in enumerate(devices)
        ]
        if self._chance(0.3):
            containers.append({"name": "side", "image": "registry.example/side"})
        where = "initContainers" if self._chance(0.1) else "containers"
        spec: JSON = {"containers": containers}
        if where == "initContainers":
            plain = {"name": "after", "image": "registry.example/after"}
            spec = {"initContainers": containers, "containers": [plain]}
        return {**spec, **self._placement()}

    def _placement(self) -> JSON:
        spec: JSON = {"terminationGracePeriodSeconds": 0}
        if self._chance(0.15):
            fence = [{"key": each["key"], "operator": "Exists"} for each in AMD_TAINTS]
            spec["tolerations"] = self._one(([{"operator": "Exists"}], fence))
        elif self._chance(0.5):
            spec["tolerations"] = self._some(self._toleration, 1, 3)
        if self._chance(0.25):
            keys = self._random.sample(sorted(_VALUES), self._one((1, 1, 2)))
            spec["nodeSelector"] = {key: self._one(_VALUES[key]) for key in keys}
        affinity: JSON = {}
        if self._chance(0.5):
            terms = self._some(self._term, 1, 3)
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": terms
            }
        if self._chance(0.2):
            preferred = {"weight": self._random.randint(1, 100), "preference": self._term()}
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [preferred]
        return {**spec, "affinity": {"nodeAffinity": affinity}} if affinity else spec

    def _toleration(self) -> JSON:
        """Return a toleration as validation wants it (k8s.io/kubernetes, ValidateTolerations)."""
        toleration: JSON = {}
        key = self._one(("dedicated", "dedicated", "gpu", NVIDIA_GPU, AMD_GPU, "other", ""))
        if key:
            toleration["key"] = key
        operator = "Exists" if not key else self._one(("Exists", "Equal", ""))
        if operator:
            toleration["operator"] = operator
        if operator != "Exists":
            toleration["value"] = self._one(_TAINT_VALUES)
        if effect := self._one(("NoSchedule", "NoExecute", "PreferNoSchedule", "")):
            toleration["effect"] = effect
        return toleration

    def _term(self) -> JSON:
        """Return a node selector term; an empty one matches no node."""
        term: JSON = {}
        if self._chance(0.9):
            term["matchExpressions"] = self._some(self._expression, 1, 2)
        if self._chance(0.15):
            names = [self._one(_VALUES[HOSTNAME])]
            operator = self._one(("In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
        return term

    def _expression(self) -> JSON:
        key = self._one(sorted(_VALUES))
        operators = ("In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist")
        operator = self._one((*operators, "Gt", "Lt") if key == MEMORY else operators)
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        most = 1 if operator in ("Gt", "Lt") else min(2, len(_VALUES[key]))
        values = self._random.sample(_VALUES[key], self._random.randint(1, most))
        return {"key": key, "operator": operator, "values": values}

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _one(self, options: Sequence[Any]) -> Any:
        return self._random.choice(options)

    def _some(self, make: Any, least: int, most: int) -> list[JSON]:
        return [make() for _ in range(self._random.randint(least, most))]


# ------------------------------------------------------------------------------------- tests


def pools(outcome: Outcome) -> Counter[str]:
    """Count the bound Pods by the device of the node's pool; other nodes are "plain"."""
    return Counter(POOL_OF_NODE.get(node, "plain") for node in outcome.bound.values())


@pytest.fixture(scope="module")
def fence(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fence]:
    document = yaml.safe_load(default_policy_text())
    document["pools"].append(AMD_POOL)
    with running(control_plane, tmp_path_factory.mktemp("scheduler"), document) as fence:
        yield fence


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with control_plane.nodes(*NODES):
        yield control_plane


def test_some_generated_plain_pods_run_on_gpu_nodes_without_gpufence(
    cluster: ControlPlane, namespace: str
) -> None:
    """Else the next test would show nothing."""
    make = Generator(SEED)
    outcome = place(cluster, [(namespace, make.plain_spec()) for _ in range(min(COUNT, 60))])
    print(f"\nwithout a GPU request, no fence: {outcome}")
    assert pools(outcome)[NVIDIA_GPU] + pools(outcome)[AMD_GPU] > 0


def test_no_admitted_pod_without_a_gpu_request_is_bound_to_a_gpu_node(
    cluster: ControlPlane, fence: Fence, namespace: str
) -> None:
    make = Generator(SEED)
    specs = [make.plain_spec() for _ in range(COUNT)]
    with fence.registered():
        outcome = place(cluster, [(namespace, spec) for spec in specs])
    print(f"\nwithout a GPU request: {outcome}")
    trespassers = {n: node for n, node in outcome.bound.items() if node in POOL_OF_NODE}
    assert {node: specs[number] for number, node in trespassers.items()} == {}
    assert all("pool-trespass" in denial for denial in outcome.denials.values())
    # None of the outcomes is missing: each says something about the others.
    assert outcome.denials
    assert outcome.pending
    assert pools(outcome)["plain"] > COUNT / 10


def test_each_bound_gpu_pod_is_on_a_node_of_the_requested_pool(
    cluster: ControlPlane, fence: Fence, namespace: str
) -> None:
    make = Generator(SEED + 1)
    specs = [make.gpu_spec() for _ in range(COUNT)]
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
        assert devices(specs[number]) == {POOL_OF_NODE.get(where)}, (where, number)
    assert rules["unrestricted-gpu-pod"] == 0
    assert rules["unschedulable-gpu-pod"] > 0
    assert pools(outcome)[NVIDIA_GPU] > COUNT / 20
    assert pools(outcome)[AMD_GPU] > 0


def devices(spec: JSON) -> set[str]:
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    return {key for c in containers for key in c.get("resources", {}).get("limits", {})}
