"""The threat model names its proofs: each of them exists."""

from __future__ import annotations

import re

from paths import PROJECT

PAGE = (PROJECT / "docs" / "concepts" / "threat-model.md").read_text()


def test_every_proof_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    there = {
        name
        for path in (PROJECT / "tests").rglob("test_*.py")
        for name in re.findall(r"(?m)^\s*(?:async )?def (test_\w+)", path.read_text())
    }
    assert len(named) > 30
    assert named - there == set()


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`(tests/[\w./-]+)`", PAGE))
    assert len(named) > 6
    assert {path for path in named if not (PROJECT / path).exists()} == set()
