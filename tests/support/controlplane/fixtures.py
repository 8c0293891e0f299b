"""The control plane as pytest fixtures. tests/conftest.py names this module in `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import binaries
from controlplane.cluster import ControlPlane
from controlplane.fence import Fence, running
from deploy.chart import Helm
from deploy.installation import Installation, Settings, installation
from programs import fixtures, program
from specs import default_spec


@pytest.fixture(scope="session")
def found_binaries(pytestconfig: pytest.Config) -> dict[str, Path]:
    """The control plane's binaries by name."""
    paths: dict[str, Path] = program(pytestconfig, "found_binaries")
    return paths


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files that use the control plane last: other tests fail sooner.

    Of these, files with slow tests come first, so that the test processes end at the same time.
    """
    using = {item.path for item in items if "control_plane" in fixtures(item)}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path in using, item.path in using - slow))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is for a newer Kubernetes: the marker `kubernetes` names the oldest."""
    for marker in item.iter_markers("kubernetes"):
        oldest, feature = marker.args
        version = binaries.version_of(program(item.config, "found_binaries")["kube-apiserver"])
        if binaries.is_older(version, oldest):
            pytest.skip(f"Kubernetes {version} has no {feature} ({oldest} or newer)")


@pytest.fixture(scope="session")
def kubectl_binary(found_binaries: dict[str, Path]) -> Path:
    """The real kubectl, connected to no cluster."""
    return found_binaries["kubectl"]


@pytest.fixture(scope="session")
def api_server_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """What the API server of the session is started with."""
    return Settings(tmp_path_factory.mktemp("api-server"))


@pytest.fixture(scope="session")
def control_plane(
    found_binaries: dict[str, Path],
    api_server_settings: Settings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    """A running control plane without nodes, one for all tests of the session.

    A test takes a namespace of its own, and has nodes for itself (`ControlPlane.nodes`).
    """
    directory = tmp_path_factory.mktemp("controlplane")
    flags = api_server_settings.flags
    with ControlPlane(
        directory, found_binaries, apiserver_flags=flags, checks_policy_types=False
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fence(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fence]:
    """A replica with the default policy, registered for the tests of one module."""
    policy = default_spec()
    with (
        running(control_plane, tmp_path_factory.mktemp("fence"), policy) as fence,
        fence.registered(),
    ):
        yield fence


@pytest.fixture(scope="module")
def installable(
    control_plane: ControlPlane,
    api_server_settings: Settings,
    helm: Helm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """The control plane with nodes, and nothing of gpufence, for the tests of one module."""
    directory = tmp_path_factory.mktemp("installation")
    with installation(control_plane, api_server_settings, directory, helm) as installable:
        yield installable


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """The name of a namespace of the test's own, in which Pods can be created."""
    name = control_plane.create_namespace("test-")
    yield name
    control_plane.delete_workloads(name)
