"""What a move of pools to DRA breaks."""

from __future__ import annotations

from typing import Any

from policies.facts import Facts
from policies.kubernetes.claims import Claim
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.workload import Workload
from policies.shipped import shipped_policy
from webhook.tools.audit.move import Move

JSON = dict[str, Any]

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
CLAIMING = {
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
    "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
}
FACTS = Facts(claim_templates={("ml", "one"): Claim((frozenset({"gpu.nvidia.com"}),))})
USUAL = {GPU: ["gpu.nvidia.com"], "": ["mig.nvidia.com"]}
OF_POLICY = (
    "Pool nvidia of the policy selects nvidia.com/gpu.present, which feature discovery sets."
)


def requesting(name: str, env: JSON | None = None, **spec: Any) -> JSON:
    container = {"name": "c", "resources": {"limits": {name: "1"}}, "env": [env] if env else []}
    return {"containers": [container], **spec}


def problems(
    *specs: JSON,
    classes: dict[str, list[str]] = USUAL,
    quota: JSON | None = None,
    templates: tuple[NodeTemplate, ...] = (),
) -> list[str]:
    move = Move(shipped_policy())
    for number, spec in enumerate(specs):
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        for pod in Workload(obj).pods():
            move.take(f"Pod ml/{number}", pod, "ml", FACTS)
    metadata = {"namespace": "ml", "name": "q"}
    quotas = [{"metadata": metadata, "spec": {"hard": quota}}] if quota else []
    [of_policy, *others] = move.problems(classes, quotas, templates)
    assert of_policy.startswith(OF_POLICY)
    return others


def test_each_problem_is_found_and_nothing_else() -> None:
    product = {"nvidia.com/gpu.product": "A100"}
    visible = {"name": "NVIDIA_VISIBLE_DEVICES"}
    operator = {"nvidia.com/gpu.deploy.driver": "true"}
    for spec, expected in (
        (requesting(GPU), ""),
        (
            requesting(GPU, nodeSelector=product),
            "Feature discovery sets the node label nvidia.com/gpu.product, which",
        ),
        ({"containers": [{"name": "c"}], "nodeSelector": operator}, ""),
        (
            requesting("nvidia.com/mig-3g.40g"),
            "nvidia.com/mig-3g.40g is not the name of a MIG profile, such as ",
        ),
        (requesting(MIG), f"No DeviceClass provides {MIG} for 1 workload (Pod ml/0)."),
        (requesting("deviceclass.resource.kubernetes.io/mig.nvidia.com"), ""),
        (
            requesting(GPU, {**visible, "value": "all"}),
            "NVIDIA_VISIBLE_DEVICES has a value in 1 workload",
        ),
        (requesting(GPU, {**visible, "value": "void"}), ""),
        (requesting(GPU, {**visible, "valueFrom": {}}), ""),
        (requesting(GPU, {**visible, "valueFrom": {"fieldRef": {}}}), "NVIDIA_VISIBLE_DEVICES has"),
        ({"containers": [{"name": "c", "env": [{**visible, "value": "all"}]}]}, ""),
        (CLAIMING, ""),
    ):
        found = problems(spec)
        assert [each.startswith(expected) for each in found] == [True] * bool(expected), found


def test_classes_that_no_cluster_has_yet_are_those_of_the_chart() -> None:
    assert problems(requesting(GPU), classes={"": ["other.example.com"]}) == []
    [found] = problems(requesting(GPU), classes={"": ["gpu.nvidia.com"]})
    assert found.startswith(f"No DeviceClass provides {GPU}")
    [found] = problems(classes={GPU: ["gpu.nvidia.com", "a"]})
    assert found.startswith(f"DeviceClasses a and gpu.nvidia.com provide {GPU}: the scheduler uses")


def test_a_quota_that_limits_devices_by_some_of_their_names() -> None:
    of_gpu, of_mig = (
        f"{name}.nvidia.com.deviceclass.resource.k8s.io/devices" for name in ("gpu", "mig")
    )
    for limits, expected in (
        ([f"requests.{GPU}"], [f"limits requests.{GPU}, but no claims on mig.nvidia.com"]),
        ([f"requests.{GPU}", of_mig], []),
        ([of_gpu], [f"limits {of_gpu}: a Pod with {GPU} that exceeds it stays Pending"]),
        ([of_mig], []),
        (["requests.cpu"], []),
    ):
        found = problems(quota=dict.fromkeys(limits, "4"))
        assert len(found) == len(expected), found
        for sentence, part in zip(found, expected, strict=True):
            assert f"ResourceQuota ml/q {part}" in sentence


def test_claims_on_a_pool_whose_nodes_an_autoscaler_adds() -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    [found] = problems(CLAIMING, templates=(NodeTemplate("NodePool gpu", labels),))
    assert "devices of pool nvidia in 1 workload (Pod ml/0), and NodePool gpu may not know" in found
