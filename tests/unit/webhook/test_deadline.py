"""Callers say how long they wait, in Go's notation."""

from __future__ import annotations

import pytest

from webhook.http.deadline import deadline, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3s", 3.0),
        ("30s", 30.0),
        ("1m0s", 60.0),
        ("1m30s", 90.0),
        ("1h0m0.5s", 3600.5),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("300ms", 0.3),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("7ns", 7e-9),
        ("0", 0.0),
    ],
)
def test_go_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "3", "s", ".s", "-3s", "+3s", "3 s", "3s ", "3S", "1s2", "soon", "1e3s", "٣s", "3s\n"],
)
def test_invalid_durations_are_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write it like 3s, 1m30s or 500ms"):
        parse_duration(text)


def test_the_deadline_is_earlier_than_the_timeout_of_the_caller() -> None:
    assert deadline("3s", 10) == pytest.approx(2.7)
    assert deadline("500ms", 10) == pytest.approx(0.45)


@pytest.mark.parametrize("timeout", [None, "30s", "8760h"])
def test_the_registered_timeout_limits_the_deadline(timeout: str | None) -> None:
    assert deadline(timeout, 3) == pytest.approx(2.7)
