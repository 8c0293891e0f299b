"""The errors between gpufence and an API server, and the delays before a request is retried."""

from __future__ import annotations

import random

import msgspec

INVALID = (msgspec.DecodeError, RecursionError)
"""Raised by msgspec for bytes that are not as they should be, or are nested too deeply."""

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
    """The API server responded with a Status of failure.

    If a list has expired (410), ``rest`` is the token by which it goes on with newer versions.
    """

    def __init__(self, status: int, message: str, retry_after: float = 0.0, rest: str = "") -> None:
        super().__init__(f"{message} (HTTP {status})" if message else f"HTTP {status}")
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.rest = rest


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """``metav1.ListMeta``."""

    resource_version: str = ""
    rest: str = msgspec.field(name="continue", default="")
    """The token of the next page; empty on the last."""


class FailureStatus(msgspec.Struct, frozen=True):
    """The Status of a failed request: HTTP status and message."""

    code: int = 0
    message: str = ""
    metadata: ListMetadata = ListMetadata()


def backoff(failures: int, first: float, longest: float) -> float:
    """Return the delay in seconds after a number of consecutive failures.

    The delay doubles from ``first`` to ``longest``, and is shortened by up to half at random:
    replicas must not retry together.
    """
    # Bounded, because 2.0**1024 is an error; the longest delay is reached long before.
    delay = min(longest, first * 2.0 ** min(failures - 1, 60))
    return delay * random.uniform(0.5, 1)  # noqa: S311 - spreads load


def spread(seconds: float) -> float:
    """Return the delay, extended by up to half at random, for the same reason."""
    return seconds * random.uniform(1, 1.5)  # noqa: S311 - spreads load
