"""The delays before a request is retried."""

from __future__ import annotations

from webhook.kube.errors import backoff


def test_delays_double_up_to_the_longest_and_differ_between_replicas() -> None:
    wholes = {1: 0.25, 2: 0.5, 3: 1, 6: 8, 7: 10, 2000: 10}
    delays = {n: {backoff(n, 0.25, 10.0) for _ in range(20)} for n in wholes}
    assert not [n for n, found in delays.items() if len(found) == 1]
    assert not [n for n, whole in wholes.items() if min(delays[n]) < whole / 2]
    assert not [n for n, whole in wholes.items() if max(delays[n]) > whole]
