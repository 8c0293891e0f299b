"""The errors between gpufence and an API server, and the delays before a request is retried."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

CONFLICT = 409
FORBIDDEN = 403
GONE = 410
NOT_FOUND = 404
UNAUTHORIZED = 401


class ClusterError(Exception):
    """A request to the cluster failed.

    ``retry_after`` is the delay that the server requests, in seconds.
    """

    retry_after = 0.0


class ConfigurationError(ClusterError):
    """The kubeconfig, or the service account of the Pod, is not usable."""


class UnreachableError(ClusterError):
    """The API server is not reachable, or the connection was lost."""


class UnexpectedAnswerError(ClusterError):
    """The response of the API server does not follow its API."""


class OversizedAnswerError(UnexpectedAnswerError):
    """The response of the API server has more bytes than gpufence reads."""

    def __init__(self, path: str, most_bytes: int) -> None:
        super().__init__(f"{path} returned more than {most_bytes // 1024:,} KiB")


class ApiError(ClusterError):
    """The API server responded with a Status of failure."""

    def __init__(self, status: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{message} (HTTP {status})" if message else f"HTTP {status}")
        self.status = status
        self.message = message
        self.retry_after = retry_after


class FailureStatus(msgspec.Struct, frozen=True):
    """The Status of a failed request: HTTP status and message."""

    code: int = 0
    message: str = ""


class Backoff:
    """Delays that double from ``first`` to ``cap`` seconds, shortened by up to half at random.

    They start again after an attempt that lasted ``steady`` seconds. An attempt that fails sooner
    is not a success, even if its connection was established.
    """

    def __init__(
        self,
        first: float,
        cap: float,
        steady: float,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._cap = cap
        self._steady = steady
        self._spread = spread
        self._failures = 0

    def after(self, lasted: float) -> float:
        """Return the seconds to wait after an attempt that lasted so many."""
        if lasted >= self._steady:
            self._failures = 0
        # Bounded, because 2.0**1024 is an error; the cap is reached long before.
        delay = min(self._cap, self._first * 2.0 ** min(self._failures, 60))
        self._failures += 1
        return delay * (1 - self._spread() / 2)


def spread(seconds: float) -> float:
    """Return the delay, extended by up to half at random: replicas must not retry together."""
    return seconds * (1 + random.random() / 2)  # noqa: S311 - spreads load
