"""A gpufence that looks after itself, on the real control plane: it starts, registers, repairs."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.webhooks import wait_until_called
from release.release import KINDS, NAME, SECRET, Release, release
from release.replica import Replica

pytestmark = pytest.mark.e2e

STARTS = int(os.environ.get("GPUFENCE_STARTS", "2"))
"""How often two replicas are started at once on an empty cluster."""


@pytest.fixture
def released(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Release]:
    with release(control_plane, tmp_path) as made:
        yield made


def served(port: int, authority: bytes) -> x509.Certificate:
    """Return the certificate on that port, as a caller sees it that trusts only `authority`."""
    context = ssl.create_default_context(cadata=authority.decode())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as connection,
    ):
        der = connection.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


@pytest.mark.timeout(120 + 30 * STARTS)
def test_two_replicas_that_start_at_once_end_with_one_authority_and_both_serve_it(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    created = 0
    for round_ in range(STARTS):
        with (
            release(control_plane, tmp_path / str(round_)) as made,
            made.replicas(2) as replicas,
        ):
            secret = made.secret()
            assert len(x509.load_pem_x509_certificates(secret["ca.crt"])) == 1
            leaf = x509.load_pem_x509_certificate(secret["tls.crt"])
            assert [served(r.port, secret["ca.crt"]) for r in replicas] == [leaf, leaf]
            assert made.bundles() == [secret["ca.crt"]] * 5
            leaders = [replica.metric("gpufence_leader") for replica in replicas]
            assert sorted(leaders) == [0, 1]
            made_by = [len(replica.events("certificate change")) for replica in replicas]
            assert sorted(made_by) == [0, 1]
            created += 1
    print(
        f"\n{created} of {STARTS} starts of two replicas ended with one authority, served by both"
    )
    assert created == STARTS


def test_the_configurations_belong_to_the_release_and_go_with_it(released: Release) -> None:
    with released.replicas(1):
        [mutating, validating] = released.configurations()
        for configuration in (mutating, validating):
            [owner] = configuration["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("ClusterRole", NAME)
            managers = {entry["manager"] for entry in configuration["metadata"]["managedFields"]}
            assert managers == {"gpufence"}
            for webhook in configuration["webhooks"]:
                assert webhook["failurePolicy"] == "Fail"
                assert webhook["timeoutSeconds"] == 3
                excluded = webhook["namespaceSelector"]["matchExpressions"][0]
                assert {"kube-system", "gpu-operator"} <= set(excluded["values"])
        assert mutating["webhooks"][0]["reinvocationPolicy"] == "IfNeeded"
        released.cluster.kubectl("delete", "clusterrole", NAME)
        until(lambda: not released.configurations(), "the garbage collector", within=60)
        # The replica still runs, and must not bring back what nothing would take away again.
        [replica] = released.service.replicas
        until(lambda: "no ClusterRole" in replica.ask("/readyz")[1], "the replica to say why")
        assert not released.configurations()


DRIFT = {
    "a deleted configuration": (KINDS[0], None),
    "a failure policy that lets all pass": (
        KINDS[1],
        '[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]',
    ),
    "a condition of somebody else": (
        KINDS[1],
        '[{"op": "add", "path": "/webhooks/0/matchConditions/-", "value": '
        + '{"name": "never", "expression": "false"}}]',
    ),
    "a selector of somebody else": (
        KINDS[0],
        '[{"op": "add", "path": "/webhooks/0/objectSelector", "value": '
        + '{"matchLabels": {"gpufence": "on"}}}]',
    ),
    "a lost caBundle": (
        KINDS[1],
        '[{"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}]',
    ),
    "a lost webhook": (KINDS[1], '[{"op": "remove", "path": "/webhooks/2"}]'),
}


def test_drift_is_repaired_within_seconds_and_counted(released: Release) -> None:
    kubectl = released.cluster.kubectl
    with released.replicas(1) as [replica]:
        before = [each["webhooks"] for each in released.configurations()]
        assert len(before) == 2
        for count, (what, (kind, patch)) in enumerate(DRIFT.items(), 1):
            if patch is None:
                kubectl("delete", kind, NAME)
            else:
                kubectl("patch", kind, NAME, "--type=json", "-p", patch)
                assert [each["webhooks"] for each in released.configurations()] != before, what
            until(
                lambda: [each["webhooks"] for each in released.configurations()] == before,
                f"{what} to be repaired",
                within=5,
            )
            until(partial(is_counted, replica, count), f"{what} to be counted", within=5)


def is_counted(replica: Replica, count: int) -> bool:
    return drifts(replica) == count


def drifts(replica: Replica) -> float:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    series = 'gpufence_registration_writes_total{{kind="{}",reason="drift"}}'
    return sum(replica.metric(series.format(kind)) for kind in kinds)


def test_labels_of_others_are_left_alone(released: Release) -> None:
    with released.replicas(1) as [replica]:
        released.cluster.kubectl("label", KINDS[0], NAME, "team=platform")
        released.cluster.kubectl("delete", KINDS[1], NAME)
        until(lambda: len(released.configurations()) == 2, "the other one to be repaired")
        labels = released.configurations()[0]["metadata"]["labels"]
        assert labels == {"team": "platform"}
        assert drifts(replica) == 1


def test_the_follower_leads_when_the_leader_is_gone(released: Release) -> None:
    with released.replicas(2) as replicas:
        [leader] = [r for r in replicas if r.metric("gpufence_leader")]
        [follower] = [r for r in replicas if r is not leader]
        leader.kill()
        until(lambda: follower.metric("gpufence_leader") == 1, "the follower to lead", within=15)
        released.cluster.kubectl("delete", KINDS[0], NAME)
        until(lambda: len(released.configurations()) == 2, "the follower to register", within=10)


def test_a_leader_that_is_told_to_stop_gives_its_lease_up_at_once(released: Release) -> None:
    # So long a Lease that nobody could wait for its end here.
    with released.replicas(2, "--lease-seconds", "600") as replicas:
        [leader] = [r for r in replicas if r.metric("gpufence_leader")]
        [follower] = [r for r in replicas if r is not leader]
        leader.stop()
        until(lambda: follower.metric("gpufence_leader") == 1, "the follower to lead", within=10)


def test_breaking_the_glass_takes_gpufence_out_of_the_way_until_it_is_undone(
    released: Release,
) -> None:
    namespaced = ("--namespace", released.namespace)
    with released.replicas(2):
        said = released.run("unregister", *namespaced, "--watch-seconds", "2")
        assert "MutatingWebhookConfiguration gpufence: deleted." in said
        assert "ValidatingWebhookConfiguration gpufence: deleted." in said
        assert "again" not in said
        assert not released.configurations()
        said = released.run("unregister", *namespaced, "--watch-seconds", "0")
        assert "MutatingWebhookConfiguration gpufence: was not there." in said
        ready = [replica.ask("/readyz") for replica in released.service.replicas]
        assert [status for status, _ in ready] == [200, 200]
        assert any("gpufence unregister --undo lifts that" in text for _, text in ready)
        said = released.run("unregister", *namespaced, "--undo")
        assert "replicas register again" in said
        until(lambda: len(released.configurations()) == 2, "replicas to register again", within=5)


def test_the_glass_breaks_where_there_is_nothing_at_all(control_plane: ControlPlane) -> None:
    with ExitStack() as stack:
        made = stack.enter_context(release(control_plane, Path("unused")))
        said = made.run("unregister", "--namespace", made.namespace, "--watch-seconds", "0")
    assert "no Lease, so no replica to tell" in said
    assert said.count("was not there.") == 2


def test_what_manifests_prints_is_what_a_replica_writes(released: Release) -> None:
    with released.replicas(1):
        authority = released.folder / "ca.crt"
        authority.write_bytes(released.secret()["ca.crt"])
        printed = released.manifests("--url", released.service.url, "--ca-file", str(authority))
        for wanted, found in zip(printed, released.configurations(), strict=True):
            assert wanted["kind"] == found["kind"]
            assert wanted["webhooks"] == found["webhooks"]


def test_a_secret_that_is_deleted_comes_back_as_it_was(released: Release) -> None:
    with released.replicas(2) as replicas:
        before = released.secret()
        released.cluster.kubectl("delete", "secret", SECRET, "-n", released.namespace)
        restored = 'gpufence_certificate_changes_total{change="create"}'
        until(lambda: sum(r.metric(restored) for r in replicas) == 2, "the Secret to come back")
        assert released.secret() == before
        wait_until_called(released.cluster)


def test_the_state_of_the_certificates_is_shown(released: Release) -> None:
    with released.replicas(1):
        said = released.run("certs", "status", "--namespace", released.namespace)
        assert said.count("trusts the authority") == 5
    released.cluster.kubectl(
        "patch",
        KINDS[0],
        NAME,
        "--type=json",
        "-p",
        '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]',
    )
    said = released.run("certs", "status", "--namespace", released.namespace, status=1)
    assert "MutatingWebhookConfiguration gpufence, pods.gpufence.dev: DOES NOT TRUST" in said
