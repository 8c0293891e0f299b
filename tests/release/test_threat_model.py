"""The threat model names its proofs: each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()


def test_every_proof_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    there = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(named) > 30
    assert named - there == set()


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`(tests/[\w./-]+)`", PAGE))
    assert len(named) > 6
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_row_of_an_attempt_has_a_proof() -> None:
    _, *sections = PAGE.split("\n## ")
    attempts = [s for s in sections if s.startswith(("What a tenant", "What somebody"))]
    rows = [row for section in attempts for row in section.splitlines() if row.startswith("| ")]
    unproven = [row for row in rows[2:] if not re.search(r"`test|\]\(install|proof|---", row)]
    assert unproven == []
