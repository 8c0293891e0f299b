"""``gpufence explain``: the rules' pages, and what happens to the Pods of a file and why."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

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
    rows = gpufence("explain", "--policy", "policy.yaml").out
    assert re.search("^pool-trespass +off +Pod without a GPU request", rows, re.MULTILINE)
    page = gpufence("explain", "--policy", "policy.yaml", "pool-trespass").out
    assert page.endswith(" The policy sets it to `off`.\n")


def test_a_piped_page_is_complete_plain_text(gpufence: Run, subtests: pytest.Subtests) -> None:
    for rule in RULES:
        with subtests.test(rule.id):
            done = gpufence("explain", rule.id)
            assert done.status == 0
            assert done.out.startswith(f"{rule.id}\n\n{rule.title}\n")
            assert "```" not in done.out
            assert "\x1b" not in done.out
            headings = [h.upper() for h in re.findall(r"^## (.*)$", page_of(rule), re.MULTILINE)]
            shown = [line for line in done.out.splitlines() if line in headings]
            assert sorted(shown) == sorted(headings)
            assert shown[0] in ("BEFORE", "DENIED"), "the example comes first"
            assert f"Its default action is `{rule.default}`." in done.out


def test_a_rule_takes_precedence_over_a_file_of_the_same_name(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "pool-trespass").write_text(GPU_POD)
    done = gpufence("explain", "pool-trespass")
    assert done.out.startswith("pool-trespass\n")
    assert "To explain the file of that name, run gpufence explain ./pool-trespass." in done.err
    assert "Why it is a GPU Pod" in gpufence("explain", "./pool-trespass").out


GOLDEN = Path(__file__).with_name("explain")


def test_explanations_are_as_expected(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name in ("manifests.yaml", "nodes.yaml"):
        shutil.copy(GOLDEN / name, tmp_path)
    write_policy(tmp_path, end=(GOLDEN / "policy-end.yaml").read_text())
    for name, options in {"without-nodes": (), "with-nodes": ("--nodes", "nodes.yaml")}.items():
        with subtests.test(name):
            done = gpufence("explain", "--policy", "policy.yaml", *options, "manifests.yaml")
            assert done.status == 2
            # Every rule is in one of these lines.
            shown = re.sub(r"(?m)^ +(Why|No findings|For GPU Pods only): .*\n", "", done.out)
            assert_golden(GOLDEN / f"{name}.txt", shown)


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
