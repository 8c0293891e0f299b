"""The commands in which the rule needs-root finds the installation of packages."""

from __future__ import annotations

from typing import Any

import pytest

from deciding import GPU, pod, policy
from policies.engine import decide
from policies.facts import Facts
from policies.images import known_image, known_images
from policies.kubernetes.claims import Claim
from policies.kubernetes.nodes import Node, NodeIndex
from policies.policy import Policy
from policies.rules import check_needs_root

JSON = dict[str, Any]
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
    decision = decide(made, POLICY)
    assert not decision.failures
    assert any(each.rule == check_needs_root.ID for each in decision.findings) is installs


def test_what_the_file_says_of_an_image_settles_it() -> None:
    """As user 65532, with a home directory, as the user of the image, and as one of the Pod."""
    wrong = []
    for known in known_images():
        tag = "" if ":" in known.name else ":24.1"
        image = f"mirror.example/{known.name.replace('*', 'x')}{tag}@sha256:0"
        made = pod({**GPU, "image": image})
        own = {"runAsUser": known.user, "fsGroup": known.fs_group}
        settings: tuple[JSON, ...] = (
            {},
            {"home": "20Gi"},
            {"runAsUser": 2, **own} if known.user else {},
        )
        found = [signs(made, policy(hardening=each)) for each in settings]
        found.append(
            signs(pod(*made["spec"]["containers"], securityContext={"runAsUser": 2}), POLICY)
        )
        path = ["spec.containers[0].image"]
        expected = {
            "any": [[], [], [], []],
            "home": [path, [], [] if known.user else path, path if known.user else []],
            "user": [path, path, [], []],
            "root": [path, path, path, []],
        }
        if found != expected[known.needs]:
            wrong.append((known.name, found))
    assert not wrong


def test_an_image_is_known_by_the_end_of_its_repository() -> None:
    names = {
        "ollama/ollama": True,
        "ghcr.io/ollama/ollama:1@sha256:0": True,
        "localhost:5000/mirror/ollama/ollama": True,
        "ollama": False,
        "not-ollama/ollama": False,
        "ollama/ollama/x": False,
        "quay.io/jupyter/scipy-notebook": True,
        f"{'x' * 600}/ollama/ollama": False,
    }
    assert {name: known_image(name) is not None for name in names} == names
    tags = {"1.4.1-gpu-py3": "root", "2.13.0-gpu": "any"}
    for tag, needs in tags.items():
        for end in ("", "@sha256:0"):
            known = known_image(f"localhost:5000/tensorflow/tensorflow:{tag}{end}")
            assert getattr(known, "needs", None) == needs, tag


def signs(made: JSON, own: Policy) -> list[str]:
    """Return the paths of the findings of the rule."""
    return [each.path for each in decide(made, own).findings if each.rule == check_needs_root.ID]


def test_a_program_that_needs_root_is_reported_with_a_home_directory_as_well() -> None:
    own = policy(hardening={"home": "20Gi"})
    expected = {
        "sudo ldconfig": "uses sudo",
        "cd /a && sudo -n id": "uses sudo",
        "sudoku": "",
        "apt-get install git": "installs packages container",
        "pip install git": "$HOME/.local",
    }
    for command, part in expected.items():
        made = pod({**GPU, "command": ["sh", "-c", command]})
        found = [f for f in decide(made, own).findings if f.rule == check_needs_root.ID]
        texts = [f"{each.reason} {each.detail}" for each in found]
        assert [part in text for text in texts] == ([True] if part else []), (command, texts)


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


def test_a_client_of_an_mps_server_is_reported_if_gpufence_chooses_its_user() -> None:
    node = Node("n", {"nvidia.com/gpu.sharing-strategy": "mps"}, (), {"nvidia.com/gpu": 8})
    facts = Facts(nodes=NodeIndex([node]))
    for default, own, reported in (
        (65532, {}, True),
        (65532, {"runAsUser": 7}, False),
        ("none", {}, False),
    ):
        hardening = policy(hardening={"level": "restricted", "runAsUser": default})
        found = decide(pod(GPU, securityContext=own), hardening, facts=facts).findings
        assert any("an MPS server" in each.reason for each in found) is reported, (default, own)


def test_a_start_is_slow_where_a_claim_is_mounted_for_writing() -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]
    volumes.append({"name": "scratch", "emptyDir": {}})
    for mount, slow in (
        ({"name": "d"}, True),
        ({"name": "d", "readOnly": True}, False),
        ({"name": "scratch"}, False),
    ):
        train = {**GPU, "volumeMounts": [{"mountPath": "/d", **mount}]}
        made = pod(train, volumes=volumes, securityContext={"fsGroup": 2000})
        assert ("spec.securityContext.fsGroup" in signs(made, POLICY)) is slow, mount


def test_a_device_file_of_a_group_is_reported_unless_the_pod_has_a_group() -> None:
    pool = {"name": "a", "resources": ["amd.com/gpu"], "nodeSelector": {"amd": "true"}}
    classes = ["gpu.amd.com", "gpu.example.com"]
    own = policy(pools=[pool | {"deviceClasses": classes}])
    facts = Facts(claims={("default", "one"): Claim((frozenset(classes),))})
    claims = [{"name": "gpu", "resourceClaimName": "one"}]
    claiming = pod({"resources": {"claims": [{"name": "gpu"}]}}, resourceClaims=claims)
    requesting = {"resources": {"limits": {"amd.com/gpu": 1}}}
    for obj, reported in (
        (pod(requesting), True),
        (claiming, True),
        (pod(requesting, securityContext={"runAsGroup": 44}), False),
        (pod(requesting, securityContext={"supplementalGroups": [44]}), False),
    ):
        found = decide(obj, own, facts=facts).findings
        assert any("their group" in each.reason for each in found) is reported, obj
