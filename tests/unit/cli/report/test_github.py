"""Annotations of GitHub Actions: the right file, line and column, and nothing that breaks out."""

from __future__ import annotations

import re
from pathlib import Path

from running import TRESPASSER, Run

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


def test_workflow_commands_in_a_manifest_are_escaped(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a,b:c%.yaml").write_text(
        TRESPASSER.replace("name: web\nspec", 'name: "x\\n::error::50%\\r"\nspec')
    )
    done = gpufence("check", "--output", "github", "a,b:c%.yaml")
    ((_, properties, text),) = commands_in(done.out)
    assert properties["file"] == "a%2Cb%3Ac%25.yaml"
    place = "a,b:c%25.yaml:9: pool-trespass"
    assert text.startswith(f"{place}: Deployment default/x\\n::error::50%25\\r: ")
