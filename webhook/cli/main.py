"""The entry point of ``gpufence``."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

import click

from webhook.cli.errors import EXIT_INPUT
from webhook.cli.lazy import Entry, LazyGroup

EXIT_BUG = 70
"""EX_SOFTWARE of sysexits.h: neither a finding (1) nor a fault of the input (2)."""

EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141

# Of what is read, such an error is told where it is read: what is left is what is written.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_PLACE = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE)
"""A disk that fails or has gone, and a terminal that was closed."""

_ENTRIES = {
    "check": Entry("check:check", "Say what is wrong with manifests, and what changes."),
    "mutate": Entry("mutate:mutate", "Print manifests as the webhook would change them."),
    "explain": Entry(
        "explain:explain",
        "Explain a rule, or what happens to the Pods of a file.",
    ),
    "test": Entry("test:test", "Test a policy by suites of cases."),
    "krm": Entry("krm:krm", "Work as a KRM function, for kustomize and kpt."),
    "policy": Entry("policy_group:policy", "Show, validate and describe policies."),
    "audit": Entry(
        "audit:audit",
        "Judge everything that is in a cluster now, and show the pools.",
    ),
    "doctor": Entry(
        "doctor:doctor",
        "Check an installation from end to end, and say what to do.",
    ),
    "serve": Entry("serve:serve", "Serve admission reviews (the webhook)."),
    "manifests": Entry("manifests:manifests", "Print the webhook configurations of a policy."),
    "unregister": Entry(
        "unregister:unregister",
        "Break the glass: take the webhook out of the way.",
    ),
    "certs": Entry("certs:certs", "Issue and show the webhook's certificates."),
    "completion": Entry(
        "completion:completion",
        "Print the script that completes gpufence in a shell.",
    ),
}


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"gpufence {version('gpufence')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    entries=_ENTRIES,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  gpufence check deploy/                      every manifest in a folder
  kustomize build . | gpufence check -        what a pipe brings
  gpufence mutate train.yaml                  the Pod as the cluster will get it
  gpufence policy show > policy.yaml          a policy to start from
""",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """The fence around a Kubernetes cluster's GPU nodes.

    gpufence decides about Pods: those that request a GPU get to the GPU nodes, hardened, and all
    others stay away. The same decisions are made here, over files, and by the admission webhook.
    """


def main(args: Sequence[str] | None = None, *, prog_name: str = "gpufence") -> int:
    """Run the command line and return its exit status; ``prog_name`` is how usage calls it."""
    # Where the shell has closed one (>&-), nobody wants to read it.
    stdout: TextIO = sys.stdout or _nowhere()
    sys.stdout = _buffered(stdout) if stdout is sys.__stdout__ else stdout
    sys.stderr = sys.stderr or _nowhere()
    for each in (sys.stdin, sys.stdout, sys.stderr):
        _wait_for(each)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = cli.main(args, prog_name=prog_name, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except SystemExit as exit_:
        # Completion ends so, with 0. With 1, the status that stands for findings here, it is what
        # click makes of a closed pipe.
        return EXIT_PIPE_CLOSED if exit_.code else 0
    except BrokenPipeError:
        _discard_output()
        return EXIT_PIPE_CLOSED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (*_NO_ROOM, *_NO_PLACE):
            _discard_output()
            problem = f"the output cannot be written ({error.strerror})"
            cure = "Make room, or write it" if error.errno in _NO_ROOM else "Write it"
            with suppress(OSError):  # The same terminal may be gone for this, too.
                click.echo(f"Error: {problem}. {cure} elsewhere.", err=True)
            return EXIT_INPUT
        import traceback

        traceback.print_exc()
        click.echo(
            "Error: this is a bug in gpufence; please report it with the lines above.", err=True
        )
        return EXIT_BUG
    return status if isinstance(status, int) else 0


def _wait_for(stream: TextIO | None) -> None:
    """Have reading and writing wait: a pipe that others share may be told not to (O_NONBLOCK)."""
    # None where the shell has closed it; what is no file of the system's has no descriptor.
    with suppress(AttributeError, OSError, ValueError):
        os.set_blocking(stream.fileno(), True)  # type: ignore[union-attr]


def _buffered(stream: TextIO) -> TextIO:
    """Return a stream of which a write is all written, or fails.

    With PYTHONUNBUFFERED it is not: of what a disk has room for in part, the rest would be left out
    without a word.
    """
    if not isinstance(stream, io.TextIOWrapper) or not isinstance(stream.buffer, io.RawIOBase):
        return stream
    # The stream itself stays as it is, for whoever else has it.
    buffer = io.BufferedWriter(io.FileIO(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffer, stream.encoding, line_buffering=stream.isatty())


def _nowhere() -> io.TextIOWrapper:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _discard_output() -> None:
    """Let go of what is still buffered for the standard output: it must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
