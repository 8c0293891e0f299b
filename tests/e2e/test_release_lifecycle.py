"""A release from its start on an empty cluster to its end; its leaders come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography import x509

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.ports import free_ports
from relay import Relay
from release.release import KINDS, NAME, WEBHOOKS, Release, release


@pytest.fixture
def released(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Release]:
    with release(control_plane, tmp_path) as released:
        yield released


def test_two_replicas_that_start_together_serve_certificates_of_one_ca(released: Release) -> None:
    with released.replicas(2) as replicas:
        secret = released.secret()
        assert len(x509.load_pem_x509_certificates(secret["ca.crt"])) == 1
        leaf = x509.load_pem_x509_certificate(secret["tls.crt"])
        assert [r.certificate(secret["ca.crt"]) for r in replicas] == [leaf, leaf]
        assert released.bundles() == [secret["ca.crt"]] * WEBHOOKS
        assert sorted(replica.metric("gpufence_leader") for replica in replicas) == [0, 1]

        def made_by() -> list[int]:
            return [len(replica.events("certificate change")) for replica in replicas]

        # A replica logs in a thread of its own.
        until(lambda: any(made_by()), "the log line about the CA")
        assert sorted(made_by()) == [0, 1]


def test_a_replica_is_alive_and_unready_until_it_reaches_the_api_server(
    control_plane: ControlPlane, released: Release, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    config = tmp_path / "config"
    text = control_plane.kubeconfig.read_text()
    config.write_text(text.replace(f":{control_plane.api.port}", f":{port}"))
    with ExitStack() as stack:
        replica = released.replica("--kubeconfig", str(config))
        stack.callback(replica.stop)
        replica.start()
        until(lambda: "out of reach" in replica.unready(), "the replica to say what it lacks")
        assert replica.get("/healthz") == (200, "ok\n")
        status, text = replica.get("/readyz")
        assert status == 503
        assert text.startswith("starting\ncertificates: the API server at https://127.0.0.1:")
        relay = Relay(lambda: control_plane.api.port, port=port)
        stack.callback(relay.close)
        replica.wait()
        until(lambda: len(released.configurations()) == 2, "the replica to register")


def test_the_configurations_are_owned_and_deleted_with_the_release(released: Release) -> None:
    with released.replicas(1):
        [mutating, validating] = released.configurations()
        for configuration in (mutating, validating):
            [owner] = configuration["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("ClusterRole", NAME)
            managers = {entry["manager"] for entry in configuration["metadata"]["managedFields"]}
            assert managers == {"gpufence"}
            for webhook in configuration["webhooks"]:
                name = webhook["name"]
                stops_nothing = name.startswith("custom-workloads.") or "-placement." in name
                assert webhook["failurePolicy"] == ("Ignore" if stops_nothing else "Fail")
                excluded = webhook["namespaceSelector"]["matchExpressions"][0]
                assert {"kube-system", "gpu-operator"} <= set(excluded["values"])
        assert mutating["webhooks"][0]["reinvocationPolicy"] == "IfNeeded"
        released.cluster.kubectl("delete", "clusterrole", NAME)
        until(lambda: not released.configurations(), "the garbage collector")
        # The replica still runs, and must not bring back what nothing would take away again.
        [replica] = released.service.replicas
        until(
            lambda: "ClusterRole gpufence does not exist" in replica.get("/readyz")[1],
            "the replica to say why",
        )
        assert not released.configurations()


def test_the_follower_becomes_leader_after_the_leader_is_killed(released: Release) -> None:
    with released.replicas(2) as replicas:
        [leader] = [r for r in replicas if r.metric("gpufence_leader")]
        [follower] = [r for r in replicas if r is not leader]
        leader.kill()
        until(lambda: follower.metric("gpufence_leader") == 1, "the follower to lead")
        released.cluster.kubectl("delete", KINDS[0], NAME)
        until(lambda: len(released.configurations()) == 2, "the follower to register")


def test_a_leader_that_stops_releases_its_lease_at_once(released: Release) -> None:
    # The Lease is so long that the test cannot wait for its end.
    with released.replicas(2, "--lease-seconds", "600") as replicas:
        [leader] = [r for r in replicas if r.metric("gpufence_leader")]
        [follower] = [r for r in replicas if r is not leader]
        leader.stop()
        until(lambda: follower.metric("gpufence_leader") == 1, "the follower to lead")


def test_unregister_succeeds_without_a_release(control_plane: ControlPlane, tmp_path: Path) -> None:
    with release(control_plane, tmp_path) as released:
        output = released.run(
            "unregister", "--namespace", released.namespace, "--watch-seconds", "0"
        )
    assert output.startswith("Cluster: https://127.0.0.1:")
    assert "not found, so there is no replica to pause" in output
    assert output.count(": not found.") == 4
