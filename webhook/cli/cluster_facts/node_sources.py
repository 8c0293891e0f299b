"""Nodes, node templates and DeviceClasses, from a file or a live cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import Taint
from webhook.cli.errors import InputError
from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.evaluate import read_manifests
from webhook.cli.manifests.files import display_name
from webhook.cli.manifests.sentence import sentence
from webhook.cli.wording import printable
from webhook.cluster.catalogues import DEVICE_CLASSES, NAMESPACES, DeviceClassObject
from webhook.cluster.nodes import NODES, NodeObject
from webhook.cluster.templates import (
    MACHINE_DEPLOYMENTS,
    NODE_CLAIMS,
    NODE_POOLS,
    devices_in,
    template_of,
)
from webhook.kube.client import FORBIDDEN, KubeApi
from webhook.kube.errors import NOT_FOUND, ApiError
from webhook.kube.listing import list_all


@dataclass(slots=True)
class NodeSources:
    """What a policy can be discovered from."""

    nodes: list[Node] = field(default_factory=list)
    templates: list[NodeTemplate] = field(default_factory=list)
    device_classes: list[str] = field(default_factory=list)
    namespaces: frozenset[str] | None = None
    """The names of the namespaces; ``None`` if they are unknown."""

    @classmethod
    def of(cls, items: Iterable[Node | NodeTemplate | str | None]) -> NodeSources:
        """Return the sources among ``items``: a text is the name of a DeviceClass."""
        found = cls()
        for item in items:
            match item:
                case Node():
                    found.nodes.append(item)
                case NodeTemplate():
                    found.templates.append(item)
                case str():
                    found.device_classes.append(item)
        return found


_COLLECTIONS = (
    (NODES, "v1", "Node"),
    (DEVICE_CLASSES, "resource.k8s.io/v1", "DeviceClass"),
    (NODE_POOLS, "karpenter.sh/v1", "NodePool"),
    (NODE_CLAIMS, "karpenter.sh/v1", "NodeClaim"),
    (MACHINE_DEPLOYMENTS, "cluster.x-k8s.io/v1beta1", "MachineDeployment"),
)


async def from_cluster(api: KubeApi) -> NodeSources:
    """Read a cluster. Kinds that it does not have, or that may not be listed, are left out.

    Raises:
        ClusterError: the nodes cannot be listed.
    """
    found: list[Node | NodeTemplate | str | None] = []
    for collection, version, kind in _COLLECTIONS:
        # The items of a list have no kind.
        take = partial(_read_item, {"apiVersion": version, "kind": kind})
        try:
            found += await list_all(api, collection.path, take)
        except ApiError as error:
            if not (collection.optional and error.status in (FORBIDDEN, NOT_FOUND)):
                raise
    sources = NodeSources.of(found)
    names = await list_all(api, NAMESPACES.path, lambda obj: str(obj["metadata"]["name"]))
    sources.namespaces = frozenset(names)
    return sources


def _read_item(kind: JSONObject, obj: JSONObject) -> Node | NodeTemplate | str | None:
    return _read({**obj, **kind})


def _read(obj: JSONObject) -> Node | NodeTemplate | str | None:
    """Return the source that an object is; ``None`` for an object of another kind.

    Raises:
        ValueError: a field is missing, or of another type.
    """
    match str(obj.get("apiVersion")).rpartition("/")[0], obj.get("kind"):
        case "", "Node":
            item = msgspec.convert(obj, NodeObject)
            taints = tuple(Taint(t.key, t.effect, t.value) for t in item.spec.taints or ())
            allocatable = devices_in(item.status.allocatable or {})
            return Node(item.metadata.name, item.metadata.labels or {}, taints, allocatable)
        case "resource.k8s.io", "DeviceClass":
            return msgspec.convert(obj, DeviceClassObject).metadata.name
        case _:
            return template_of(obj)


def from_file(path: str) -> NodeSources:
    """Read a file.

    Raises:
        InputError: the file cannot be read, is partly invalid, or holds no nodes.
    """
    items, problems = [], []
    for manifest in read_manifests([path]):
        error = manifest.error
        if error is None:
            try:
                items.append(_read(manifest.value or {}))
            except ValueError as problem:
                kind = (manifest.value or {}).get("kind")
                error = ManifestError(f"is not a valid {kind}: {problem}", line=manifest.line)
        if error is not None:
            problems.append(printable(sentence(manifest.document, error)))
    if problems:
        raise InputError(problems)
    found = NodeSources.of(items)
    if not (found.nodes or found.templates):
        raise InputError(
            [f"{display_name(path)} holds no nodes. Write it with kubectl get nodes -o json."]
        )
    return found
