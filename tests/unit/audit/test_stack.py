"""The DaemonSets of the GPU stack that taints keep off GPU nodes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from clusters import node
from dumped import device_class, manifests, resource_slice
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Taint
from policies.shipped import shipped_policy
from running import Run
from specs import JSON
from webhook.cluster.files import state_of
from webhook.tools.audit.pools import node_findings, pool_states
from webhook.tools.audit.stack import (
    classes_of_no_pool,
    of_several_domains,
    unreached,
    unreached_by,
)

GPU = "nvidia.com/gpu"
NFD = "registry.k8s.io/nfd/node-feature-discovery:v0.18"
FENCED = {"key": GPU, "value": "true", "effect": "NoSchedule"}
ADVICE = (
    'Add {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} to its tolerations'
)


def daemon_set(image: str = NFD, owner: str = "", **spec: Any) -> JSON:
    owners = [{"apiVersion": owner, "kind": "Owner"}] if owner else None
    template = {"spec": {"containers": [{"name": "c", "image": image}], **spec}}
    metadata = {"name": "nfd", "namespace": "node-feature-discovery", "ownerReferences": owners}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {"template": template},
    }


def kept_off(obj: JSON, *taints: str, nodes: int = 2, marked: int = 2) -> list[str]:
    """Return the sentences about nodes that have the taint of the pool, and of some with others."""
    pool = Taint(GPU, "NoSchedule", "true")
    others = tuple(Taint(key, "NoSchedule", "") for key in taints)
    gpu = [
        Node(f"gpu-{n}", {"kind": "gpu"}, (pool, *(others if n < marked else ())))
        for n in range(nodes)
    ]
    index = NodeIndex([*gpu, Node("cpu", {"kind": "cpu"})])
    return [str(each) for each in unreached_by(shipped_policy(), [obj], index)]


def test_a_daemon_set_is_found_before_the_other_nodes_get_the_taint_of_the_pool() -> None:
    labels, taint = {"nvidia.com/gpu.present": "true"}, Taint(GPU, "NoSchedule", "true")
    nodes = NodeIndex([Node("a", labels, (taint,)), Node("b", labels, ()), Node("c", labels, ())])
    assert [*unreached([daemon_set()], {"pool nvidia": 0b111}, nodes)] == []
    [found] = unreached_by(shipped_policy(), [daemon_set()], nodes)
    assert "does not run on 1 node of pool nvidia (a)" in found.problem


def test_a_toleration_that_the_taint_does_not_match_is_found(subtests: pytest.Subtests) -> None:
    sentence = (
        f"DaemonSet node-feature-discovery/nfd does not tolerate {GPU}=true:NoSchedule, so it "
        f"does not run on 2 nodes of pool nvidia (gpu-0, gpu-1). {ADVICE}"
    )
    for toleration, found in (
        ({"key": GPU, "value": "present"}, [sentence]),
        ({"key": GPU, "value": "true", "effect": "NoExecute"}, [sentence]),
        ({"key": GPU, "value": "true"}, []),
        ({"key": GPU, "operator": "Exists"}, []),
        ({"operator": "Exists"}, []),
    ):
        with subtests.test(toleration=toleration):
            assert kept_off(daemon_set(tolerations=[toleration])) == found


def test_the_stack_is_known_by_images_owners_and_the_nodes_that_it_selects() -> None:
    other = "registry.example/agent:1"
    for obj, is_of_stack in (
        (daemon_set(other), False),
        (daemon_set(other, nodeSelector={"kind": "cpu"}), False),
        (daemon_set(other, nodeSelector={"kind": "gpu"}), True),
        (daemon_set(other, owner="nvidia.com/v1"), True),
        (daemon_set(other, owner="nfd.openshift.io/v1"), True),
        (daemon_set(other, owner="apps/v1"), False),
        (daemon_set("mirror.example/k8s-device-plugin:1"), True),
        (daemon_set(NFD, nodeSelector={"kind": "cpu"}), False),
        ({**daemon_set(), "spec": {"template": {"spec": {"containers": "none"}}}}, False),
        ({**daemon_set(), "spec": {}}, False),
    ):
        assert bool(kept_off(obj)) is is_of_stack, obj


def test_the_state_of_one_node_is_not_reported() -> None:
    tolerant = daemon_set(tolerations=[{"key": GPU, "operator": "Exists"}])
    state = "node.kubernetes.io/unschedulable"
    for taint, nodes, marked, count in (
        ("quarantine", 3, 1, 0),
        ("dedicated", 3, 2, 1),
        ("dedicated", 1, 1, 1),
        (state, 2, 2, 0),
    ):
        assert len(kept_off(tolerant, taint, nodes=nodes, marked=marked)) == count, taint


def test_discover_explains_why_nodes_have_neither_devices_nor_labels(gpufence: Run) -> None:
    """Feature discovery tolerates another value of the taint, so nothing else runs either."""
    stack = daemon_set(tolerations=[{"key": GPU, "value": "present"}])
    kubelet = {"apiVersion": "v1", "kind": "Node", **node("gpu-1", taints=[FENCED])}
    text = yaml.safe_dump_all([kubelet, stack])
    done = gpufence("policy", "discover", "--nodes", "-", stdin=text)
    assert done.status == 2
    assert f"does not run on 1 node of vendor nvidia (gpu-1). {ADVICE}" in done.err
    assert "check that its DaemonSets tolerate the taints" in done.err


def test_a_class_that_selects_devices_of_a_pool_and_is_in_none_is_found() -> None:
    gpu, nic = "gpu.nvidia.com", "nic.example.com"
    objects = [device_class(*names) for names in ((gpu, gpu), ("team", gpu), ("nic", nic))]
    objects += [resource_slice(driver, driver, nodeName="gpu-1") for driver in (gpu, nic)]
    policy = shipped_policy()
    [found] = classes_of_no_pool(policy, state_of(manifests(objects), policy))
    assert found.problem.startswith("DeviceClass team selects devices of pool nvidia")


def test_a_clique_of_several_compute_domains_is_found() -> None:
    clique, domain = "nvidia.com/gpu.clique", "resource.nvidia.com/computeDomain"
    members = [("one", "a"), ("one", "a"), ("one", "b"), ("one", ""), ("two", "c"), ("two", "")]
    nodes = NodeIndex(
        Node(f"n{n}", {clique: own} | ({domain: name} if name else {}))
        for n, (own, name) in enumerate(members)
    )
    [found] = of_several_domains(nodes)
    assert found.problem.startswith(
        "2 ComputeDomains share clique one (a on 2 nodes, b on 1 node): their Pods cannot use each "
        "other's memory; free for others: 1 node"
    )


def test_the_advice_for_a_node_has_the_value_that_most_nodes_have() -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    values = ["present", "true", "true", None]
    nodes = NodeIndex(
        Node(f"n{n}", labels, (Taint(GPU, "NoSchedule", value),) if value else (), {GPU: 8})
        for n, value in enumerate(values)
    )
    [found] = node_findings(pool_states(shipped_policy(), nodes))
    assert found.findings[0].remediation == f"Run kubectl taint node n3 {GPU}=true:NoSchedule"
