"""``kubectl gpufence``: gpufence as a kubectl plugin, with completion.

Source: ``k8s.io/kubectl/pkg/cmd/plugin`` (``plugin.go``, ``plugin_completion.go``).
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete

from webhook.cli import main as gpufence

PROG_NAME = "kubectl gpufence"

# Values of cobra's ShellCompDirective: what the shell adds to the words that are printed.
_COMPLETE_FILES = 0
_NO_FILES = 4


def main() -> int:
    """Run the command line as kubectl calls it: ``kubectl-gpufence check ...``."""
    return gpufence.main(prog_name=PROG_NAME)


def complete() -> int:
    """Print the words that may be at the cursor, one a line, and a directive.

    kubectl passes the words so far; the last one is incomplete, or empty.
    """
    *before, incomplete = sys.argv[1:] or [""]
    completion = ShellComplete(gpufence.cli, {}, PROG_NAME, "")
    items = completion.get_completions(before, incomplete)
    words = [item for item in items if item.type == "plain"]
    for item in words:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    # Everything else is a file or a directory, which the shell completes itself.
    click.echo(f":{_NO_FILES if words and len(words) == len(items) else _COMPLETE_FILES}")
    return 0
