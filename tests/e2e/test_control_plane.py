"""The bare control plane does what Kubernetes does: what differs elsewhere is gpufence's doing."""

from __future__ import annotations

import os
from pathlib import Path

from controlplane import binaries
from controlplane.cluster import ControlPlane


def test_every_component_has_the_tested_version(
    control_plane: ControlPlane, found_binaries: dict[str, Path]
) -> None:
    """By default the pinned one; `make compat` sets KUBEBUILDER_ASSETS to another."""
    served: str = control_plane.kubectl.json("version")["serverVersion"]["gitVersion"]
    assert served == binaries.VERSION or "KUBEBUILDER_ASSETS" in os.environ
    components = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assert {binaries.version_of(found_binaries[each]) for each in components} == {served}
