"""Checks the workflow files with actionlint and zizmor, as ``make check`` does.

actionlint checks syntax, expressions and types; zizmor checks security. Both work offline.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from controlplane.errors import ControlPlaneError
from controlplane.gobuild import program
from paths import PROJECT, TESTS

WORKFLOWS = PROJECT / ".github"
ZIZMOR = Path(sys.executable).with_name("zizmor")


def actionlint() -> Path:
    """Return the path of actionlint, having built it where the cache has none."""
    directory = TESTS / "support" / "workflows"
    package = "github.com/rhysd/actionlint/cmd/actionlint"
    return program("actionlint", directory, package, "actionlint")


def main() -> int:
    """Run both and print what they find; return the exit code."""
    try:
        # Without shellcheck and pyflakes, which are on some machines only.
        syntax: list[str | Path] = [actionlint(), "-shellcheck=", "-pyflakes="]
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    syntax += sorted(WORKFLOWS.glob("workflows/*.yaml"))
    security: list[str | Path] = [
        ZIZMOR,
        "--offline",
        "--quiet",
        "--persona",
        "pedantic",
        WORKFLOWS,
        "action.yml",
    ]
    codes = [
        subprocess.run(command, cwd=PROJECT, check=False).returncode
        for command in (syntax, security)
    ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
