"""Values of options: names of objects, which become parts of URLs, and durations."""

from __future__ import annotations

import click
import pytest

from webhook.tools.cli.flags import parse_duration


def test_go_durations_are_parsed() -> None:
    seconds = {
        "3s": 3.0,
        "1m30s": 90.0,
        "1h0m0.5s": 3600.5,
        "8760h": 31_536_000.0,
        ".5s": 0.5,
        "2.s": 2.0,
        "300ms": 0.3,
        "10us": 1e-5,
        "10µs": 1e-5,
        "0": 0.0,
    }
    found = {text: parse_duration(text).total_seconds() for text in seconds}
    assert found == pytest.approx(seconds)


def test_invalid_durations_are_rejected_with_an_example(subtests: pytest.Subtests) -> None:
    unsigned = ("", "3", "s", ".s", "3 s", "3s ", "3S", "1s2", "soon", "1e3s", "٣s", "3s\n")
    advice = "write it like 24h, 90m or 1h30m"
    for text in (*unsigned, "-3s", "+3s"):
        with subtests.test(text=text), pytest.raises(click.BadParameter, match=advice):
            parse_duration(text)
