"""Known advisories for the versions of software that Nodes report.

A Node reports the version of containerd, and the images that it has: those of NVIDIA's toolkit and
of the GPU operator have their version as tag. The version of the kernel is not judged, because
distributions fix older versions without a change of the number that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from policies.wording import counted, some
from webhook.kube.nodes import NodeObject, NodeStatus

Version = tuple[int, ...]

_VERSION = r"v?(\d+)\.(\d+)\.(\d+)"
_REPORTED = {
    "containerd": re.compile(rf"^containerd://{_VERSION}"),
    "NVIDIA Container Toolkit": re.compile(rf"(?:^|/)container-toolkit:{_VERSION}"),
    "GPU Operator": re.compile(rf"(?:^|/)gpu-operator:{_VERSION}"),
}
"""The components, and what a Node reports of them: a runtime, or the name of an image."""


class Advisory(msgspec.Struct, frozen=True):
    """Faults of a component: the first fixed version of each minor release, and the effect."""

    ids: tuple[str, ...]
    component: str
    fixed: tuple[str, ...]
    effect: str
    source: str

    def affects(self, version: Version) -> bool:
        """Return whether a version has the faults, unless its distribution has fixed them."""
        fixed = [tuple(map(int, text.split("."))) for text in self.fixed]
        same_minor = (each for each in fixed if each[:2] == version[:2])
        return version < next(same_minor, max(fixed))


@cache
def advisories() -> tuple[Advisory, ...]:
    text = Path(__file__).with_name("advisories.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), tuple[Advisory, ...])


class NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    container_runtime_version: str = ""


class Image(msgspec.Struct, frozen=True):
    names: list[str] | None = None


class VersionedStatus(NodeStatus, frozen=True, rename="camel"):
    node_info: NodeInfo = NodeInfo()
    images: list[Image] | None = None


class VersionedNode(NodeObject, frozen=True):
    """A Node with the versions of its software."""

    status: VersionedStatus = VersionedStatus()


class AffectedNodes(NamedTuple):
    """The nodes whose version of a component has the faults of an advisory."""

    advisory: Advisory
    versions: tuple[str, ...]
    nodes: tuple[str, ...]

    @property
    def problem(self) -> str:
        """The nodes, their versions, and the effect."""
        advisory = self.advisory
        return (
            f"{', '.join(advisory.ids)} affects {advisory.component} {', '.join(self.versions)} "
            f"on {counted(len(self.nodes), 'node')}: {some(self.nodes)}; {advisory.effect}"
        )

    @property
    def remediation(self) -> str:
        """What to do, and the source."""
        advisory = self.advisory
        return f"Update {advisory.component} to {' or '.join(advisory.fixed)} ({advisory.source})"


class NodeVersions:
    """The versions of the components of all nodes."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, Version], list[str]] = {}

    def take(self, node: VersionedNode) -> None:
        """Record the versions that a Node reports: of several images, the newest."""
        names = [name for image in node.status.images or () for name in image.names or ()]
        reported = [node.status.node_info.container_runtime_version, *names]
        for component, pattern in _REPORTED.items():
            matches = filter(None, map(pattern.search, reported))
            if versions := [tuple(map(int, match.groups())) for match in matches]:
                nodes = self._nodes.setdefault((component, max(versions)), [])
                nodes.append(node.metadata.name)

    def affected(self) -> Iterator[AffectedNodes]:
        for advisory in advisories():
            found = {
                version: nodes
                for (component, version), nodes in sorted(self._nodes.items())
                if component == advisory.component and advisory.affects(version)
            }
            if found:
                versions = tuple(".".join(map(str, version)) for version in found)
                nodes = tuple(sorted(name for names in found.values() for name in names))
                yield AffectedNodes(advisory, versions, nodes)
