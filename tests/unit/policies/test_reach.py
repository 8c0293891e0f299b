"""Which pools a Pod reaches, with and without known nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from cases.loading import policy_spec
from deciding import POOL, deployment, pod, policy, required
from policies.context import Context
from policies.engine import decide
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.node_templates import NODE_POOL_LABEL, NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Taint
from policies.policy import Policy
from policies.pool_nodes import nodes_of_pools
from policies.reach import (
    CONTROLLER_MANAGER,
    CONTROLLERS,
    MIRROR_ANNOTATION,
    is_confined,
    is_daemon_set_pod,
    is_mirror_pod,
    largest_offers,
    may_join,
    most_added,
    names_hosts,
    rdma_resource_of,
)
from policies.requests import offered_by
from policies.vocabulary import exclusion
from strategies import JSON
from typed import pod_of, spec_of

PRESENT = "nvidia.com/gpu.present"
GPU = "nvidia.com/gpu"
DEFAULT = policy()
MODELS = policy(
    pools=[
        {
            "name": "a",
            "resources": [GPU],
            "deviceClasses": ["gpu.nvidia.com"],
            "nodeSelector": {"model": "a"},
        },
        {
            "name": "b",
            "resources": [GPU],
            "taints": [{"key": "b"}],
            "nodeSelector": {"model": "b"},
        },
        {"name": "c", "resources": ["example.com/nic"], "nodeSelector": {"nic": "true"}},
    ]
)
PLAIN = Node("cpu-1", {"kubernetes.io/hostname": "cpu-1"})
NO_DEVICES = Node("gpu-0", {PRESENT: "true"}, (), {})
RDMA_ONLY = Node("gpu-0", {PRESENT: "true"}, (), {"rdma/hca": 8})


def gpu_node(number: int, devices: int) -> Node:
    return Node(f"gpu-{number}", {PRESENT: "true"}, (), {GPU: devices})


def nodes_with(labels: list[dict[str, str]]) -> NodeIndex:
    """Return nodes with one GPU each and these labels."""
    return NodeIndex(Node(f"n{n}", each, (), {GPU: 1}) for n, each in enumerate(labels))


def context(request: Request | None = None, own: Policy = DEFAULT, **facts: Any) -> Context:
    return Context(own, request or Request(), Facts(**facts))


@pytest.mark.parametrize(
    ("words", "confined"),
    [
        ([f"{PRESENT} In true"], True),
        ([f"{PRESENT} In true", f"{PRESENT} In true"], True),
        ([f"{PRESENT} In true", "zone In a"], False),
        (["zone In a", f"{PRESENT} In true"], False),
    ],
)
def test_a_pod_is_confined_if_each_term_is(words: list[str], confined: bool) -> None:
    made = pod_of(pod({"resources": {"limits": {GPU: 1}}}, **required(*words)))
    assert is_confined(made, Context.of(made, DEFAULT, Request(), Facts())) is confined


def test_a_pod_is_confined_where_its_terms_leave_out_what_the_pool_leaves_out() -> None:
    without = [
        {"key": "paused", "operator": "DoesNotExist"},
        {"key": "zone", "operator": "NotIn", "values": ["b"]},
    ]
    own = policy(pools=[POOL | {"matchExpressions": without}])
    for zone, confined in (({}, False), ({"zone": "a"}, True)):
        made = pod_of(
            pod(
                {"resources": {"limits": {GPU: 1}}},
                **required({"matchExpressions": without[:1]}),
                nodeSelector=POOL["nodeSelector"] | zone,
            )
        )
        assert is_confined(made, Context.of(made, own, Request(), Facts())) is confined


def test_devices_that_the_scheduler_allocates_confine_a_pod_to_a_pool_without_labels() -> None:
    [of_pool] = policy_spec("fractions")["pools"]
    own = policy(pools=[of_pool | {"nodeSelector": {}, "deviceClasses": ["gpu.nvidia.com"]}])
    by_annotation = pod(metadata={"annotations": {"gpu-fraction": "0.5"}})
    by_annotation["spec"]["schedulerName"] = "kai-scheduler"
    for obj, confined in (
        (pod({"resources": {"limits": {GPU: 1}}}), True),
        (by_annotation, False),
    ):
        made = pod_of(obj)
        known = Context.of(made, own, Request(), Facts())
        assert known.device_requests
        assert is_confined(made, known) is confined


def test_a_pod_that_selects_no_node_with_its_device_is_denied_once() -> None:
    other = {"name": "other", "resources": ["example.com/gpu"], "nodeSelector": {"other": "true"}}
    own = policy(pools=[*policy_spec("fractions")["pools"], other])
    elsewhere: JSON = {"nodeSelector": {PRESENT: "false", "other": "true"}}
    by_annotation = pod(metadata={"annotations": {"gpu-fraction": "0.5"}}, **elsewhere)
    by_annotation["spec"]["schedulerName"] = "kai-scheduler"
    for obj, rules in (
        (pod({"resources": {"limits": {GPU: 1}}}, **elsewhere), ["unschedulable-gpu-pod"]),
        (by_annotation, ["unschedulable-gpu-pod", "pool-trespass"]),
    ):
        assert [each.rule for each in decide(obj, own).findings] == rules


def test_a_pod_is_not_confined_to_no_pools() -> None:
    assert not is_confined(pod_of(pod(**required())), context())


@pytest.mark.parametrize(
    ("annotations", "username", "mirror"),
    [
        ({MIRROR_ANNOTATION: "x"}, "system:node:n", True),
        ({MIRROR_ANNOTATION: "x"}, "system:node:other", False),
        ({}, "system:node:n", False),
        (None, "system:node:n", False),
    ],
)
def test_a_mirror_pod_has_the_annotation_and_its_kubelet(
    annotations: JSON | None, username: str, mirror: bool
) -> None:
    shown = pod_of(pod(metadata={"annotations": annotations}, nodeName="n"))
    assert is_mirror_pod(shown, context(Request(username=username))) is mirror


DAEMON_SET_CONTROLLER = CONTROLLERS["apps", "DaemonSet"]
OWNER = {"kind": "DaemonSet", "controller": True}


@pytest.mark.parametrize(
    ("owners", "username", "belongs"),
    [
        ([OWNER], DAEMON_SET_CONTROLLER, True),
        ([OWNER], CONTROLLER_MANAGER, True),
        ([{"kind": "ReplicaSet", "controller": True}], CONTROLLER_MANAGER, False),
        ([{"kind": "Node"}, OWNER], DAEMON_SET_CONTROLLER, True),
        ([OWNER], "alice", False),
        ([], DAEMON_SET_CONTROLLER, False),
        (None, DAEMON_SET_CONTROLLER, False),
        ([{"kind": "DaemonSet"}], DAEMON_SET_CONTROLLER, False),
        ([{"kind": "ReplicaSet", "controller": True}], DAEMON_SET_CONTROLLER, False),
    ],
)
def test_a_pod_of_a_daemon_set_is_created_by_its_controller(
    owners: list[JSON] | None, username: str, belongs: bool
) -> None:
    made = pod_of(pod(metadata={"ownerReferences": owners}))
    assert is_daemon_set_pod(made, context(Request(username=username))) is belongs


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ({"nodeSelector": {"kubernetes.io/hostname": "n"}}, True),
        ({"nodeSelector": {"zone": "n"}}, False),
        (required("metadata.name In n"), True),
        (required("metadata.name NotIn n"), False),
        (required("kubernetes.io/hostname In n"), True),
        (required("kubernetes.io/hostname NotIn n"), False),
        (required("zone In n"), False),
        (required("zone In n", "kubernetes.io/hostname In n"), True),
        (required("kubernetes.io/hostname In n", "zone In n"), True),
        ({}, False),
    ],
)
def test_a_selection_of_host_names_is_recognized(selection: JSON, names: bool) -> None:
    assert names_hosts(pod_of(pod(**selection))) is names


def test_a_node_name_and_a_toleration_are_judged_without_nodes() -> None:
    tolerations = [{"key": GPU, "operator": "Exists"}]
    decision = decide(pod(nodeName="n", tolerations=tolerations), DEFAULT)
    assert [finding.path for finding in decision.findings] == ["spec.tolerations[0]"]


def test_a_pod_bound_to_a_pool_is_found_whatever_the_order_of_the_nodes() -> None:
    nodes = NodeIndex([PLAIN, gpu_node(1, 8)])
    decision = decide(pod(nodeName="gpu-1"), DEFAULT, facts=Facts(nodes=nodes))
    assert [finding.path for finding in decision.findings] == ["spec.nodeName"]
    assert nodes_of_pools(DEFAULT, nodes).all == 1 << nodes.number("gpu-1")


def test_a_node_belongs_to_a_pool_by_its_taints_until_it_has_labels() -> None:
    own = policy(pools=[POOL | {"taints": [{"key": key} for key in ("of-all", "too", "of-one")]}])
    nodes = NodeIndex(
        Node(str(number), labels, tuple(Taint(key, "NoSchedule", "") for key in keys.split()))
        for number, (labels, keys) in enumerate(
            [
                (POOL["nodeSelector"], "of-all too of-one"),
                (POOL["nodeSelector"], "of-all too"),
                ({}, "of-all too"),
                ({}, "of-one"),
                ({}, "of-all"),
            ]
        )
    )
    assert nodes_of_pools(own, nodes).all == 0b01111
    unlabeled = NodeIndex(node for node in nodes if not node.labels)
    assert nodes_of_pools(own, unlabeled).all == 0b111


def test_a_selection_that_leaves_out_the_other_nodes_selects_the_nodes_of_a_pool() -> None:
    facts = Facts(nodes=NodeIndex([PLAIN, gpu_node(1, 8)]))
    [finding] = decide(pod(**required("metadata.name NotIn cpu-1")), DEFAULT, facts=facts).findings
    assert finding.detail.startswith("every node that the Pod selects (1 at present)")


@pytest.mark.parametrize("fail_closed", [True, False])
def test_a_gpu_pod_may_be_bound_to_a_known_node_with_the_device(fail_closed: bool) -> None:
    made = pod({"resources": {"limits": {GPU: 1}}}, nodeName="gpu-1")
    facts = Facts(nodes=NodeIndex([gpu_node(1, 8)]))
    assert decide(made, DEFAULT, Request(fail_closed=fail_closed), facts).findings == ()


@pytest.mark.parametrize(
    ("entry", "remediation"),
    [
        (
            {"source": {"resourceClaimName": "gpu"}},
            "Write the name of the claim directly into spec.resourceClaims[0], without source",
        ),
        ({"resourceClaimName": "late"}, "Create resource claim late before the Pod"),
        ({"resourceClaimName": "gpu"}, "Use claim c in a container, under resources.claims"),
        (None, "Set nvidia.com/gpu: 1 under resources.limits"),
    ],
)
def test_the_remediation_of_a_trespass_is_about_the_claim(
    entry: JSON | None, remediation: str
) -> None:
    claims = [{"name": "c", **entry}] if entry else None
    made = pod(tolerations=[{"key": GPU, "operator": "Exists"}], resourceClaims=claims)
    facts = Facts(claims={("default", "gpu"): Claim((frozenset({"gpu.nvidia.com"}),))})
    found = decide(made, DEFAULT, Request(fail_closed=True), facts).findings
    (finding,) = (each for each in found if each.rule == "pool-trespass")
    assert finding.remediation.startswith(remediation)
    assert finding.remediation.endswith(", or remove the toleration")


def test_the_remediation_names_the_scheduler_of_an_annotation_if_one_of_its_pools_is_open() -> None:
    fractions = [{"annotations": ["gpu-fraction"], "schedulerName": "kai-scheduler"}]
    shared = POOL | {"annotationRequests": fractions, "nodeSelector": {"model": "a"}}
    reserved = {
        "name": "lab",
        "nodeSelector": {"model": "b"},
        "allowedNamespaces": {"names": ["l"]},
    }
    made = pod(
        metadata={"annotations": {"gpu-fraction": "0.5"}},
        tolerations=[{"key": GPU, "operator": "Exists"}],
    )
    found = decide(made, policy(pools=[shared, shared | reserved])).findings
    advice = "Set schedulerName: kai-scheduler, the scheduler that reads gpu-fraction"
    assert [finding.remediation.startswith(advice) for finding in found] == [True]


def test_a_pod_gets_the_tolerations_and_the_selection_of_its_runtime_class() -> None:
    fenced, labels = [{"key": GPU, "operator": "Exists"}], POOL["nodeSelector"]
    two_taints = policy(pools=[POOL | {"taints": [{"key": GPU}, {"key": "model"}]}])
    gpu_node = NodeIndex([Node("gpu", labels, taints=(Taint(GPU, "NoSchedule"),))])
    for added, own, written, count in (
        ({"tolerations": fenced}, {}, DEFAULT, 1),
        ({"tolerations": fenced}, {"runtimeClassName": "other"}, DEFAULT, 0),
        ({"tolerations": fenced}, {"runtimeClassName": None}, DEFAULT, 0),
        ({"nodeSelector": labels}, {}, DEFAULT, 1),
        # In addition to a toleration or a selection that the Pod has itself.
        ({"tolerations": [{"key": "model"}]}, {"tolerations": fenced}, two_taints, 2),
        ({"tolerations": fenced}, {"nodeSelector": dict.fromkeys(labels, "no")}, DEFAULT, 0),
    ):
        facts = Facts(runtime_scheduling={"gpu": spec_of(added)}, nodes=gpu_node)
        given: JSON = {"runtimeClassName": "gpu", **own}
        found = decide(pod(**given), written, facts=facts).findings
        assert [each.rule for each in found] == ["pool-trespass"] * count, (added, own, found)


@pytest.mark.parametrize(("fail_closed", "count"), [(True, 1), (False, 0)])
def test_unknown_nodes_of_the_control_plane_may_have_devices(fail_closed: bool, count: int) -> None:
    tolerations = [{"key": GPU, "operator": "Exists"}]
    made = pod(nodeSelector={"node-role.kubernetes.io/control-plane": ""}, tolerations=tolerations)
    assert len(decide(made, DEFAULT, Request(fail_closed=fail_closed)).findings) == count


@pytest.mark.parametrize(
    ("labels", "warns"),
    [
        ([{}], True),
        ([{"model": "a"}], False),
        ([{"model": "b"}, {}], False),
        ([{"model": "b"}, {"model": "a"}], False),
        ([{"nic": "true"}], False),
        ([{"nic": "true"}, {}], True),
    ],
)
def test_devices_on_nodes_without_labels_are_reported_if_no_node_has_the_labels_of_a_pool(
    labels: list[dict[str, str]], warns: bool
) -> None:
    made = pod({"resources": {"limits": {GPU: 1}}})
    found = decide(made, MODELS, facts=Facts(nodes=nodes_with(labels))).findings
    reasons = [finding.reason for finding in found]
    assert ("no node with the device has the labels of its pool" in reasons) is warns


IN_ZONE_B = (Requirement("zone", "In", ["b"]),)


class TestLargestOffers:
    @pytest.mark.parametrize(
        ("nodes", "offers"),
        [
            ([gpu_node(1, 4), gpu_node(2, 8)], {GPU: 8}),
            ([PLAIN, gpu_node(1, 4)], {GPU: 4}),
            ([Node("cpu-1", {}, (), {GPU: 16}), gpu_node(1, 4)], {GPU: 4}),
            ([gpu_node(1, 9)], {}),
            ([gpu_node(1, 10), gpu_node(2, 4)], {}),
            ([NO_DEVICES, gpu_node(1, 4)], {}),
            ([RDMA_ONLY, gpu_node(1, 4)], {}),
            ([PLAIN], {}),
            ([], {}),
        ],
    )
    def test_the_nodes_of_the_pools_count(self, nodes: list[Node], offers: dict[str, int]) -> None:
        known = context(nodes=NodeIndex(nodes))
        assert largest_offers(pod_of(pod()), DEFAULT.pools, {GPU: 9}, known) == offers

    def test_unknown_nodes_offer_nothing(self) -> None:
        assert largest_offers(pod_of(pod()), DEFAULT.pools, {GPU: 9}, context()) == {}
        assert rdma_resource_of(pod_of(pod()), DEFAULT.pools, {GPU: 9}, context()) is None

    @pytest.mark.parametrize(
        ("template", "selection", "most"),
        [
            (NodeTemplate("t", {PRESENT: "true"}), {}, 0),
            (NodeTemplate("t", {PRESENT: "true"}, allocatable={GPU: 16}), {}, 0),
            (NodeTemplate("t", {PRESENT: "true"}, allocatable={GPU: 8}), {}, 8),
            (NodeTemplate("t", {}, allocatable={GPU: 16}), {}, 4),
            (NodeTemplate("t", {PRESENT: "true", "zone": "a"}), required("zone In a"), 0),
            (
                NodeTemplate("t", {PRESENT: "true", "zone": "a"}),
                required("zone In b", "zone In a"),
                0,
            ),
            (NodeTemplate("t", {PRESENT: "true", "zone": "b"}), required("zone NotIn b"), 4),
            (NodeTemplate("t", {PRESENT: "true"}), required("zone NotIn b"), 0),
            (NodeTemplate("t", {PRESENT: "true"}), required("zone In a"), 4),
            (NodeTemplate("t", {PRESENT: "true"}, (), IN_ZONE_B), required("zone In a"), 4),
            (NodeTemplate("t", {PRESENT: "true"}), {"nodeSelector": {"zone": "a"}}, 4),
            (NodeTemplate("t", {PRESENT: "true", "zone": "a"}), required("zone In b a"), 0),
        ],
    )
    def test_an_autoscaler_can_add_a_node_that_has_enough(
        self, template: NodeTemplate, selection: JSON, most: int
    ) -> None:
        nodes = NodeIndex([Node("gpu-1", {PRESENT: "true", "zone": "a"}, (), {GPU: 4})])
        of_zone = pod_of(pod(**selection))
        known = context(nodes=nodes, templates=(template,))
        offers = largest_offers(of_zone, DEFAULT.pools, {GPU: 9}, known)
        assert offers == ({GPU: most} if most else {})

    @pytest.mark.parametrize(
        ("selector", "said"),
        [
            ({"zone": "b"}, ""),
            ({"zone": "c"}, "has zone=c;"),
            ({"zone": "b", "size": "s"}, "has size=s;"),
        ],
    )
    def test_an_autoscaler_can_add_a_node_that_the_pod_selects(
        self, selector: dict[str, str], said: str
    ) -> None:
        nodes = NodeIndex([Node("gpu-1", {PRESENT: "true", "zone": "a"}, (), {GPU: 4})])
        facts = Facts(nodes=nodes, templates=(NodeTemplate("t", {PRESENT: "true", "zone": "b"}),))
        selecting = pod({"resources": {"limits": {GPU: 1}}}, nodeSelector=selector)
        details = "".join(each.detail for each in decide(selecting, DEFAULT, facts=facts).findings)
        assert said in details
        assert bool(said) is bool(details)

    @pytest.mark.parametrize(("nodes", "offers"), [([], {GPU: 8}), ([PLAIN], {})])
    def test_node_templates_answer_where_no_node_is_known(
        self, nodes: list[Node], offers: dict[str, int]
    ) -> None:
        small = NodeTemplate("t", {PRESENT: "true"}, allocatable={GPU: 8})
        known = context(nodes=NodeIndex(nodes), templates=(small,))
        assert largest_offers(pod_of(pod()), DEFAULT.pools, {GPU: 9}, known) == offers

    def test_a_taint_or_a_device_of_a_pool_without_labels_is_enough(self) -> None:
        [without_labels] = policy(pools=[POOL | {"nodeSelector": {}}]).pools
        spot, *own = Taint("spot", "NoSchedule", ""), *without_labels.taints
        for taints, devices, joins in (
            (own, None, True),
            ([spot, *own], None, True),
            ([spot], None, False),
            ([spot], {GPU: 1}, True),
            ([spot], {GPU: 0, "example.com/nic": 1}, False),
        ):
            template = NodeTemplate("t", {}, tuple(taints), allocatable=devices)
            assert may_join(template, without_labels) is joins

    def test_a_node_that_a_pool_leaves_out_does_not_join_it(self) -> None:
        without = {"key": "paused", "operator": "DoesNotExist"}
        [own] = policy(pools=[POOL | {"matchExpressions": [without]}]).pools
        for labels, joins in (({}, True), ({"paused": "1"}, False)):
            assert may_join(NodeTemplate("t", POOL["nodeSelector"] | labels), own) is joins

    def test_one_pool_that_can_grow_is_enough(self) -> None:
        nodes = NodeIndex([Node("n", {"model": "a"}, (), {GPU: 4})])
        known = context(own=MODELS, nodes=nodes, templates=(NodeTemplate("t", {"model": "b"}),))
        assert largest_offers(pod_of(pod()), MODELS.pools, {GPU: 9}, known) == {}


@pytest.mark.parametrize(
    ("name", "offers"),
    [
        (GPU, True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/mig-1g.10g", False),
        ("deviceclass.resource.kubernetes.io/mig-small", True),
        ("nvidia.com/gpu-h100", False),
        ("hygon.com/dcumem", True),
        ("example.com/gpu", True),
    ],
)
def test_a_node_to_come_may_have_the_devices_that_plugins_name(name: str, offers: bool) -> None:
    known = context(nodes=NodeIndex(), templates=(NodeTemplate("t", {PRESENT: "true"}),))
    offered = largest_offers(pod_of(pod()), DEFAULT.pools, {name: 1}, known)
    assert offered == ({} if offers else {name: 0})


MACHINES = NodeTemplate(
    "machines", {PRESENT: "true", "zone": "a"}, allocatable={GPU: 1}, limits={GPU: 3}
)


@pytest.mark.parametrize(
    ("node_pool", "template", "added"),
    [
        ({}, MACHINES, {"machines": 3}),
        ({}, replace(MACHINES, labels={PRESENT: "true", "zone": "b"}), {}),
        ({}, replace(MACHINES, allocatable={"example.com/x": 1}), {}),
        (
            {NODE_POOL_LABEL: "k"},
            replace(MACHINES, labels={**MACHINES.labels, NODE_POOL_LABEL: "k"}),
            {"k": 0},
        ),
        ({NODE_POOL_LABEL: "k"}, MACHINES, None),
    ],
)
def test_autoscalers_can_add_devices_up_to_their_limits(
    node_pool: dict[str, str], template: NodeTemplate, added: dict[str, int] | None
) -> None:
    nodes = NodeIndex([Node("n", {PRESENT: "true", "zone": "a", **node_pool}, (), {GPU: 8})])
    selecting = pod_of(pod(**required("zone In a", "zone In c")))
    known = context(nodes=nodes, templates=(template,))
    assert most_added(selecting, DEFAULT.pools, GPU, nodes, known) == added


@pytest.mark.parametrize(
    ("node", "template", "warns"),
    [
        (PLAIN, NodeTemplate("t", {}, (Taint("b", "NoSchedule", ""),)), True),
        (PLAIN, NodeTemplate("t", {"model": "a"}, allocatable={GPU: 1}), False),
        (Node("n", {}, (), {GPU: 1}), NodeTemplate("t", {}, allocatable={GPU: 1}), False),
    ],
)
def test_no_node_joins_a_pool_without_its_labels(
    node: Node, template: NodeTemplate, warns: bool
) -> None:
    facts = Facts(nodes=NodeIndex([node]), templates=(template,))
    found = decide(pod({"resources": {"limits": {GPU: 1}}}), MODELS, facts=facts).findings
    reasons = [finding.reason for finding in found]
    assert ("no known node or node template has the labels of the pool" in reasons) is warns


def test_a_gpu_pod_may_keep_the_selection_of_a_pool_and_request_its_device() -> None:
    selector: JSON = {"nodeSelector": {"model": "x", "nic": "true"}}
    claims = [{"name": "c", "resourceClaimName": "gpu"}]
    using = pod({"resources": {"claims": [{"name": "c"}]}}, resourceClaims=claims, **selector)
    facts = Facts(claims={("default", "gpu"): Claim((frozenset({"gpu.nvidia.com"}),))})
    instead = f". Or keep it, and request a device of pool c in place of {GPU}: 1: example.com/nic"
    for obj, kept in ((pod({"resources": {"limits": {GPU: 1}}}, **selector), True), (using, False)):
        [finding] = decide(obj, MODELS, facts=facts).findings
        assert ("Or keep it" in finding.remediation) is kept
        assert finding.remediation.endswith(instead) is kept


def test_the_size_of_a_node_group_of_a_cloud_is_unknown() -> None:
    for label in (
        "alpha.eksctl.io/nodegroup-name",
        "cloud.google.com/gke-nodepool",
        "doks.digitalocean.com/node-pool",
        "eks.amazonaws.com/nodegroup",
        "k8s.scaleway.com/pool-name",
        "kops.k8s.io/instancegroup",
        "kubernetes.azure.com/agentpool",
        "lke.linode.com/pool-id",
    ):
        nodes = NodeIndex([Node("n", {PRESENT: "true", label: "a"}, (), {GPU: 8})])
        assert most_added(pod_of(pod()), DEFAULT.pools, GPU, nodes, context(nodes=nodes)) is None


def test_up_to_eight_devices_of_a_pool_are_named() -> None:
    own = {"name": "a", "resources": [f"example.com/{n}" for n in range(9)]}
    [several] = policy(pools=[own | {"nodeSelector": {"a": "b"}}]).pools
    assert offered_by(several, context()) == own["resources"][:8]


FENCE, OF_TEAM = Taint(GPU, "NoSchedule", "present"), Taint("team", "NoSchedule", "")


@pytest.mark.parametrize(
    ("spec", "of_template", "warns"),
    [
        ({}, None, True),
        ({}, [], False),
        ({}, [FENCE], False),
        ({}, [FENCE, OF_TEAM], True),
        ({}, [replace(OF_TEAM, effect="PreferNoSchedule")], False),
        ({}, [Taint("broken", "NoSchedule", "")], False),
        ({"nodeName": "gpu-1"}, None, False),
        ({"tolerations": [{"key": "team"}]}, None, False),
        ({"tolerations": [{"key": "other"}]}, None, True),
    ],
)
def test_a_taint_of_each_known_node_repels_a_pod_unless_a_node_without_it_may_join(
    spec: JSON, of_template: list[Taint] | None, warns: bool
) -> None:
    templates = (
        () if of_template is None else (NodeTemplate("t", {PRESENT: "true"}, tuple(of_template)),)
    )
    nodes = NodeIndex([PLAIN, Node("gpu-1", {PRESENT: "true"}, (FENCE, OF_TEAM), {GPU: 8})])
    own = replace(DEFAULT, quarantine_taints=(Taint("broken"),))
    made = pod({"resources": {"limits": {GPU: 1}}}, **spec)
    daemon_set = deployment(made) | {"kind": "DaemonSet"}
    for obj, repelled in ((made, warns), (daemon_set, False)):
        found = decide(obj, own, facts=Facts(nodes=nodes, templates=templates)).findings
        texts = [each.detail for each in found if "tolerates no known node" in each.reason]
        assert bool(texts) is repelled
        assert all("such as team:NoSchedule of node gpu-1" in text for text in texts)


def test_without_its_mutations_a_taint_of_the_pool_repels_a_pod() -> None:
    off = dict.fromkeys(("pool-toleration", "pool-node-affinity"), "off")
    own = policy(pools=[POOL | {"taints": [{"key": "team"}, {"key": GPU}]}], rules=off)
    nodes = NodeIndex([PLAIN, Node("gpu-1", {PRESENT: "true"}, (FENCE,), {GPU: 8})])
    [finding] = decide(
        pod({"resources": {"limits": {GPU: 1}}}), own, facts=Facts(nodes=nodes)
    ).findings
    assert finding.remediation == f"Add a toleration for {GPU}"


class TestGPUPodsInOtherPools:
    """A GPU Pod of one pool that tolerates or selects another one."""

    POLICY = policy(
        pools=[
            {
                "name": name,
                "resources": [f"example.com/{device}"],
                "taints": [{"key": "gpu"}],
                "nodeSelector": labels,
            }
            for name, device, labels in (
                ("outer", "a", {"gpu": "true"}),
                ("inner", "b", {"gpu": "true", "model": "b"}),
                ("second-of-b", "b", {"spare": "true"}),
                ("other", "c", {"other": "true"}),
                ("same-nodes", "d", {"gpu": "true", "model": "b"}),
            )
        ],
    )
    INNER = Node("n1", {"gpu": "true", "model": "b", "kubernetes.io/hostname": "n1"})

    def paths(self, *args: Any, **spec: Any) -> list[str]:
        """Return the paths of the findings."""
        return [finding.path for finding in self.findings(*args, **spec)]

    def findings(
        self, device: str, *nodes: Node, off: str = "", only: tuple[str, ...] = (), **spec: Any
    ) -> list[Finding]:
        """Return the findings; nodes are unknown if there are none.

        ``only`` names the foreign pools of the policy, behind another taint; by default, it has
        all of them.
        """
        requesting = {"resources": {"limits": {f"example.com/{device}": 1}}}
        own = self.POLICY
        if off:
            own = replace(own, rules={**own.rules, off: "off"})
        if only:
            kept = [p for p in own.pools if f"example.com/{device}" in p.resources]
            kept += [replace(p, taints=(Taint("far"),)) for p in own.pools if p.name in only]
            own = replace(own, pools=tuple(kept))
        facts = Facts(nodes=NodeIndex(nodes) if nodes else None)
        found = decide(pod(requesting, **spec), own, facts=facts).findings
        return [finding for finding in found if finding.rule == "pool-trespass"]

    def test_a_pod_of_the_inner_pool_may_select_the_outer_one(self) -> None:
        assert self.paths("b", nodeSelector={"gpu": "true"}) == []

    def test_a_pod_of_two_pools_may_run_where_one_of_them_is_an_inner_one(self) -> None:
        assert self.paths("b") == []

    def test_a_pod_that_is_not_confined_may_not_select_the_outer_pool(self) -> None:
        found = self.paths("b", off="pool-node-affinity", **required("gpu In true", "zone In a"))
        assert any(path.endswith("nodeSelectorTerms[0]") for path in found)

    def test_a_pod_of_the_inner_pool_may_select_its_nodes_by_name(self) -> None:
        selection = {"kubernetes.io/hostname": "n1"}
        assert self.paths("b", self.INNER, PLAIN, nodeSelector=selection) == []

    @pytest.mark.parametrize(("device", "count"), [("b", 0), ("d", 0), ("c", 1)])
    def test_a_gpu_pod_may_be_bound_to_a_node_of_its_pool(self, device: str, count: int) -> None:
        found = self.paths(device, self.INNER, PLAIN, nodeName="n1")
        assert found == ["spec.nodeName"] * count

    def test_a_pod_of_the_outer_pool_may_not_select_the_inner_one(self) -> None:
        assert self.paths("a", nodeSelector={"model": "b"}) == ["spec.nodeSelector[model]"]

    @pytest.mark.parametrize(
        ("device", "pool", "in_place"),
        [
            ("a", "inner", True),
            ("a", "same-nodes", True),
            ("b", "same-nodes", False),
            ("b", "other", True),
            ("d", "inner", False),
        ],
    )
    def test_the_remediation_replaces_the_request_unless_the_nodes_offer_both(
        self, device: str, pool: str, in_place: bool
    ) -> None:
        tolerations = [{"key": "far", "operator": "Exists"}]
        found = self.findings(
            device, off="pool-node-affinity", only=(pool,), tolerations=tolerations
        )
        (finding,) = (each for each in found if f"(pool {pool})" in each.detail)
        assert (f"in place of example.com/{device}: 1" in finding.remediation) is in_place

    def test_the_remediation_keeps_the_request_if_one_of_several_pools_offers_both(self) -> None:
        found = self.findings(
            "b",
            off="pool-node-affinity",
            only=("same-nodes", "other"),
            tolerations=[{"key": "far", "operator": "Exists"}],
        )
        advice = {finding.remediation for finding in found}
        assert advice == {"Set example.com/c: 1 under resources.limits, or remove the toleration"}

    def test_a_selection_by_label_is_reported_once(self) -> None:
        node = Node("n1", {"other": "true", "gpu": "true"})
        found = self.paths("a", node, PLAIN, nodeSelector={"other": "true"})
        assert found == ["spec.nodeSelector[other]"]


class TestDaemonSets:
    GPU_1 = Node("gpu-1", {PRESENT: "true", "kubernetes.io/hostname": "gpu-1"})
    WILDCARD: ClassVar = [{"operator": "Exists"}]

    def findings(self, obj: JSON, *nodes: Node) -> list[str]:
        facts = Facts(nodes=NodeIndex(nodes) if nodes else None)
        found = decide(obj, DEFAULT, Request(username=DAEMON_SET_CONTROLLER), facts).findings
        return [finding.path for finding in found if finding.rule == "pool-trespass"]

    def own_pod(self, **spec: Any) -> JSON:
        return pod(metadata={"ownerReferences": [OWNER]}, tolerations=self.WILDCARD, **spec)

    def test_its_pod_may_be_bound_by_the_controller(self) -> None:
        bound = self.own_pod(**required("metadata.name In gpu-1"))
        assert self.findings(bound, self.GPU_1, PLAIN) == []

    @pytest.mark.parametrize(("known", "count"), [(True, 1), (False, 0)])
    def test_its_host_names_count_if_the_nodes_are_known(self, known: bool, count: int) -> None:
        template = self.own_pod(**required("kubernetes.io/hostname In gpu-1"))
        nodes = (self.GPU_1, PLAIN) if known else ()
        made = deployment(template) | {"kind": "DaemonSet"}
        assert len(self.findings(made, *nodes)) == count


@pytest.mark.parametrize(
    ("requirement", "expression"),
    [
        ({"operator": "Exists"}, "{key: gpu, operator: DoesNotExist}"),
        (
            {"operator": "In", "values": ["b", "a"]},
            '{key: gpu, operator: NotIn, values: ["a", "b"]}',
        ),
    ],
)
def test_the_remediation_excludes_the_nodes_of_a_pool(requirement: JSON, expression: str) -> None:
    labels = [{"key": "gpu", **requirement}]
    own = policy(pools=[{"name": "p", "resources": [GPU], "matchExpressions": labels}])
    assert exclusion(own.pools[0]) == expression


def test_what_excludes_a_pool_leaves_nodes_of_another_one() -> None:
    any_gpu = {"key": "gpu", "operator": "Exists"}
    models = [{"key": "model", "operator": "In", "values": [model]} for model in ("a", "b")]
    own = policy(
        pools=[
            {"name": f"p{n}", "resources": [GPU], "matchExpressions": [any_gpu, model]}
            for n, model in enumerate(models)
        ]
    )
    assert exclusion(*own.pools) == '{key: model, operator: NotIn, values: ["a"]}'


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [(None, "does not know the nodes"), (NodeIndex([PLAIN]), "the cluster has no such node")],
)
def test_a_pod_bound_to_an_unknown_node_gets_the_reason(
    nodes: NodeIndex | None, reason: str
) -> None:
    made = pod(nodeName="n", metadata={"annotations": {MIRROR_ANNOTATION: "x"}})
    facts = Facts(nodes=nodes)
    (finding,) = decide(made, DEFAULT, Request(fail_closed=True), facts).findings
    assert reason in finding.detail
    of_kubelet = Request(fail_closed=True, username="system:node:n")
    assert decide(made, DEFAULT, of_kubelet, facts).findings == ()
