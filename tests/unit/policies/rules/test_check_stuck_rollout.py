"""The facts on which stuck-rollout depends, besides those of the cases."""

from __future__ import annotations

from typing import Any

import pytest

from deciding import GPU, deployment, pod, policy
from policies.engine import NO_FACTS, decide
from policies.facts import Facts
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex

PRESENT = {"nvidia.com/gpu.present": "true"}
ONE = Node("gpu-1", PRESENT, (), {"nvidia.com/gpu": 1})


def findings(facts: Facts = NO_FACTS, container: dict[str, Any] = GPU, **fields: Any) -> list[str]:
    """Return the findings on a Deployment of one replica with the default strategy."""
    obj = deployment(pod(container))
    obj["spec"]["selector"] = {"matchLabels": {"app": "llm"}}
    decision = decide(obj, policy(**fields), facts=facts)
    return [finding.detail for finding in decision.findings if finding.rule == "stuck-rollout"]


@pytest.mark.parametrize(("devices", "count"), [(0, 1), (1, 0), (None, 0)])
def test_a_node_that_an_autoscaler_can_add_ends_the_wait(devices: int | None, count: int) -> None:
    allocatable = None if devices is None else {"nvidia.com/gpu": devices}
    template = NodeTemplate("t", PRESENT, allocatable=allocatable)
    assert len(findings(Facts(nodes=NodeIndex([ONE]), templates=(template,)))) == count


def test_shares_of_a_device_are_reported_by_numbers_only() -> None:
    pool = {
        "name": "shared",
        "resources": ["nvidia.com/gpu"],
        "sharedResources": ["nvidia.com/gpu"],
        "nodeSelector": PRESENT,
    }
    assert not findings(pools=[pool])
    [detail] = findings(Facts(nodes=NodeIndex([ONE])), pools=[pool])
    assert "have room for 1," in detail
    whole = {"name": "whole", "resources": ["nvidia.com/gpu"], "nodeSelector": {"gpu": "whole"}}
    assert findings(pools=[pool, whole])


def test_a_pod_that_fits_on_no_node_is_left_to_other_rules() -> None:
    none = Node("gpu-1", PRESENT, (), {"nvidia.com/mig-1g.10gb": 7})
    assert not findings(Facts(nodes=NodeIndex([none])))


def test_a_device_counts_beside_one_by_the_name_of_its_class() -> None:
    pool = {
        "name": "a",
        "resources": ["nvidia.com/gpu"],
        "deviceClasses": ["gpu.nvidia.com"],
        "nodeSelector": PRESENT,
    }
    limits = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 1, "nvidia.com/gpu": 1}
    [detail] = findings(container={"resources": {"limits": limits}}, pools=[pool])
    assert "nvidia.com/gpu" in detail
