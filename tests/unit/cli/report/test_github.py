"""Annotations of GitHub Actions: the right file, line and column, and nothing that breaks out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from running import FAULT_PLACES, FAULTS, NO_QUANTITY, TRESPASSER, Run

COMMAND = re.compile(r"::(?P<name>error|warning|notice) (?P<properties>[^:]*)::(?P<text>.*)")


def commands_in(out: str) -> list[tuple[str, dict[str, str], str]]:
    """Return the workflow commands as a runner reads them, but for what is escaped."""
    found = []
    for line in out.splitlines():
        match = COMMAND.fullmatch(line)
        assert match is not None, line
        pairs = (pair.partition("=") for pair in match["properties"].split(","))
        found.append((match["name"], {key: value for key, _, value in pairs}, match["text"]))
    return found


def test_annotations_have_the_file_line_and_column_of_the_finding(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "faults.yaml").write_text(FAULTS)
    done = gpufence("check", "--output", "github", "./deploy")
    assert done.status == 1
    found = commands_in(done.out)
    rules = ["pool-trespass", "device-leak", "device-leak"]
    assert [properties["title"] for _, properties, _ in found] == [
        f"gpufence%3A {rule}" for rule in rules
    ]
    for rule, (name, properties, shown) in zip(rules, found, strict=True):
        line, column, text = FAULT_PLACES[rule]
        # The log of a job shows the text only.
        assert shown.startswith(f"deploy/faults.yaml:{line}: {rule}: ")
        assert name == "error"
        assert properties["file"] == "deploy/faults.yaml"
        assert (properties["line"], properties["endLine"]) == (str(line), str(line))
        assert (properties["col"], properties["endColumn"]) == (
            str(column),
            str(column + len(text)),
        )


@pytest.mark.parametrize(
    ("action", "name"), [("enforce", "error"), ("warn", "warning"), ("audit", "notice")]
)
def test_the_workflow_command_depends_on_the_action(
    gpufence: Run, tmp_path: Path, action: str, name: str
) -> None:
    policy = gpufence("policy", "show").out
    text = policy.replace("pool-trespass: enforce", f"pool-trespass: {action}")
    (tmp_path / "policy.yaml").write_text(text)
    done = gpufence("check", "--output", "github", "--policy", "policy.yaml", "-", stdin=TRESPASSER)
    assert [found[0] for found in commands_in(done.out)] == [name]


def test_annotations_for_standard_input_have_the_line_in_the_text(gpufence: Run) -> None:
    done = gpufence("check", "--output", "github", "-", stdin=TRESPASSER)
    ((_, properties, text),) = commands_in(done.out)
    assert list(properties) == ["title"]
    assert text.startswith("<stdin>:9: pool-trespass: Deployment default/web: ")


def test_invalid_input_is_an_error_annotation_at_its_position(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text(NO_QUANTITY)
    done = gpufence("check", "--output", "github", "pod.yaml")
    assert done.status == 2
    ((name, properties, text),) = commands_in(done.out)
    assert (name, properties["line"], properties["col"]) == ("error", "10", "11")
    assert "'${GPUS}' is not a quantity" in text


def test_workflow_commands_in_a_manifest_are_escaped(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a,b:c%.yaml").write_text(
        TRESPASSER.replace("name: web\nspec", 'name: "x\\n::error::50%\\r"\nspec')
    )
    done = gpufence("check", "--output", "github", "a,b:c%.yaml")
    ((_, properties, text),) = commands_in(done.out)
    assert properties["file"] == "a%2Cb%3Ac%25.yaml"
    place = "a,b:c%25.yaml:9: pool-trespass"
    assert text.startswith(f"{place}: Deployment default/x\\n::error::50%25\\r: ")
