"""The pages about an installation's life: their commands are run, their values are rendered."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.gpufence import COMMAND
from deploy import kubelet
from deploy.chart import Helm, Values
from deploy.installation import Installation, installation
from deploy.render import PROJECT
from docs.blocks import LIFE, VALUES, blocks, pages
from policies.policy import default_policy_text, parse_policy

OF_THEIR_LIFE = [block for name in LIFE for block in blocks(f"docs/{name}.md")]
YAML = [block for block in OF_THEIR_LIFE if block.language == "yaml"]


def commands() -> list[tuple[str, str]]:
    """Return the pages' commands, each with its place."""
    consoles = [block for block in OF_THEIR_LIFE if block.language == "console"]
    return [(block.place, command.text) for block in consoles for command in block.commands()]


def values() -> dict[str, Values]:
    """Return the pages' values by what they are said to be for."""
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


@pytest.mark.parametrize("given", values().values(), ids=values().keys())
def test_the_chart_takes_the_values_of_the_pages(helm: Helm, given: Values) -> None:
    [policy] = [
        each
        for each in helm.objects(given)
        if each["kind"] == "ConfigMap" and "policy.yaml" in each["data"]
    ]
    parse_policy(yaml.safe_load(policy["data"]["policy.yaml"]))


def test_argo_cd_is_told_to_ignore_what_is_there(helm: Helm) -> None:
    [application] = [
        document
        for block in YAML
        if (document := yaml.safe_load(block.text)).get("kind") == "Application"
    ]
    names = {(each["kind"], each["metadata"]["name"]) for each in helm.objects({})}
    ignored = application["spec"]["ignoreDifferences"]
    assert {(each["kind"], each["name"]) for each in ignored} <= names
    assert (PROJECT / application["spec"]["source"]["path"] / "Chart.yaml").is_file()


@pytest.fixture
def fresh(helm: Helm, tmp_path: Path) -> Iterator[Installation]:
    """A cluster without anything of gpufence."""
    with installation(tmp_path, helm, with_namespace=False) as made:
        yield made


@pytest.mark.e2e
@pytest.mark.skipif(
    bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
)
def test_every_command_of_the_pages_works_one_after_the_other(
    fresh: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "deploy").symlink_to(PROJECT / "deploy")
    (folder / "policy.yaml").write_text(default_policy_text())
    kubectl = fresh.cluster.kubectl
    programs = [kubectl.binary.parent, fresh.helm.binary.parent, COMMAND.parent]
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    environ = kubectl.environ() | fresh.helm.environ() | {"PATH": path}
    for place, command in commands():
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=200,
        )
        told = f"{place}: {command}\n{done.stdout}{done.stderr}\n{fresh.kubelet.logs()}"
        assert done.returncode == 0, told
    with capsys.disabled():
        print(f"\n{len(commands())} commands of {len(LIFE)} pages ran")
    assert not fresh.configurations()
