"""Every command and every YAML block of the documentation is tried."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.fence import running
from controlplane.gpufence import COMMAND
from controlplane.objects import node, taint
from docs.blocks import LIFE, VALUES, Block, agrees, blocks, fence_policies, pages
from each import each
from in_tree import in_tree
from paths import PROJECT
from policies.shipped import shipped_policy
from running import Run
from specs import default_spec, policy_of

PAGES = [page for page in pages() if page not in LIFE]
NOT_RUN = {
    "docs/ci/check.md": 2,
    "README.md": 4,
    "docs/concepts/outages.md": 2,
    "docs/decisions/mutating-policy.md": 1,
    "docs/get-started/quickstart.md": 6,
    "docs/operate/adopt.md": 3,
    "docs/operate/audit.md": 2,
    "docs/operate/certificates.md": 3,
    "docs/operate/install.md": 3,
    "docs/operate/logs.md": 1,
    "docs/operate/other-webhooks.md": 1,
    "docs/operate/without-the-chart.md": 1,
    "docs/operate/troubleshooting.md": 1,
    "docs/policies/cookbook.md": 1,
    "docs/policies/discover.md": 2,
    "docs/policies/exceptions.md": 1,
    "docs/policies/review.md": 1,
    "docs/policies/tenants.md": 1,
}
"""How many blocks of each page cannot be run: a review shows each new one."""
NODES = (
    node("web-1"),
    node(
        "gpu-1",
        labels={"nvidia.com/gpu.present": "true"},
        taints=[taint("nvidia.com/gpu")],
        resources={"nvidia.com/gpu": "8"},
    ),
)

ALL = [block for page in pages() for block in blocks(page)]
CLUSTER = [page for page in PAGES if any("cluster" in block.notes for block in blocks(page))]
OFFLINE = [
    page
    for page in PAGES
    if page not in CLUSTER and any(block.language == "console" for block in blocks(page))
]


def test_blocks_that_are_not_run_have_a_reason() -> None:
    reasons = [block for block in ALL if "not run" in block.notes]
    assert all(block.notes["not run"] for block in reasons)
    counts = {page: sum(block.page == page for block in reasons) for page in pages()}
    assert {page: count for page, count in counts.items() if count} == NOT_RUN


def test_only_console_blocks_contain_commands() -> None:
    others = [block for block in ALL if block.language not in {"console", "yaml"}]
    assert {block.language for block in others if "not run" not in block.notes} <= {
        "",
        "json",
        "text",
    }
    assert not [block.place for block in others if re.search(r"^\$ ", block.text, re.MULTILINE)]


def test_every_project_file_that_a_page_names_exists() -> None:
    def exists(page: str) -> None:
        text = re.sub(r"(?s)```{toctree}.*?```", "", (PROJECT / page).read_text())
        named = re.findall(r"(?<![\w/.(-])(?:deploy|docs|policies|tests|webhook)/[\w./-]*\w", text)
        assert [name for name in named if not (PROJECT / name).exists()] == []

    each(pages(), exists)


def test_every_relative_link_of_a_root_page_leads_to_a_file() -> None:
    def leads(page: str) -> None:
        links = re.findall(r"\]\((?!https?:)([^)#\s]+)", (PROJECT / page).read_text())
        assert [link for link in links if not (PROJECT / link).exists()] == []

    each(("README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"), leads)


@pytest.mark.parametrize("page", OFFLINE)
@pytest.mark.slow("installs gpufence as a page says, and runs its commands")
def test_every_command_of_a_page_prints_the_shown_output(
    page: str, tmp_path: Path, quick_command: Path, kustomize: Path, home: Home
) -> None:
    run_page(page, tmp_path, home, dict(os.environ), quick_command.parent, kustomize.parent)


@dataclass(frozen=True)
class Home:
    """A home directory that the pages share, and the variables with which pip installs wheels.

    What the first page installs is there for the others: the same command does not run again.
    ``project`` are the files of the project that Git knows or would add.
    """

    directory: Path
    wheels: dict[str, str]
    project: Path
    installed: set[str] = field(default_factory=set)

    def ran(self, command: str) -> bool:
        """Return whether a command that installs has run already."""
        ran = command in self.installed
        if INSTALLS.search(command):
            self.installed.add(command)
        return ran


INSTALLS = re.compile(r"python3 -m venv|bin/pip install")
PYTHON = f"""#!/bin/sh -e
# Runs `python3 -m venv DIRECTORY`. ensurepip takes seven seconds of CPU, to compile another pip.
{sys.executable} "$@" --without-pip
echo '#!/bin/sh\nexec {sys.executable} -m pip --python "${{0%pip}}python" "$@"' > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, str]) -> Home:
    directory = tmp_path_factory.mktemp("home")
    (directory / "bin").mkdir()
    (directory / "bin/python3").write_text(PYTHON)
    (directory / "bin/python3").chmod(0o755)
    return Home(directory, wheels, clone(directory / "gpufence"))


@pytest.fixture(scope="module")
def cluster(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A cluster with a plain node and a GPU node, guarded by gpufence with the default policy."""
    directory = tmp_path_factory.mktemp("fence")
    with (
        running(control_plane, directory, default_spec(), "gpufence") as fence,
        fence.registered(),
        control_plane.nodes(*NODES),
        in_tree(control_plane, shipped_policy(), "gpufence"),
    ):
        yield control_plane


@pytest.mark.slow("runs the commands of a page as they stand")
@pytest.mark.parametrize("page", CLUSTER)
def test_every_command_of_a_page_prints_the_shown_output_in_a_cluster(
    page: str,
    tmp_path: Path,
    cluster: ControlPlane,
    quick_command: Path,
    kustomize: Path,
    home: Home,
) -> None:
    kubectl = cluster.kubectl
    # A page creates it, and perhaps a test of another file did before.
    cluster.delete_namespaces("research")
    programs = (quick_command.parent, kubectl.binary.parent, kustomize.parent)
    run_page(page, tmp_path, home, kubectl.environ(), *programs)


def run_page(
    page: str, directory: Path, home: Home, environ: dict[str, str], *programs: Path
) -> None:
    """Run the commands of the page in a fresh clone, in the order of the page.

    The first page that installs gpufence uses what it installs.
    """
    # The files are shared: a command that changes one has to replace it, as sed does.
    checkout = shutil.copytree(
        home.project, directory / "gpufence", symlinks=True, copy_function=os.link
    )
    commands = [command.text for block in blocks(page) for command in block.commands()]
    installs = not home.installed and any(map(INSTALLS.search, commands))
    environment = home.directory / ".venvs/gpufence"
    installed = (environment / "bin", home.directory / "bin") if installs else ()
    path = os.pathsep.join(map(str, (*installed, *programs, COMMAND.parent, environ["PATH"])))
    # Skip the compilation of all libraries: see deploy.dockerfile for the value.
    environ |= {"HOME": str(home.directory), "PIP_NO_COMPILE": "0", "PATH": path, **home.wheels}
    for block in blocks(page):
        if "not run" in block.notes:
            continue
        if file := block.notes.get("file"):
            (checkout / file).parent.mkdir(parents=True, exist_ok=True)
            (checkout / file).write_text(block.text)
        if block.language == "console":
            run_block(block, checkout, home, {**environ, "GIT_CONFIG_GLOBAL": os.devnull})
        for script in scripts(block):
            status = int(block.notes.get("exit", "0"))
            run(script, checkout, environ, block.place, status)
    if installs:
        [origin] = environment.glob("lib/*/site-packages/gpufence-*.dist-info/direct_url.json")
        assert json.loads(origin.read_text())["url"] == checkout.as_uri()
        written = [file for file in environment.rglob("*") if file.suffix != ".pyc"]
        mebibytes = sum(file.stat().st_size for file in written if file.is_file()) / 2**20
        stated = re.search(r"about (\d+) MiB of disk", (PROJECT / "README.md").read_text())
        # Compiled modules and pip, which are not made here, are two fifths of an installation.
        assert stated is not None
        assert 0.5 < mebibytes / int(stated[1]) < 0.7


def clone(directory: Path) -> Path:
    """Copy the files of the project that Git knows or would add, and link to its tests."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        [*command, "--", ".", ":!tests"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (PROJECT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, directory / name)
    (directory / "tests").symlink_to(PROJECT / "tests")
    return directory


def run_block(block: Block, directory: Path, home: Home, environ: dict[str, str]) -> None:
    status = int(block.notes.get("exit", "0"))
    for command in block.commands():
        if home.ran(command.text):
            continue
        printed = run(command.text, directory, environ, block.place, status)
        message = f"{block.place}: {command.text}\nprints:\n{printed}"
        assert not command.shown or agrees(command.shown, printed), message


def run(command: str, directory: Path, environ: dict[str, str], place: str, status: int) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=directory,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert done.returncode == status, f"{place}: {command}\n{done.stdout}"
    return done.stdout


def test_a_manifest_gets_the_verdict_that_the_page_claims(gpufence: Run, tmp_path: Path) -> None:
    def gets(block: Block) -> None:
        arguments = ["check", "--output", "json", "-"]
        if name := block.notes.get("policy"):
            (tmp_path / name).write_text(file_of(block.page, name))
            arguments += ["--policy", name]
        results = gpufence(*arguments, stdin=block.text).report["results"]
        judged = [result for result in results if result["verdict"] != "skipped"]
        message = [" ".join([result["verdict"], *rules(result)]) for result in judged]
        assert ", ".join(message) == block.notes["verdict"], block.place

    each([block for block in ALL if "verdict" in block.notes], gets)


def rules(result: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(finding["rule"] for finding in result["findings"]))


def file_of(page: str, name: str) -> str:
    """Return a policy file of a page; one that holds a part only is laid over the default."""
    [text] = [block.text for block in blocks(page) if block.notes.get("file") == name]
    return text


def test_every_yaml_block_is_valid_and_tested() -> None:
    def is_tried(block: Block) -> None:
        documents = list(yaml.safe_load_all(block.text))
        found = fence_policies(block)
        for policy in found:
            policy_of(default_spec() | policy["spec"])
        assert all(isinstance(document, dict) for document in documents), block.place
        tried = (
            bool(found)
            or "verdict" in block.notes
            or "not run" in block.notes
            or list(scripts(block))
            or list(action_inputs(block))
            or "repos" in documents[0]
            or is_used(block)
            or block.text.startswith(VALUES)
            or block.page in LIFE
        )
        assert tried, f"{block.place}: nothing tries it; see docs.blocks for what can be said"

    each([block for block in ALL if block.language == "yaml"], is_tried)


def test_the_pre_commit_hooks_that_a_page_names_exist() -> None:
    known = {
        hook["id"] for hook in yaml.safe_load((PROJECT / ".pre-commit-hooks.yaml").read_text())
    }
    named = {
        hook["id"]
        for block in ALL
        if "repos:" in block.text
        for repository in yaml.safe_load(block.text)["repos"]
        for hook in repository["hooks"]
    }
    assert named
    assert named <= known


def test_the_action_inputs_that_a_page_names_exist() -> None:
    known = yaml.safe_load((PROJECT / "action.yml").read_text())["inputs"].keys()
    named = {name for block in ALL for name in action_inputs(block)}
    assert named
    assert named <= known


def is_used(block: Block) -> bool:
    """Return whether the block is a file that a later block of its page names."""
    name = block.notes.get("file", "")
    later = [each for each in blocks(block.page) if each.line > block.line]
    short = Path(name).name
    # kustomize takes a directory.
    called = ("kustomize build",) if short == "kustomization.yaml" else (name, short)
    return bool(name) and any(part in each.text for each in later for part in called)


def scripts(block: Block) -> Iterator[str]:
    """Yield what a workflow of GitHub or GitLab runs of gpufence, kubectl and kustomize."""
    lines = [step["run"] for step in steps(block) if "run" in step]
    for job in mapping(block).values():
        if isinstance(job, dict) and isinstance(job.get("script"), list):
            lines += job["script"]
    yield from (line for line in lines if line.split()[0] in {"gpufence", "kubectl", "kustomize"})


def action_inputs(block: Block) -> Iterator[str]:
    """Yield the names of the inputs that a workflow gives to gpufence's own action."""
    for step in steps(block):
        if "/gpufence@" in step.get("uses", ""):
            yield from step["with"]


def steps(block: Block) -> Iterator[dict[str, Any]]:
    """Yield the steps of a workflow of GitHub, or of a part of one that is steps only."""
    workflow = mapping(block)
    yield from workflow.get("steps", [])
    for job in workflow.get("jobs", {}).values():
        yield from job["steps"]


def mapping(block: Block) -> dict[str, Any]:
    """Return a YAML block of one document that is a mapping."""
    if block.language != "yaml" or "\n---" in block.text:
        return {}
    document = yaml.safe_load(block.text)
    return document if isinstance(document, dict) else {}
