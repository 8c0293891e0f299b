"""Node templates: what autoscalers promise of the nodes that they can add."""

from __future__ import annotations

from typing import Any

import dumped
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Taint
from policies.kubernetes.selector import selector_of
from reviewing import default_policy
from specs import JSON
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState
from webhook.tools.doctor.checks import diagnosis
from webhook.tools.doctor.installation import Installation

PRESENT = {"nvidia.com/gpu.present": "true"}
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"


def templates(obj: JSON) -> tuple[NodeTemplate, ...]:
    state = ClusterState(None)
    put(state, obj)
    return state.templates


def template(obj: JSON) -> NodeTemplate:
    [found] = templates(obj)
    return found


def node_pool(*requirements: JSON, labels: JSON | None = None, **spec: Any) -> JSON:
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    given = {"nodeClassRef": node_class, "requirements": requirements, **spec}
    return dumped.node_pool("gpu", labels or {}, **given)


def requirement(key: str, operator: str, *values: str) -> JSON:
    return {"key": key, "operator": operator, "values": list(values)}


def machine_deployment(machine_labels: JSON | None = None, **annotations: str) -> JSON:
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineDeployment",
        "metadata": {
            "name": "gpu",
            "namespace": "infra",
            "annotations": {
                f"{CAPACITY}/{key.replace('_', '-')}": text for key, text in annotations.items()
            },
        },
        "spec": {"template": {"metadata": {"labels": machine_labels or {}}}},
    }


def test_a_node_pool_promises_the_labels_that_it_sets_or_allows() -> None:
    pool = template(
        node_pool(
            requirement("karpenter.k8s.aws/instance-gpu-name", "In", "h100", "a100"),
            requirement("karpenter.k8s.aws/instance-gpu-count", "Gt", "4"),
            requirement("topology.kubernetes.io/zone", "NotIn", "b"),
            requirement("tier", "Exists"),
            labels={"team": "a"},
        )
    )
    labels: list[tuple[JSON, bool]] = [
        ({"karpenter.sh/nodepool": "gpu"}, True),
        ({"karpenter.sh/nodepool": "other"}, False),
        ({"team": "a"}, True),
        ({"team": "b"}, False),
        # Karpenter chooses the values of its own labels and those of its provider.
        ({"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}, True),
        ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, True),
        # Requirements restrict them.
        ({"karpenter.k8s.aws/instance-gpu-name": "h100"}, True),
        ({"karpenter.k8s.aws/instance-gpu-name": "t4"}, False),
        ({"karpenter.k8s.aws/instance-gpu-count": "8"}, True),
        ({"karpenter.k8s.aws/instance-gpu-count": "1"}, False),
        ({"topology.kubernetes.io/zone": "b"}, False),
        # A label that the NodePool only requires to exist gets the value that the Pod requires.
        ({"tier": "gold"}, True),
        # It knows no label that comes later.
        (PRESENT, False),
        ({"eks.amazonaws.com/instance-gpu-name": "h100"}, False),
    ]
    assert [(each, pool.promises(selector_of(each))) for each, _ in labels] == labels


def test_a_requirement_that_kubernetes_does_not_know_may_allow_any_value() -> None:
    four, found = requirement("size", "In", "4"), {}
    for operator, *values in (("Gte", "4"), ("Gt",), ("Lt", "a")):
        unknown = requirement("size", operator, *values)
        alone, both = template(node_pool(unknown)), template(node_pool(unknown, four))
        promised = [alone.promises({"size": allowed}) for allowed in (("5",), ())]
        found[operator] = [*promised, both.promises({"size": ("5",)})]
    assert found == {each: [True, True, False] for each in found}


def test_a_node_pool_offers_any_devices_and_a_node_claim_its_allocatable() -> None:
    assert template(node_pool()).allocatable is None
    claim: JSON = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "gpu-x", "labels": {"karpenter.sh/nodepool": "gpu"}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "8"}},
    }
    found = template(claim)
    assert (found.name, found.taints) == (
        "NodeClaim gpu-x",
        (Taint("nvidia.com/gpu", "NoSchedule", ""),),
    )
    assert (found.allocatable or {})["nvidia.com/gpu"] == 8
    assert template({**claim, "status": {}}).allocatable is None


def test_a_machine_deployment_promises_the_values_of_its_annotations() -> None:
    obj = machine_deployment(
        {"node.cluster.x-k8s.io/pool": "gpu", "app": "not-copied"},
        labels="nvidia.com/gpu.product=A100, zone=a",
        taints="nvidia.com/gpu=present:NoSchedule,team:NoExecute",
        gpu_type="nvidia.com/gpu",
        gpu_count="8",
    )
    found = template(obj)
    assert found.name == "MachineDeployment infra/gpu"
    assert found.taints == (
        Taint("nvidia.com/gpu", "NoSchedule", "present"),
        Taint("team", "NoExecute", ""),
    )
    assert found.allocatable == {"nvidia.com/gpu": 8}
    assert found.promises(
        selector_of({"nvidia.com/gpu.product": "A100", "node.cluster.x-k8s.io/pool": "gpu"})
    )
    assert not found.promises(selector_of({"app": "not-copied"}))
    assert not found.promises(selector_of({"topology.kubernetes.io/zone": "a"}))


def test_there_is_no_template_without_annotations_or_for_other_kinds() -> None:
    assert templates(machine_deployment()) == ()
    assert templates({"apiVersion": "v1", "kind": "Pod"}) == ()


TAINTED: JSON = {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}


def test_doctor_reports_a_template_that_lacks_the_labels_of_its_pool() -> None:
    found = Installation("gpufence-system", "gpufence")
    found.policy = default_policy()
    found.nodes = NodeIndex([Node("n", PRESENT)])
    found.templates = (template(node_pool(**TAINTED)),)
    warned = {line.check: line for line in diagnosis(found) if line.status == "warn"}
    assert warned["node labels"].detail.startswith("NodePool gpu is for GPU nodes")
    found.templates = (template(node_pool(labels=PRESENT, **TAINTED)),)
    assert "node labels" not in {line.check for line in diagnosis(found)}
