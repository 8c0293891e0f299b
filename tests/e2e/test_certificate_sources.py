"""Upgrades that change where certificates come from: no GPU Pod is rejected, and they end.

cert-manager itself does not run: its Secret is mounted, as files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import Names
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Replica
from controlplane.poll import until
from release.load import Load
from release.release import WEBHOOKS, Release, release

PROPAGATION = ("--ca-propagation-delay", "2s")


@dataclass
class Files:
    """A pair and its CA, in a directory as a Secret that is mounted, and what names them."""

    parts: dict[str, bytes]
    flags: tuple[str, ...]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    now = datetime.now(UTC)
    ca = create_authority(now)
    pair = issue_leaf(ca, Names.parse(["localhost"]), now)
    parts = {
        "ca.crt": ca.certificate_pem,
        "tls.crt": pair.certificate_pem,
        "tls.key": pair.key_pem,
    }
    directory = tmp_path / "tls"
    directory.mkdir()
    for name, pem in parts.items():
        (directory / name).write_bytes(pem)
    named = zip(("--ca-file", "--tls-cert", "--tls-key"), parts, strict=True)
    return Files(parts, tuple(f"{flag}={directory / name}" for flag, name in named))


@contextmanager
def upgrade(
    released: Release, namespace: str, old: Sequence[Replica], flags: Sequence[str]
) -> Iterator[None]:
    """Replace the replicas one by one, as a Deployment does: each once its successor is ready.

    GPU Pods are created until the end of the block, and none may fail. At the end, a replica is
    alone that keeps the CA of the others for a second. The others keep it for an hour: the upgrade
    may take as long as it likes on a busy machine.
    """
    with ExitStack() as stack:

        def replace(replaced: Replica, *more: str) -> Replica:
            replica = stack.enter_context(released.replica(*PROPAGATION, *flags, *more))
            others = [each for each in released.service.replicas if each is not replaced]
            released.service.select([*others, replica])
            replaced.stop()
            return replica

        with Load(released.cluster.api, namespace) as load:
            first, second = (replace(each) for each in old)
            last = replace(first, "--ca-overlap", "1s")
            released.service.select([last])
            second.stop()
            yield
        load.check("an upgrade")


@pytest.mark.parametrize("to", ["files", "the built-in CA"])
def test_an_upgrade_between_files_and_the_built_in_ca_rejects_no_pod(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, files: Files, to: str
) -> None:
    before, after = ((), files.flags) if to == "files" else (files.flags, ())
    with (
        release(control_plane, tmp_path) as released,
        released.replicas(2, *PROPAGATION, *before) as old,
        upgrade(released, namespace, old, after),
    ):
        published(released, files.parts["ca.crt"] if after else released.secret()["ca.crt"])


def published(released: Release, ca: bytes) -> None:
    """Wait until API servers are to trust this CA alone."""
    until(lambda: released.bundles() == [ca] * WEBHOOKS, "the CA to be alone")
