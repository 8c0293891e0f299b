"""Durations and dates as values of options."""

from __future__ import annotations

import re
from datetime import date, timedelta

import click

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_SECONDS["h"] = 3600.0
_PART = r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"(?:{_PART})+")
_PARTS = re.compile(_PART)


def parse_duration(_ctx: click.Context, _param: click.Parameter, value: str) -> timedelta:
    """Parse a duration as Go writes them: ``90s``, ``1h30m``, ``8760h``.

    Source: Go, ``time.ParseDuration``. Negative durations are invalid here.
    """
    if value == "0":
        return timedelta(0)
    if not _DURATION.fullmatch(value):
        raise click.BadParameter(
            f"{value!r:.40} is not a duration; write it like 3s, 1m30s or 500ms"
        )
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(value))
    return timedelta(seconds=seconds)


def parse_date(_ctx: click.Context, _param: click.Parameter, value: str | None) -> date | None:
    """Parse a date: ``2026-12-31``."""
    if value is None:
        return None
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not a date. Write it as YYYY-MM-DD, for example 2026-12-31."
        ) from error
