"""Durations and dates as values of options."""

from __future__ import annotations

from datetime import date, timedelta

import click


def parse_duration(_ctx: click.Context, _param: click.Parameter, value: str) -> timedelta:
    """Parse a duration as Go writes them: ``90s``, ``1h30m``, ``8760h``."""
    from webhook.http import deadline

    try:
        return timedelta(seconds=deadline.parse_duration(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


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
