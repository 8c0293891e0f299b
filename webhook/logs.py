"""The log: one line an event on standard error, as JSON or as text for a terminal.

A line is an event and its fields. What came from outside is encoded as JSON in both formats, so
that nobody can write a line of their own.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

LogFormat = Literal["json", "text"]

_FIELDS = "gpufence_fields"


def configure(log_format: LogFormat, stream: TextIO) -> None:
    """Send the log of the process to ``stream``, that of the libraries included."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def event(
    log: logging.Logger, level: int, name: str, /, *, failure: bool = False, **fields: Any
) -> None:
    """Log an event; ``failure`` adds the traceback of the exception that is being handled."""
    log.log(level, name, exc_info=failure, extra={_FIELDS: fields})


def set_fields(record: logging.LogRecord, **fields: Any) -> None:
    """Replace the fields of a record."""
    setattr(record, _FIELDS, fields)


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
