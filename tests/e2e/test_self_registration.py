"""Two replicas that register themselves, and keep their registration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.webhooks import in_tree_denial
from release.release import KINDS, NAME, Release, release
from webhook.controller.cel.admission_policies import BINDING_KIND, POLICY_KIND
from webhook.controller.cel.configurations import RELEASE_LABEL


@pytest.fixture(scope="module")
def kept(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """A release with two replicas, for tests that leave it as they found it."""
    # The leader is to stay the same, however busy the machine is.
    lease = ("--lease-seconds", "60")
    with (
        release(control_plane, tmp_path_factory.mktemp("release")) as released,
        released.replicas(2, *lease),
    ):
        yield released


def drifts(kept: Release) -> float:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    series = 'gpufence_registration_writes_total{{kind="{}",reason="drift"}}'
    replicas = kept.service.replicas
    return sum(replica.metric(series.format(kind)) for kind in kinds for replica in replicas)


def test_labels_set_by_other_clients_are_kept(kept: Release) -> None:
    kept.cluster.kubectl("label", KINDS[0], NAME, "team=platform")
    counted = drifts(kept)
    kept.cluster.kubectl("delete", KINDS[1], NAME)
    until(lambda: len(kept.configurations()) == 2, "the other one to be repaired")
    labels = kept.configurations()[0]["metadata"]["labels"]
    assert labels == {**RELEASE_LABEL, "team": "platform"}
    # A replica counts what it has written when it hears that it was.
    until(lambda: drifts(kept) == counted + 1, "that alone to be counted")


def test_unregister_deletes_the_configurations_until_undo(
    kept: Release,
) -> None:
    namespaced = ("--namespace", kept.namespace)
    output = kept.run("unregister", *namespaced, "--watch-seconds", "2")
    assert "MutatingWebhookConfiguration gpufence: deleted." in output
    assert "ValidatingWebhookConfiguration gpufence: deleted." in output
    assert f"{POLICY_KIND} gpufence: deleted." in output
    assert f"{BINDING_KIND} gpufence: deleted." in output
    assert not kept.configurations()
    assert in_tree_denial(kept.cluster.api) == ""
    # A write that was in flight at the change may still arrive, but no later one.
    output = kept.run("unregister", *namespaced, "--watch-seconds", "2")
    assert "MutatingWebhookConfiguration gpufence: not found." in output
    assert "again" not in output

    def ready() -> list[tuple[int, str]]:
        return [replica.get("/readyz") for replica in kept.service.replicas]

    until(
        lambda: any("gpufence unregister --undo reverts that" in text for _, text in ready()),
        "the leader to say why",
    )
    assert [status for status, _ in ready()] == [200, 200]
    output = kept.run("unregister", *namespaced, "--undo")
    assert "replicas register again" in output
    until(lambda: len(kept.configurations()) == 2, "replicas to register again")
    until(lambda: "gpufence-pods" in in_tree_denial(kept.cluster.api), "the admission policies")


def test_printed_manifests_equal_the_registered_objects(kept: Release) -> None:
    authority = kept.directory / "ca.crt"
    authority.write_bytes(kept.secret()["ca.crt"])
    printed = kept.manifests("--url", kept.service.url, "--ca-file", str(authority))
    for wanted, found in zip(printed, kept.configurations(), strict=True):
        assert wanted["kind"] == found["kind"]
        assert wanted["webhooks"] == found["webhooks"]
