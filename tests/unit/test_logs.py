"""One event, one line, whatever is in it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from aiohttp.http_exceptions import BadStatusLine

from webhook.http.listener import demote_bad_http
from webhook.logs import (
    MAX_REPEATED,
    REPEATED_SECONDS,
    JSONFormatter,
    LogFormat,
    RepeatedEvents,
    TextFormatter,
    configure,
    event,
)

FORGED = 'jane"}\n{"event": "ready", "user": "\x1b[31mroot\u2028'


@contextmanager
def captured(formatter: logging.Formatter) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """Yield a logger and what it wrote."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(demote_bad_http)
    log = logging.getLogger("gpufence.test")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    try:
        yield log, stream
    finally:
        log.removeHandler(handler)
        log.propagate = True


def log_line(formatter: logging.Formatter, **fields: Any) -> str:
    with captured(formatter) as (log, stream):
        event(log, logging.INFO, "denied", **fields)
        return stream.getvalue()


def fail(error: Exception) -> NoReturn:
    raise error


def test_a_json_line_carries_the_event_and_its_fields() -> None:
    line = json.loads(log_line(JSONFormatter(), name="web", rules=["pool-trespass"], dryRun=False))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "gpufence.test",
        "event": "denied",
        "name": "web",
        "rules": ["pool-trespass"],
        "dryRun": False,
    }


def test_a_text_line_carries_the_event_and_its_fields() -> None:
    line = log_line(TextFormatter(), name="web", rules=["pool-trespass"], dryRun=False)
    _, _, rest = line.partition(" ")
    assert rest == 'INFO    denied name="web" rules=["pool-trespass"] dryRun=false\n'


def test_a_field_value_cannot_forge_a_json_log_line() -> None:
    line = log_line(JSONFormatter(), user=FORGED)
    assert line.count("\n") == 1
    assert json.loads(line)["user"] == FORGED


def test_a_field_value_cannot_forge_a_text_log_line() -> None:
    line = log_line(TextFormatter(), user=FORGED)
    assert line.count("\n") == 1
    assert "\x1b" not in line
    with captured(TextFormatter()) as (log, stream):
        log.info("from a library: %s", FORGED)
        assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("formatter", [JSONFormatter(), TextFormatter()])
def test_a_failure_is_logged_with_its_traceback(formatter: logging.Formatter) -> None:
    with captured(formatter) as (log, stream):
        try:
            fail(ZeroDivisionError("a bug"))
        except ZeroDivisionError:
            event(log, logging.ERROR, "internal error", failure=True, uid="1")
        assert "ZeroDivisionError: a bug" in stream.getvalue()


@pytest.mark.parametrize(
    "problem", [BadStatusLine("quoted\nfor the log"), ConnectionResetError("it hung up")]
)
def test_a_fault_of_a_client_is_logged_without_traceback(problem: Exception) -> None:
    with captured(JSONFormatter()) as (log, stream):
        try:
            fail(problem)
        except (BadStatusLine, ConnectionResetError):
            log.exception("Error handling request from %s", "10.0.0.1")
        line = json.loads(stream.getvalue())
    assert line["level"] == "info"
    assert line["event"] == "Error handling request from 10.0.0.1"
    assert "traceback" not in line


@contextmanager
def own_root() -> Iterator[None]:
    """Let the block configure the root logger, and restore it afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    # Removed first, because a new configuration closes the handlers that it replaces.
    root.handlers.clear()
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_the_whole_process_logs_in_one_format(log_format: LogFormat) -> None:
    stream = io.StringIO()
    with own_root():
        configure(log_format, stream)
        logging.getLogger("some.library").warning("careful")
    assert ('"event":"careful"' in stream.getvalue()) == (log_format == "json")
    assert "careful" in stream.getvalue()


def test_a_repeated_event_is_limited_and_suppressed_lines_are_counted() -> None:
    now = 0.0
    limit = RepeatedEvents(lambda: now)

    def passes(name: str) -> logging.LogRecord | None:
        record = logging.LogRecord("gpufence", logging.INFO, "", 0, name, (), None)
        return record if limit.filter(record) else None

    assert sum(passes("bad request") is not None for _ in range(1000)) == MAX_REPEATED
    assert passes("ready") is not None
    now = REPEATED_SECONDS + 1
    record = passes("bad request")
    assert record is not None
    assert json.loads(JSONFormatter().format(record))["suppressed"] == 1000 - MAX_REPEATED
    assert "suppressed" not in JSONFormatter().format(passes("bad request") or record)
