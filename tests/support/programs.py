"""The builds that tests need: Go programs, the image and the documentation site.

A test needs one of them if it uses its fixture, directly or through another fixture. Such tests
carry the marker `built`, so `-m "not built"` selects the tests that run without any build.
Programs are found or built before the first test, because a build takes longer than the time limit
of one test, and its progress must be visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane import build
from controlplane.errors import ControlPlaneError
from deploy import chart
from oracle.driver import Oracle
from toolkit import runtime

PROGRAMS = {
    "found_binaries": "controlplane",
    "go_toolchain": "go",
    "helm": "helm",
    "kustomize": "kustomize",
    "official_testdata": "testdata",
    "oracle": "oracle",
    "promql_parser": "promql",
    "toolkit": "toolkit",
    "wheels": "wheels",
}
"""The program in `controlplane.build`, by the name of the fixture that provides it."""

BUILT = {*PROGRAMS, "image", "site"}
"""The fixtures that need a build. The modules of the last two build them within a test's time."""

FOUND = pytest.StashKey[dict[str, Any]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that uses a fixture that needs a build."""
    for item in items:
        if BUILT & fixtures(item):
            item.add_marker("built")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Find or build the programs that the selected tests need."""
    results = session.config.stash[FOUND] = {}
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    for name in sorted(
        PROGRAMS.keys() & {name for item in session.items for name in fixtures(item)}
    ):
        with capture.global_and_fixture_disabled():
            try:
                results[name] = build.find(PROGRAMS[name])
            except ControlPlaneError as error:
                # Only the tests that need the program fail.
                results[name] = error


def fixtures(item: pytest.Item) -> set[str]:
    """Return the names of the fixtures that a test uses, directly or through another fixture.

    A parameter may have the name of a fixture that the test does not use.
    """
    parameters = item.callspec.params if hasattr(item, "callspec") else ()
    return set(getattr(item, "fixturenames", ())).difference(parameters)


def program(config: pytest.Config, name: str) -> Any:
    """Return what `controlplane.build` has found for a fixture.

    Raises:
        ControlPlaneError: the program could not be built.
    """
    result = config.stash[FOUND][name]
    if isinstance(result, ControlPlaneError):
        raise result
    return result


def _provided(name: str) -> Any:
    """Return a fixture that is what was found."""
    return pytest.fixture(scope="session", name=name)(
        lambda pytestconfig: program(pytestconfig, name)
    )


_go = _provided("go_toolchain")
"""The `go` command that builds the programs."""
_kustomize = _provided("kustomize")
"""The real kustomize (see deploy.kustomize)."""
_wheels = _provided("wheels")
"""The variables with which pip installs downloaded wheels (see deploy.wheels)."""
_promql = _provided("promql_parser")
"""Prometheus' own parser (see deploy.promql)."""
_testdata = _provided("official_testdata")
"""The directory of the official Pod Security fixtures (see oracle.pod_security_fixtures)."""


@pytest.fixture(scope="session")
def helm(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> chart.Helm:
    """The real helm, connected to no cluster."""
    return chart.Helm(program(pytestconfig, "helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def oracle(pytestconfig: pytest.Config) -> Iterator[Oracle]:
    """Kubernetes' own code, in one process for the whole session."""
    with Oracle([program(pytestconfig, "oracle")]) as running:
        yield running


@pytest.fixture(scope="session")
def toolkit(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> runtime.Toolkit:
    """NVIDIA's container runtime, as the judge of who gets a GPU."""
    return runtime.Toolkit(program(pytestconfig, "toolkit"), tmp_path_factory.mktemp("toolkit"))
