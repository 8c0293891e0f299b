"""helm as a fixture, looked for and built if need be before the first test, as the binaries are."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.errors import ControlPlaneError
from deploy.chart import Helm, binary

FOUND = pytest.StashKey[Path | ControlPlaneError]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Have helm before the first test, if any test wants it."""
    wanted = any("helm" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            session.config.stash[FOUND] = binary()
        except ControlPlaneError as error:
            # Only the tests that need it shall fail of it.
            session.config.stash[FOUND] = error


@pytest.fixture(scope="session")
def helm(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real helm, connected to no cluster."""
    found = pytestconfig.stash[FOUND]
    if isinstance(found, ControlPlaneError):
        raise found
    return Helm(found, tmp_path_factory.mktemp("helm"))
