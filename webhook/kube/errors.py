"""What can go wrong between gpufence and an API server: what, where, and what to do."""

from __future__ import annotations

GONE = 410
NOT_FOUND = 404
UNAUTHORIZED = 401


class ClusterError(Exception):
    """The cluster could not be asked, or did not answer as it should."""


class ConfigurationError(ClusterError):
    """The kubeconfig, or the Pod's service account, does not lead to an API server."""


class UnreachableError(ClusterError):
    """The API server cannot be reached, or the connection to it was lost."""


class UnexpectedAnswerError(ClusterError):
    """The API server sent something else than what its API promises."""


class ApiError(ClusterError):
    """The API server answered with a Status of failure, whose HTTP status and message these are."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})" if message else f"HTTP {status}")
        self.status = status
        self.message = message
