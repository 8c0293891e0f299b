"""CONTRIBUTING.md names targets and files that exist."""

from __future__ import annotations

import re

import pytest

from paths import PROJECT

TEXT = (PROJECT / "CONTRIBUTING.md").read_text()
MAKEFILE = (PROJECT / "Makefile").read_text()
PLACEHOLDERS = ("NAME", "RULE", "too_many_sidecars", "too-many-sidecars")


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z][a-z-]+)", TEXT))))
def test_each_named_target_is_in_the_makefile(target: str) -> None:
    assert re.search(rf"(?m)^{target}:.*## ", MAKEFILE)


def test_each_named_path_exists() -> None:
    roots = "certs|deploy|docs|policies|tests|webhook"
    named = re.findall(rf"(?<![\w/.-])(?:{roots})/[\w./-]*", TEXT)
    named = [name for name in named if not any(part in name for part in PLACEHOLDERS)]
    assert len(named) > 30
    assert [name for name in named if not (PROJECT / name.rstrip(".")).exists()] == []
