"""The delays before a request is retried."""

from __future__ import annotations

from webhook.kube.errors import backoff


def test_delays_double_up_to_the_longest_and_differ_between_replicas() -> None:
    for failures, whole in {1: 0.25, 2: 0.5, 3: 1, 6: 8, 7: 10, 2000: 10}.items():
        delays = {backoff(failures, 0.25, 10.0) for _ in range(20)}
        assert len(delays) > 1
        assert all(whole / 2 <= delay <= whole for delay in delays), failures
