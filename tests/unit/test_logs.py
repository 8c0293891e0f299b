"""One event, one line, whatever is in it."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
from typing import Any

import pytest
from aiohttp.http_exceptions import BadStatusLine

from paths import PROJECT
from webhook.logs import (
    MAX_REPEATED,
    REPEATED_SECONDS,
    JSONFormatter,
    RepeatedEvents,
    configure,
    event,
    set_fields,
)
from webhook.serve.http.listener import demote_bad_http

FORGED = 'jane"}\n{"event": "ready", "user": "\x1b[31mroot\u2028'
LOGS = {"event": 1, "_log_request": 0}
"""The functions that log, and which of their arguments is the level; the name follows it."""


def record_of(
    name: str = "denied", error: Exception | None = None, /, **fields: Any
) -> logging.LogRecord:
    raised = None if error is None else (type(error), error, None)
    record = logging.LogRecord("gpufence.test", logging.INFO, "", 0, name, (), raised)
    set_fields(record, **fields)
    return record


def test_a_json_line_carries_the_event_and_its_fields() -> None:
    record = record_of(name="web", rules=["pool-trespass"], dryRun=False)
    line = json.loads(JSONFormatter().format(record))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "gpufence.test",
        "event": "denied",
        "name": "web",
        "rules": ["pool-trespass"],
        "dryRun": False,
    }


def test_a_field_value_cannot_forge_a_log_line() -> None:
    for record in (record_of(user=FORGED), record_of(f"from a library: {FORGED}")):
        line = JSONFormatter().format(record)
        assert not set(line) & {"\n", "\x1b"}
        assert any(FORGED in text for text in json.loads(line).values())


def test_a_failure_is_logged_with_its_traceback() -> None:
    line = JSONFormatter().format(record_of("internal error", ZeroDivisionError("a bug"), uid="1"))
    assert "ZeroDivisionError: a bug" in line


@pytest.mark.parametrize(
    "problem", [BadStatusLine("quoted\nfor the log"), ConnectionResetError("it hung up")]
)
def test_a_fault_of_a_client_is_logged_without_traceback(problem: Exception) -> None:
    # As aiohttp/web_protocol.py logs it: the address is a field, and no part of the event's name.
    record = record_of("Error handling request from %s", problem)
    record.args = ("10.0.0.1",)
    assert demote_bad_http(record)
    line = json.loads(JSONFormatter().format(record))
    assert (line["level"], line["event"], line["client"]) == ("info", "bad HTTP", "10.0.0.1")
    assert "traceback" not in line


def test_the_whole_process_logs_in_one_format(monkeypatch: pytest.MonkeyPatch) -> None:
    root, stream = logging.getLogger(), io.StringIO()
    # A new configuration closes the handlers that it replaces.
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    configure(stream)
    event(logging.getLogger("gpufence"), logging.INFO, "ready", port=1)
    logging.getLogger("some.library").warning("careful")
    lines = stream.getvalue().splitlines()
    assert [("ready" in line, "careful" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]
    assert all(line.startswith("{") for line in lines)
    configure(stream, "warning")
    event(logging.getLogger("gpufence"), logging.INFO, "denied")
    assert stream.getvalue().splitlines() == lines


def events_for_attention() -> set[str]:
    """Return the events of the source that are logged as warnings or errors, by their names."""
    found = set()
    for path in (PROJECT / "webhook").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in LOGS:
                level, name = call.args[LOGS[call.func.id] :][:2]  # type: ignore[attr-defined]
                if ast.unparse(level) != "logging.INFO":
                    found.add(re.sub(r"\{.*?\}", "...", ast.unparse(name).lstrip("f").strip("'")))
    return found - {"name"}


def test_the_page_about_logs_has_every_event_that_needs_attention() -> None:
    page = (PROJECT / "docs/operate/logs.md").read_text()
    rows = [
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]
    assert len(events := events_for_attention()) > 10
    assert not events - set(rows)
    assert len(rows) == len(set(rows))


def test_a_repeated_event_is_limited_and_suppressed_lines_are_counted() -> None:
    now = 0.0
    limit = RepeatedEvents(lambda: now)
    assert sum(limit.filter(record_of("bad request")) for _ in range(1000)) == MAX_REPEATED
    assert limit.filter(record_of("ready"))
    now = REPEATED_SECONDS + 1
    record = record_of("bad request")
    assert limit.filter(record)
    assert json.loads(JSONFormatter().format(record))["suppressed"] == 1000 - MAX_REPEATED
    assert limit.filter(again := record_of("bad request"))
    assert "suppressed" not in JSONFormatter().format(again)
