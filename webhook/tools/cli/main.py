"""The entry point ``gpufence``."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

import click

from webhook.documents.document import InputError
from webhook.tools.cli.commands import EXIT_BUG, EXIT_INPUT, LazyGroup
from webhook.wording import printable

EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141

# Readers handle their own errors, so that these errors come from writing.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_PLACE = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE)
"""A disk that fails or is gone, and a terminal that is closed."""

_COMMANDS = {
    "check": "Check manifests: verdicts, findings and changes.",
    "mutate": "Print manifests with the mutations of the webhook.",
    "explain": "Explain a rule, or the decision on a manifest.",
    "test": "Test a policy with suites of cases.",
    "policy": "Show and validate policies.",
    "adopt": "Show what gpufence would change in a cluster, and prepare it.",
    "audit": "Audit the workloads and the GPU nodes of a cluster.",
    "doctor": "Diagnose an installation.",
    "serve": "Run the admission webhook.",
    "controller": "Keep certificates, webhook configurations and admission policies.",
    "manifests": "Print the webhook configurations of a policy.",
}
"""The commands and their help in one line."""


@click.group(
    cls=LazyGroup,
    summaries=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  gpufence check deploy/                      every manifest in a directory
  kustomize build . | gpufence check -        manifests from a pipe
  gpufence mutate train.yaml                  the manifest with its mutations
  gpufence policy show > policy.yaml          a policy to start from

\b
Policy:
  --policy FILE, or the environment variable GPUFENCE_POLICY. Without them,
  gpufence uses its default policy. A command that reads a cluster uses the
  FencePolicy that replicas follow, or that --fence-policy names.
""",
)
@click.version_option(
    package_name="gpufence", message="gpufence %(version)s", help="Print the version and exit."
)
def cli() -> None:
    """The fence around a Kubernetes cluster's GPU nodes.

    gpufence runs GPU Pods on GPU nodes, hardens them, and keeps other Pods off. The command line
    decides on files as the admission webhook decides on requests.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    sys.stdout = _buffered(sys.stdout)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        _wait_for(stream)
    for stream in (sys.stdout, sys.stderr):
        # Characters that a terminal cannot show must not be errors.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = cli.main(args, prog_name="gpufence", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InputError as error:
        for line in error.lines:
            click.echo(f"Error: {printable(line)}", err=True)
        return EXIT_INPUT
    except click.Abort:
        return EXIT_INTERRUPTED
    except SystemExit as exit_:
        # Completion exits with 0. click exits with 1 on a closed pipe, which would mean findings.
        return EXIT_PIPE_CLOSED if exit_.code else 0
    except BrokenPipeError:
        _discard_output()
        return EXIT_PIPE_CLOSED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (*_NO_ROOM, *_NO_PLACE):
            _discard_output()
            problem = f"the output cannot be written ({error.strerror})"
            cure = "Free disk space, or write" if error.errno in _NO_ROOM else "Write"
            with suppress(OSError):  # Standard error may be the same terminal.
                click.echo(f"Error: {problem}. {cure} to another place.", err=True)
            return EXIT_INPUT
        traceback.print_exc()
        click.echo("Error: this is a bug in gpufence. Report it with the lines above.", err=True)
        return EXIT_BUG
    return status if isinstance(status, int) else 0


def _wait_for(stream: TextIO | None) -> None:
    """Make reads and writes block: another process may have set O_NONBLOCK on a shared pipe."""
    # The stream is None if the shell has closed it, and may have no descriptor.
    with suppress(AttributeError, OSError, ValueError):
        os.set_blocking(stream.fileno(), True)  # type: ignore[union-attr]


def _buffered(stream: TextIO) -> TextIO:
    """Return a stream that writes everything or fails.

    With PYTHONUNBUFFERED, a write to a closed pipe or a full disk drops the rest silently.
    """
    if not isinstance(stream, io.TextIOWrapper) or not isinstance(stream.buffer, io.RawIOBase):
        return stream
    # The original stream stays unchanged for other users of it.
    buffer = io.BufferedWriter(io.FileIO(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffer, stream.encoding, line_buffering=stream.isatty())


def _discard_output() -> None:
    """Drop what is still buffered for standard output, so that it does not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
