"""Which policy a command uses where the command line names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from running import TRESPASSER, Run


def test_the_option_overrides_the_variable(
    gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = gpufence("policy", "show").out
    (tmp_path / "strict.yaml").write_text(strict)
    warning = strict.replace("pool-trespass: enforce", "pool-trespass: warn")
    (tmp_path / "policy.yaml").write_text(warning)
    monkeypatch.setenv("GPUFENCE_POLICY", "policy.yaml")
    done = gpufence("check", "-", stdin=TRESPASSER)
    named = "policy.yaml, from GPUFENCE_POLICY"
    assert (done.status, done.err) == (0, f"Policy: {named}\n")
    assert f"1 object: 1 allowed; 1 warning (policy: {named})\n" in done.out
    assert gpufence("policy", "show").out == strict
    done = gpufence("check", "--policy", "strict.yaml", "-", stdin=TRESPASSER)
    assert done.status == 1
    assert "(policy: strict.yaml)" in done.out
    monkeypatch.setenv("GPUFENCE_POLICY", "gone.yaml")
    done = gpufence("check", "-", stdin=TRESPASSER)
    assert done.err.startswith("Error: GPUFENCE_POLICY: gone.yaml does not exist. Check the path")
    monkeypatch.setenv("GPUFENCE_POLICY", "")
    assert gpufence("check", "-", stdin=TRESPASSER).status == 1
