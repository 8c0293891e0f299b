"""What a policy can be discovered from: a live cluster, or a file of its objects."""

from __future__ import annotations

from webhook.cli.cluster_facts import no_nodes, read_objects
from webhook.cluster.nodes import NODES
from webhook.cluster.state import DEVICE_CLASSES, NAMESPACES, ClusterState
from webhook.kube.client import KubeApi
from webhook.kube.listing import list_all, list_optional


async def from_cluster(api: KubeApi) -> ClusterState:
    """Read a cluster. Node templates and DeviceClasses that it does not have are left out.

    Raises:
        ClusterError: the cluster cannot be read.
    """
    state = ClusterState(None)
    await list_all(api, NODES.path, NODES.item, state.nodes.put)
    for collection, store in state.template_stores:
        await list_optional(api, collection, store)
    await list_optional(api, DEVICE_CLASSES, state.device_classes)
    await list_all(api, NAMESPACES.path, NAMESPACES.item, state.namespaces.put)
    return state


def from_file(path: str) -> ClusterState:
    """Read a file.

    Raises:
        InputError: the file cannot be read, is partly invalid, or holds no nodes.
    """
    state = ClusterState(None)
    read_objects(path, state.put)
    if not (len(state.nodes) or state.templates):
        raise no_nodes(path)
    return state
