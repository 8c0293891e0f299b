"""The log: one event per line on standard error, as JSON.

A line is an event and its fields, and no client can forge one. An event that repeats is limited,
because any client can cause some of them at any rate.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

MAX_REPEATED = 200
"""Lines of one event in ``REPEATED_SECONDS``. The next line of that event says how many are missing
as ``suppressed``."""

REPEATED_SECONDS = 10.0

_FIELDS = "gpufence_fields"


def configure(stream: TextIO, level: str = "info") -> None:
    """Send the log of the process and its libraries to ``stream``, from ``level`` on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    handler.addFilter(RepeatedEvents(time.monotonic))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def event(
    log: logging.Logger,
    level: int,
    name: str,
    /,
    *,
    failure: bool | Exception = False,
    **fields: Any,
) -> None:
    """Log an event, with the traceback of an exception: ``True`` is the one being handled."""
    log.log(level, name, exc_info=failure, extra={_FIELDS: fields})


def set_fields(record: logging.LogRecord, **fields: Any) -> None:
    """Replace the fields of a record."""
    setattr(record, _FIELDS, fields)


class RepeatedEvents:
    """A filter that passes ``MAX_REPEATED`` lines of each event in ``REPEATED_SECONDS``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = 0.0
        self._passed: Counter[tuple[str, str]] = Counter()
        self._suppressed: Counter[tuple[str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        now, key = self._clock(), (record.name, str(record.msg))
        if now - self._since > REPEATED_SECONDS:
            self._since = now
            self._passed.clear()
        self._passed[key] += 1
        if self._passed[key] > MAX_REPEATED:
            self._suppressed[key] += 1
            return False
        if suppressed := self._suppressed.pop(key, 0):
            set_fields(record, **_fields(record), suppressed=suppressed)
        return True


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = dict(getattr(record, _FIELDS, {}))
    if record.stack_info:
        fields["stack"] = record.stack_info
    return fields


class JSONFormatter(logging.Formatter):
    """``{"time": ..., "level": ..., "logger": ..., "event": ..., <fields>}``."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode("utf-8")
