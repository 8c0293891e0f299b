"""A node with the chart installed from a fresh image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.webhooks import wait_until_called
from deploy.chart import NAMESPACE, Helm
from node.binaries import node_binaries, require_tools
from node.image import Images
from node.installed import FIRST, SECOND, THREADS, Disrupt, Installed
from node.machine import Node
from release.load import Load


@pytest.fixture(scope="session")
def node(
    found_binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """A node with GPUs behind a taint, and with the images of the tests."""
    require_tools()
    images = Images(tmp_path_factory.mktemp("images"))
    archives = [images.tools(), *images.gpufence(FIRST, SECOND)]
    with Node(tmp_path_factory.mktemp("node"), found_binaries, node_binaries()) as running:
        for archive in archives:
            running.load(archive)
        yield running


@pytest.fixture(scope="session")
def installed(node: Node, helm: Helm) -> Installed:
    """The chart with two replicas, without a taint on the node: there is no other node."""
    made = Installed(node, replace(helm, kubeconfig=node.cluster.kubeconfig))
    node.cluster.create_namespace(NAMESPACE)
    made.upgrade({})

    wait_until_called(node.cluster, created=True)
    return made


@pytest.fixture(scope="session")
def figures() -> Iterator[list[tuple[int, int, float]]]:
    """What each disruption cost: Pods created, failures, and the longest wait in seconds."""
    costs: list[tuple[int, int, float]] = []
    yield costs
    if costs:
        created, failed, longest = zip(*costs, strict=True)
        counts = f"{sum(created)} created, {sum(failed)} failed"
        print(f"\n{len(costs)} disruptions: {counts}, longest wait {max(longest):.2f} s")


@pytest.fixture
def under_load(
    installed: Installed,
    capsys: pytest.CaptureFixture[str],
    figures: list[tuple[int, int, float]],
) -> Disrupt:
    """Return a function that creates GPU Pods during a disruption, and prints the figures."""

    def run(name: str, disrupt: Callable[[], None], tolerated: int = 0, gone: str = "") -> None:
        with Load(installed.node.cluster.api, "default", threads=THREADS, every=0.05) as load:
            time.sleep(1)
            disrupt()
            time.sleep(1)
        longest = max(load.durations)
        figures.append((load.created, len(load.failures), longest))
        with capsys.disabled():
            counts = f"{load.created} created, {len(load.failures)} failed"
            print(f"\n{name}: {counts}, longest wait {longest:.2f} s")
        others = [failure for failure in load.failures if not gone or gone not in failure]
        assert len(others) <= tolerated, others[:3]
        assert len(load.failures) - len(others) <= load.created / 5
        assert load.created > 20

    return run
