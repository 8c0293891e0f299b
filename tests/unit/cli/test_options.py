"""Values of options: durations, and the policy that a command uses if no option names one."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from running import TRESPASSER, Run
from webhook.tools.cli.flags import parse_duration


def test_go_durations_are_parsed() -> None:
    seconds = {
        "3s": 3.0,
        "1m30s": 90.0,
        "1h0m0.5s": 3600.5,
        "8760h": 31_536_000.0,
        ".5s": 0.5,
        "2.s": 2.0,
        "300ms": 0.3,
        "10us": 1e-5,
        "10µs": 1e-5,
        "0": 0.0,
    }
    found = {text: parse_duration(text).total_seconds() for text in seconds}
    assert found == pytest.approx(seconds)


def test_invalid_durations_are_rejected_with_an_example(subtests: pytest.Subtests) -> None:
    unsigned = ("", "3", "s", ".s", "3 s", "3s ", "3S", "1s2", "soon", "1e3s", "٣s", "3s\n")
    advice = "write it like 24h, 90m or 1h30m"
    for text in (*unsigned, "-3s", "+3s"):
        with subtests.test(text=text), pytest.raises(click.BadParameter, match=advice):
            parse_duration(text)


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
