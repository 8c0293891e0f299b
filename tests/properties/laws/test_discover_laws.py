"""A discovered policy is valid, and keeps no GPU Pod from a node that it could use."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, event, given
from hypothesis import strategies as st

from laws.profile import law
from policies.document import parse_policy
from policies.engine import decide
from policies.kubernetes.core_v1 import PodSpec, Requirement
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import Taint, alternatives, matches_node, tolerates
from policies.kubernetes.selector import selector_of
from policies.kubernetes.workload import convert
from strategies import JSON
from webhook.documents.files import read_documents
from webhook.tools.cli.discover.accelerators import KNOWN
from webhook.tools.cli.discover.drafts import draft
from webhook.tools.cli.discover.text import policy_text

TAINTS = (
    Taint("nvidia.com/gpu", "NoSchedule", "present"),
    Taint("nvidia.com/gpu", "NoExecute", ""),
    Taint("gpu-model", "NoSchedule", "h100"),
    Taint("team", "NoSchedule", "a"),
    Taint("node.kubernetes.io/unreachable", "NoExecute", ""),
    Taint("cloud.google.com/gke-spot", "NoSchedule", "true"),
)
MANUFACTURER = "karpenter.k8s.aws/instance-gpu-manufacturer"
LABELS = {
    "nvidia.com/gpu.present": ["true"],
    "nvidia.com/gpu.product": ["A100", "H100"],
    "cloud.google.com/gke-accelerator": ["nvidia-a100", "nvidia-h100"],
    "karpenter.k8s.aws/instance-gpu-name": ["a100", "h100"],
    MANUFACTURER: ["nvidia", "amd"],
    "karpenter.sh/nodepool": ["one", "two"],
    "nvidia.com/mig.config": ["all-disabled", "mixed"],
    "nvidia.com/gpu.sharing-strategy": ["none", "time-slicing"],
    "node.kubernetes.io/instance-type": ["p4", "p5"],
    "feature.node.kubernetes.io/amd-gpu": ["true"],
    "amd.com/gpu.product-name": ["MI300X"],
    "team": ["a", "b"],
}
RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "amd.com/gpu")

_labels = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in LABELS.items()})
_taints = st.lists(st.sampled_from(TAINTS), unique=True, max_size=3).map(tuple)
_devices = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from([0, 1, 8]), max_size=2)


@st.composite
def node_lists(draw: st.DrawFn) -> list[Node]:
    found = draw(st.lists(st.tuples(_labels, _taints, _devices), max_size=6))
    return [Node(f"n{i}", *each) for i, each in enumerate(found)]


@st.composite
def template_lists(draw: st.DrawFn, least: int = 0) -> list[NodeTemplate]:
    made = []
    for number in range(draw(st.integers(least, 2))):
        restricted = draw(st.lists(st.sampled_from(sorted(LABELS)), unique=True, max_size=2))
        requirements = tuple(
            Requirement(
                key=key,
                operator="In",
                values=draw(st.lists(st.sampled_from(LABELS[key]), min_size=1, unique=True)),
            )
            for key in restricted
        )
        labels = {k: v for k, v in draw(_labels).items() if k not in restricted}
        karpenter = draw(st.booleans())
        made.append(
            NodeTemplate(
                f"template {number}",
                labels,
                draw(_taints),
                requirements=requirements if karpenter else (),
                provider="karpenter.k8s.aws" if karpenter else "",
                chooses=karpenter,
                allocatable=None if karpenter else draw(_devices),
            )
        )
    return made


def gpu_pod(resource: str, **spec: Any) -> JSON:
    container = {"name": "c", "image": "i", "resources": {"limits": {resource: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [container], **spec},
    }


def fits_template(spec: PodSpec, template: NodeTemplate) -> bool:
    """Return whether the node selection of a Pod can be met by a node of the template."""
    return any(
        template.promises(selector_of(each.labels))
        and all(
            any(template.promises({e.key or "": (value,)}) for value in e.values or ())
            for e in each.expressions
        )
        for each in alternatives(spec)
    )


@law
@given(node_lists(), template_lists(), st.sampled_from([[], ["gpu.nvidia.com"]]))
def test_mutated_gpu_pods_fit_every_node_of_a_discovered_pool(
    nodes: list[Node], templates: list[NodeTemplate], classes: list[str]
) -> None:
    made = draft(nodes, templates, classes)
    assume(made.pools)
    text = policy_text(made, None)
    [document] = read_documents("policy.yaml", text)
    policy = parse_policy(document.value)
    event(f"pools: {len(made.pools)}")
    for pool in made.pools:
        for member in pool.members:
            for resource in member.devices:
                mutated = decide(gpu_pod(resource), policy).mutated
                spec = convert(mutated["spec"], PodSpec)
                if isinstance(member.source, Node):
                    assert matches_node(spec, member.name, member.source.labels)
                for taint in pool.taints:
                    assert any(tolerates(each, taint) for each in spec.tolerations or ())


@law
@given(node_lists(), template_lists(least=1), st.data())
def test_a_pod_that_fits_a_template_fits_it_after_mutation(
    nodes: list[Node], templates: list[NodeTemplate], data: st.DataObject
) -> None:
    made = draft(nodes, templates, [])
    members = [
        (pool, member) for pool in made.pools for member in pool.members if member.is_template
    ]
    assume(members)
    text = policy_text(made, None)
    [document] = read_documents("policy.yaml", text)
    policy = parse_policy(document.value)
    pool, member = data.draw(st.sampled_from(members))
    template = member.source
    assert isinstance(template, NodeTemplate)
    offered = [name.replace("*", "1g.10gb") for name in pool.resources]
    resource = data.draw(st.sampled_from(offered))
    assume(template.offers({resource: 1}))
    keys = [key for key in LABELS if any(template.values(key))]
    selection = {
        key: data.draw(st.sampled_from(sorted(template.values(key))))
        for key in data.draw(st.lists(st.sampled_from(keys), unique=True) if keys else st.just([]))
    }
    # No node of the template has the resource and the label of another vendor.
    vendor = resource.partition(".")[0]
    assume(selection.get(MANUFACTURER, vendor) == vendor)
    # Of partitions and shares it is only known that nodes of this pool have them.
    labels = (
        {}
        if resource == pool.vendor.resource
        else {key: values[0] for key, values in pool.selector.items()}
    )
    assume(all(selection.get(key, value) == value for key, value in labels.items()))
    pod = gpu_pod(resource, nodeSelector=selection)
    assert fits_template(convert(pod["spec"], PodSpec), template)
    spec = convert(decide(pod, policy).mutated["spec"], PodSpec)
    event(f"selection: {len(selection)}")
    assert fits_template(spec, template)
    fences = {taint for taint in member.taints if taint.key not in KNOWN.generic_taints}
    common = {t.key for node in nodes for t in node.taints}
    for taint in (each for each in fences if each.key not in common):
        assert any(tolerates(each, taint) for each in spec.tolerations or ())
