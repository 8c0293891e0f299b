"""Labels of pools that neither nodes nor node templates have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from policies.candidates import describe_labels
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import NodeIndex
from policies.policy import Policy, Pool


class LabelProblem(NamedTuple):
    """Why an autoscaler adds no node for the GPU Pods of a pool, and what to do."""

    problem: str
    remediation: str


def label_problems(
    policy: Policy, nodes: NodeIndex, templates: Sequence[NodeTemplate]
) -> Iterator[LabelProblem]:
    """Yield pools whose labels nothing has, and templates for pools whose labels they lack.

    gpufence requires the labels of GPU Pods. Without them, Pods stay Pending.
    """
    for pool in policy.pools:
        if nodes.with_labels(pool.node_selector):
            continue
        if not any(template.promises(pool.node_selector) for template in templates):
            yield LabelProblem(
                f"no node has the labels of pool {pool.name} ({describe_labels(pool)}), and no "
                "node template promises them: its GPU Pods stay Pending",
                "Correct nodeSelector, or add the labels to the node group or the template",
            )
    for template in templates:
        pools = [pool for pool in policy.pools if _is_for(template, pool)]
        if pools and not any(template.promises(pool.node_selector) for pool in pools):
            labels = " or ".join(f"{describe_labels(pool)} (pool {pool.name})" for pool in pools)
            yield LabelProblem(
                f"{template.name} is for GPU nodes, but does not promise the labels {labels}: no "
                "node is added for GPU Pods",
                "Add the labels to the template, or select the pool by a label of the template: "
                "see gpufence policy discover",
            )


def _is_for(template: NodeTemplate, pool: Pool) -> bool:
    """Return whether the nodes of a template have the taint or the devices of a pool."""
    devices = template.allocatable or {}
    return any(count and name in pool.resources for name, count in devices.items()) or any(
        pool_taint.includes(taint) for taint in template.taints for pool_taint in pool.taints
    )
