"""Durations in Go's notation, as values of options."""

from __future__ import annotations

import click
import pytest

from webhook.cli.options.times import parse_duration

CONTEXT, OPTION = click.Context(click.Command("x")), click.Option(["--time"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3s", 3.0),
        ("1m30s", 90.0),
        ("1h0m0.5s", 3600.5),
        ("8760h", 31_536_000.0),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("300ms", 0.3),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("0", 0.0),
    ],
)
def test_go_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(CONTEXT, OPTION, text).total_seconds() == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "3", "s", ".s", "-3s", "+3s", "3 s", "3s ", "3S", "1s2", "soon", "1e3s", "٣s", "3s\n"],
)
def test_invalid_durations_are_rejected_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write it like 3s, 1m30s or 500ms"):
        parse_duration(CONTEXT, OPTION, text)
