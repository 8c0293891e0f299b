"""A discovered policy fits the cluster: official scheduler code and the decision agree on it.

Generated clusters have up to six groups of nodes with device plugins or DRA drivers, labels that
identify groups or that other nodes share, node groups at zero, and nodes that are no machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import event, given
from hypothesis import strategies as st

from dumped import device_class, manifests, node_pool, resource_slice
from laws.profile import law
from oracle.driver import Oracle
from paths import TESTS
from policies.document import parse_policy
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import Taint, alternatives, tolerates
from policies.kubernetes.workload import convert
from policies.pool_nodes import nodes_of_pools
from policies.reach import may_meet
from specs import JSON
from webhook.cluster.files import state_of
from webhook.documents.files import read_documents
from webhook.tools.cli.discover.accelerators import is_generic
from webhook.tools.cli.discover.drafts import draft_of
from webhook.tools.cli.discover.text import policy_text

GPU, MIG, AMD = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"
CLOUDS = sorted((TESTS / "unit/cli/discover/clouds").glob("*.yaml"))
"""Groups of nodes as platforms have them."""
DRIVERS = ("gpu.nvidia.com", "gpu.amd.com")
CLASSES = [
    device_class("gpu.nvidia.com", "gpu.nvidia.com", extendedResourceName=GPU),
    device_class("gpu.amd.com", "gpu.amd.com"),
    device_class("team", "gpu.nvidia.com", extendedResourceName="example.com/gpu"),
]
LABELS: dict[str, dict[str, list[str]]] = {
    "nvidia.com": {
        "nvidia.com/gpu.product": ["A100", "H100"],
        "nvidia.com/gpu.present": ["true"],
        "cloud.google.com/gke-accelerator": ["nvidia-a100", "nvidia-h100"],
        "nvidia.com/mig.config": ["all-disabled", "mixed"],
    },
    "amd.com": {
        "amd.com/gpu.product-name": ["MI210", "MI300X"],
        "feature.node.kubernetes.io/amd-gpu": ["true"],
    },
}
"""By vendor, labels of nodes with accelerators."""
SHARED = {
    "node.kubernetes.io/instance-type": ["k3s", "p4", "p5"],
    "eks.amazonaws.com/nodegroup": ["one", "two"],
    "team": ["a", "b"],
    "zone.example.com/name": ["1", "2"],
}
"""Labels that nodes without accelerators may have as well."""
TAINTS = (
    {"key": GPU, "value": "present", "effect": "NoSchedule"},
    {"key": GPU, "effect": "NoExecute"},
    {"key": "sku", "value": "gpu", "effect": "NoSchedule"},
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"},
    {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"},
)


def chosen(labels: dict[str, list[str]]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in labels.items()})


def tainted(taints: Sequence[JSON]) -> st.SearchStrategy[list[JSON]]:
    return st.lists(st.sampled_from(taints), unique_by=str, max_size=2)


plugged = st.sampled_from([{GPU: "8"}, {GPU: "0", MIG: "7"}, {AMD: "4"}, {GPU: "8", AMD: "4"}])


def node(name: str, labels: JSON, tainted: list[JSON], devices: JSON) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "spec": {"taints": tainted},
        "status": {"allocatable": {"cpu": "8", **devices}},
    }


@st.composite
def clusters(draw: st.DrawFn) -> list[JSON]:
    """Groups of one or two equal nodes, other nodes, DeviceClasses and NodePools."""
    objects = [*CLASSES]
    for group in range(draw(st.integers(1, 6))):
        devices = draw(st.one_of(plugged, st.sampled_from(DRIVERS)))
        vendor = next(each for each in LABELS if each in str(devices))
        labels = {**draw(chosen(LABELS[vendor])), **draw(chosen(SHARED))}
        keys = draw(st.lists(st.sampled_from(sorted(labels)), max_size=3)) if labels else []
        kept, own = {key: labels[key] for key in keys}, draw(tainted(TAINTS))
        attributes = {"productName": {"string": draw(st.sampled_from(["A100", "H100"]))}}
        for number in range(draw(st.integers(1, 2))):
            name = f"gpu-{group}-{number}"
            if isinstance(devices, str):
                published = [{"name": "gpu-0", "attributes": attributes}]
                objects.append(node(name, kept, own, {}))
                objects.append(resource_slice(devices, name, nodeName=name, devices=published))
            else:
                objects.append(node(name, kept, own, devices))
    objects += [
        node(f"cpu-{number}", draw(chosen(SHARED)), draw(tainted(TAINTS[2:])), {})
        for number in range(draw(st.integers(0, 3)))
    ]
    for number in range(draw(st.integers(0, 2))):
        vendor = draw(st.sampled_from([*LABELS]))
        labels = {**draw(chosen(LABELS[vendor])), **draw(chosen(SHARED))}
        objects.append(
            node_pool(f"pool-{number}", labels, taints=draw(tainted(TAINTS)), requirements=[])
        )
    return objects


def platform(path: Path) -> list[JSON]:
    """Return two nodes of each group of a platform."""

    def taint(text: str) -> JSON:
        named, effect = text.rsplit(":", 1)
        key, _, value = named.partition("=")
        return {"key": key, "value": value, "effect": effect}

    return [
        node(
            f"{'gpu' if 'devices' in group else 'cpu'}-{at}-{number}",
            group["labels"],
            [*map(taint, group.get("taints", ()))],
            {name: str(count) for name, count in group.get("devices", {}).items()},
        )
        for at, group in enumerate(yaml.safe_load(path.read_text()))
        for number in (1, 2)
    ]


class Discovered:
    """The discovered policy of a cluster with its text, and Pods under it."""

    def __init__(self, oracle: Oracle, objects: list[JSON]) -> None:
        self._oracle = oracle
        self.draft = draft_of(state_of(manifests(objects), None))
        self.text = policy_text(self.draft, None)
        [document] = read_documents("policy.yaml", self.text)
        self.policy = parse_policy(document.value)
        state = state_of(manifests(objects), self.policy)
        self.index = state.nodes.index
        self.facts = Facts(
            nodes=self.index,
            templates=state.templates,
            extended_resource_classes=state.offers.by_resource,
        )
        self.nodes = {each.name: each for each in self.index}
        self.cpu = {name for name in self.nodes if name.startswith("cpu")}
        self._listed = [each for each in objects if each["kind"] == "Node"]

    def fitting(self, made: JSON) -> set[str]:
        """Return the nodes on which the scheduler places a Pod."""
        verdicts = self._oracle.feasible(made, self._listed)
        pairs = zip(self._listed, verdicts, strict=True)
        return {each["metadata"]["name"] for each, verdict in pairs if verdict.feasible}

    def mutated(self, resource: str = "", **spec: Any) -> tuple[JSON, JSON]:
        """Return a Pod before and after the decision, which must allow it."""
        container: JSON = {"name": "c", "image": "i"}
        if resource:
            container["resources"] = {"limits": {resource: 1}}
        metadata = {"name": "p", "namespace": "ml"}
        spec = {"containers": [container], **spec}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        decision = decide(made, self.policy, facts=self.facts)
        assert decision.allowed, decision.findings
        return made, decision.mutated

    def assert_fit(self, resource: str, taints: Iterable[Taint], labels: JSON) -> None:
        """Assert that a GPU Pod fits each node with its device that it fits without gpufence."""
        tolerations = [{"key": taint.key, "operator": "Exists"} for taint in taints]
        made, mutated = self.mutated(resource, tolerations=tolerations, nodeSelector=labels)
        having = {name for name, each in self.nodes.items() if each.offers.get(resource)}
        assert self.fitting(made) & having <= self.fitting(mutated)

    def assert_fences(self) -> None:
        """Assert that exactly the nodes with accelerators are of pools, which keep others off."""
        members = nodes_of_pools(self.policy, self.index).all
        assert {each.name for each in self.index.nodes(members)} == self.nodes.keys() - self.cpu
        assert not any(is_generic(taint) for pool in self.policy.pools for taint in pool.taints)
        for taint in {taint for each in self.nodes.values() for taint in each.taints}:
            if is_generic(taint):
                self.mutated(tolerations=[{"key": taint.key, "operator": "Exists"}])
        if all(pool.selector for pool in self.policy.pools):
            _, mutated = self.mutated(tolerations=[{"operator": "Exists"}])
            assert self.fitting(mutated) == self.cpu
        else:
            event("a pool without labels")
            words = " ".join(self.text.replace("#", "").split())
            assert "Pods that tolerate every taint are denied" in words


def offered(each: Node) -> list[str]:
    return sorted(name for name, count in each.offers.items() if count)


@law
@given(clusters(), st.data())
def test_a_discovered_policy_fits_the_cluster(
    oracle: Oracle, objects: list[JSON], data: st.DataObject
) -> None:
    found = Discovered(oracle, objects)
    event(f"pools: {len(found.policy.pools)}")
    found.assert_fences()
    name = data.draw(st.sampled_from(sorted(found.nodes.keys() - found.cpu)))
    target = found.nodes[name]
    resource = data.draw(st.sampled_from(offered(target)))
    tolerated = [t for t in target.taints if data.draw(st.booleans(), label=str(t))]
    labels = data.draw(st.sampled_from([{}, *({k: v} for k, v in target.labels.items())]))
    found.assert_fit(resource, tolerated, labels)
    for pool in found.draft.pools:
        for member in pool.members:
            template = member.source
            if isinstance(template, NodeTemplate) and pool.resources:
                event("a template")
                spec = convert(found.mutated(pool.resources[0])[1]["spec"], PodSpec)
                assert any(may_meet(template, each) for each in alternatives(spec))
                for taint in template.taints:
                    if taint.key == pool.vendor.taint:
                        assert any(tolerates(each, taint) for each in spec.tolerations or ())


def test_a_discovered_policy_fits_a_platform(oracle: Oracle, subtests: pytest.Subtests) -> None:
    for path in CLOUDS:
        with subtests.test(platform=path.stem):
            found = Discovered(oracle, platform(path))
            found.assert_fences()
            for target in found.nodes.values():
                for resource in filter(found.policy.pools_of_resource, offered(target)):
                    # As authors write them: the taints of the node, or those that no pool has.
                    found.assert_fit(resource, target.taints, {})
                    found.assert_fit(resource, filter(is_generic, target.taints), {})
