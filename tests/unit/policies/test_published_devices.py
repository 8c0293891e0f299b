"""Decisions about nodes whose devices DRA drivers publish, with and without labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusters import policy as with_pool
from deciding import pod, policy, required
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.claims import Ask, Claim
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import REQUIRED, Taint
from policies.policy import Policy
from policies.pool_nodes import nodes_of_pools

JSON = dict[str, Any]

GPU, PRESENT, HOST = "nvidia.com/gpu", "nvidia.com/gpu.present", "kubernetes.io/hostname"
CLASS = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
MIG = "deviceclass.resource.kubernetes.io/mig.nvidia.com"
FENCED = (Taint(GPU, "NoSchedule", "present"),)
DRIVEN = Node("driven", {HOST: "driven"}, FENCED, {}, {GPU: 8, CLASS: 8})
OPEN = Node("open", {HOST: "open"}, (), {}, {GPU: 8, CLASS: 8})
TAINTED = Node("tainted", {HOST: "tainted"}, (), {}, {GPU: 0, CLASS: 0})
PLUGGED = Node("plugged", {HOST: "plugged", PRESENT: "true"}, FENCED, {GPU: 4})
PLAIN = Node("plain", {HOST: "plain"})
REMOTE = Node("remote", {HOST: "remote"}, (), {}, {GPU: 8, CLASS: 8}, frozenset({GPU, CLASS}))
TEMPLATE = {("default", "one"): Claim((frozenset({"gpu.nvidia.com"}),))}
WITHOUT_LABELS = with_pool(nodeSelector={})
ADMISSION = Request(fail_closed=True)


def facts(*nodes: Node) -> Facts:
    return Facts(
        nodes=NodeIndex(nodes),
        claim_templates=TEMPLATE,
        extended_resource_classes={GPU: "gpu.nvidia.com"},
    )


def gpu_pod(resource: str = GPU, count: int = 1, **spec: Any) -> JSON:
    return pod({"resources": {"limits": {resource: count}}}, **spec)


def claiming_pod(**spec: Any) -> JSON:
    container = {"resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return pod(container, resourceClaims=claims, **spec)


def affinity(obj: JSON, *nodes: Node, of: Policy | None = None) -> Any:
    decision = decide(obj, of or policy(), ADMISSION, facts(*nodes))
    assert decision.allowed, decision.findings
    spec = decision.mutated["spec"]
    assert [each["key"] for each in spec["tolerations"]] == [GPU]
    return spec.get("affinity")


def reasons(obj: JSON, *nodes: Node, of: Policy | None = None) -> dict[str, str]:
    findings = decide(obj, of or policy(), ADMISSION, facts(*nodes)).findings
    return {finding.rule: finding.reason for finding in findings}


@pytest.mark.parametrize("obj", [gpu_pod(), gpu_pod(CLASS), claiming_pod()])
@pytest.mark.parametrize("nodes", [(DRIVEN, PLAIN), (DRIVEN, PLUGGED)], ids=["moved", "half"])
def test_a_pod_is_not_kept_to_labels_that_a_node_with_the_device_lacks(
    obj: JSON, nodes: tuple[Node, ...]
) -> None:
    assert affinity(obj, *nodes) is None
    assert affinity(obj, *nodes, of=WITHOUT_LABELS) is None


def test_labels_place_a_pod_where_nodes_with_its_device_have_them() -> None:
    assert affinity(gpu_pod(), PLUGGED, PLAIN)
    assert affinity(gpu_pod("nvidia.com/mig-1g.10gb"), PLUGGED, DRIVEN)
    labeled = Node("labeled", {PRESENT: "true"}, FENCED, {}, {GPU: 8, CLASS: 8})
    assert affinity(gpu_pod(), labeled)


def test_a_pod_may_select_a_node_without_labels() -> None:
    without: JSON = {"key": PRESENT, "operator": "DoesNotExist"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [without]}]}
    unlabeled = {"nodeAffinity": {REQUIRED: terms}}
    assert reasons(gpu_pod(affinity=unlabeled), DRIVEN, PLUGGED) == {}
    assert reasons(gpu_pod(nodeSelector={HOST: "driven"}), DRIVEN, PLUGGED) == {}
    of_team = replace(PLUGGED, taints=(*FENCED, Taint("team", "NoSchedule", "")))
    assert reasons(gpu_pod(), DRIVEN, of_team) == {}
    assert "unschedulable-gpu-pod" in reasons(gpu_pod(affinity=unlabeled), PLUGGED)
    # The device plugin alone, without a DRA driver, keeps no Pod off a node of another pool.
    late = Node("late", {}, FENCED, {GPU: 4})
    assert "unschedulable-gpu-pod" in reasons(gpu_pod(affinity=unlabeled), PLUGGED, late)


def test_the_nodes_of_a_pool_without_labels_are_those_with_its_devices() -> None:
    for nodes, own in ([DRIVEN, PLAIN], 0b01), ([PLAIN, DRIVEN], 0b10):
        known = nodes_of_pools(WITHOUT_LABELS, NodeIndex(nodes))
        assert known.publishing_without_labels(WITHOUT_LABELS.pools) == own
        assert known.lacking_labels(WITHOUT_LABELS.pools[0]) == 0


def test_a_node_of_another_pool_is_no_node_without_labels() -> None:
    other = Node("other", {"m": "other", "zone": "a"}, (), {GPU: 8})
    own = Node("own", {"m": "own"}, FENCED, {GPU: 8})
    in_zone = gpu_pod(nodeSelector={"zone": "a"})
    found = reasons(in_zone, other, own, DRIVEN, of=two_pools("other", **RESERVED))
    assert found["unschedulable-gpu-pod"] == "no known node of the pool meets the node selection"


def test_no_node_without_labels_is_selected_where_nodes_are_unknown() -> None:
    impossible = gpu_pod(**required("zone In a", "zone In b"))
    impossible["spec"]["nodeSelector"] = {"zone": "c"}
    found = decide(impossible, WITHOUT_LABELS, ADMISSION, Facts()).findings
    assert [each.remediation for each in found] == ["Remove the conflicting node selection"]


RESERVED: JSON = {"allowedNamespaces": {"names": ["research"]}}
SMALL: JSON = {"largestRequest": 1}


def two_pools(taint: str = GPU, own: Any = ({"key": GPU},), **excluding: Any) -> Policy:
    """Return a policy with two pools of one device. The settings of the second exclude the Pod."""
    pools: list[JSON] = [
        {
            "name": name,
            "resources": [GPU],
            "deviceClasses": ["gpu.nvidia.com"],
            "taints": [*taints],
            "nodeSelector": {"m": name},
        }
        for name, taints in (("own", own), ("other", [{"key": taint}]))
    ]
    pools[1] |= excluding
    return policy(pools=pools)


def test_a_pod_is_kept_off_a_pool_that_it_may_not_use_while_nodes_move() -> None:
    def expression(operator: str, value: str) -> JSON:
        terms = [{"matchExpressions": [{"key": "m", "operator": operator, "values": [value]}]}]
        return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}

    own, other = (Node(name, {"m": name}, FENCED, {GPU: 8}) for name in ("own", "other"))
    apart = Node("other", {"m": "other"}, (Taint("other", "NoSchedule", ""),), {GPU: 8})
    for excluding in (RESERVED, SMALL):
        # Labels tell which nodes the Pod may use. If no node of its pool has them, they tell which
        # nodes it may not use.
        of = two_pools(**excluding)
        assert affinity(gpu_pod(count=2), own, other, DRIVEN, of=of) == expression("In", "own")
        assert affinity(gpu_pod(count=2), other, DRIVEN, of=of) == expression("NotIn", "other")
        # A taint of its own keeps the Pod off.
        of = two_pools("other", **excluding)
        for nodes in ((own, apart, DRIVEN), (apart, DRIVEN)):
            assert affinity(gpu_pod(count=2), *nodes, of=of) is None
    assert affinity(gpu_pod(), other, DRIVEN, of=two_pools()) is None
    # The Pod's own selection keeps it off.
    off = expression("NotIn", "other")
    assert affinity(gpu_pod(affinity=off), own, other, DRIVEN, of=two_pools()) == off
    # One that can do without the pool is not placed by its devices.
    optional = {("default", "one"): Claim((frozenset({"gpu.nvidia.com", "nic"}),))}
    known = Facts(nodes=NodeIndex([other, DRIVEN]), claim_templates=optional)
    [finding] = decide(claiming_pod(), two_pools(**RESERVED), ADMISSION, known).findings
    assert finding.rule == "pool-trespass"


def test_a_pool_is_open_if_each_of_its_taints_is_tolerated_for_another_pool() -> None:
    any_value, present = {"key": GPU}, {"key": GPU, "value": "present"}
    second, third = {"key": "second"}, {"key": "third"}
    other = Node("other", {"m": "other"}, FENCED, {GPU: 8})
    for taints, of_other, is_open in (
        ([any_value], [present], True),
        ([present], [any_value], True),
        ([any_value, second], [any_value], True),
        ([any_value], [any_value, third], False),
        ([any_value, second], [third], False),
    ):
        of = two_pools(own=taints, taints=of_other, **RESERVED)
        found = decide(gpu_pod(), of, ADMISSION, facts(other, DRIVEN))
        assert ("affinity" in found.mutated["spec"]) is is_open, (taints, of_other)


def test_a_pool_behind_the_same_taint_shares_no_nodes() -> None:
    other = {"name": "x", "resources": ["example.com/x"], "nodeSelector": {"x": "1"}}
    own = two_pools("other", **RESERVED)
    of = replace(own, pools=(*own.pools, *policy(pools=[other | {"taints": [{"key": GPU}]}]).pools))
    assert affinity(gpu_pod(), DRIVEN, of=of) is None


@pytest.mark.parametrize("node", [OPEN, TAINTED], ids=["open", "tainted devices"])
@pytest.mark.parametrize("of", [policy(), WITHOUT_LABELS], ids=["labels", "no labels"])
@pytest.mark.parametrize("by", ["nodeName", "nodeSelector"])
def test_a_pod_without_a_request_may_not_ask_for_a_node_with_published_devices(
    node: Node, of: Policy, by: str
) -> None:
    def asking(for_node: Node) -> JSON:
        name = for_node.name
        return pod(**({"nodeName": name} if by == "nodeName" else {"nodeSelector": {HOST: name}}))

    assert "pool-trespass" in reasons(asking(node), node, PLAIN, of=of)
    assert reasons(asking(PLAIN), node, PLAIN, of=of) == {}


@pytest.mark.parametrize("of", [policy(), WITHOUT_LABELS], ids=["labels", "no labels"])
def test_devices_of_a_network_fence_no_node_and_are_reached_from_it(of: Policy) -> None:
    ordinary = pod(nodeSelector={HOST: "remote"}, tolerations=[{"key": GPU, "operator": "Exists"}])
    for nodes in ((REMOTE, PLAIN), (REMOTE, DRIVEN)):
        assert reasons(ordinary, *nodes, of=of) == {}
        assert reasons(pod(nodeName="remote"), *nodes, of=of) == {}
        for obj in (gpu_pod(), gpu_pod(CLASS), claiming_pod()):
            assert affinity(obj, *nodes, of=of) is None
            assert "pool-trespass" not in reasons(obj, *nodes, of=of)
        found = reasons(gpu_pod(nodeName="remote"), *nodes, of=of)
        assert found.keys() == {"missing-device"}
        selecting = claiming_pod(nodeSelector={HOST: "remote"})
        assert affinity(selecting, *nodes, of=of) is None


def test_a_toleration_of_the_taint_is_a_trespass_without_labels() -> None:
    toleration = {"key": GPU, "operator": "Exists"}
    assert "pool-trespass" in reasons(pod(tolerations=[toleration]), PLAIN, of=WITHOUT_LABELS)


def test_nothing_excludes_a_pool_without_labels_so_a_wildcard_is_denied() -> None:
    wildcard = pod(tolerations=[{"operator": "Exists"}])
    decision = decide(wildcard, WITHOUT_LABELS, ADMISSION, facts(DRIVEN, PLAIN))
    [finding] = [each for each in decision.findings if each.rule == "pool-trespass"]
    assert finding.remediation == "Name the taints that the Pod needs to tolerate"
    labeled = {"name": "x", "resources": ["example.com/x"], "nodeSelector": {"x": "1"}}
    both = replace(
        WITHOUT_LABELS,
        pools=(*WITHOUT_LABELS.pools, *policy(pools=[labeled | {"taints": [{"key": GPU}]}]).pools),
        rules={**WITHOUT_LABELS.rules, "pool-exclusion": "off"},
    )
    [finding] = decide(wildcard, both).findings
    assert finding.remediation == "Name the taints that the Pod needs to tolerate"


def test_a_gpu_pod_of_a_pool_without_labels_may_request_devices_of_another_pool_as_well() -> None:
    nic = {"name": "nic", "resources": ["rdma/hca"], "nodeSelector": {"nic": "true"}}
    gpus = {
        "name": "nvidia",
        "resources": [GPU],
        "deviceClasses": ["gpu.nvidia.com"],
        "taints": [{"key": GPU}],
    }
    container = {"resources": {"limits": {GPU: 1, "rdma/hca": 1}}}
    found = reasons(pod(container), DRIVEN, of=policy(pools=[gpus, nic]))
    assert "unschedulable-gpu-pod" not in found


def test_a_gpu_pod_may_not_select_a_node_of_another_pool_without_labels() -> None:
    pools = [
        {
            "name": name,
            "resources": [f"{name}.com/gpu"],
            "deviceClasses": [f"gpu.{name}.com"],
            "taints": [{"key": f"{name}.com/gpu"}],
        }
        for name in ("nvidia", "amd")
    ]
    other = Node("other", {HOST: "other"}, (), {"amd.com/gpu": 8})
    found = reasons(gpu_pod(nodeSelector={HOST: "other"}), DRIVEN, other, of=policy(pools=pools))
    assert "pool-trespass" in found


def test_nodes_are_large_enough_by_what_the_scheduler_can_allocate() -> None:
    rule = "unschedulable-gpu-pod"
    assert rule not in reasons(gpu_pod(count=8), DRIVEN, PLUGGED)
    warned = reasons(gpu_pod(count=9), DRIVEN, of=WITHOUT_LABELS)
    assert warned[rule] == "no node has enough devices"
    both = Node("both", {PRESENT: "true"}, FENCED, {GPU: 4}, {GPU: 8, CLASS: 8})
    assert both.offers == {GPU: 4, CLASS: 8}, "the scheduler takes those of the device plugin"
    gone = Node("gone", {PRESENT: "true"}, FENCED, {GPU: 0}, {GPU: 8})
    assert gone.offers == {GPU: 8}


def test_a_pod_bound_to_a_node_gets_no_claim_for_its_extended_resource() -> None:
    decision = decide(gpu_pod(nodeName="driven"), policy(), ADMISSION, facts(DRIVEN))
    [finding] = [each for each in decision.findings if each.rule == "missing-device"]
    assert finding.detail.startswith(f"a DRA driver offers {GPU} on node driven (pool nvidia)")


def test_a_device_class_makes_a_node_one_of_the_pool_whatever_its_resources() -> None:
    partitions = Node("mig", {HOST: "mig"}, (), {}, {MIG: 7})
    assert "pool-trespass" in reasons(pod(nodeName="mig"), partitions, PLAIN)


def test_a_gang_needs_the_devices_of_a_claim_for_each_pod() -> None:
    def warned(pods: int, ask: Ask, **entry: str) -> bool:
        template = claiming_pod()
        template["spec"]["resourceClaims"] = [{"name": "gpu", **entry}]
        spec = {"parallelism": pods, "template": template}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}
        claim = Claim((frozenset({ask.device_class}),), asks=((ask,),))
        known = {("default", "one"): claim}
        given = Facts(nodes=NodeIndex([DRIVEN]), claims=known, claim_templates=known)
        findings = decide(job, policy(), ADMISSION, given).findings
        return "oversized-gang" in {finding.rule for finding in findings}

    two, part = Ask("gpu.nvidia.com", 2), Ask("gpu.nvidia.com", 2, (("memory", 1),))
    each, shared = {"resourceClaimTemplateName": "one"}, {"resourceClaimName": "one"}
    assert [warned(pods, two, **each) for pods in (4, 5)] == [False, True]
    assert not warned(5, two, **shared)
    assert not warned(5, part, **each)


def test_a_template_that_a_group_may_replace_earns_nothing() -> None:
    obj = claiming_pod(tolerations=[{"key": GPU, "operator": "Exists"}])
    obj["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    unknown = Facts(nodes=NodeIndex([DRIVEN]))
    decision = decide(obj, policy(), ADMISSION, unknown)
    [finding] = [each for each in decision.findings if each.rule == "pool-trespass"]
    assert "in the Pod and in PodGroup train" in finding.remediation
    assert decision.mutated["spec"]["schedulingGroup"] == {"podGroupName": "train"}
