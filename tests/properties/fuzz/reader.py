"""The command line's reader under any text: verdicts and sentences, never a crash.

What is read goes all the way: documents, objects, the engine, the report, and the YAML writer,
whose output is read again.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import cache

from policies.facts import Request
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from reviewing import default_policy
from webhook.documents.document import DocumentError
from webhook.documents.files import decode, read_documents
from webhook.documents.objects import locate, read_objects
from webhook.tools.cli.evaluate import Result, evaluate
from webhook.tools.cli.report import json as json_report
from webhook.tools.cli.report import text as text_report
from webhook.tools.cli.report.content import CheckReport
from webhook.tools.cli.report.output import Terminal
from webhook.tools.cli.yaml_writer import to_yaml

# YAML 1.1, 4.2: a bare carriage return ends a line, too.
_LINE_BREAK = re.compile("\r\n?|\n")
_TODAY = date(2026, 11, 21)


class WrongPlaceError(AssertionError):
    """A place that is reported lies outside of the text."""


class WrongYAMLError(AssertionError):
    """What the writer wrote is not read as what it was."""


def read(data: bytes) -> None:
    """Check one input as a manifest.

    Raises:
        WrongPlaceError: an error or a finding points outside of the text.
        WrongYAMLError: a mutated object is written as something else.
    """
    try:
        text = decode(data)
    except DocumentError:
        return
    lines = len(_LINE_BREAK.findall(text)) + 1
    manifests = [m for document in read_documents("a.yaml", text) for m in read_objects(document)]
    results = list(evaluate(manifests, _policy(), Request(today=_TODAY)))
    for result in results:
        for line in _lines(result):
            if not 1 <= line <= lines:
                raise WrongPlaceError(f"line {line} of {lines}: {result}")
        if result.decision.has_template:
            _write(result.decision.mutated)
    report = CheckReport("default", datetime.now(UTC), results)
    "".join([*json_report.check(report), *text_report.check(report, Terminal())])


def _write(mutated: JSONObject) -> None:
    """Write the object as `gpufence mutate` does, and read that again."""
    text = to_yaml(mutated)
    (document,) = read_documents("b.yaml", text)
    if document.value != mutated:
        raise WrongYAMLError(f"{mutated!r} is written as {text!r}")


def _lines(result: Result) -> list[int]:
    """Return every line that is reported about an object."""
    manifest = result.manifest
    found = [manifest.line]
    if result.error is not None and result.error.line:
        found.append(result.error.line)
    places = (locate(manifest.document, manifest.path, f.path) for f in result.findings)
    return found + [place[0] for place in places if place is not None]


@cache
def _policy() -> Policy:
    return default_policy()
