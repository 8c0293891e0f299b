"""`gpufence completion`: scripts that shells take, and completions that import little."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from policies.registry import RULES
from running import Run
from webhook.tools.cli.report.output import FORMATS

SHELLS = ["bash", "zsh", "fish"]


def asking_for(*words: str) -> dict[str, str]:
    """Return the variables with which bash completes the last word."""
    return {
        "_GPUFENCE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("gpufence", *words)),
        "COMP_CWORD": str(len(words)),
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_parses_its_completion_script(gpufence: Run, tmp_path: Path, shell: str) -> None:
    done = gpufence("completion", shell)
    assert done.status == 0
    assert "_GPUFENCE_COMPLETE" in done.out
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here to try its script in")
    script = tmp_path / "script"
    script.write_text(done.out)
    subprocess.run([shell, "-n", script], check=True)


def test_commands_options_formats_rules_and_files_are_completed(
    gpufence: Run, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for words, offered in (
        (["comp"], ["plain,completion"]),
        (["certs", "i"], ["plain,issue"]),
        (["check", "--output", ""], [f"plain,{name}" for name in FORMATS["check"]]),
        (["check", "--output", "sa"], ["plain,sarif"]),
        (["check", "--fail"], ["plain,--fail-on"]),
        (["check", "dep"], ["file,dep"]),
        (["check", "--policy", "pol"], ["file,pol"]),
        (["check", "--rules", ""], [f"plain,{rule.id}" for rule in RULES]),
        (["check", "--rules", "device-leak,pool-tr"], ["plain,device-leak,pool-trespass"]),
    ):
        with subtests.test(words=words):
            for name, value in asking_for(*words).items():
                monkeypatch.setenv(name, value)
            done = gpufence()
            assert (done.status, done.out.splitlines(), done.err) == (0, offered, "")


def test_completing_command_names_imports_no_command_modules() -> None:
    program = """if True:
        import os, sys
        from webhook.tools.cli.main import main
        status = main([])
        commands = {f"webhook.tools.cli.commands.{name}" for name in ("check", "serve", "audit")}
        print(status, len(commands & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | asking_for(""),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0 0"
