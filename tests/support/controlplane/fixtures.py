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

RUNNING = pytest.StashKey[ControlPlane]()
WITHOUT = pytest.StashKey[set[pytest.Item]]()
"""The tests of the files after the last one that uses the control plane.

The fixtures of that file's module use it until the end of the file.
"""


@pytest.fixture(scope="session")
def found_binaries(pytestconfig: pytest.Config) -> dict[str, Path]:
    """The control plane's binaries by name."""
    paths: dict[str, Path] = program(pytestconfig, "found_binaries")
    return paths


def pytest_collection_finish(session: pytest.Session) -> None:
    items = session.items
    uses = [number for number, item in enumerate(items) if needs_control_plane(item)]
    after = items[uses[-1] :] if uses else []
    session.config.stash[WITHOUT] = {item for item in after if item.path != after[0].path}


def needs_control_plane(item: pytest.Item) -> bool:
    return "control_plane" in fixtures(item)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is for a newer Kubernetes, and stop a control plane that idles.

    The marker `kubernetes` names the oldest version. An idle control plane takes a tenth of a core.
    """
    for marker in item.iter_markers("kubernetes"):
        oldest, feature = marker.args
        version = binaries.version_of(program(item.config, "found_binaries")["kube-apiserver"])
        if binaries.is_older(version, oldest):
            pytest.skip(f"Kubernetes {version} has no {feature} ({oldest} or newer)")
    cluster = item.config.stash.get(RUNNING, None)
    if cluster is None:
        return
    if item in item.config.stash[WITHOUT]:
        cluster.stop()
    elif needs_control_plane(item) and cluster.apiserver.pid is None:
        cluster.start()


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
    pytestconfig: pytest.Config,
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
        pytestconfig.stash[RUNNING] = cluster
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
    control_plane.delete_pods(name)
