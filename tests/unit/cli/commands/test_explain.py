"""``gpufence explain``: the rules' pages, and what happens to the Pods of a file and why."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from policies.registry import RULES
from policies.shipped import preset_text
from running import GPU_POD, PLAIN_POD, Run, assert_golden, write_policy
from webhook.tools.cli.report.content import page_of


def test_every_rule_is_listed_with_its_action_and_title(gpufence: Run) -> None:
    done = gpufence("explain")
    rows = [re.split(r" {2,}", line) for line in done.out.splitlines()]
    assert rows == [[rule.id, rule.default, rule.title] for rule in RULES]


def test_the_listed_action_of_a_rule_comes_from_the_policy(gpufence: Run, tmp_path: Path) -> None:
    policy = gpufence("policy", "show").out.replace("pool-trespass: enforce", "pool-trespass: off")
    (tmp_path / "policy.yaml").write_text(policy)
    done = gpufence("explain", "--policy", "policy.yaml", "--output", "markdown")
    assert "| pool-trespass | off | Pod without a GPU request" in done.out
    page = gpufence("explain", "--policy", "policy.yaml", "pool-trespass").out
    assert page.endswith(" The policy sets it to `off`.\n")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_piped_page_is_complete_plain_text(gpufence: Run, rule: object) -> None:
    [known] = [candidate for candidate in RULES if candidate is rule]
    done = gpufence("explain", known.id)
    assert done.status == 0
    assert done.out.startswith(f"{known.id}\n\n{known.title}\n")
    assert "```" not in done.out
    assert "\x1b" not in done.out
    headings = [h.upper() for h in re.findall(r"^## (.*)$", page_of(known), re.MULTILINE)]
    shown = [line for line in done.out.splitlines() if line in headings]
    assert sorted(shown) == sorted(headings)
    assert shown[0] in ("BEFORE", "DENIED"), "the example comes first"
    assert f"Its default action is `{known.default}`." in done.out


def test_code_blocks_of_a_plain_page_are_indented(gpufence: Run) -> None:
    page = gpufence("explain", "pool-trespass").out
    shown = page[page.index("DENIED") :].partition("USE INSTEAD")[0]
    lines = [line for line in shown.splitlines() if line.startswith("    ")]
    assert yaml.safe_load("\n".join(lines))["metadata"]["name"] == "web"


def test_markdown_output_contains_the_source_of_the_page(gpufence: Run) -> None:
    done = gpufence("explain", "--output", "markdown", "device-leak")
    [rule] = [rule for rule in RULES if rule.id == "device-leak"]
    page = done.out.removeprefix("# device-leak\n\n").partition("\n## Action\n")[0]
    assert sorted(page.split()) == sorted(page_of(rule).split())


def test_color_always_renders_the_page_with_ansi_codes(gpufence: Run) -> None:
    done = gpufence("explain", "--color", "always", "device-leak")
    assert "\x1b[" in done.out
    assert "```" not in done.out


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("pool-tresspass", "pool-trespass"),
        ("leak", "device-leak"),
        ("Pool-Trespass", "pool-trespass"),
    ],
)
def test_an_unknown_name_is_rejected_with_suggestions(
    gpufence: Run, name: str, suggested: str
) -> None:
    done = gpufence("explain", name)
    assert done.status == 2
    assert done.err.startswith(f"Error: {name} is neither a rule nor a file. Did you mean ")
    assert suggested in done.err


@pytest.mark.parametrize("name", ["zzz", "z" * 300])
def test_an_unknown_name_without_similar_names_is_rejected_with_remediation(
    gpufence: Run, name: str
) -> None:
    done = gpufence("explain", name)
    assert (
        f"{name} is neither a rule nor a file. To list the rules, run gpufence explain." in done.err
    )


def test_a_rule_takes_precedence_over_a_file_of_the_same_name(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "pool-trespass").write_text(GPU_POD)
    done = gpufence("explain", "pool-trespass")
    assert done.out.startswith("pool-trespass\n")
    assert "To explain the file of that name, run gpufence explain ./pool-trespass." in done.err
    assert "Why it is a GPU Pod" in gpufence("explain", "./pool-trespass").out


def test_markdown_output_is_rejected_for_files(gpufence: Run) -> None:
    done = gpufence("explain", "--output", "markdown", "-", stdin=GPU_POD)
    assert done.status == 2
    assert "--output markdown is for rules" in done.err


GOLDEN = Path(__file__).with_name("explain")


@pytest.mark.parametrize("options", [(), ("--nodes", "nodes.yaml")], ids=["", "nodes"])
def test_explanations_are_as_expected(
    gpufence: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    for name in ("manifests.yaml", "nodes.yaml"):
        shutil.copy(GOLDEN / name, tmp_path)
    write_policy(tmp_path, end=(GOLDEN / "policy-end.yaml").read_text())
    done = gpufence("explain", "--policy", "policy.yaml", *options, "manifests.yaml")
    assert done.status == 2
    # Every rule is in one of these lines.
    shown = re.sub(r"(?m)^ +(Why|No findings|For GPU Pods only): .*\n", "", done.out)
    assert_golden(GOLDEN / ("with-nodes.txt" if options else "without-nodes.txt"), shown)


def test_rules_without_findings_are_listed(gpufence: Run) -> None:
    gpu, plain = (gpufence("explain", "-", stdin=text).out for text in (GPU_POD, PLAIN_POD))
    assert "Why: GPU nodes have a taint so that other Pods do not run on them." in gpu
    assert "No findings: unequal-device-limits, shared-device-count" in gpu
    assert "For GPU Pods only: oversized-device-request, pool-not-allowed, pool-req" in plain


def test_an_annotation_for_another_scheduler_is_explained(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(preset_text("kai"))
    text = PLAIN_POD.replace("metadata:\n", 'metadata:\n  annotations: {gpu-fraction: "0.5"}\n', 1)
    done = gpufence("explain", "--policy", "policy.yaml", "-", stdin=text)
    assert (
        "gpu-fraction does not request a device of a pool: schedulerName is default-scheduler, and "
        "kai-scheduler reads the annotation (at metadata.annotations[gpu-fraction])."
    ) in done.out
    text = text.replace("spec:\n", "spec:\n  schedulerName: kai-scheduler\n", 1)
    done = gpufence("explain", "--policy", "policy.yaml", "-", stdin=text)
    assert "The Pod requests gpu-fraction: 0.5, which pool nvidia offers" in done.out


def test_input_without_objects_is_an_error(gpufence: Run) -> None:
    done = gpufence("explain", "-", stdin="")
    assert done.status == 2
    assert "no objects in <stdin>" in done.err


def test_the_nodes_of_a_daemon_set_are_those_that_its_template_tolerates(gpufence: Run) -> None:
    tainted = """\
kind: Node
apiVersion: v1
metadata: {name: gpu-1, labels: {nvidia.com/gpu.present: "true"}}
spec: {taints: [{key: nvidia.com/gpu, effect: NoSchedule}]}
status: {allocatable: {nvidia.com/gpu: "8"}}
---
"""
    daemon_set = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: embed}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
    Path("nodes.yaml").write_text(tainted)
    Path("set.yaml").write_text(daemon_set)
    done = gpufence("explain", "--nodes", "nodes.yaml", "set.yaml")
    assert "It fits none of 1 node of pool nvidia" in done.out
    assert "the Pod does not tolerate its taint nvidia.com/gpu" in done.out
