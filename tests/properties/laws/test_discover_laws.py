"""A discovered policy fits the cluster: official scheduler code and the decision agree on it.

Generated clusters have up to six groups of nodes with device plugins or DRA drivers, labels that
identify groups or that other nodes share, node groups at zero, and nodes that are no machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from laws.profile import law
from oracle.driver import Oracle
from policies.document import parse_policy
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.scheduling import alternatives, tolerates
from policies.kubernetes.workload import convert
from policies.policy import Policy
from policies.pool_nodes import nodes_of_pools
from policies.reach import may_meet
from strategies import JSON
from webhook.cluster.files import state_of
from webhook.cluster.state import ClusterState
from webhook.documents.document import Document
from webhook.documents.files import read_documents
from webhook.documents.objects import Manifest
from webhook.tools.cli.discover.drafts import Draft, draft_of
from webhook.tools.cli.discover.text import policy_text

GPU, MIG, AMD = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"
DRIVERS = ("gpu.nvidia.com", "gpu.amd.com")
CLASSES = {
    "gpu.nvidia.com": {"extendedResourceName": GPU},
    "gpu.amd.com": {},
    "team": {"extendedResourceName": "example.com/gpu"},
}
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


def slice_of(driver: str, name: str, model: str) -> JSON:
    attributes = {"productName": {"string": model}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": attributes}],
        },
    }


def device_class(name: str) -> JSON:
    driver = "gpu.nvidia.com" if name == "team" else name
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **CLASSES[name]},
    }


def node_pool(name: str, labels: JSON, tainted: list[JSON]) -> JSON:
    spec = {"taints": tainted, "requirements": []}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template},
    }


@st.composite
def clusters(draw: st.DrawFn) -> list[JSON]:
    """Groups of one or two equal nodes, other nodes, DeviceClasses and NodePools."""
    objects = [device_class(name) for name in CLASSES]
    for group in range(draw(st.integers(1, 6))):
        devices = draw(st.one_of(plugged, st.sampled_from(DRIVERS)))
        vendor = next(each for each in LABELS if each in str(devices))
        labels = {**draw(chosen(LABELS[vendor])), **draw(chosen(SHARED))}
        keys = draw(st.lists(st.sampled_from(sorted(labels)), max_size=3)) if labels else []
        kept, own = {key: labels[key] for key in keys}, draw(tainted(TAINTS))
        model = draw(st.sampled_from(["A100", "H100"]))
        for number in range(draw(st.integers(1, 2))):
            name = f"gpu-{group}-{number}"
            if isinstance(devices, str):
                objects += [node(name, kept, own, {}), slice_of(devices, name, model)]
            else:
                objects.append(node(name, kept, own, devices))
    for number in range(draw(st.integers(0, 3))):
        objects.append(node(f"cpu-{number}", draw(chosen(SHARED)), draw(tainted(TAINTS[2:])), {}))
    for number in range(draw(st.integers(0, 2))):
        vendor = draw(st.sampled_from([*LABELS]))
        labels = {**draw(chosen(LABELS[vendor])), **draw(chosen(SHARED))}
        objects.append(node_pool(f"pool-{number}", labels, draw(tainted(TAINTS))))
    return objects


def read(objects: list[JSON], policy: Policy | None = None) -> ClusterState:
    document = Document(0, "", path="cluster")
    return state_of([Manifest(document, None, (), 0, obj) for obj in objects], policy)


def discovered(objects: list[JSON]) -> tuple[Draft, Policy, Facts, str]:
    """Return the discovered policy with its draft, the facts of the cluster, and its text."""
    drafted = draft_of(read(objects))
    text = policy_text(drafted, None)
    [document] = read_documents("policy.yaml", text)
    policy = parse_policy(document.value)
    state = read(objects, policy)
    facts = Facts(
        nodes=state.nodes.index,
        templates=state.templates,
        extended_resource_classes=state.offers.by_resource,
    )
    return drafted, policy, facts, text


def pod(resource: str = "", **spec: Any) -> JSON:
    container: JSON = {"name": "c", "image": "i"}
    if resource:
        container["resources"] = {"limits": {resource: 1}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [container], **spec},
    }


def fitting(oracle: Oracle, made: JSON, nodes: list[JSON]) -> set[str]:
    verdicts = oracle.feasible(made, nodes)
    pairs = zip(nodes, verdicts, strict=True)
    return {each["metadata"]["name"] for each, verdict in pairs if verdict.feasible}


@law
@given(clusters(), st.data())
def test_a_discovered_policy_fits_the_cluster(
    oracle: Oracle, objects: list[JSON], data: st.DataObject
) -> None:
    drafted, policy, facts, text = discovered(objects)
    assert facts.nodes is not None
    known = {each.name: each for each in facts.nodes}
    nodes = [each for each in objects if each["kind"] == "Node"]
    cpu = {name for name in known if name.startswith("cpu")}
    event(f"pools: {len(policy.pools)}")

    members = nodes_of_pools(policy, facts.nodes)
    assert {each.name for each in facts.nodes.nodes(members.all)} == known.keys() - cpu

    wildcard = pod(tolerations=[{"operator": "Exists"}])
    decision = decide(wildcard, policy, facts=facts)
    if all(pool.selector for pool in policy.pools):
        assert decision.allowed, decision.findings
        assert fitting(oracle, decision.mutated, nodes) == cpu
    else:
        event("a pool without labels")
        assert "Pods that tolerate every taint are denied" in " ".join(
            text.replace("#", "").split()
        )

    name = data.draw(st.sampled_from(sorted(known.keys() - cpu)))
    target = known[name]
    offered = sorted(n for n, count in target.offers.items() if count)
    resource = data.draw(st.sampled_from(offered))
    others = [t for t in target.taints if data.draw(st.booleans(), label=str(t))]
    own = [{"key": t.key, "operator": "Exists"} for t in others]
    labels = data.draw(st.sampled_from([{}, *({k: v} for k, v in target.labels.items())]))
    made = pod(resource, tolerations=own, nodeSelector=labels)
    with_device = {n for n, each in known.items() if each.offers.get(resource)}
    before = fitting(oracle, made, nodes) & with_device
    decision = decide(made, policy, facts=facts)
    assert decision.allowed, decision.findings
    assert before <= fitting(oracle, decision.mutated, nodes)

    for pool in drafted.pools:
        for member in pool.members:
            template = member.source
            if isinstance(template, NodeTemplate):
                if not pool.resources:
                    continue
                mutated = decide(pod(pool.resources[0]), policy, facts=facts).mutated
                spec = convert(mutated["spec"], PodSpec)
                event("a template")
                assert any(may_meet(template, each) for each in alternatives(spec))
                tolerations = spec.tolerations or ()
                for taint in template.taints:
                    if taint.key == pool.vendor.taint:
                        assert any(tolerates(each, taint) for each in tolerations)
