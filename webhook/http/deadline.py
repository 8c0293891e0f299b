"""The timeout of a caller: ``?timeout=3s``, which an API server appends."""

from __future__ import annotations

import re

_MARGIN = 0.1
"""The share of the caller's timeout that is reserved for the response's transfer."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_SECONDS["h"] = 3600.0
_PART = r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"(?:{_PART})+")
_PARTS = re.compile(_PART)


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration (``3s``, ``1m0s``, ``1.5h``, ``300ms``).

    Source: Go, ``time.ParseDuration``. Negative durations are invalid here.

    Raises:
        ValueError: the text is not a duration.
    """
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r:.40} is not a duration; write it like 3s, 1m30s or 500ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text))


def deadline(timeout: str | None, registered: float) -> float:
    """Return the seconds for the response to a call with this ``timeout``: less than it waits.

    A call never gets more than the ``registered`` timeout (``timeoutSeconds`` of the webhook
    configurations): API servers need no more, and other clients must not get more.

    Raises:
        ValueError: the timeout is not a duration.
    """
    seconds = registered if timeout is None else min(parse_duration(timeout), registered)
    return seconds * (1 - _MARGIN)
