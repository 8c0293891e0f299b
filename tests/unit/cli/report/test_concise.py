"""The report with one line for each finding."""

from __future__ import annotations

from pathlib import Path

from running import TRESPASSER, Run


def test_each_finding_is_a_line_that_editors_can_open(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"# first\n{TRESPASSER}")
    lines = gpufence("check", "--output", "concise", "a.yaml").out.splitlines()
    assert len(lines) == 1
    path, line, column, text = lines[0].split(":", 3)
    written = (tmp_path / path).read_text().splitlines()[int(line) - 1]
    assert written[int(column) - 1 :].lstrip("- ").startswith(("key", "{key", "operator"))
    assert text.startswith(" enforce pool-trespass Deployment default/web: ")


def test_an_invalid_object_is_a_line(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Pod\nspec: 1\n")
    lines = gpufence("check", "--output", "concise", "a.yaml").out.splitlines()
    assert [line.rpartition("a.yaml:")[2].split()[1] for line in lines] == ["invalid"]
