"""The bare control plane does what Kubernetes does: what differs elsewhere is gpufence's doing."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from controlplane import binaries, scheduler_cache
from controlplane.cluster import ControlPlane
from controlplane.objects import node
from controlplane.process import Process


def test_every_component_has_the_tested_version(
    control_plane: ControlPlane, found_binaries: dict[str, Path]
) -> None:
    """By default the pinned one; `make compat` sets KUBEBUILDER_ASSETS to another."""
    served: str = control_plane.kubectl.json("version")["serverVersion"]["gitVersion"]
    assert served == binaries.VERSION or "KUBEBUILDER_ASSETS" in os.environ
    components = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assert {binaries.version_of(found_binaries[each]) for each in components} == {served}


def test_node_creation_and_deletion_wait_for_the_scheduler_cache(
    control_plane: ControlPlane,
) -> None:
    scheduler = control_plane.scheduler
    pause(scheduler, 0.3)
    with control_plane.nodes(node("short-lived")):
        assert "short-lived" in scheduler_cache.nodes(scheduler)
        pause(scheduler, 0.3)
    assert "short-lived" not in scheduler_cache.nodes(scheduler)


def pause(process: Process, seconds: float) -> None:
    """Stop a process, and let it go on by itself `seconds` from now."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    threading.Timer(seconds, os.kill, (process.pid, signal.SIGCONT)).start()
