"""Pod without a GPU request that reaches for the GPU nodes.

## What it checks

A Pod that requests no device of a pool must not be able to be placed on, or select, the pool's
nodes:

- it tolerates the pool's taint by the taint's key,
- or by a wildcard (`operator: Exists` without a key), unless it is a DaemonSet's Pod: node agents
  run on every node,
- or it requires the pool's labels, in `nodeSelector` or in any term of its required node
  affinity.

Where the cluster's nodes are known, also:

- it is bound by `nodeName` to a node of the pool,
- or it selects by other labels (an instance type, a host name) only nodes that belong to the pool.

A toleration is no finding where the Pod's own node selection keeps it off the pool's nodes. That a
Pod is a DaemonSet's is believed of what the DaemonSet controller itself creates, and of a
DaemonSet's own template: every author can write an owner reference. The controller is known
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

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.core_v1 import Toleration
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import (
    Alternative,
    asks_for,
    can_match,
    is_wildcard,
    reached_taint,
)
from policies.policy import Pool
from policies.reach import (
    count_of_pool_only,
    foreign_pools,
    is_confined,
    is_daemon_set_pod,
    is_mirror_pod,
    is_placed_elsewhere,
    named_node,
)

ID = "pool-trespass"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each toleration and node selection that reaches for a foreign pool."""
    yield from _by_unknown_node(pod, context)
    foreign = foreign_pools(pod, context)
    if not foreign:
        return
    requested = context.requested_pools
    confined = is_confined(pod, requested)
    for pool in foreign:
        # A pool whose labels all nodes of a requested pool carry: the Pod is there by right.
        included = confined and any(
            pool.node_selector.items() <= own.node_selector.items() for own in requested
        )
        if not confined:
            yield from _by_toleration(pod, pool, context)
        by_label = [] if included else list(_by_label(pod, pool, context))
        yield from by_label
        yield from _by_node_name(pod, pool, context)
        if not (by_label or included):
            yield from _by_known_nodes(pod, pool, context)


def _by_toleration(pod: Pod, pool: Pool, context: Context) -> Iterator[Finding]:
    reaching = [
        (index, toleration, taint)
        for index, toleration in enumerate(pod.spec.tolerations or ())
        if (taint := reached_taint(toleration, pool.taints)) is not None
        and not (is_wildcard(toleration) and is_daemon_set_pod(pod, context))
    ]
    if not reaching or not any(can_match(each, pool.node_selector) for each in pod.selection()):
        return
    nodes = context.facts.nodes
    if nodes is not None and is_placed_elsewhere(pod, pool, nodes):
        return
    for index, toleration, taint in reaching:
        if is_wildcard(toleration):
            reason = f"{_subject(context)} tolerates every taint"
            remediation = (
                "Name the taints that it has to tolerate, or keep it off with this expression in "
            )
            remediation += f"every term of its required node affinity: {_avoid(pool)}"
        else:
            reason = f"{_subject(context)} tolerates the taint of GPU nodes"
            remediation = f"Remove the toleration{_way_in(pod, pool, context)}"
        yield Finding(
            ID,
            pod.at(f"spec.tolerations[{index}]"),
            reason,
            f"{_describe(toleration)} admits it to the nodes of pool {pool.name} with taint "
            f"{taint}, but {_lack(pod, context)}",
            remediation,
        )


def _by_label(pod: Pod, pool: Pool, context: Context) -> Iterator[Finding]:
    labels = ", ".join(f"{key}={value}" for key, value in pool.node_selector.items())
    paths = [
        _selecting_path(each, pool)
        for each in pod.selection()
        if asks_for(each, pool.node_selector)
    ]
    for path in dict.fromkeys(paths):
        yield Finding(
            ID,
            pod.at(path),
            f"{_subject(context)} selects GPU nodes",
            f"it requires nodes with {labels}, which are the nodes of pool {pool.name}, "
            f"but {_lack(pod, context)}",
            f"Remove the node selection{_way_in(pod, pool, context)}",
        )


def _by_node_name(pod: Pod, pool: Pool, context: Context) -> Iterator[Finding]:
    """Yield a finding if the Pod's author bound it to a node of the pool.

    Past the scheduler, a NoSchedule taint repels nothing: kubelet checks NoExecute only
    (``k8s.io/kubernetes/pkg/kubelet/lifecycle/predicate.go``).
    """
    node = named_node(pod, context.facts.nodes)
    if node is None or not pool.contains(node):
        return
    if any(own.contains(node) for own in context.requested_pools):
        return
    yield Finding(
        ID,
        pod.at("spec.nodeName"),
        f"{_subject(context)} is bound to a GPU node",
        f"node {node.name} belongs to pool {pool.name}, but {_lack(pod, context)}",
        f"Remove nodeName{_way_in(pod, pool, context)}",
    )


def _by_unknown_node(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if the Pod's author bound it to a node of which nothing is known."""
    name, nodes = pod.spec.node_name, context.facts.nodes
    if not name or not context.request.fail_closed or is_mirror_pod(pod, context):
        return
    if nodes is not None and nodes.get(name) is not None:
        return
    found = (
        "gpufence does not know the nodes of the cluster at the moment"
        if nodes is None
        else "the cluster has no such node, and a GPU node may join by this name"
    )
    yield Finding(
        ID,
        pod.at("spec.nodeName"),
        "a Pod is bound to an unknown node",
        f"nodeName bypasses the taints that protect GPU nodes; it names {name}, but {found}",
        "Remove nodeName, or select the node with nodeSelector, so that the scheduler checks its "
        f"taints: {{kubernetes.io/hostname: {name}}}",
    )


def _by_known_nodes(pod: Pod, pool: Pool, context: Context) -> Iterator[Finding]:
    """Yield a finding for each alternative that selects nodes of the pool only, by other labels."""
    nodes = context.facts.nodes
    if nodes is None:
        return
    for alternative in pod.selection():
        if not (alternative.labels or alternative.expressions or alternative.fields):
            continue
        if alternative.fields and is_daemon_set_pod(pod, context):
            continue
        if not can_match(alternative, pool.node_selector):
            continue
        if count := count_of_pool_only(alternative, pool, nodes):
            yield Finding(
                ID,
                pod.at(alternative.path or "spec.nodeSelector"),
                f"{_subject(context)} selects GPU nodes",
                f"every node that it selects ({count} today) belongs to pool {pool.name}, "
                f"but {_lack(pod, context)}",
                f"Remove the node selection{_way_in(pod, pool, context)}",
            )


def _selecting_path(alternative: Alternative, pool: Pool) -> str:
    for key in pool.node_selector:
        if key in alternative.labels:
            return f"spec.nodeSelector[{key}]"
    return alternative.path


def _subject(context: Context) -> str:
    if context.device_requests:
        return "a Pod with a request for other devices"
    return "a Pod without a GPU request"


def _way_in(pod: Pod, pool: Pool, context: Context) -> str:
    """Return the alternative that lets the Pod onto the pool's nodes by right, if there is one."""
    if is_daemon_set_pod(pod, context):
        return ", or have the policy exempt its namespace, if it is an agent that GPU nodes need"
    if not context.may_request(pool):
        return ""
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        if entry.source:
            place = pod.at(f"spec.resourceClaims[{index}]")
            return f", or write the name of the claim into {place} itself, without source"
    if unresolved := context.unresolved_claims(pod):
        return (
            f", or make resource claim {unresolved[0][1]} known: create it before the Pod; for "
            "files, pass its manifest, too, or use --cluster"
        )
    others = [
        request.what
        for request in context.device_requests
        if request.certain and request.pool.node_selector != pool.node_selector
    ]
    instead = f" in place of {others[0]}" if others else ""
    return f", or request a device: {pool.example_request}{instead}"


def _avoid(pool: Pool) -> str:
    key, value = next(iter(pool.node_selector.items()))
    # Nodes without the label meet NotIn, too.
    return f'{{key: {key}, operator: NotIn, values: ["{value}"]}}'


def _describe(toleration: Toleration) -> str:
    key, operator = toleration.key, toleration.operator or "Equal"
    effect = toleration.effect or "every effect"
    if not key:
        return f"a toleration without a key (operator {operator}, {effect})"
    value = f"={toleration.value or ''}" if operator == "Equal" else f" {operator}"
    return f"the toleration {key}{value} ({effect})"


def _lack(pod: Pod, context: Context) -> str:
    unresolved = context.describe_unresolved_claims(pod)
    return f"none of its containers requests one of their devices{unresolved}"
