"""The names of accelerators that the rule unknown-device-resource knows."""

from __future__ import annotations

import pytest

from deciding import pod, policy
from policies.engine import decide

OTHER = policy(
    pools=[{"name": "a", "resources": ["example.com/a"], "nodeSelector": {"device": "a"}}]
)
DEFAULT = "gpufence policy show prints one"


@pytest.mark.parametrize(
    ("resource", "example"),
    [
        ("aliyun.com/gpu-mem", ""),
        ("amd.com/gpu", "gpufence policy show --preset amd prints one"),
        ("aws.amazon.com/neuroncore", ""),
        ("cambricon.com/mlu370", ""),
        ("cloud-tpus.google.com/v3", ""),
        ("enflame.com/gcu", ""),
        ("google.com/tpu", ""),
        ("gpu.intel.com/i915", "gpufence policy show --preset intel prints one"),
        ("gpu.intel.com/xe", "gpufence policy show --preset intel prints one"),
        ("habana.ai/gaudi", ""),
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
