"""Platforms that create Pods for one node: gpufence denies them on GPU nodes, unless exempt.

A volume helper runs on the node of the Pod that waits for the volume. It requests no GPU, and
mounts a directory of the node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple


class Platform(NamedTuple):
    """A platform, the namespace of its Pods, and the provisioners of its StorageClasses."""

    name: str
    namespace: str
    pods: str
    """What its Pods on GPU nodes do, as a plural."""
    provisioners: tuple[str, ...] = ()


PLATFORMS = (
    Platform(
        "Local Path Provisioner",
        "local-path-storage",
        "volume helpers",
        ("rancher.io/local-path",),
    ),
    Platform("OpenEBS", "openebs", "volume helpers", ("openebs.io/local",)),
    Platform("Longhorn", "longhorn-system", "instance managers", ("driver.longhorn.io",)),
    Platform("Rook", "rook-ceph", "disk preparation Jobs"),
    Platform("system-upgrade-controller", "system-upgrade", "upgrade Jobs"),
    Platform("Trivy Operator", "trivy-system", "node collectors"),
    Platform("Velero", "velero", "data movers"),
    Platform("KServe", "kserve-localmodel-jobs", "model downloads"),
)
"""The namespaces are those of the platforms' documentation."""


def installed(namespaces: Collection[str]) -> Iterator[Platform]:
    """Yield the platforms whose namespace the cluster has."""
    return (platform for platform in PLATFORMS if platform.namespace in namespaces)


def elsewhere(provisioners: Collection[str], namespaces: Collection[str]) -> Iterator[Platform]:
    """Yield the platforms that make volumes, and run in a namespace of another name."""
    for platform in PLATFORMS:
        is_used = not {*platform.provisioners}.isdisjoint(provisioners)
        if is_used and platform.namespace not in namespaces:
            yield platform
