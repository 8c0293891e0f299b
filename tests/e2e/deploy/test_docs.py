"""The pages about an installation's life: their commands are run, their values are rendered."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.poll import until
from deploy import kubelet
from deploy.chart import NAMESPACE, RELEASE, Helm, Object, Values, memory
from deploy.installation import Installation
from docs.blocks import LIFE, VALUES, Block, blocks, fence_policies, pages
from each import each
from paths import PROJECT
from policies.document import parse_policy
from policies.registry import CHECKS
from policies.shipped import PRESETS, default_policy_text
from release.load import GPU_POD
from webhook.controller.registrar import POLICY_KINDS as PATHS
from webhook.controller.text.objects import POLICY_KIND, all_names

LIFECYCLE_BLOCKS = [block for name in LIFE for block in blocks(name)]
YAML = [block for block in LIFECYCLE_BLOCKS if block.language == "yaml"]
BREAK_GLASS, RESTORE = "docs/operate/break-glass.md", "docs/operate/restore.md"
PODS = "/api/v1/namespaces/default/pods"
TRESPASSER: Object = {
    "metadata": {"name": "trespasser"},
    "spec": {
        "containers": [{"name": "main", "image": "registry.example/app"}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
}


def consoles(page: str) -> list[Block]:
    """Return the blocks with commands of a page."""
    return [block for block in blocks(page) if block.language == "console"]


def values() -> dict[str, Values]:
    """Return the values on the pages by their purpose."""
    found: dict[str, Values] = {
        f"{block.place}: {block.text.splitlines()[0].removeprefix(VALUES)}": yaml.safe_load(
            block.text
        )
        for page in pages()
        for block in blocks(page)
        if block.text.startswith(VALUES)
    }
    for block in YAML:
        document: Any = yaml.safe_load(block.text)
        if document.get("kind") == "Application":
            found[f"{block.place}: Argo CD"] = document["spec"]["source"]["helm"]["valuesObject"]
        elif document.get("kind") == "HelmRelease":
            found[f"{block.place}: Flux"] = document["spec"]["values"]
    return found


@pytest.mark.slow("renders the chart for each preset, page and policy")
def test_the_chart_accepts_the_presets_and_the_values_and_policies_of_the_pages(
    helm: Helm,
) -> None:
    given = values()
    for page in pages():
        for block in blocks(page):
            for index, part in enumerate(fence_policies(block)):
                given[f"{block.place}: {index}"] = {"policy": part["spec"]}
    for path in PRESETS.glob("*.yaml"):
        given[path.stem] = {"policy": yaml.safe_load(path.read_text())["spec"]}

    def is_accepted(name: str) -> None:
        parse_policy(policy(helm.objects(given[name])))

    each(given, is_accepted)


def policy(objects: list[Object]) -> Any:
    """Return the policy of a release."""
    [found] = [each for each in objects if each["kind"] == "FencePolicy"]
    return found


def test_the_memory_limit_exceeds_the_measured_maximum(helm: Helm) -> None:
    measured = re.search(
        r"(\d+) MiB at most", (PROJECT / "docs/concepts/robustness.md").read_text()
    )
    assert measured is not None
    assert int(measured[1]) < memory(helm, {})["limits"]


def test_the_page_of_denials_has_a_row_for_each_check() -> None:
    """Includes the rules that warn by default: a policy may set them to enforce."""
    page = (PROJECT / "docs/get-started/denied.md").read_text()
    rows = re.findall(r"(?m)^\| \[`([a-z-]+)`\]\(\.\./rules/([a-z-]+)\.md\) \|", page)
    assert all(rule == target for rule, target in rows)
    assert sorted(rule for rule, _ in rows) == sorted(check.id for check in CHECKS)


def test_the_install_page_lists_the_required_tool_versions() -> None:
    """Found in the sources of kubectl 1.30 and 1.31, and of Helm 3.13 and 3.14."""
    output = (PROJECT / "docs/operate/install.md").read_text().partition("\n## ")[0]
    message = " ".join(block.text for name in LIFE for block in consoles(name))
    for option, tool in (
        ("wait --for=create", "kubectl 1.31 or newer"),
        ("--reset-then-reuse-values", "Helm 3.14 or newer"),
    ):
        assert option in message
        assert tool in " ".join(output.split())


def test_no_command_of_the_pages_requires_gnu_programs() -> None:
    tasks = [page for page in pages() if page not in LIFE and page.startswith("docs/")]
    found = [
        f"{block.place}: {command.text}"
        for block in [*LIFECYCLE_BLOCKS, *(block for page in tasks for block in blocks(page))]
        if block.language == "console"
        for command in block.commands()
        if re.search(r"\bsed -i |\bbase64 -w|\breadlink -f|\bdate -d", command.text)
    ]
    assert found == []


def test_the_gitops_examples_begin_in_mode_audit_and_bring_the_definition() -> None:
    documents = [yaml.safe_load(block.text) for block in YAML]
    [application] = [each["spec"] for each in documents if each.get("kind") == "Application"]
    [release] = [each["spec"] for each in documents if each.get("kind") == "HelmRelease"]
    # The controller writes nothing into an object of the chart.
    assert "ignoreDifferences" not in application
    assert (PROJECT / application["source"]["path"] / "Chart.yaml").is_file()
    assert release["upgrade"] == {"crds": "CreateReplace"}
    for given in (application["source"]["helm"]["valuesObject"], release["values"]):
        assert given["policy"] == {"mode": "audit"}


@pytest.mark.skipif(
    bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
)
@pytest.mark.slow("waits for three rollouts, and for the fence to go and to come back")
def test_the_commands_of_the_pages_succeed_in_order(
    installable: Installation, quick_command: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "deploy").symlink_to(PROJECT / "deploy")
    (directory / "policy.yaml").write_text(default_policy_text())
    for block in LIFECYCLE_BLOCKS:
        if name := block.notes.get("file"):
            (directory / name).write_text(block.text)
    kubectl = installable.cluster.kubectl
    programs = (quick_command, kubectl.binary, installable.helm.binary)
    path = os.pathsep.join([*(str(each.parent) for each in programs), os.environ["PATH"]])
    environ = kubectl.environ() | installable.helm.environ() | {"PATH": path}

    def run(*shown: Block) -> None:
        for block in shown:
            for command in block.commands():
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", command.text],
                    cwd=directory,
                    env=environ,
                    capture_output=True,
                    text=True,
                    check=False,
                    stdin=subprocess.DEVNULL,
                    timeout=200,
                )
                output = f"{block.place}: {command.text}\n{done.stdout}{done.stderr}"
                assert done.returncode == 0, f"{output}\n{installable.kubelet.logs()}"

    for page in LIFE:
        if page == BREAK_GLASS:
            break_the_glass(installable, run)
        elif page == RESTORE:
            restored, installed_again = consoles(page)
            run(restored)
            installable.cluster.kubectl("delete", "namespace", NAMESPACE)
            assert "pods.gpufence.dev" in installable.refusal(GPU_POD)
            run(installed_again)
            until(lambda: not installable.refusal(GPU_POD), "GPU Pods to be created again")
        else:
            run(*consoles(page))
    assert not installable.configurations()


def break_the_glass(installed: Installation, run: Callable[..., None]) -> None:
    """Turn gpufence off in both ways while no replica answers, each time until the fence is back.

    An override enforces. The switch needs the controller; the deletions keep it from undoing them.
    """
    switch, deletions, *afterwards, cause = consoles(BREAK_GLASS)
    override = {"namespaces": ["default"], "mode": "enforce"}
    kubectl, policy = (
        installed.cluster.kubectl,
        {"spec": {"mode": "audit", "overrides": [override]}},
    )
    patch = ("patch", "fencepolicy", RELEASE, "--type=merge", "--patch", json.dumps(policy))
    kubectl(*patch)
    for way in (switch, deletions):
        scale(installed, 0)
        assert is_fenced(installed)
        run(way)
        until(lambda: not installed.refusal(TRESPASSER), "the trespasser to be admitted")
        installed.cluster.api.request("POST", PODS, TRESPASSER)
        installed.cluster.api.request("DELETE", f"{PODS}/trespasser?gracePeriodSeconds=0")
        if way is switch:
            until(lambda: follows(installed), "the API server's half to follow")
            run(cause)
        scale(installed, 2)
        run(*afterwards)
        until(lambda: is_fenced(installed), "the fence to be back")
    kubelet.wait_ready(installed.kubelet, 3)


def scale(installed: Installation, replicas: int) -> None:
    """Scale the replicas, and wait for their Pods to be there, or gone."""
    kubectl = installed.cluster.kubectl
    kubectl("scale", "deployment", RELEASE, f"--replicas={replicas}", "-n", NAMESPACE)
    until(lambda: len(installed.pods()) == replicas, "the Pods")


def is_fenced(installed: Installation) -> bool:
    return bool(installed.refusal(TRESPASSER)) and len(installed.configurations()) == 2


def follows(installed: Installation) -> bool:
    """Return whether nothing waits for a replica, and no policy of the release denies."""
    webhooks = [each for config in installed.configurations() for each in config["webhooks"]]
    policies = installed.cluster.api.request("GET", PATHS[POLICY_KIND])["items"]
    names = {each["metadata"]["name"] for each in policies}
    denying = names.intersection(all_names(RELEASE))
    return {each["failurePolicy"] for each in webhooks} == {"Ignore"} and not denying
