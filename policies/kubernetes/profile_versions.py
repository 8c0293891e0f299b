"""The versions of Pod Security's profiles. A policy names them, and reads no profile."""

from __future__ import annotations

from typing import NamedTuple


class Versions(NamedTuple):
    """The minor versions of Kubernetes 1.x whose profiles a Pod must meet, all of them.

    They are that of the cluster, and the one that the namespace pins, if it does.
    """

    oldest: int
    newest: int


OLDEST, NEWEST = 30, 37
"""The minor versions whose profiles are known."""
VERSIONS = tuple(f"v1.{minor}" for minor in range(OLDEST, NEWEST + 1))
LATEST_VERSION = "latest"
"""In place of a version: that of the cluster."""
LATEST = Versions(NEWEST, NEWEST)
