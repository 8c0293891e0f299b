"""Upgrades that change where certificates come from: no GPU Pod is rejected, and they end.

cert-manager itself does not run: a Secret stands for the one that it writes.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.authority import create_authority, issue_leaf
from certs.secret import serving_data, with_data
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Replica
from controlplane.poll import until
from release.load import Load
from release.release import SERVING, WEBHOOKS, Release, release

WAITS = ("--ca-propagation-delay", "2s", "--ca-overlap", "600s")
SHORT_WAITS = ("--ca-propagation-delay", "2s", "--ca-overlap", "1s")
"""Of a controller that ends the overlap of two CAs: test_under_load.py waits for such an end."""
EXTERNAL = "external"
"""The Secret of another controller."""
SOURCES = {
    "another controller": (EXTERNAL, ("--no-issue", "--serving-secret", EXTERNAL)),
    "the built-in CA": (SERVING, ()),
}
"""The Secret that replicas mount, and the options of the controller."""


def fill(released: Release) -> None:
    """Write the Secret as another controller does."""
    now = datetime.now(UTC)
    ca = create_authority(now)
    pair = issue_leaf(ca, ["localhost"], now)
    secret = with_data({"metadata": {"name": EXTERNAL}}, serving_data(pair, ca))
    path = f"/api/v1/namespaces/{released.namespace}/secrets"
    if EXTERNAL in released.secrets():
        patch = "application/merge-patch+json"
        released.cluster.api.request("PATCH", f"{path}/{EXTERNAL}", secret, patch)
    else:
        released.cluster.api.request("POST", path, secret)


@pytest.mark.parametrize("to", SOURCES)
@pytest.mark.slow("replaces controller and replicas")
def test_an_upgrade_between_sources_rejects_no_pod(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, to: str
) -> None:
    """Controller and replicas are replaced at the same time, as Deployments do it."""
    [old] = [name for name in SOURCES if name != to]
    (mounted, flags), (mounted_after, flags_after) = SOURCES[old], SOURCES[to]
    with release(control_plane, tmp_path) as released, ExitStack() as stack:
        fill(released)
        before = stack.enter_context(
            released.replicas(2, mounted=mounted, controller=(*WAITS, *flags))
        )
        with Load(released.cluster.api, namespace) as load:
            before.controller.stop()
            after = stack.enter_context(released.controller(*WAITS, *flags_after))
            replace_all(released, stack, mounted_after)
            authority = released.secret(mounted_after)["ca.crt"]
            assert len(set(released.bundles()) - {authority}) == 1, "callers trust both CAs"
            after.stop()
            stack.enter_context(released.controller(*SHORT_WAITS, *flags_after))
            until(lambda: released.bundles() == [authority] * WEBHOOKS, "the CA to be alone")
        load.check(f"an upgrade to {to}")


def replace_all(released: Release, stack: ExitStack, mounted: str) -> None:
    """Replace the replicas one by one, as a Deployment does: each once its successor is ready."""
    volume = stack.enter_context(released.mounted(mounted))
    until(volume.file("tls.crt").exists, "the Secret to be mounted")
    for old in list(released.service.replicas):
        new = released.replica(volume=volume)
        stack.callback(new.kill)
        new.start()
        # It is behind the Service from its start: its readiness keeps requests away.
        released.service.select([*released.service.replicas, new])
        new.wait()
        released.service.select([each for each in released.service.replicas if each is not old])
        old.stop()


@pytest.mark.slow("waits until the Secret is mounted, and the new CA is alone")
def test_another_ca_of_another_controller_rejects_no_pod(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A kubelet may mount the new pair before the controller has published its CA."""
    mounted, flags = SOURCES["another controller"]
    with release(control_plane, tmp_path) as released, ExitStack() as stack:
        fill(released)
        slow = (*WAITS, "--poll-seconds", "2")
        running = stack.enter_context(
            released.replicas(
                2, "--reload-seconds", "0.2", mounted=mounted, controller=(*slow, *flags)
            )
        )
        with Load(released.cluster.api, namespace) as load:
            fill(released)
            authority = released.secret(mounted)["ca.crt"]
            until(
                lambda: all(serves(running.replicas, authority)), "replicas to serve the new pair"
            )
            running.controller.stop()
            stack.enter_context(released.controller(*SHORT_WAITS, *flags))
            until(lambda: released.bundles() == [authority] * WEBHOOKS, "the CA to be alone")
        load.check("another CA")


def serves(replicas: Sequence[Replica], authority: bytes) -> Iterator[bool]:
    """Yield for each replica whether it serves a certificate of the CA."""
    for replica in replicas:
        try:
            replica.certificate(authority)
        except ssl.SSLError:
            yield False
        else:
            yield True
