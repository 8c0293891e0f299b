"""The oracle as a pytest fixture. tests/conftest.py names this module in `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle.driver import Oracle
from programs import program


@pytest.fixture(scope="session")
def oracle(pytestconfig: pytest.Config) -> Iterator[Oracle]:
    """Kubernetes' own code, in one process for the whole session."""
    with Oracle([program(pytestconfig, "oracle")]) as running:
        yield running


@pytest.fixture(scope="session")
def official_testdata(pytestconfig: pytest.Config) -> Path:
    """The directory of the official Pod Security fixtures (see oracle.pod_security_fixtures)."""
    path: Path = program(pytestconfig, "official_testdata")
    return path
