"""A release from its start on an empty cluster to its end; its controllers come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.ports import free_ports
from controlplane.webhooks import wait_until_called
from relay import Relay
from release.release import CA, NAME, SERVING, WEBHOOKS, Release, release


@pytest.fixture
def released(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Release]:
    with release(control_plane, tmp_path) as released:
        yield released


def test_two_controllers_that_start_together_use_one_ca(released: Release) -> None:
    controllers = [released.controller() for _ in range(2)]
    with ExitStack() as stack, released.mounted():
        for controller in controllers:
            stack.callback(controller.stop)
            controller.start()
        until(released.volume.file("tls.crt").exists, "the serving certificate")
        released.start([released.replica()], stack)
        wait_until_called(released.cluster)
        for controller in controllers:
            controller.wait()
        authority = released.secret(CA)["ca.crt"]
        assert released.bundles() == [authority] * WEBHOOKS
        assert released.secret()["ca.crt"] == authority
        issued = [
            sum(
                controller.metric(f'gpufence_certificates_issued_total{{secret="{secret}"}}')
                for controller in controllers
            )
            for secret in (CA, SERVING)
        ]
        assert issued == [1, 1]


def test_a_controller_is_alive_and_unready_until_it_reaches_the_api_server(
    control_plane: ControlPlane, released: Release, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    config = tmp_path / "config"
    text = control_plane.kubeconfig.read_text()
    config.write_text(text.replace(f":{control_plane.api.port}", f":{port}"))
    with ExitStack() as stack:
        controller = released.controller("--kubeconfig", str(config))
        stack.callback(controller.stop)
        controller.start()
        until(lambda: "out of reach" in controller.unready(), "the controller to say what it lacks")
        assert controller.get("/healthz") == (200, "ok\n")
        status, text = controller.get("/readyz")
        assert status == 503
        assert text.startswith("starting\ncertificates: the API server at https://127.0.0.1:")
        relay = Relay(lambda: control_plane.api.port, port=port)
        stack.callback(relay.close)
        controller.wait()
        until(lambda: len(released.configurations()) == 2, "the controller to register")


def test_what_the_controller_writes_is_owned_and_deleted_with_the_release(
    released: Release,
) -> None:
    with released.replicas(1) as running:
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
            lambda: "ClusterRole gpufence does not exist" in running.controller.get("/readyz")[1],
            "the controller to say why",
        )
        assert not released.configurations()
        assert not released.secrets()
