"""GPU Pod whose containers do not get a device that they request or need."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.device_injection import VISIBLE_DEVICES
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.quantity import is_extended_resource_name, is_rdma_resource_name
from policies.kubernetes.scheduling import matches_node
from policies.reach import is_mirror_pod, named_node, pools_of_node, rdma_resource_of
from policies.requests import device_peaks
from policies.vendors import is_shown_by
from policies.wording import listing

ID = "missing-device"

_GPUS_OF_A_NODE = 8
_WORK_ALONE = frozenset({"Deployment", "Pod", "ReplicaSet"})
"""Kinds whose Pods mostly work on one node. A Pod counts by its controller, if it has one."""


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each requested resource that the named node does not offer.

    A kubelet removes extended resources that its node does not list, and admits the Pod
    (``k8s.io/kubernetes/pkg/kubelet/lifecycle/predicate.go``, ``removeMissingExtendedResources``).
    The implicit name of a device class is not an extended resource.
    """
    if is_mirror_pod(pod, context):
        return
    if pod.spec.node_name and not context.exists(pod):
        yield from _by_node_name(pod, context)
        if pod.spec.resource_claims:
            yield from _without_allocation(pod, context)
    if pod.spec.runtime_class_name:
        yield from _with_other_runtime(pod, context)
    if len(context.device_requests) > 1:
        yield from _of_one_variable(pod, context)
    if pod.spec.init_containers:
        yield from _in_init_containers_only(pod, context)
    if context.facts.nodes is not None:
        yield from _without_rdma(pod, context)


def _with_other_runtime(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a warning if the Pod sets another RuntimeClass than the one that its pools need.

    The devices of claims need none: their driver adds them by CDI.
    """
    own = pod.spec.runtime_class_name
    for request in context.distinct_requests:
        names = {pool.runtime_class for pool in request.pools}
        wanted = names.pop()
        if wanted and own != wanted and not names and request.resource:
            yield Finding(
                ID,
                pod.at("spec.runtimeClassName"),
                "the Pod sets another RuntimeClass than its pool needs",
                f"{request.pool_names} needs RuntimeClass {wanted}; with {own}, the container may "
                "start without its GPU",
                f"Remove runtimeClassName: {own}, unless this runtime shows GPUs as well",
                "warn",
            )
            return


def _of_one_variable(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a warning for each container with devices of several names, such as MIG profiles.

    NVIDIA's device plugin sets a variable for each name, and the kubelet keeps the first value
    (``k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/pod_devices.go``).
    """
    for container in pod.containers:
        place = container.kind, container.position
        names = {
            request.resource: request.path
            for request in context.device_requests
            if request.container == place
            and request.resource not in context.facts.extended_resource_classes
            and is_shown_by(VISIBLE_DEVICES, request.resource)
        }
        if len(names) > 1:
            yield Finding(
                ID,
                [*names.values()][1],
                "a container gets devices of one name only, and requests several",
                f'container "{container.name}" requests {listing(names)}: the device plugin sets '
                f"{VISIBLE_DEVICES} for each, the kubelet keeps one of the values, and the other "
                "devices are reserved without use",
                "Request one of them in each container",
                "warn",
            )


def _in_init_containers_only(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a warning if no container that runs with the main ones requests a device."""
    places = {(each.kind, each.position): each for each in pod.containers}
    found = [places[place] for place in places if place in context.requesting]
    runs = any(each.kind == "containers" or each.spec.restart_policy == "Always" for each in found)
    # A claim of a main container may be for a device.
    if runs or not found or pod.spec.resource_claims:
        return
    first = found[0]
    yield Finding(
        ID,
        pod.at(f"{first.field}.resources"),
        "only init containers request a device",
        f'init container "{first.name}" requests a device, and no main container does: the main '
        "containers get no device, and the GPU is reserved while they run",
        "Move the request to the container that uses the GPU",
        "warn",
    )


def _without_rdma(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a warning if the Pod takes whole nodes with RDMA devices, and none of those devices."""
    if _needs_no_rdma(pod):
        return
    needed = device_peaks(pod, context.policy)
    for request in context.distinct_requests:
        if needed.get(request.resource, 0) < _GPUS_OF_A_NODE:
            continue
        if any(request.resource in pool.shared_resources for pool in request.pools):
            continue
        rdma = rdma_resource_of(pod, request.pools, needed, context)
        if rdma is None:
            continue
        yield Finding(
            ID,
            request.path,
            "a Pod with eight GPUs or more requests no RDMA device",
            f"the nodes of {request.pool_names} offer {rdma}, and the Pod does not request it: "
            "traffic of NCCL between nodes falls back to TCP",
            f"Add {rdma}: 1 to the limits of the container, if the Pod works together with Pods on "
            "other nodes",
            "warn",
        )


def _needs_no_rdma(pod: Pod) -> bool:
    """Return whether the Pod requests RDMA devices, gets them in another way, or works alone."""
    owners = pod.metadata.owner_references or ()
    kind = next((owner.kind for owner in owners if owner.controller), pod.kind)
    return bool(
        kind in _WORK_ALONE
        or pod.spec.host_network
        or pod.spec.resource_claims
        or any(is_rdma_resource_name(resource.name) for resource in pod.device_resources)
    )


def _by_node_name(pod: Pod, context: Context) -> Iterator[Finding]:
    node = named_node(pod, context.facts.nodes)
    if node is None and context.request.fail_closed:
        yield from _by_unknown_node(pod, context)
    if node is None or node.allocatable is None:
        return
    pools = pools_of_node(node, context)
    missing = {
        request.resource: pool
        for request in context.device_requests
        if is_extended_resource_name(request.resource) and request.resource not in node.allocatable
        for pool in request.pools
        if pool in pools or request.resource in node.remote
    }
    for resource, pool in missing.items():
        offered = (
            f"a DRA driver offers {resource} on node {node.name} (pool {pool.name}), and only the "
            "scheduler makes the claim for it, which nodeName bypasses: the kubelet"
            if resource in node.published
            else f"node {node.name} of pool {pool.name} offers no {resource}, so its kubelet"
        )
        yield Finding(
            ID,
            pod.at("spec.nodeName"),
            "the Pod is bound to a GPU node without the requested device",
            f"{offered} starts the Pod without the device",
            "Remove nodeName. The scheduler then finds a node with the device",
        )


def _without_allocation(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each claim that has no devices on the named node.

    The kubelet waits for them, and only the scheduler allocates them; the Pod counts for the
    scheduler meanwhile. A claim of a file may have them in the cluster.
    """
    name = pod.spec.node_name or ""
    node = named_node(pod, context.facts.nodes)
    for named in context.claims(pod):
        nodes = named.claim.nodes if named.claim else None
        if nodes is not None and matches_node(nodes, name, node.labels if node else {}):
            continue
        if nodes is None and not (named.is_template or context.request.fail_closed):
            continue
        what = "template of claims" if named.is_template else "claim"
        yield Finding(
            ID,
            pod.at("spec.nodeName"),
            "the Pod is bound to a node on which its claim has no devices",
            f"{what} {named.claim_name} (at {named.path}) has no devices on node {name}, and "
            "only the scheduler allocates them: the Pod would never start, and keep the CPUs and "
            "the memory of the node from other Pods",
            "Remove nodeName. The scheduler then allocates the devices and chooses their node",
        )


def _by_unknown_node(pod: Pod, context: Context) -> Iterator[Finding]:
    resources = {request.resource for request in context.device_requests}
    for resource in sorted(filter(is_extended_resource_name, resources)):
        yield Finding(
            ID,
            pod.at("spec.nodeName"),
            "a Pod that requests a device is bound to an unknown node",
            f"gpufence cannot tell whether node {pod.spec.node_name} offers {resource}, and a "
            "kubelet starts the Pod without a device that its node does not offer",
            "Remove nodeName: the scheduler finds a node that has the device",
        )
