"""CONTRIBUTING.md names targets and files that exist."""

from __future__ import annotations

import re

from paths import PROJECT

TEXT = (PROJECT / "CONTRIBUTING.md").read_text()
MAKEFILE = (PROJECT / "Makefile").read_text()
PLACEHOLDERS = ("NAME", "RULE", "too_many_sidecars", "too-many-sidecars")


def test_each_named_target_is_in_the_makefile() -> None:
    targets = set(re.findall(r"\bmake ([a-z][a-z-]+)", TEXT))
    assert targets - set(re.findall(r"(?m)^([a-z-]+):.*## ", MAKEFILE)) == set()


def test_each_named_path_exists() -> None:
    roots = "certs|deploy|docs|policies|tests|webhook"
    named = re.findall(rf"(?<![\w/.-])(?:{roots})/[\w./-]*", TEXT)
    named = [name for name in named if not any(part in name for part in PLACEHOLDERS)]
    assert len(named) > 30
    assert [name for name in named if not (PROJECT / name.rstrip(".")).exists()] == []
