"""The commands in which the rule needs-root finds the installation of packages."""

from __future__ import annotations

import pytest

from deciding import GPU, pod, policy
from policies.engine import decide
from policies.rules import check_needs_root

POLICY = policy()
END = "pip install"


@pytest.mark.parametrize(
    ("command", "installs"),
    [
        ("apt-get update", True),
        ("apt install -y git", True),
        ("yum upgrade", True),
        ("dnf install git", True),
        ("microdnf -y install git", True),
        ("pip install torch", True),
        ("pip3 install torch", True),
        ("conda install torch", True),
        ("mamba install torch", True),
        ("apk add git", True),
        ("cd /tmp && apk add git", True),
        ("pip list; conda install torch", True),
        ("conda run pip install torch", True),
        ("pip update", False),
        ("apk install git", False),
        ("apt-get clean", False),
        ("mypip install torch", False),
        ("pip-compile install", False),
        ("install pip", False),
        ("pip list | xargs install", False),
        ("pip check & make install", False),
        (END.rjust(8 * 1024), True),
        (END.rjust(8 * 1024 + 1), False),
    ],
)
def test_a_command_installs_packages_with_a_program_and_its_word(
    command: str, installs: bool
) -> None:
    made = pod({**GPU, "command": [command]})
    found = [each for each in decide(made, POLICY).findings if each.rule == check_needs_root.ID]
    assert bool(found) is installs


@pytest.mark.parametrize(
    "image",
    [
        "vllm/vllm-openai:v0.8.0",
        "ghcr.io/huggingface/text-generation-inference:3.0.0",
        "ollama/ollama",
        "nvcr.io/nvidia/tritonserver:25.01-py3",
        "quay.io/jupyter/base-notebook",
        "quay.io/jupyter/minimal-notebook",
        "quay.io/jupyter/scipy-notebook",
        "quay.io/jupyter/datascience-notebook",
        "quay.io/jupyter/pytorch-notebook:cuda12-latest",
        "quay.io/jupyter/tensorflow-notebook:cuda-latest",
    ],
)
def test_an_image_is_known_to_fail_with_another_user(image: str) -> None:
    findings = decide(pod({**GPU, "image": image}), POLICY).findings
    assert [each.path for each in findings if each.rule == check_needs_root.ID] == [
        "spec.containers[0].image"
    ]


@pytest.mark.parametrize("level", ["restricted", "baseline", "off"])
def test_the_capability_is_recommended_where_the_policy_accepts_it(level: str) -> None:
    own = policy(hardening={"level": level})
    train = pod({"resources": {"limits": {"nvidia.com/gpu": 8, "rdma/hca": 1}}})
    findings = [each for each in decide(train, own).findings if each.rule == check_needs_root.ID]
    [remediation] = [finding.remediation for finding in findings]
    assert "ulimit -l" in remediation
    assert ("IPC_LOCK" in remediation) is (level == "off")
    assert ("Or run ulimit -l in the container" in remediation) is (level == "off")


def test_one_label_of_the_gpu_operator_is_enough_in_a_pool() -> None:
    labels = {"zone": "a", "nvidia.com/gpu.present": "true"}
    pool = {"name": "a", "resources": ["nvidia.com/gpu"], "nodeSelector": labels}
    found = decide(pod(GPU, hostUsers=False), policy(pools=[pool])).findings
    assert "spec.hostUsers" in [finding.path for finding in found]
