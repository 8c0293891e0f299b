"""Helm charts, rendered with the helm of the machine."""

from __future__ import annotations

import shlex
import shutil
import subprocess

from webhook.documents.errors import ManifestError

_TIMEOUT_SECONDS = 60


def rendered_name(chart: str) -> str:
    """Return what the rendered manifests are called in reports."""
    return f"<helm template {chart}>"


def render_chart(chart: str) -> str:
    """Return what ``helm template`` makes of a chart and its default values.

    Raises:
        ManifestError: helm is not installed, or cannot render the chart.
    """
    command = f"helm template {shlex.quote(chart)}"
    helm = shutil.which("helm")
    if helm is None:
        raise ManifestError(
            "is a Helm chart, and helm is not in PATH",
            cure=f"Where helm is installed, run {command} | gpufence check -",
        )
    try:
        completed = subprocess.run(  # noqa: S603 - a list of arguments, no shell
            [helm, "template", "--", chart],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ManifestError(f"cannot be rendered ({error})", cure=f"Run {command}") from error
    if completed.returncode:
        output = " ".join(completed.stderr.split()) or f"exit status {completed.returncode}"
        raise ManifestError(
            f"cannot be rendered with its default values: {output.removeprefix('Error: ')}",
            cure=f"Run {command} with your values, and pipe it into gpufence check -",
        )
    return completed.stdout
