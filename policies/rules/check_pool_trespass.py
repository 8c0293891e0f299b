"""Pod without a GPU request that can run on GPU nodes.

## What it checks

The rule reports a Pod that requests no device of a pool and does one of the following:

- It tolerates the taint of the pool by its key.
- It tolerates every taint (`operator: Exists` without a key), and its node selection does not
  exclude the nodes of the pool. `pool-exclusion` adds what excludes them, so that this is a finding
  only if the policy turns that rule off, or if a GPU node does not have its labels yet.
- It requires the labels of the pool, in `nodeSelector` or in any term of its required node
  affinity.

If the nodes of the cluster are known, the rule also reports a Pod that does one of the following:

- It sets `nodeName` to a node of the pool.
- It selects only nodes of the pool by other labels, for example an instance type or a host name.

A node that has the taint or the devices of the pool, and the labels of no pool, belongs to the
pool: new nodes get their labels late. In a cluster, a Pod that is bound to an unknown node is
denied.

An annotation is a request (`pools[].annotationRequests`) only for Pods of the scheduler that reads
it, and without `nodeName`.

A toleration is not a finding if the Pod's own node selection excludes the nodes of the pool. If the
nodes are unknown, a selection of control-plane nodes excludes them.

The rule does not apply to DaemonSets: node agents run on every node, whatever they tolerate or
select. A DaemonSet that lists nodes by name (`In`) is no such agent. A Pod counts as a Pod of a
DaemonSet only if the DaemonSet controller creates it, because any client can write an owner
reference. gpufence recognizes the controller by its service account. The kube-controller-manager
uses this account with the flag `--use-service-account-credentials`, which kubeadm and managed
clusters set.

## Why

GPU nodes are the most expensive nodes of a cluster. A web server on a GPU node takes CPU and memory
that a training job needs, and prevents the autoscaler from removing the node.

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
  containers:
    - name: web
      image: nginx:1.29
```

## Settings

- `pools[].taints`, `pools[].nodeSelector`: the taints and the labels of the GPU nodes.
- `exemptions.namespaces`, `exemptions.usernames`, `exemptions.runtimeClasses`: the Pods to which
  the rule does not apply.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from policies.context import Context
from policies.finding import Edit, Finding
from policies.kubernetes.core_v1 import Toleration
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import (
    Alternative,
    is_wildcard,
    reached_taint,
)
from policies.kubernetes.selector import includes, requires_labels
from policies.policy import Pool
from policies.reach import (
    EVERY_NODE,
    foreign_pools,
    is_confined,
    is_kept_off,
    is_mirror_pod,
    is_node_agent,
    named_node,
    nodes_of_pools,
    pools_of_node,
)
from policies.requests import ignored_annotations
from policies.wording import capitalized

ID = "pool-trespass"

# The clauses that the admission policies share with this rule.
LACK = "the Pod requests no GPU"
TOLERATION = "remove the toleration"
SELECTION = "remove the node selection"


def check(pod: Pod, context: Context) -> Iterable[Finding]:
    """Return a finding for each toleration and node selection that reaches a foreign pool."""
    foreign = foreign_pools(pod, context)
    if foreign and (is_node_agent(pod, context) or context.is_undecided(pod)):
        foreign = []
    return _findings(pod, context, foreign) if foreign or pod.spec.node_name else ()


def _findings(pod: Pod, context: Context, foreign: Iterable[Pool]) -> Iterator[Finding]:
    yield from _by_unknown_node(pod, context)
    requested = context.requested_pools
    confined = is_confined(pod, requested)
    for pool in foreign:
        # A pool whose labels all nodes of a requested pool carry: the Pod is there by right.
        included = confined and any(includes(pool.selector, own.selector) for own in requested)
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
    ]
    if not reaching or is_kept_off(pod, pool, context):
        return
    for index, toleration, taint in reaching:
        path = pod.at(f"spec.tolerations[{index}]")
        fix: tuple[Edit, ...] = ()
        if is_wildcard(toleration):
            reason = f"{_subject(pool, context)} tolerates every taint"
            remediation = (
                _remediation("remove the host names of GPU nodes", pod, pool, context)
                if pod.kind == "DaemonSet"
                else wildcard_remediation(pool)
            )
        else:
            reason = f"{_subject(pool, context)} tolerates the taint of GPU nodes"
            remediation = _remediation(TOLERATION, pod, pool, context)
            if not (context.may_mean_a_device(pod) or pod.kind == "DaemonSet"):
                fix = (Edit("remove", path),)
        lack = _lack(pod, pool, context)
        yield Finding(
            ID,
            path,
            reason,
            f"{tolerates(pool)}, but {lack}",
            remediation,
            subjects=frozenset([f"{_covered(toleration)} for {taint} of {pool.name}: {lack}"]),
            fix=fix,
        )


def _by_label(pod: Pod, pool: Pool, context: Context) -> Iterator[Finding]:
    paths = [
        _selecting_path(alternative, pool)
        for alternative in pod.selection()
        if requires_labels(alternative, pool.selector)
    ]
    for path in dict.fromkeys(paths):
        yield Finding(
            ID,
            pod.at(path),
            f"{_subject(pool, context)} selects GPU nodes",
            f"{selects(pool)}, but {_lack(pod, pool, context)}",
            _remediation(SELECTION, pod, pool, context),
        )


def _by_node_name(pod: Pod, pool: Pool, context: Context) -> Iterator[Finding]:
    """Yield a finding if the Pod's author bound it to a node of the pool.

    Without the scheduler, a NoSchedule taint repels nothing: the kubelet checks NoExecute only
    (``k8s.io/kubernetes/pkg/kubelet/lifecycle/predicate.go``).
    """
    node = named_node(pod, context.facts.nodes)
    if node is None:
        return
    pools = pools_of_node(node, context)
    if pool not in pools or any(own in pools for own in context.requested_pools):
        return
    yield Finding(
        ID,
        pod.at("spec.nodeName"),
        f"{_subject(pool, context)} is bound to a GPU node",
        f"nodeName binds the Pod to GPU node {node.name} (pool {pool.name}), but "
        f"{_lack(pod, pool, context)}",
        _remediation("remove nodeName", pod, pool, context),
    )


def _by_unknown_node(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if the Pod's author bound it to an unknown node."""
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
    """Yield a finding for each alternative that selects nodes of the pool only, by other labels.

    An alternative that selects all known nodes selects nothing.
    """
    nodes = context.facts.nodes
    if nodes is None:
        return
    outside = ~nodes_of_pools(context.policy, nodes).of(pool)
    selected = pod.selected_nodes(nodes).by_alternative
    for alternative, numbers in zip(pod.selection(), selected, strict=True):
        if numbers & outside or not 0 < numbers.bit_count() < len(nodes):
            continue
        if not (
            alternative.expressions
            or alternative.fields
            or alternative.labels.keys() - EVERY_NODE.keys()
        ):
            continue
        yield Finding(
            ID,
            pod.at(alternative.path or "spec.nodeSelector"),
            f"{_subject(pool, context)} selects GPU nodes",
            f"every node that the Pod selects ({numbers.bit_count()} at present) belongs to pool "
            f"{pool.name}, but {_lack(pod, pool, context)}",
            _remediation(SELECTION, pod, pool, context),
        )


def _selecting_path(alternative: Alternative, pool: Pool) -> str:
    for key in pool.selector:
        if key in alternative.labels:
            return f"spec.nodeSelector[{key}]"
    return alternative.path


def _subject(pool: Pool, context: Context) -> str:
    if context.why_excluded(pool):
        return "a GPU Pod"
    if context.device_requests:
        return "a Pod with a request for other devices"
    return "a Pod without a GPU request"


def tolerates(pool: Pool) -> str:
    """Return the clause about a toleration of the pool's taint."""
    return f"the toleration lets the Pod run on GPU nodes (pool {pool.name})"


def selects(pool: Pool) -> str:
    """Return the clause about a node selection that names the pool's labels."""
    return f"the node selection places the Pod on GPU nodes (pool {pool.name})"


def wildcard_remediation(pool: Pool) -> str:
    """Return what to do about a toleration of every taint."""
    return (
        "Name the taints that the Pod needs to tolerate, or exclude GPU nodes with "
        f"{exclusion(pool)} in every term of the required node affinity"
    )


def request_or(remove: str, pool: Pool) -> str:
    """Return the remediation of a Pod that may use the pool's nodes with a request."""
    return f"{pool.request}, or {remove}"


def _remediation(remove: str, pod: Pod, pool: Pool, context: Context) -> str:
    """Return how the Pod may use the pool's nodes, if it may, or else what to remove."""
    if pod.kind == "DaemonSet":
        return f"{capitalized(remove)}, or exempt the namespace of this agent in the policy"
    if not context.may_request(pool) or context.why_excluded(pool):
        return capitalized(remove)
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        if entry.source:
            place = pod.at(f"spec.resourceClaims[{index}]")
            return f"Write the name of the claim directly into {place}, without source, or {remove}"
    if unresolved := context.unresolved_claims(pod):
        return (
            f"Create resource claim {unresolved[0].claim_name} before the Pod if it requests a "
            f"device (for files, add its manifest or use --cluster), or {remove}"
        )
    if unused := [named for named in context.claims(pod) if not named.is_used]:
        name = unused[0].name
        return f"Use claim {name} in a container, under resources.claims, or {remove}"
    for name, annotation in ignored_annotations(pod, context.policy):
        if pool in context.policy.pools_of_annotations[annotation]:
            scheduler = annotation.scheduler_name
            return f"Set schedulerName: {scheduler}, the scheduler that reads {name}, or {remove}"
    for request in context.device_requests:
        if request.certain and all(own.selector != pool.selector for own in request.pools):
            return f"{pool.request} in place of {request.what}, or {remove}"
    return request_or(remove, pool)


def exclusion(pool: Pool) -> str:
    """Return the expression with which a term accepts no node of the pool."""
    key, values = pool.first_label
    if not values:
        return f"{{key: {key}, operator: DoesNotExist}}"
    # Nodes without the label meet NotIn, too.
    return f"{{key: {key}, operator: NotIn, values: {json.dumps(values)}}}"


def _covered(toleration: Toleration) -> str:
    """Return which taints with its key a toleration covers."""
    return f"{toleration.operator or 'Equal'} {toleration.value or ''} {toleration.effect or ''}"


def _lack(pod: Pod, pool: Pool, context: Context) -> str:
    if why := context.why_excluded(pool):
        return why
    lack = "the Pod requests no device of this pool" if context.device_requests else LACK
    return f"{lack}{context.describe_unresolved_claims(pod)}"
