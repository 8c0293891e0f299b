"""Nodes, node templates and DeviceClasses, from a file or a live cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import msgspec

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import Taint
from webhook.cli.cluster_facts import no_nodes, read_objects
from webhook.cluster.nodes import NODES, NodeObject
from webhook.cluster.state import DEVICE_CLASSES, NAMESPACES, NamedObject
from webhook.cluster.templates import devices_in, list_templates, template_of
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

    @property
    def index(self) -> NodeIndex:
        """The nodes by label."""
        return NodeIndex(self.nodes)


async def from_cluster(api: KubeApi) -> NodeSources:
    """Read a cluster. Node templates and DeviceClasses that it does not have are left out.

    Raises:
        ClusterError: the cluster cannot be read.
    """
    nodes = await list_all(api, NODES.path, NODES.item, _node)
    templates = await list_templates(api)
    try:
        classes = await list_all(api, DEVICE_CLASSES.path, NamedObject, _name)
    except ApiError as error:
        if error.status not in (FORBIDDEN, NOT_FOUND):
            raise
        classes = []
    namespaces = frozenset(await list_all(api, NAMESPACES.path, NamedObject, _name))
    return NodeSources(nodes, templates, classes, namespaces)


def _name(item: NamedObject) -> str:
    return item.metadata.name


def _node(item: NodeObject) -> Node:
    taints = tuple(Taint(t.key, t.effect, t.value) for t in item.spec.taints or ())
    allocatable = devices_in(item.status.allocatable or {})
    return Node(item.metadata.name, item.metadata.labels or {}, taints, allocatable)


def from_file(path: str) -> NodeSources:
    """Read a file.

    Raises:
        InputError: the file cannot be read, is partly invalid, or holds no nodes.
    """
    sources = NodeSources()
    read_objects(path, partial(_take, sources))
    if not (sources.nodes or sources.templates):
        raise no_nodes(path)
    return sources


def _take(sources: NodeSources, obj: JSONObject) -> None:
    """Add an object to the sources. Other kinds are ignored.

    Raises:
        ValueError: a field is missing, or of another type.
    """
    match str(obj.get("apiVersion")).rpartition("/")[0], obj.get("kind"):
        case "", "Node":
            sources.nodes.append(_node(msgspec.convert(obj, NodeObject)))
        case "resource.k8s.io", "DeviceClass":
            sources.device_classes.append(_name(msgspec.convert(obj, NamedObject)))
        case _:
            if template := template_of(obj):
                sources.templates.append(template)
