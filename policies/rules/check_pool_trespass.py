"""Pod without a GPU request that reaches for the GPU nodes.

## What it checks

A Pod that requests no device of a pool must neither be able nor ask to be placed on the pool's
nodes:

- it tolerates the pool's taint by the taint's key,
- or by a wildcard (`operator: Exists` without a key), unless it is a DaemonSet's Pod: node agents
  run on every node,
- or it requires the pool's labels, in `nodeSelector` or in any term of its required node
  affinity.

Where the cluster's nodes are known, also:

- it is bound by `nodeName` to a node of the pool,
- or it selects by other labels (an instance type, a host name) only nodes that belong to the pool.

Nor may a Pod be bound by `nodeName` to a node of the pool that does not offer what the Pod
requests: a kubelet starts it without a device that its node has never heard of
(`nvidia.com/mig-1g.10gb` on a node without partitions), and past the scheduler nobody else looks.
That holds for a resource of which only a device class tells, too: it takes the scheduler to
allocate it.

A toleration is no finding where the Pod's own node selection keeps it off the pool's nodes. That a
Pod is a DaemonSet's is believed of what the DaemonSet controller itself creates, and of a
DaemonSet's own template: an owner reference is text that anybody can write. The controller is known
by its service account, which kube-controller-manager gives it with
`--use-service-account-credentials`, as kubeadm and managed clusters have it.

## Why

A GPU node costs as much as a rack of others. A web server parked on one keeps it from scaling
down, and takes the CPU and memory that the next training job needs.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  tolerations:
    - key: nvidia.com/gpu
      operator: Exists
      effect: NoSchedule
  containers:
    - name: web
      image: nginx:1.29
```

## Use instead

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  tolerations:
    - operator: Exists
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions:
              - key: nvidia.com/gpu.present
                operator: NotIn
                values: ["true"]
  containers:
    - name: web
      image: nginx:1.29
```

## Settings

- `pools[].taints`, `pools[].nodeSelector`: what the fence is made of.
- `exemptions.namespaces`, `exemptions.usernames`, `exemptions.runtimeClasses`: whom it lets
  through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from policies.facts import Facts, JSONObject
from policies.finding import Finding
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.pod import Pod
from policies.kubernetes.quantity import is_extended_resource_name
from policies.kubernetes.scheduling import (
    Alternative,
    asks_for,
    can_match,
    is_wildcard,
    reached_taint,
    requires,
)
from policies.policy import Policy, Pool
from policies.requests import may_request, what_is_unknown

ID = "pool-trespass"

_PLACING_FIELDS = ("tolerations", "nodeSelector", "affinity", "nodeName")
DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Yield a finding for each toleration and node selection that reaches for a foreign pool."""
    spec = pod.spec
    if not any(spec.get(field) for field in _PLACING_FIELDS) or _is_mirror_pod(pod, facts):
        return
    if pod.requests and facts.nodes is not None:
        yield from _by_absent_device(pod, facts.nodes)
    requested = {request.pool for request in pod.requests}
    selection = pod.selection()
    reached = [p for p in _within_reach(pod, selection, policy, facts) if p not in requested]
    if not reached:
        return
    confined = _is_confined(selection, requested)
    lack = _no_request(pod, facts)
    for pool in reached:
        # Then every node that the Pod may use by right is one of this pool, too.
        included = confined and any(pool.labels.items() <= own.labels.items() for own in requested)
        if not confined:
            yield from _by_toleration(pod, pool, selection, facts, lack)
        by_label = [] if included else list(_by_label(pod, pool, selection, facts, lack))
        yield from by_label
        if facts.nodes is not None:
            yield from _by_name(pod, pool, requested, facts.nodes, facts, lack)
            if not (by_label or included):
                yield from _by_known_nodes(pod, pool, selection, facts.nodes, facts, lack)


def _within_reach(
    pod: Pod, selection: Sequence[Alternative], policy: Policy, facts: Facts
) -> Iterable[Pool]:
    """Return the pools that may be trespassed on, by the keys that the Pod and its nodes name.

    A cluster may have many pools, and a Pod has to do with few.
    """
    keys = {toleration.get("key") or "" for toleration in pod.spec.get("tolerations") or ()}
    if "" in keys:
        return policy.pools
    keys.update(pod.spec.get("nodeSelector") or ())
    for alternative in selection:
        keys.update(expression["key"] for expression in alternative.expressions)
        if facts.nodes is not None:
            # All nodes that it selects have to be a pool's, so that any of them tells which.
            for node in islice(facts.nodes.accepted_by(alternative), 1):
                keys.update(node.labels)
    if facts.nodes is not None and (bound_to := _bound_to(pod, facts.nodes)):
        keys.update(bound_to.labels)
    reached = {pool for key in keys for pool in policy.pools_by_key.get(key, ())}
    return [pool for pool in policy.pools if pool in reached] if reached else ()


def _by_toleration(
    pod: Pod, pool: Pool, selection: Sequence[Alternative], facts: Facts, lack: str
) -> Iterator[Finding]:
    reaching = [
        (index, toleration, taint)
        for index, toleration in enumerate(pod.spec.get("tolerations") or ())
        if (taint := reached_taint(toleration, pool.taints)) is not None
        and not (is_wildcard(toleration) and _is_daemon_set_pod(pod, facts))
    ]
    if not reaching or not any(can_match(alternative, pool.labels) for alternative in selection):
        return
    if facts.nodes is not None and (
        _is_bound_elsewhere(pod, pool, facts.nodes) or _picks_others(selection, pool, facts.nodes)
    ):
        return
    for index, toleration, taint in reaching:
        if is_wildcard(toleration):
            reason = f"{_subject(pod)} tolerates every taint"
            advice = (
                "Name the taints that it has to tolerate, or keep it off with this expression in "
            )
            advice += f"every term of its required node affinity: {_avoid(pool)}"
        else:
            reason = f"{_subject(pod)} tolerates the taint of GPU nodes"
            advice = f"Remove the toleration{_way_in(pod, pool, facts)}"
        yield Finding(
            ID,
            pod.at(f"spec.tolerations[{index}]"),
            reason,
            f"{_describe(toleration)} admits it to the nodes of pool {pool.name} with taint "
            f"{taint}, but {lack}",
            advice,
        )


def _by_label(
    pod: Pod, pool: Pool, selection: Sequence[Alternative], facts: Facts, lack: str
) -> Iterator[Finding]:
    seen: set[str] = set()
    for alternative in selection:
        if asks_for(alternative, pool.labels):
            labels = ", ".join(f"{key}={value}" for key, value in pool.labels.items())
            path = _selecting_path(alternative, pool)
            if path in seen:
                continue
            seen.add(path)
            yield Finding(
                ID,
                pod.at(path),
                f"{_subject(pod)} selects GPU nodes",
                f"it requires nodes with {labels}, which are the nodes of pool {pool.name}, "
                f"but {lack}",
                f"Remove the node selection{_way_in(pod, pool, facts)}",
            )


def _by_name(
    pod: Pod, pool: Pool, requested: set[Pool], nodes: NodeIndex, facts: Facts, lack: str
) -> Iterator[Finding]:
    """Yield a finding where the Pod is bound to a node of the pool by its author.

    Past the scheduler, a NoSchedule taint keeps nothing away: kubelet looks at NoExecute only
    (``k8s.io/kubernetes/pkg/kubelet/lifecycle/predicate.go``).
    """
    node = _bound_to(pod, nodes)
    if node is None or not node.belongs_to(pool) or any(map(node.belongs_to, requested)):
        return
    yield Finding(
        ID,
        pod.at("spec.nodeName"),
        f"{_subject(pod)} is bound to a GPU node",
        f"node {node.name} belongs to pool {pool.name}, but {lack}",
        f"Remove nodeName{_way_in(pod, pool, facts)}",
    )


def _by_absent_device(pod: Pod, nodes: NodeIndex) -> Iterator[Finding]:
    """Yield a finding where the Pod is bound to a node of the pool that lacks what it requests.

    A kubelet leaves extended resources out that its node does not list, and admits the Pod
    (``k8s.io/kubernetes/pkg/kubelet/lifecycle/predicate.go``, ``removeMissingExtendedResources``).
    A class's implicit name is none of those, and of a claim it waits for the allocation.
    """
    node = _bound_to(pod, nodes)
    if node is None or node.allocatable is None:
        return
    absent = {
        request.resource: request.pool
        for request in pod.requests
        if is_extended_resource_name(request.resource)
        and request.resource not in node.allocatable
        and node.belongs_to(request.pool)
    }
    for resource, pool in absent.items():
        yield Finding(
            ID,
            pod.at("spec.nodeName"),
            "a Pod is bound to a GPU node that does not have the device it requests",
            f"node {node.name} of pool {pool.name} offers no {resource}, and its kubelet would "
            "start the Pod without one",
            "Remove nodeName: the scheduler finds a node that has the device",
        )


def _by_known_nodes(
    pod: Pod,
    pool: Pool,
    selection: Sequence[Alternative],
    nodes: NodeIndex,
    facts: Facts,
    lack: str,
) -> Iterator[Finding]:
    for alternative in selection:
        if not (alternative.labels or alternative.expressions or alternative.fields):
            continue
        if alternative.fields and _is_daemon_set_pod(pod, facts):
            continue
        if not can_match(alternative, pool.labels):
            continue
        accepted = _accepted_of_pool_only(alternative, pool, nodes)
        # Where it selects every node there is, it selects nothing: a cluster may be all GPU nodes.
        if 0 < accepted < len(nodes):
            yield Finding(
                ID,
                pod.at(alternative.path or "spec.nodeSelector"),
                f"{_subject(pod)} selects GPU nodes",
                f"every node that it selects ({accepted} today) belongs to pool {pool.name}, "
                f"but {lack}",
                f"Remove the node selection{_way_in(pod, pool, facts)}",
            )


def _bound_to(pod: Pod, nodes: NodeIndex) -> Node | None:
    """Return the node that the Pod's author has named, if it is known."""
    name = pod.spec.get("nodeName")
    return nodes.get(name) if name else None


def _is_bound_elsewhere(pod: Pod, pool: Pool, nodes: NodeIndex) -> bool:
    """Tell whether the Pod is bound to a known node outside of the pool: ``kubectl debug node``."""
    node = _bound_to(pod, nodes)
    return node is not None and not node.belongs_to(pool)


def _picks_others(selection: Sequence[Alternative], pool: Pool, nodes: NodeIndex) -> bool:
    """Tell whether the node selection accepts known nodes, and none of the pool's.

    A selection that accepts no known node at all may be meant for nodes that an autoscaler adds.
    """
    if any(any(nodes.accepted_by(alternative, pool)) for alternative in selection):
        return False
    return any(any(nodes.accepted_by(alternative)) for alternative in selection)


def _accepted_of_pool_only(alternative: Alternative, pool: Pool, nodes: NodeIndex) -> int:
    """Return how many nodes meet the alternative, 0 where one of them is not the pool's."""
    accepted = 0
    for node in nodes.accepted_by(alternative):
        if not node.belongs_to(pool):
            return 0
        accepted += 1
    return accepted


def _is_mirror_pod(pod: Pod, facts: Facts) -> bool:
    """Tell whether a kubelet shows a static Pod of its own node.

    The NodeRestriction admission plugin lets a kubelet create mirror Pods bound to itself only.
    """
    annotations = pod.metadata.get("annotations") or {}
    return (
        facts.username == f"system:node:{pod.spec.get('nodeName')}"
        and MIRROR_ANNOTATION in annotations
    )


def _is_confined(selection: Sequence[Alternative], requested: set[Pool]) -> bool:
    """Tell whether every node that the Pod can be placed on belongs to a pool that it requests."""
    return bool(requested) and all(
        any(
            all(requires(alternative, key, value) for key, value in pool.labels.items())
            for pool in requested
        )
        for alternative in selection
    )


def _is_daemon_set_pod(pod: Pod, facts: Facts) -> bool:
    """Tell whether the Pod is, beyond forgery, a DaemonSet's.

    An owner reference is text that anybody can write; it counts only where the DaemonSet controller
    made the request.
    """
    if pod.kind == "DaemonSet":
        return True
    return facts.username == DAEMON_SET_CONTROLLER and any(
        owner.get("controller") and owner.get("kind") == "DaemonSet"
        for owner in pod.metadata.get("ownerReferences") or ()
    )


def _selecting_path(alternative: Alternative, pool: Pool) -> str:
    for key in pool.labels:
        if key in alternative.labels:
            return f"spec.nodeSelector[{key}]"
    return alternative.path


def _subject(pod: Pod) -> str:
    return (
        "a Pod with a request for other devices" if pod.requests else "a Pod without a GPU request"
    )


def _way_in(pod: Pod, pool: Pool, facts: Facts) -> str:
    """Return what else would do: what lets the Pod onto the pool's nodes by right, if anything."""
    if _is_daemon_set_pod(pod, facts):
        return ", or have the policy exempt its namespace, if it is an agent that GPU nodes need"
    if not may_request(pool, facts):
        return ""
    others = [r.what for r in pod.requests if r.certain and r.pool.labels != pool.labels]
    instead = f" in place of {others[0]}" if others else ""
    return f", or request a device: {pool.example_request}{instead}"


def _avoid(pool: Pool) -> str:
    key, value = next(iter(pool.labels.items()))
    # NotIn is met by nodes without the label, too.
    return f'{{key: {key}, operator: NotIn, values: ["{value}"]}}'


def _describe(toleration: JSONObject) -> str:
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    effect = toleration.get("effect") or "every effect"
    if not key:
        return f"a toleration without a key (operator {operator}, {effect})"
    value = f"={toleration.get('value') or ''}" if operator == "Equal" else f" {operator}"
    return f"the toleration {key}{value} ({effect})"


def _no_request(pod: Pod, facts: Facts) -> str:
    return f"none of its containers requests one of their devices{what_is_unknown(pod, facts)}"
