"""Which Pods that take whole nodes with RDMA devices are reported, besides the cases."""

from __future__ import annotations

from typing import Any

import pytest

from deciding import GPU, POOL, deployment, pod, policy, update
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.nodes import Node, NodeIndex
from policies.rules import check_missing_device
from strategies import JSON

PRESENT = {"nvidia.com/gpu.present": "true"}
NODES = NodeIndex([Node("gpu-1", PRESENT, (), {"nvidia.com/gpu": 8, "rdma/hca": 8})])
WHOLE_NODE = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "a"}
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "llm", "uid": "a"}


def is_reported(obj: JSON, facts: Facts, **fields: Any) -> bool:
    found = decide(obj, policy(**fields), facts=facts).findings
    return any(finding.rule == check_missing_device.ID for finding in found)


def owned(owner: JSON) -> JSON:
    return pod(WHOLE_NODE, metadata={"ownerReferences": [owner]})


@pytest.mark.parametrize(
    ("obj", "reported"),
    [
        (owned(JOB | {"controller": True}), True),
        (owned(JOB), False),
        (owned(REPLICA_SET | {"controller": True}), False),
        (pod(WHOLE_NODE), False),
        (deployment(pod(WHOLE_NODE)), False),
        (deployment(pod(WHOLE_NODE)) | {"kind": "StatefulSet"}, True),
    ],
)
def test_a_pod_works_with_others_unless_nothing_or_a_deployment_controls_it(
    obj: JSON, reported: bool
) -> None:
    assert is_reported(obj, Facts(nodes=NODES)) is reported
    assert not is_reported(obj, Facts())


def test_devices_without_the_variable_can_be_requested_beside_others() -> None:
    of_pool = POOL | {"resources": ["nvidia.com/*", "example.com/nic"]}
    for other, classes in (
        ("nvidia.com/mig-1g.10gb", {"nvidia.com/mig-1g.10gb": "mig.nvidia.com"}),
        ("example.com/nic", {}),
    ):
        made = pod({"resources": {"limits": {"nvidia.com/gpu": 1, other: 1}}})
        facts = Facts(extended_resource_classes=classes)
        assert not is_reported(made, facts, pools=[of_pool])


def test_another_runtime_is_reported_where_one_runtime_shows_the_devices() -> None:
    models = [POOL | {"name": m, "runtimeClass": m, "nodeSelector": {"m": m}} for m in ("a", "b")]
    claims = [{"name": "gpu", "resourceClaimName": "one"}]
    using = pod({"resources": {"claims": [{"name": "gpu"}]}}, resourceClaims=claims)
    facts = Facts(claims={("default", "one"): Claim((frozenset({"gpu.nvidia.com"}),))})
    for obj, pools, reported in ((pod(GPU), 1, True), (pod(GPU), 2, False), (using, 1, False)):
        obj["spec"]["runtimeClassName"] = "other"
        assert is_reported(obj, facts, pools=models[:pools]) is reported


def test_a_resource_claim_can_be_for_an_rdma_device() -> None:
    claims = [{"name": "nic", "resourceClaimName": "nic"}]
    train = pod(WHOLE_NODE, resourceClaims=claims)
    stateful = deployment(train) | {"kind": "StatefulSet"}
    assert not is_reported(stateful, Facts(nodes=NODES))


def test_a_claim_of_a_bound_pod_needs_devices_in_a_cluster_until_the_pod_exists() -> None:
    claims = [{"name": "gpu", "resourceClaimName": "one"}]
    bound = pod({"resources": {"claims": [{"name": "gpu"}]}}, nodeName="n", resourceClaims=claims)
    facts = Facts(claims={("default", "one"): Claim((frozenset({"gpu.nvidia.com"}),))})
    for reported, request in (
        (True, Request(fail_closed=True)),
        (False, Request()),
        (False, update(pod(), fail_closed=True)),
    ):
        found = decide(bound, policy(), request, facts).findings
        assert any(each.rule == check_missing_device.ID for each in found) is reported, request


@pytest.mark.parametrize("shared", [["a"], ["a", "b"]])
def test_eight_shares_of_a_device_are_no_whole_node(shared: list[str]) -> None:
    nodes = [Node(n, {"pool": n}, (), {"nvidia.com/gpu": 8, "rdma/hca": 8}) for n in ("a", "b")]
    gpus = [{"name": f"rank-{i}", **GPU} for i in range(8)]
    obj = deployment(pod(*gpus)) | {"kind": "StatefulSet"}
    pools = [
        {"name": n, "resources": ["nvidia.com/gpu"], "nodeSelector": {"pool": n}}
        for n in ("a", "b")
    ]
    assert is_reported(obj, Facts(nodes=NodeIndex(nodes)), pools=pools)
    for pool in pools:
        if pool["name"] in shared:
            pool["sharedResources"] = ["nvidia.com/gpu"]
    assert not is_reported(obj, Facts(nodes=NodeIndex(nodes)), pools=pools)
