"""The oracle as a pytest fixture. tests/conftest.py names this module in `pytest_plugins`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oracle.cached import binary
from oracle.driver import Oracle

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kubernetes' own code, in one process for the whole session."""
    with Oracle([binary()]) as running:
        yield running
