"""helm, kustomize and Prometheus' parser as fixtures. tests/conftest.py names this module.

They are looked for, and built if need be, before the first test, as the control plane's binaries.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.errors import ControlPlaneError
from deploy import chart, kustomize, promql
from deploy.chart import Helm

PROGRAMS: dict[str, Callable[[], Path]] = {
    "helm": chart.binary,
    "kustomize": kustomize.binary,
    "promql_parser": promql.binary,
}
"""What finds or builds a program, by the fixture that wants it."""
FOUND = pytest.StashKey[dict[str, Path | ControlPlaneError]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Have the programs before the first test, if any test wants them."""
    found = session.config.stash[FOUND] = {}
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    for fixture, find in PROGRAMS.items():
        if any(fixture in getattr(item, "fixturenames", ()) for item in session.items):
            with capture.global_and_fixture_disabled():
                try:
                    found[fixture] = find()
                except ControlPlaneError as error:
                    # Only the tests that need it shall fail of it.
                    found[fixture] = error


def program(config: pytest.Config, fixture: str) -> Path:
    found = config.stash[FOUND][fixture]
    if isinstance(found, ControlPlaneError):
        raise found
    return found


@pytest.fixture(scope="session")
def helm(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real helm, connected to no cluster."""
    return Helm(program(pytestconfig, "helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session", name="kustomize")
def _kustomize(pytestconfig: pytest.Config) -> Path:
    """The real kustomize (see deploy.kustomize)."""
    return program(pytestconfig, "kustomize")


@pytest.fixture(scope="session")
def promql_parser(pytestconfig: pytest.Config) -> Path:
    """Prometheus' own parser (see deploy.promql)."""
    return program(pytestconfig, "promql_parser")
