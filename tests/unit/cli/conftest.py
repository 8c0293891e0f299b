"""The command line, run in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from running import BinaryStdin, Outcome, Run
from webhook.cli.main import main


@pytest.fixture
def gpufence(
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Run ``gpufence`` in an empty directory and return status and output."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "GPUFENCE_POLICY"):
        monkeypatch.delenv(name, raising=False)

    def run(*args: str | Path, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", BinaryStdin(data))
        status = main([str(arg) for arg in args])
        out, err = capfdbinary.readouterr()
        return Outcome(status, out.decode(), err.decode())

    return run
