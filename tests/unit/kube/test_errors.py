"""How long reflectors wait before they try again."""

from __future__ import annotations

from webhook.kube.errors import Backoff


def test_delays_double_up_to_a_cap_and_are_shortened_by_up_to_half() -> None:
    whole = Backoff(0.25, 10.0, 10.0, spread=lambda: 0.0)
    assert [whole.after(0.0) for _ in range(8)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    half = Backoff(0.25, 10.0, 10.0, spread=lambda: 1.0)
    assert [half.after(0.0) for _ in range(3)] == [0.125, 0.25, 0.5]
    for _ in range(2000):
        last = whole.after(0.0)
    assert last == 10.0


def test_delays_are_reset_after_a_long_attempt() -> None:
    backoff = Backoff(0.25, 10.0, 10.0, spread=lambda: 0.0)
    assert [backoff.after(lasted) for lasted in (0, 9.9, 0, 10.0, 0)] == [0.25, 0.5, 1, 0.25, 0.5]


def test_delays_differ_between_reflectors() -> None:
    assert len({Backoff(0.25, 10.0, 10.0).after(0.0) for _ in range(20)}) > 1
