"""A controller that registers two replicas, and keeps their registration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.cluster import ControlPlane
from controlplane.gpufence import Controller
from controlplane.poll import until
from release.release import KINDS, NAME, Release, release
from webhook.controller.text.objects import LABELS


@pytest.fixture(scope="module")
def kept(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Release, Controller]]:
    """A release with two replicas, for tests that leave it as they found it."""
    with (
        release(control_plane, tmp_path_factory.mktemp("release")) as released,
        released.replicas(2) as running,
    ):
        yield released, running.controller


def drifts(controller: Controller) -> float:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    series = 'gpufence_registration_writes_total{{kind="{}",reason="drift"}}'
    return sum(controller.metric(series.format(kind)) for kind in kinds)


def test_labels_set_by_other_clients_are_kept(kept: tuple[Release, Controller]) -> None:
    released, controller = kept
    released.cluster.kubectl("label", KINDS[0], NAME, "team=platform")
    counted = drifts(controller)
    released.cluster.kubectl("delete", KINDS[1], NAME)
    until(lambda: len(released.configurations()) == 2, "the other one to be repaired")
    labels = released.configurations()[0]["metadata"]["labels"]
    assert labels == {**LABELS, "team": "platform"}
    # The controller counts what it has written when it hears that it was.
    until(lambda: drifts(controller) == counted + 1, "that alone to be counted")


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
