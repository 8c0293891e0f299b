"""The page about emergencies: each of its commands, and then the Pod that was denied."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from controlplane.poll import until
from deploy import kubelet
from deploy.chart import NAMESPACE, RELEASE, Object
from deploy.installation import Installation
from paths import PROJECT

pytestmark = [
    pytest.mark.skipif(
        bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
    ),
]

PAGE = (PROJECT / "docs" / "operate" / "break-glass.md").read_text()
PODS = "/api/v1/namespaces/default/pods"
TRESPASSER: Object = {
    "metadata": {"name": "trespasser"},
    "spec": {
        "containers": [{"name": "main", "image": "registry.example/app"}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
}
INTRODUCTION, BY_DELETION, AFTERWARDS = "", "Without the controller", "Afterwards"
CAUSE = "Find the cause"


@pytest.fixture(scope="module")
def installed(installable: Installation) -> Installation:
    installable.install({})
    return installable


Run = Callable[[str], None]


@pytest.fixture
def run(installed: Installation, quick_command: Path) -> Run:
    """Run every command of a section of the page."""
    return partial(run_section, installed, quick_command)


def run_section(installed: Installation, gpufence: Path, section: str) -> None:
    sections = re.split(r"(?m)^## ", PAGE)
    [text] = [each for each in sections if each.startswith(section)][:1]
    kubectl = installed.cluster.kubectl
    programs = (gpufence, kubectl.binary, installed.helm.binary)
    path = os.pathsep.join([*(str(each.parent) for each in programs), os.environ["PATH"]])
    environ = kubectl.environ() | installed.helm.environ() | {"PATH": path}
    commands = re.findall(r"(?m)^\$ (.*)$", text)
    assert commands
    for command in commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=PROJECT,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def create_the_trespasser(installed: Installation) -> None:
    """Create it for good, once API servers have noticed."""
    until(lambda: not installed.refusal(TRESPASSER), "the trespasser to be admitted")
    api = installed.cluster.api
    api.request("POST", PODS, TRESPASSER)
    api.request("DELETE", f"{PODS}/trespasser?gracePeriodSeconds=0")


def scale(installed: Installation, deployment: str, replicas: int) -> None:
    """Scale a Deployment, and wait for its Pods to be there, or gone."""
    kubectl = installed.cluster.kubectl
    kubectl("scale", "deployment", deployment, f"--replicas={replicas}", "-n", NAMESPACE)
    until(lambda: len(installed.pods(deployment)) == replicas, "the Pods")


def is_fenced(installed: Installation) -> bool:
    return bool(installed.refusal(TRESPASSER)) and len(installed.configurations()) == 2


@pytest.mark.parametrize("replicas", [2, 0])
@pytest.mark.slow("installs, and waits for the fence to go and to come back")
def test_the_switch_admits_the_trespasser(installed: Installation, run: Run, replicas: int) -> None:
    """With all replicas alive, and with all of them dead: the controller needs none."""
    scale(installed, RELEASE, replicas)
    assert is_fenced(installed)
    run(INTRODUCTION)
    create_the_trespasser(installed)

    def follows() -> bool:
        """Return whether nothing waits for a replica, and nothing in the API server denies."""
        webhooks = [each for config in installed.configurations() for each in config["webhooks"]]
        bindings = installed.cluster.api.request(
            "GET",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        )["items"]
        denying = [
            each["metadata"]["name"]
            for each in bindings
            if "Deny" in each["spec"]["validationActions"]
            and not each["metadata"]["name"].endswith("-guard")
        ]
        return {each["failurePolicy"] for each in webhooks} == {"Ignore"} and not denying

    until(follows, "the API server's half to follow")
    scale(installed, RELEASE, 2)
    run(CAUSE)
    run(AFTERWARDS)
    until(lambda: is_fenced(installed), "the fence to be back")


@pytest.mark.parametrize("state", ["alive", "dead"])
@pytest.mark.slow("waits for Pods to end and to start again")
def test_the_deletions_admit_the_trespasser(installed: Installation, run: Run, state: str) -> None:
    """With all replicas and the controller alive, and with all of them dead."""
    if state == "dead":
        scale(installed, f"{RELEASE}-controller", 0)
        scale(installed, RELEASE, 0)
    assert is_fenced(installed)
    run(BY_DELETION)
    create_the_trespasser(installed)
    scale(installed, RELEASE, 2)
    run(AFTERWARDS)
    until(lambda: is_fenced(installed), "the fence to be back")
    kubelet.wait_ready(installed.kubelet, 3)
