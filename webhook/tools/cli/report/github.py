"""Annotations of GitHub Actions: a workflow command for each finding, which GitHub shows at its
line.

Source: docs.github.com, "Workflow commands for GitHub Actions"; for the escapes,
``packages/core/src/command.ts`` in github.com/actions/toolkit.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.finding import Action
from webhook.documents.document import explanation
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.report.content import (
    CheckReport,
    Place,
    finding_place,
    message,
    object_place,
    remediation,
    repository_path,
)
from webhook.wording import printable

_COMMANDS: dict[Action, str] = {"enforce": "error", "warn": "warning", "audit": "notice"}


def check(report: CheckReport) -> Iterator[str]:
    """Yield the lines about each object: one for each finding, and for an error."""
    for result in report.results:
        yield "".join(_commands(result))


def _commands(result: Result) -> Iterator[str]:
    if result.error is not None:
        text = explanation(result.manifest.document, result.error)
        yield _command("error", object_place(result), "invalid manifest", text)
    for finding in result.findings:
        text = f"{result.title}: {message(finding)}"
        name, place = _COMMANDS[finding.action], finding_place(result, finding)
        yield _command(name, place, finding.rule, text, remediation(finding))


def _command(name: str, place: Place, title: str, text: str, cure: str = "") -> str:
    properties = {
        "file": repository_path(place.path),
        "line": place.line,
        "endLine": place.line if place.end else 0,
        "col": place.column,
        "endColumn": place.end,
        "title": f"gpufence: {title}",
    }
    if properties["file"] is None:
        # Without a file, GitHub shows no line.
        properties = {"title": properties["title"]}
    pairs = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value)
    # The log of the job shows nothing but the lines of the message.
    lines = [f"{place}: {title}: {text}", *([cure] if cure else [])]
    return f"::{name} {pairs}::{'%0A'.join(map(_data, lines))}\n"


def _data(line: str) -> str:
    """Return a line as the runner reads it: without line breaks, which are escaped as well."""
    return printable(line).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
