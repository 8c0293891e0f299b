"""How long a caller waits for its answer: ``?timeout=3s``, which an API server appends."""

from __future__ import annotations

import re

DEFAULT_SECONDS = 10.0
"""What an API server waits where a webhook's configuration says nothing."""

MAX_SECONDS = 30.0
"""The longest that a webhook's configuration can say (``timeoutSeconds``)."""

_MARGIN = 0.1
"""Share of the caller's time that is left for the answer's way back."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_SECONDS["h"] = 3600.0
_PART = r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"(?:{_PART})+")
_PARTS = re.compile(_PART)


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration (``3s``, ``1m0s``, ``1.5h``, ``300ms``).

    Source: Go, ``time.ParseDuration``. Negative durations are refused: nobody waits for one.

    Raises:
        ValueError: the text is none.
    """
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r:.40} is no duration; write it like 3s, 1m30s or 500ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text))


def deadline(timeout: str | None) -> float:
    """Return the seconds in which to answer a call with this ``timeout``: less than it waits.

    Raises:
        ValueError: the timeout is no duration.
    """
    seconds = DEFAULT_SECONDS if timeout is None else parse_duration(timeout)
    return min(seconds, MAX_SECONDS) * (1 - _MARGIN)
