"""Names and places of devices that the rule unknown-device-resource knows, besides the cases."""

from __future__ import annotations

from typing import Any

import pytest

from deciding import deployment, pod, policy
from policies.engine import decide
from policies.facts import Facts, Request
from policies.rules import check_unknown_device_resource
from strategies import JSON
from webhook.tools.custom_resources import workload

OTHER = policy(
    pools=[{"name": "a", "resources": ["example.com/a"], "nodeSelector": {"device": "a"}}]
)
DEFAULT = "gpufence policy show prints one"


@pytest.mark.parametrize(
    ("resource", "example"),
    [
        ("aliyun.com/gpu-mem", ""),
        ("alpha.kubernetes.io/nvidia-gpu", DEFAULT),
        ("amd.com/gpu", "gpufence policy show --preset amd prints one"),
        ("aws.amazon.com/neuroncore", ""),
        ("cambricon.com/mlu370", ""),
        ("cloud-tpus.google.com/v3", ""),
        ("enflame.com/gcu", ""),
        ("google.com/tpu", ""),
        ("gpu.intel.com/i915", "gpufence policy show --preset intel prints one"),
        ("gpu.intel.com/xe", "gpufence policy show --preset intel prints one"),
        ("habana.ai/gaudi", "gpufence policy show --preset gaudi prints one"),
        ("huawei.com/Ascend910", ""),
        ("hygon.com/dcunum", ""),
        ("iluvatar.ai/gpu", ""),
        ("iluvatar.ai/vgpu", ""),
        ("metax-tech.com/gpu", ""),
        ("mthreads.com/vgpu", ""),
        ("nvidia.com/gpu", DEFAULT),
        ("nvidia.com/gpucores", "gpufence policy show --preset hami prints one"),
        ("nvidia.com/gpumem-percentage", "gpufence policy show --preset hami prints one"),
        ("nvidia.com/mig-1g.5gb", DEFAULT),
        ("tencent.com/vcuda-core", ""),
        ("volcano.sh/gpu-memory", ""),
        ("volcano.sh/gpu-number", ""),
        ("volcano.sh/vgpu-memory", "gpufence policy show --preset volcano-vgpu prints one"),
        ("volcano.sh/vgpu-number", "gpufence policy show --preset volcano-vgpu prints one"),
    ],
)
def test_an_accelerator_without_a_pool_is_reported(resource: str, example: str) -> None:
    (finding,) = decide(pod({"resources": {"limits": {resource: 1}}}), OTHER).findings
    assert finding.reason == "no pool offers a requested device"
    assert ("gpufence policy show" in finding.remediation) is bool(example)
    assert example in finding.remediation


def remediations(container: JSON, *, kind: str = "apps/v1", **pool: Any) -> list[str]:
    """Return what an admission webhook advises about a template with the container."""
    own = policy(pools=[{"name": "a", "nodeSelector": {"device": "a"}, **pool}])
    obj = deployment(pod(container)) | {"apiVersion": kind}
    facts = Facts(extended_resource_classes={"example.com/late": "a.example.com"})
    found = decide(workload(obj, own), own, Request(fail_closed=True), facts).findings
    return [each.remediation for each in found if each.rule == check_unknown_device_resource.ID]


def test_an_api_server_drops_the_unknown_fields_of_core_workloads_alone() -> None:
    misplaced = {"limits": {"example.com/late": 1}}
    assert remediations(misplaced, deviceClasses=["a.example.com"]) == []
    assert remediations(misplaced, kind="example.com/v1", deviceClasses=["a.example.com"]) == [
        "Move example.com/late to resources.limits of the container"
    ]


@pytest.mark.parametrize(
    ("name", "pool", "meant"),
    [
        ("gpu", {"resources": ["example.com/gpu-*"]}, "example.com/gpu-NAME"),
        ("amd/gpu", {"resources": ["amd.com/gpu"]}, "amd.com/gpu"),
        (
            "example.com/GPU-B",
            {"resources": ["example.com/gpu-b", "example.com/gpu-*"]},
            "example.com/gpu-b",
        ),
    ],
)
def test_a_misspelled_name_is_renamed(name: str, pool: JSON, meant: str) -> None:
    advice = remediations({"resources": {"limits": {name: 1}}}, **pool)
    assert advice == [f"Rename {name} to {meant}"]


def test_a_name_without_a_domain_becomes_a_claim_where_no_pool_has_resources() -> None:
    classes: JSON = {"deviceClasses": ["b.example.com", "a.example.com"]}
    advice = ["Use a resource claim on device class a.example.com in place of gpu"]
    assert remediations({"resources": {"limits": {"gpu": 1}}}, **classes) == advice
    assert remediations({"limits": {"gpu": 1}}, kind="example.com/v1", **classes) == advice
    others = {"limits": {"cpu": 1, "example.org/licence": 1}}
    assert remediations(others, kind="example.com/v1", **classes) == []
