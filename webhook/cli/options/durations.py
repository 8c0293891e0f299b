"""Durations as Go writes them, as values of options."""

from __future__ import annotations

from datetime import timedelta

import click


def duration(_ctx: click.Context, _param: click.Parameter, value: str) -> timedelta:
    """Read ``90s``, ``1h30m``, ``8760h`` (a callback of click)."""
    from webhook.http.deadline import parse_duration

    try:
        return timedelta(seconds=parse_duration(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
