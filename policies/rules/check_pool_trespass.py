"""Pod without a GPU request that can run on GPU nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from policies.advice import is_base, of_copy, of_others, unlisted_classes
from policies.candidates import describe_selection, has_labels, why_closed
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.core_v1 import PodSpec, Toleration
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import is_wildcard, reached_taint
from policies.policy import Pool
from policies.pool_nodes import nodes_of_pools
from policies.reach import (
    Closed,
    Named,
    foreign_pools,
    is_confined,
    is_excluded,
    is_kept_off,
    is_mirror_pod,
    is_node_agent,
    is_within,
    named_node,
    named_pools,
    open_by,
    pools_of_node,
)
from policies.requests import ignored_annotations
from policies.rules.check_pool_requirements import meets
from policies.rules.set_pool_node_affinity import closed_pools
from policies.vocabulary import (
    LACK,
    SELECTION,
    TOLERATION,
    base_advice,
    class_advice,
    describe_pools,
    exclusion,
    request_or,
    selects,
    tolerates,
    wildcard_remediation,
)
from policies.wording import capitalized

ID = "pool-trespass"
UNSCHEDULABLE = "unschedulable-gpu-pod"


def check(pod: Pod, context: Context) -> Iterable[Finding]:
    """Yield a finding for each toleration and node selection that reaches a foreign pool."""
    yield from _check(pod, context)
    if not context.device_requests:
        yield from _by_zero_request(pod, context)
    if added := context.facts.runtime_scheduling.get(pod.spec.runtime_class_name or ""):
        yield from _by_runtime_class(pod, added, context)


def _check(pod: Pod, context: Context) -> Iterable[Finding]:
    foreign = foreign_pools(pod, context)
    if foreign and (is_node_agent(pod, context) or context.is_undecided(pod)):
        foreign = []
    return _findings(pod, context, foreign) if foreign or pod.spec.node_name else ()


def _findings(pod: Pod, context: Context, foreign: Sequence[Pool]) -> Iterator[Finding]:
    yield from _by_unknown_node(pod, context)
    requested, closed = context.requested_pools, closed_pools(pod, context)
    confined = is_confined(pod, context)
    # A pool whose labels all nodes of a requested pool carry: the Pod is there by right.
    selectable = [
        pool
        for pool in foreign
        if not (confined and pool.selector and any(map(pool.includes, requested)))
    ]
    named = [*named_pools(pod, selectable, context, closed)]
    if confined and not any(each.pools for each in named):
        yield from _by_shared_nodes(pod, foreign, closed, context)
    is_denied = context.actions.written[UNSCHEDULABLE] == "enforce" and is_excluded(pod, context)
    for pools in _alike(pod, foreign, context):
        # A Pod that selects no node with its device has one finding, of the other rule.
        if not is_denied or context.why_excluded(pools[0]):
            if not confined:
                yield from _by_toleration(pod, pools, named, context)
            yield from _by_selection(pod, pools, named, context)
        yield from _by_node_name(pod, pools, closed, context)


def _by_runtime_class(pod: Pod, added: PodSpec, context: Context) -> Iterator[Finding]:
    """Yield a finding if only what the RuntimeClass adds reaches a pool.

    Source: ``setScheduling`` in ``k8s.io/kubernetes/plugin/pkg/admission/runtimeclass``.
    """
    spec = replace(
        pod.spec,
        tolerations=[*(pod.spec.tolerations or ()), *(added.tolerations or ())],
        node_selector={**(pod.spec.node_selector or {}), **(added.node_selector or {})},
    )
    known = {finding.path for finding in _check(pod, context)}
    merged = Pod(spec, pod.metadata, pod.template)
    for finding in _check(merged, context):
        if finding.path not in known:
            name = pod.spec.runtime_class_name
            remove = f"remove runtimeClassName: {name}"
            pools = foreign_pools(merged, context)
            yield replace(
                finding,
                path=pod.at("spec.runtimeClassName"),
                detail=f"with what RuntimeClass {name} adds, {finding.detail}",
                remediation=_remediation(remove, pod, pools, context),
            )
            return


def _by_zero_request(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a warning for a request for 0 devices, for which some clusters add a toleration.

    GKE enables ``k8s.io/kubernetes/plugin/pkg/admission/extendedresourcetoleration``.
    """
    for resource in pod.device_resources:
        added = Toleration(resource.name, "Exists", None, "NoSchedule")
        pools = [
            pool
            for pool in context.pools_of_resource(resource.name)
            if reached_taint(added, pool.taints)
        ]
        # With the toleration, it is a finding of its own.
        is_zero = not any(resource.nanos.values())
        if is_zero and pools and not _tolerates_one_of(pod, pools):
            name = resource.name
            yield Finding(
                ID,
                pod.at(resource.field(next(iter(resource.quantities)))),
                "a Pod without a GPU may get the toleration of GPU nodes",
                f'container "{resource.container.name}" requests {name}: 0, for which clusters '
                "with the admission plugin ExtendedResourceToleration, such as GKE, add the "
                f"toleration of GPU nodes ({describe_pools(pools)}), and gpufence then denies the "
                "Pod",
                f"Remove {name}: 0",
                "warn",
            )


def _tolerates_one_of(pod: Pod, pools: Iterable[Pool]) -> bool:
    return any(
        reached_taint(toleration, pool.taints)
        for toleration in pod.spec.tolerations or ()
        for pool in pools
    )


def _alike(pod: Pod, foreign: Iterable[Pool], context: Context) -> Iterable[Sequence[Pool]]:
    """Return the pools in groups with the same finding."""
    groups: dict[tuple[str, str], list[Pool]] = {}
    for pool in foreign:
        said = _subject(pod, pool, context), _lack(pod, pool, context)
        groups.setdefault(said, []).append(pool)
    return groups.values()


def _by_toleration(
    pod: Pod, pools: Sequence[Pool], named: Sequence[Named], context: Context
) -> Iterator[Finding]:
    """Yield a finding for each toleration of a taint of the pools.

    A wildcard is not at fault where the node selection or ``nodeName`` is.
    """
    reachable = [pool for pool in pools if not is_kept_off(pod, pool, context)]
    node = named_node(pod, context.facts.nodes)
    bound = () if node is None else pools_of_node(node, context)
    by_wildcard = [
        pool
        for pool in reachable
        if pool not in bound and not _is_named_wherever_it_matches(pool, pod, named)
    ]
    own = [taint for pool in context.requested_pools for taint in pool.tolerated]
    for index, toleration in enumerate(pod.spec.tolerations or ()):
        candidates = by_wildcard if is_wildcard(toleration) else reachable
        taints = {pool: reached_taint(toleration, pool.taints) for pool in candidates}
        reached = [pool for pool, taint in taints.items() if taint is not None]
        if not reached:
            continue
        if is_wildcard(toleration):
            reason = f"{_subject(pod, reached[0], context)} tolerates every taint"
            remediation = (
                _remediation("remove the host names of GPU nodes", pod, reached, context)
                if pod.kind == "DaemonSet"
                else wildcard_remediation([p for p in reached if _is_excludable(p, context)])
            )
        else:
            reason = f"{_subject(pod, reached[0], context)} tolerates the taint of GPU nodes"
            remediation = _remediation(TOLERATION, pod, reached, context)
            # The Pod needs the toleration for its own pool, and gpufence may have added it.
            if reached_taint(toleration, own) and has_labels(context.requested_pools):
                own_nodes = describe_selection(context.requested_pools)
                remediation = f"Select the nodes of its own pool: {own_nodes}"
        lack = _lack(pod, reached[0], context)
        covered = _covered(toleration)
        yield Finding(
            ID,
            pod.at(f"spec.tolerations[{index}]"),
            reason,
            f"{tolerates(reached)}, but {lack}",
            remediation,
            subjects=frozenset(
                f"{covered} for {taints[pool]} of {pool.name}: {lack}" for pool in reached
            ),
        )


def _is_excludable(pool: Pool, context: Context) -> bool:
    """Return whether labels exclude all known nodes of the pool."""
    if (nodes := context.facts.nodes) is None:
        return True
    known = nodes_of_pools(context.policy, nodes)
    return not known.of(pool) & ~known.with_labels([pool])


def _is_named_wherever_it_matches(pool: Pool, pod: Pod, named: Iterable[Named]) -> bool:
    paths = {each.alternative.path for each in named if pool in each.pools}
    return bool(paths) and not any(
        each.path not in paths and pool.can_meet(each) for each in pod.selection()
    )


def _by_selection(
    pod: Pod, pools: Sequence[Pool], named: Iterable[Named], context: Context
) -> Iterator[Finding]:
    """Yield a finding for each part of the node selection that names the pools."""
    by_path: dict[str, tuple[Named, dict[Pool, None]]] = {}
    for each in named:
        for pool in each.pools:
            if pool in pools:
                path = _selecting_path(each, pool)
                by_path.setdefault(path, (each, {}))[1][pool] = None
    for path, (each, selected) in by_path.items():
        yield Finding(
            ID,
            pod.at(path),
            f"{_subject(pod, pools[0], context)} selects GPU nodes",
            f"{_found(each, selected)}, but {_lack(pod, pools[0], context)}",
            _remediation(SELECTION, pod, selected, context),
        )


def _found(named: Named, pools: Iterable[Pool]) -> str:
    if not named.nodes:
        return selects(pools)
    return (
        f"every node that the Pod selects ({named.nodes} at present) belongs to "
        f"{describe_pools(named.pools)}"
    )


def _by_node_name(
    pod: Pod, pools: Sequence[Pool], closed: Closed, context: Context
) -> Iterator[Finding]:
    """Yield a finding if the Pod's author bound it to a node of the pools.

    Without the scheduler, a NoSchedule taint repels nothing: the kubelet checks NoExecute only
    (``k8s.io/kubernetes/pkg/kubelet/lifecycle/predicate.go``).
    """
    node = named_node(pod, context.facts.nodes)
    if node is None:
        return
    of_node = pools_of_node(node, context)
    own = [
        pool
        for pool in pools
        if pool in of_node and not any(each in of_node for each in open_by(pool, context, closed))
    ]
    if not own:
        return
    yield Finding(
        ID,
        pod.at("spec.nodeName"),
        f"{_subject(pod, own[0], context)} is bound to a GPU node",
        f"nodeName binds the Pod to GPU node {node.name} ({describe_pools(own)}), but "
        f"{_lack(pod, own[0], context)}",
        _remediation("remove nodeName", pod, own, context),
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


def _by_shared_nodes(
    pod: Pod, foreign: Iterable[Pool], closed: Closed, context: Context
) -> Iterator[Finding]:
    """Yield a finding if nodes of a requested pool are open to the Pod that are closed by another.

    The node affinity keeps it off them, unless the policy or the selection prevents that.
    """
    tolerations = pod.spec.tolerations or ()
    for pool in foreign:
        others = [*open_by(pool, context, closed)]
        if len(others) == len(context.requested_pools) or is_kept_off(pod, pool, context):
            continue
        if all(
            any(reached_taint(each, [taint]) for each in tolerations) for taint in pool.fence
        ) and any(
            pool.can_meet(alternative) and not is_within(alternative, others)
            for alternative in pod.selection()
        ):
            yield Finding(
                ID,
                pod.at("spec.affinity"),
                "a GPU Pod can run on nodes of a pool that it may not use",
                f"nodes of {describe_pools(closed)} can belong to pool {pool.name} as well, but "
                f"{_lack(pod, pool, context)}",
                f"Exclude them with {exclusion(pool, next(iter(closed)))} in every term of the "
                "required node affinity, or request access from the cluster administrator",
            )


def _selecting_path(named: Named, pool: Pool) -> str:
    alternative = named.alternative
    for key in pool.selector:
        if key in alternative.labels:
            return f"spec.nodeSelector[{key}]"
    # gpufence may have added the term.
    by_labels = named.nodes and alternative.labels
    return "spec.nodeSelector" if by_labels else alternative.path


def _subject(pod: Pod, pool: Pool, context: Context) -> str:
    if _why_closed(pod, pool, context):
        return "a GPU Pod"
    if context.device_requests:
        return "a Pod with a request for other devices"
    return "a Pod without a GPU request"


def _remediation(remove: str, pod: Pod, pools: Iterable[Pool], context: Context) -> str:
    """Return how the Pod may use the nodes of a pool, if it may, or else what to remove."""
    if pod.kind == "DaemonSet":
        return f"{capitalized(remove)}, or exempt the namespace of this agent in the policy"
    if (zero := _zero_request(pod, pools)) and not of_copy(pod, context):
        return (
            f"Remove {zero}, for which API servers may add the toleration, and {remove} if the "
            "manifest has it"
        )
    if said := of_others(remove, pod, context):
        return said
    usable = [
        pool for pool in pools if context.may_request(pool) and not context.why_excluded(pool)
    ]
    if not usable:
        return capitalized(remove)
    if is_base(pod):
        return base_advice(remove)
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        if entry.source:
            place = pod.at(f"spec.resourceClaims[{index}]")
            return f"Write the name of the claim directly into {place}, without source, or {remove}"
    classes = [] if context.device_requests else unlisted_classes(pod, context)
    if classes or (pod.spec.resource_claims and not context.policy.pools_of_class):
        return class_advice(remove, classes, usable[0].name)
    if unresolved := context.unresolved_claims(pod):
        if group := unresolved[0].group:
            return (
                f"Name a claim in place of template {unresolved[0].claim_name}, in the Pod and in "
                f"PodGroup {group} (the group may have a claim from an earlier template), or "
                f"{remove}"
            )
        return (
            f"Create resource claim {unresolved[0].claim_name} before the Pod if it requests a "
            f"device (for files, add its manifest or use --cluster), or {remove}"
        )
    for named in context.claims(pod):
        if named.claim and len(named.used_requests) < len(named.claim.requests):
            how = "without request" if named.is_used else "under resources.claims"
            return f"Use claim {named.name} in a container, {how}, or {remove}"
    for name, annotation in ignored_annotations(pod, context.policy):
        if any(pool in usable for pool in context.policy.pools_of_annotations[annotation]):
            scheduler = annotation.scheduler_name
            return f"Set schedulerName: {scheduler}, the scheduler that reads {name}, or {remove}"
    for request in context.device_requests:
        own = [pool.selector for pool in request.pools]
        if request.certain and all(pool.selector not in own for pool in usable):
            return f"{usable[0].request} in place of {request.what}, or {remove}"
    if (device := usable[0].example) and (instead := pod.template.request_for(device)):
        return f"{instead}, or {remove}"
    return request_or(remove, usable)


def _zero_request(pod: Pod, pools: Iterable[Pool]) -> str:
    """Return the request for 0 devices of one of the pools; empty if the Pod has none."""
    for resource in pod.device_resources:
        if any(resource.name in pool.resources for pool in pools) and not any(
            resource.nanos.values()
        ):
            return f"{resource.name}: 0"
    return ""


def _covered(toleration: Toleration) -> str:
    """Return which taints with its key a toleration covers."""
    return f"{toleration.operator or 'Equal'} {toleration.value or ''} {toleration.effect or ''}"


def _why_closed(pod: Pod, pool: Pool, context: Context) -> str:
    """Return why the GPU Pod may not use the nodes of the pool, which may be those of its own."""
    if not any(pool in context.policy.neighbors(own) for own in context.requested_pools):
        return context.why_excluded(pool)
    # The node affinity excludes the pool as well, and says nothing.
    why = why_closed(pod, pool, context)
    if not (why or meets(pod, pool, context)):
        why = f"it does not state what pool {pool.name} requires"
    return why or context.why_excluded(pool)


def _lack(pod: Pod, pool: Pool, context: Context) -> str:
    if why := _why_closed(pod, pool, context):
        return why
    lack = "the Pod requests no device of this pool" if context.device_requests else LACK
    return f"{lack}{context.describe_unresolved_claims(pod)}"
