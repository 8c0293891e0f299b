"""A release from its start on an empty cluster to its end; its controllers come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from controlplane.cluster import ControlPlane
from controlplane.gpufence import Controller
from controlplane.poll import until
from controlplane.ports import free_ports
from relay import Relay
from release.release import NAME, Release, release


@pytest.fixture
def released(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Release]:
    with release(control_plane, tmp_path) as released:
        yield released


def test_a_controller_is_alive_and_unready_until_it_reaches_the_api_server(
    control_plane: ControlPlane, released: Release, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    config = tmp_path / "config"
    text = control_plane.kubeconfig.read_text()
    config.write_text(text.replace(f":{control_plane.api.port}", f":{port}"))
    with ExitStack() as stack:
        controller = released.controller("--kubeconfig", str(config))
        stack.callback(controller.kill)
        controller.start()
        lacking = ("certificates: secrets gpufence-ca", "policy: FencePolicy gpufence")
        reason = "is not read yet: the API server at https://127.0.0.1:"
        until(
            lambda: all(f"\n{each} {reason}" in controller.unready() for each in lacking),
            "the controller to say what it lacks",
        )
        assert controller.get("/healthz") == (200, "ok\n")
        status, _ = controller.get("/readyz")
        assert status == 503
        relay = Relay(lambda: control_plane.api.port, port=port)
        stack.callback(relay.close)
        controller.wait()
        until(lambda: len(released.configurations()) == 2, "the controller to register")


@pytest.fixture(scope="module")
def kept(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Release, Controller]]:
    """A release with a replica; the last test deletes it."""
    with (
        release(control_plane, tmp_path_factory.mktemp("release")) as released,
        released.replicas(1) as running,
    ):
        yield released, running.controller


def test_printed_manifests_equal_the_registered_objects(
    kept: tuple[Release, Controller],
) -> None:
    released, _ = kept
    authority = released.directory / "ca.crt"
    authority.write_bytes(released.secret()["ca.crt"])
    printed = released.manifests("--url", released.service.url, "--ca-file", str(authority))
    for wanted, found in zip(printed, released.configurations(), strict=True):
        assert wanted["kind"] == found["kind"]
        assert wanted["webhooks"] == found["webhooks"]
        assert wanted["metadata"]["labels"].items() <= found["metadata"]["labels"].items()


def test_what_the_controller_writes_is_owned_and_deleted_with_the_release(
    kept: tuple[Release, Controller],
) -> None:
    released, controller = kept
    [mutating, validating] = released.configurations()
    for configuration in (mutating, validating):
        [owner] = configuration["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("ClusterRole", NAME)
        managers = {entry["manager"] for entry in configuration["metadata"]["managedFields"]}
        assert managers == {"gpufence"}
        for webhook in configuration["webhooks"]:
            name = webhook["name"]
            stops_nothing = (
                name.startswith(("custom-workloads.", "policies.")) or "-placement." in name
            )
            assert webhook["failurePolicy"] == ("Ignore" if stops_nothing else "Fail")
            excluded = webhook["namespaceSelector"]["matchExpressions"][0]
            assert {"kube-system", "gpu-operator"} <= set(excluded["values"])
    assert mutating["webhooks"][0]["reinvocationPolicy"] == "IfNeeded"
    released.cluster.kubectl("delete", "clusterrole", NAME)
    until(lambda: not released.configurations(), "the garbage collector")
    until(lambda: not released.secrets(), "the garbage collector to delete the Secrets")
    # The controller still runs, and must not bring back what nothing would take away again.
    until(
        lambda: "ClusterRole gpufence does not exist" in controller.get("/readyz")[1],
        "the controller to say why",
    )
    assert not released.configurations()
    assert not released.secrets()
