"""helm, kustomize and Prometheus' parser as fixtures. tests/conftest.py names this module."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.chart import Helm
from programs import program


@pytest.fixture(scope="session")
def helm(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real helm, connected to no cluster."""
    return Helm(program(pytestconfig, "helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session", name="kustomize")
def _kustomize(pytestconfig: pytest.Config) -> Path:
    """The real kustomize (see deploy.kustomize)."""
    path: Path = program(pytestconfig, "kustomize")
    return path


@pytest.fixture(scope="session")
def promql_parser(pytestconfig: pytest.Config) -> Path:
    """Prometheus' own parser (see deploy.promql)."""
    path: Path = program(pytestconfig, "promql_parser")
    return path
