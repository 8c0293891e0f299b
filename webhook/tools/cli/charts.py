"""Helm charts, rendered with the helm of the machine, and without its secrets.

The author of a chart may be the author of a pull request. helm gets no environment of the caller,
bounded time and memory, and no chart with a link that leaves it: templates can print any file of
the chart.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from webhook.documents.document import DocumentError

CHART = "Chart.yaml"
VALUES = "values.yaml"
RENDERED = ("templates", "charts")
"""The directories of a chart that helm renders."""

SECONDS = 30
MEMORY = 512 * 1024 * 1024
OUTPUT = 64 * 1024 * 1024
"""Bytes. The largest charts take a few seconds and 300 MiB, and print 5 MiB."""


def is_chart(directory: str) -> bool:
    """Return whether a directory is a chart."""
    return os.path.isfile(f"{directory}/{CHART}")  # noqa: PTH113 - false if it cannot be read


def render_chart(chart: str) -> str:
    """Return what ``helm template`` makes of a chart and its default values.

    Raises:
        DocumentError: helm is not installed, or cannot render the chart within the limits, or a
            link leaves the chart.
    """
    command = f"helm template {shlex.quote(chart)}"
    helm = shutil.which("helm")
    if helm is None:
        raise DocumentError(
            "is a Helm chart, and helm is not in PATH",
            cure=f"Where helm is installed, run {command} | gpufence check -",
        )
    _check_links(chart)
    from tempfile import TemporaryDirectory, TemporaryFile

    with TemporaryDirectory() as home, TemporaryFile() as out, TemporaryFile() as err:
        try:
            status = subprocess.run(  # noqa: S603 - a list of arguments, no shell
                [helm, "template", "--", chart],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home},
                timeout=SECONDS,
                # The process has one thread: nothing that it holds can block the child.
                preexec_fn=_limit,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise _too_expensive(command) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise DocumentError(f"cannot be rendered ({error})", cure=f"Run {command}") from error
        out.seek(0)
        err.seek(0)
        text, message = (file.read().decode(errors="replace") for file in (out, err))
    # A signal, or the words of Go and of shells for a limit.
    if status < 0 or re.search(r"(?i)out of memory|file too large|limit exceeded", message):
        raise _too_expensive(command)
    if status:
        output = " ".join(message.split()) or f"exit status {status}"
        raise DocumentError(
            f"cannot be rendered with its default values: {output.removeprefix('Error: '):.1000}",
            cure=f"Run {command} with your values, and pipe it into gpufence check -",
        )
    return text


def _check_links(chart: str) -> None:
    """Reject links that leave the chart.

    Raises:
        DocumentError: there is one.
    """
    root = os.path.realpath(chart)
    for parent, directories, files in os.walk(chart):
        for path in (Path(parent, name) for name in (*directories, *files)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
                raise DocumentError(
                    f"has a link that leaves the chart: {os.path.relpath(path, chart)}",
                    cure="Replace the link with the file, or check what helm template prints",
                )


def _limit() -> None:
    """Limit memory, CPU time and output of this process. It is the child that becomes helm."""
    import resource  # not on every system on which the rest runs

    for what, most in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, OUTPUT),
    ):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _too_expensive(command: str) -> DocumentError:
    limits = f"{SECONDS} s, {MEMORY // 2**20} MiB of memory and {OUTPUT // 2**20} MiB of output"
    return DocumentError(
        f"cannot be rendered within {limits}",
        cure=f"If you trust the chart, run {command} | gpufence check -",
    )
