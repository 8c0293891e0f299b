"""The log: one line an event on standard error, as JSON or as text for a terminal.

A line is an event and its fields. What came from outside is encoded as JSON in both formats, so
that nobody can write a line of their own.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

LogFormat = Literal["json", "text"]

_FIELDS = "gpufence_fields"


def configure(log_format: LogFormat, stream: TextIO, worker: int | None = None) -> None:
    """Send the process's log to ``stream``, the libraries' included.

    Every line says which ``worker`` it is of, where there are several.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(demote_bad_http)
    if worker is not None:
        handler.addFilter(lambda record: _tell_worker(record, worker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def event(
    log: logging.Logger, level: int, name: str, /, *, failure: bool = False, **fields: Any
) -> None:
    """Log an event; ``failure`` adds the traceback of the exception that is being handled."""
    log.log(level, name, exc_info=failure, extra={_FIELDS: fields})


def demote_bad_http(record: logging.LogRecord) -> bool:
    """Make what is no HTTP a line without a traceback: anybody can send it, as often as they like.

    The HTTP library logs it as an error of its own.
    """
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, (HttpProcessingError, RequestPayloadError)):
        # Its text quotes what was sent, over several lines.
        setattr(record, _FIELDS, {"problem": " ".join(str(problem).split())[:200]})
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.exc_info = record.exc_text = None
    return True


def _tell_worker(record: logging.LogRecord, worker: int) -> bool:
    setattr(record, _FIELDS, {"worker": worker, **getattr(record, _FIELDS, {})})
    return True


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = dict(getattr(record, _FIELDS, {}))
    if record.stack_info:
        fields["stack"] = record.stack_info
    return fields


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode("utf-8")


class JSONFormatter(logging.Formatter):
    """``{"time": ..., "level": ..., "logger": ..., "event": ..., <fields>}``."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _json(line)


class TextFormatter(logging.Formatter):
    """``TIME LEVEL EVENT key=value ...``, and a traceback over several lines."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_json(value)}" for key, value in _fields(record).items())
        message = _json(record.getMessage())[1:-1]
        text = f"{_time(record)} {record.levelname:<7} {message}{fields}"
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        return text
