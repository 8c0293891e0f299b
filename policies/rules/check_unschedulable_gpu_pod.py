"""GPU Pod that cannot run on any node."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from policies.candidates import (
    Labels,
    describe_labels,
    describe_others,
    describe_selection,
    failing,
    has_labels,
    labels_of_nodes,
)
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.core_v1 import PodTemplate, ResourceRequirements, Toleration
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.objects import mapping
from policies.kubernetes.paths import descend, text_at
from policies.kubernetes.pod import Pod
from policies.kubernetes.quantity import is_label_value, is_qualified_name
from policies.kubernetes.readers import KUEUE, READERS, TOPOLOGY_ANNOTATIONS, TemplateReader
from policies.kubernetes.scheduling import (
    FENCING_EFFECTS,
    REQUIRED_TERMS,
    Alternative,
    Taint,
    tolerates,
)
from policies.kubernetes.workload import convert
from policies.policy import Pool
from policies.pool_nodes import nodes_of_pools
from policies.reach import (
    can_be_added,
    excludes_pools,
    is_meant_for,
    joining,
    largest_offers,
    may_meet,
    named_node,
    named_pools,
    pools_of_node,
    selects_unlabeled,
    unlabeled_nodes,
)
from policies.requests import DeviceRequest, NamedClaim, describe_counts, device_peaks, offered_by
from policies.vocabulary import QUEUE_LABEL
from policies.wording import listing

ID = "unschedulable-gpu-pod"

_OPERATORS = (None, "", "Equal", "Exists", "Lt", "Gt")
_EFFECTS = (None, "", "NoSchedule", "PreferNoSchedule", "NoExecute")
_PASSES = re.compile(
    "^(node[.](cloudprovider[.])?kubernetes[.]io/|ToBeDeleted|DeletionCandidate|karpenter[.]sh/)"
    "|not-?(ready|installed)|un(ready|healthy|available)|start-?up|quarantin|maintenance|repair|drain"
    "|remediat|cordon|readiness"
)
"""Keys of taints that nodes have for a while: a Pod waits until the taint is gone."""
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each reason why the Pod can never run."""
    reader = READERS.get(pod.kind)
    if reader and not context.device_requests:
        yield from _agent(pod, reader, context)
    requested = pod.device_resources or context.device_requests
    if not (requested or pod.spec.resource_claims or pod.spec.resources):
        return
    if pod.spec.resources:
        yield from _pod_level(pod, pod.spec.resources, context)
    if not context.request.fail_closed:
        # An API server validates an object before it calls a validating webhook.
        yield from _invalid_tolerations(pod)
    if pod.spec.resource_claims:
        yield from _old_claims(pod)
        yield from _malformed_claims(pod, context)
        yield from _unused_claims(pod, context)
    requests = [request for request in context.distinct_requests if request.certain]
    conflicts = list(_of_other_nodes(requests)) if len(requests) > 1 else []
    if conflicts:
        yield from (_two_pools(requests[0], other) for other in conflicts)
        return
    nodes = context.facts.nodes
    bound = pod.spec.node_name
    for request in requests:
        if not (nodes is None or bound) and (found := unlabeled_nodes(request, nodes, context)):
            yield _unlabeled(request, nodes.nodes(found))
        if excludes_pools(pod, request, context):
            yield _excluded(pod, request, context)
        if reader := reader or _reader_of(pod, context):
            yield from _untolerated(pod, request.pools[0], f"requests {request.what}", reader)
    if (node := named_node(pod, nodes)) is not None:
        yield from _bound_elsewhere(pod, node, requests, context)
    if nodes is None or bound:
        return
    yield from _too_large(pod, requests, context)
    for request in requests:
        yield from _unmet(pod, request, nodes, context)
        yield from _repelled(pod, request, nodes, context)


def _invalid_tolerations(pod: Pod) -> Iterator[Finding]:
    """Yield a finding for each toleration that the API server rejects.

    Source: ``ValidateTolerations`` in ``k8s.io/kubernetes/pkg/apis/core/validation``.
    """
    for index, each in enumerate(pod.spec.tolerations or ()):
        if each.key and not is_qualified_name(each.key):
            field, has = ".key", f"the key {each.key}"
            cure = "Set the key of the taint: kubectl describe node NODE prints it"
        elif each.operator == "Exists" and each.value:
            field, has = ".value", f"operator Exists and the value {each.value}"
            cure = "Remove the value, or set operator: Equal"
        elif not each.key and each.operator != "Exists":
            field, has = "", "no key, and an operator other than Exists"
            cure = "Set the key of the taint"
        elif each.operator not in _OPERATORS:
            field, has = ".operator", f"the operator {each.operator}"
            cure = "Set operator: Exists, or operator: Equal with a value"
        elif each.effect not in _EFFECTS:
            field, has = ".effect", f"the effect {each.effect}"
            cure = "Set effect: NoSchedule, or remove the effect"
        elif each.toleration_seconds is not None and each.effect != "NoExecute":
            field, has = ".tolerationSeconds", "tolerationSeconds without effect NoExecute"
            cure = "Remove tolerationSeconds"
        elif not _is_comparable(each):
            wrong = f"the value {each.value}, which is no value of a taint"
            field, has = ".value", wrong if each.value else "no number"
            cure = "Set the value of the taint, or set operator: Exists without a value"
        else:
            continue
        yield Finding(
            ID,
            pod.at(f"spec.tolerations[{index}]{field}"),
            "a toleration is invalid",
            f"toleration {index} has {has}: the API server rejects the Pod",
            cure,
        )


def _is_comparable(toleration: Toleration) -> bool:
    """Return whether the value is a whole number for Lt and Gt, and a label's value otherwise."""
    value = toleration.value or ""
    if toleration.operator in ("Lt", "Gt"):
        return _WHOLE_NUMBER.fullmatch(value) is not None
    return is_label_value(value)


def _old_claims(pod: Pod) -> Iterator[Finding]:
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        names = entry.source if isinstance(entry.source, dict) else {}
        if entry.resource_claim_name or entry.resource_claim_template_name or not names:
            continue
        field = next(iter(names))
        yield Finding(
            ID,
            pod.at(f"spec.resourceClaims[{index}].source"),
            "a resource claim has the form before Kubernetes 1.31",
            f"claim {entry.name} is named under source, which API servers drop: they then reject "
            "the Pod, because its entry names no claim",
            f"Write {field}: {names[field]} next to name, without source",
        )


def _malformed_claims(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each claim that API servers reject, and a warning for an empty one."""
    for named in context.claims(pod):
        claim = named.claim
        if claim and claim.problem:
            yield Finding(
                ID,
                named.path,
                "a resource claim has a form that Kubernetes does not accept",
                f"{claim.problem}. The Pod waits for the claim, or starts without a device",
                claim.cure,
            )
        elif claim and named.is_used and not any(claim.requests):
            yield Finding(
                ID,
                named.path,
                "a resource claim requests nothing",
                f"claim {named.claim_name} has no request that names a device class: its Pod gets "
                "no device, and is no GPU Pod",
                f"Add a request with a deviceClassName to claim {named.claim_name}, or remove the "
                "claim from the Pod",
                "warn",
            )


def _reader_of(pod: Pod, context: Context) -> TemplateReader | None:
    """Return who reads the template of a GPU Pod as it is written, as other objects tell."""
    facts = context.facts
    if pod.kind == "PodTemplate":
        name = text_at(pod.template.root, "metadata", "name")
        return facts.template_readers.get((context.request.namespace, name))
    if pod.kind == "Pod":
        return None
    labels = (
        mapping(descend(holder, ("metadata", "labels"))) for _, holder in pod.template.holders()
    )
    is_topological = not TOPOLOGY_ANNOTATIONS.isdisjoint(pod.annotations)
    if not (is_topological or (facts.topologies and any(QUEUE_LABEL in each for each in labels))):
        return None
    fence = [taint for pool in context.requested_pools for taint in pool.fence]
    added = [each for flavor in facts.topologies for each in flavor.tolerations or ()]
    return None if all(any(tolerates(t, taint) for t in added) for taint in fence) else KUEUE


def _agent(pod: Pod, reader: TemplateReader, context: Context) -> Iterator[Finding]:
    """Yield a warning for an agent of GPU nodes, such as an exporter, that gets no Pod there."""
    if pod.spec.node_selector or pod.spec.affinity:
        named = named_pools(pod, context.policy.pools, context)
        for pool in dict.fromkeys(pool for each in named for pool in each.pools):
            yield from _untolerated(pod, pool, "selects GPU nodes", reader)


def _untolerated(pod: Pod, pool: Pool, what: str, reader: TemplateReader) -> Iterator[Finding]:
    """Yield a warning if the template, as it is written, does not tolerate the pool's taints."""
    spec = mapping(pod.template.raw.get("spec"))
    written = convert({"spec": {"tolerations": spec.get("tolerations")}}, PodTemplate)
    tolerations = (written.spec.tolerations if written.spec else None) or ()
    for taint in pool.tolerated:
        if any(tolerates(each, taint) for each in tolerations):
            continue
        value = {"operator": "Exists"} if taint.value is None else {"value": taint.value}
        toleration = {"key": taint.key, **value, "effect": taint.effect}
        place = pod.at("spec.tolerations")
        yield Finding(
            ID,
            place,
            reader.reason,
            f"the {pod.kind.partition('.')[0]} {what}, and its template does not tolerate {taint} "
            f"of pool {pool.name}. {reader.name} judges the template as it is written, and "
            f"{reader.consequence}",
            f"Add {json.dumps(toleration)} to {reader.place}",
            "warn",
        )


def _unmet(
    pod: Pod, request: DeviceRequest, nodes: NodeIndex, context: Context
) -> Iterator[Finding]:
    """Yield a warning if no node of the pools meets the Pod's own selection, today or later."""
    if not has_labels(request.pools):
        return
    of_pools = nodes_of_pools(context.policy, nodes).with_labels(request.pools)
    templates = joining(request.pools, context.facts)
    if not (of_pools or templates):
        yield from _without_labels(pod, request, context)
        return
    if of_pools & pod.selected_nodes(nodes).all:
        return
    if selects_unlabeled(pod, request, context):
        return
    if failing("selection", pod, request, context):
        return
    if can_be_added(pod, request.pools, {}, context.facts):
        return

    def is_met(alternative: Alternative) -> bool:
        accepted = nodes.accepted_by(alternative) & of_pools
        return bool(accepted) or any(may_meet(template, alternative) for template in templates)

    label, path = _unmet_part(pod, is_met)
    yield Finding(
        ID,
        pod.at(path),
        "no known node of the pool meets the node selection",
        f"the Pod requests {request.what}, and no known node of {request.pool_names} has "
        f"{label}; the Pod stays Pending until such a node joins the cluster",
        "Correct the node selection, or label a node",
        "warn",
    )


def _without_labels(pod: Pod, request: DeviceRequest, context: Context) -> Iterator[Finding]:
    """Yield a warning if nodes are added for the pools, and an autoscaler knows no label of them.

    Labels that feature discovery sets on a node that is up do not make an autoscaler add one.
    """
    meant = [
        template.name
        for template in context.facts.templates
        if any(is_meant_for(template, pool) for pool in request.pools)
    ]
    if not meant or selects_unlabeled(pod, request, context):
        return
    labels = " or ".join(map(describe_labels, request.pools))
    yield Finding(
        ID,
        request.path,
        "no known node or node template has the labels of the pool",
        f"the Pod requests {request.what}, and needs a node with {labels} "
        f"({request.pool_names}): no node has it, and {meant[0]} does not promise it, so the "
        "Pod stays Pending until such a node joins the cluster",
        f"Have the cluster administrator add {labels} to the labels of the node template",
        "warn",
    )


def _repelled(
    pod: Pod, request: DeviceRequest, nodes: NodeIndex, context: Context
) -> Iterator[Finding]:
    """Yield a warning if each node that the Pod selects has a taint that keeps the Pod off."""
    of_pools = nodes_of_pools(context.policy, nodes).with_labels(request.pools)
    selected = of_pools & pod.selected_nodes(nodes).all

    def repels(taint: Taint) -> bool:
        return (
            taint.effect in FENCING_EFFECTS
            and not _PASSES.search(taint.key)
            and not any(each.includes(taint) for each in context.policy.quarantine_taints)
            and not any(tolerates(each, taint) for each in pod.spec.tolerations or ())
        )

    if not selected or selected & ~nodes.repelling(repels):
        return
    if pod.kind == "DaemonSet" or selects_unlabeled(pod, request, context):
        return
    for template in joining(request.pools, context.facts):
        if not any(map(repels, template.taints)):
            return
    first = next(nodes.nodes(selected))
    taint = next(filter(repels, first.taints))
    others = ", or have the cluster administrator add it to tolerate of the pool in the policy"
    if any(own.includes(taint) for pool in request.pools for own in pool.tolerated):
        others = ""
    shown = replace(taint, value=taint.value or None)
    yield Finding(
        ID,
        pod.at("spec.tolerations"),
        "the Pod tolerates no known node of the pool",
        f"the Pod requests {request.what}, and each known node of {request.pool_names} that it "
        f"selects has a taint that it does not tolerate, such as {shown} of node {first.name}; the "
        "Pod stays Pending until a node without such a taint joins the cluster",
        f"Add a toleration for {taint.key}{others}",
        "warn",
    )


def _unmet_part(pod: Pod, is_met: Callable[[Alternative], bool]) -> tuple[str, str]:
    """Return the first part of the node selection that no node of the pools meets, and its path."""
    for alternative in pod.selection():
        for key, value in alternative.labels.items():
            if not is_met(Alternative({key: value}, (), (), "")):
                return f"{key}={value}", f"spec.nodeSelector[{key}]"
        for each in alternative.expressions:
            if not is_met(Alternative({}, (each,), (), "")):
                values = f" {', '.join(each.values)}" if each.values else ""
                return f"{each.key} {each.operator}{values}", alternative.path
    # gpufence may have added the terms.
    place = "spec.nodeSelector" if pod.spec.node_selector else REQUIRED_TERMS
    return "all labels of its node selection", place


def _bound_elsewhere(
    pod: Pod, node: Node, requests: Iterable[DeviceRequest], context: Context
) -> Iterator[Finding]:
    pools = pools_of_node(node, context)
    for request in requests:
        is_accessible = not node.remote.isdisjoint(request.devices)
        if not (is_accessible or any(pool in pools for pool in request.pools)):
            yield Finding(
                ID,
                pod.at("spec.nodeName"),
                "the Pod is bound to a node without the devices",
                f"the Pod requests {request.what}, which the nodes of {request.pool_names} "
                f"offer, but node {node.name} does not belong to "
                f"{'that pool' if len(request.pools) == 1 else 'these pools'}",
                "Remove nodeName. The scheduler then finds a node with the device",
            )


def _unlabeled(request: DeviceRequest, unlabeled: Iterable[Node]) -> Finding:
    """Return a warning: the Pod can run, because gpufence then adds no node affinity."""
    names = [node.name for node in islice(unlabeled, 4)]
    shown = f"{', '.join(names[:3])}{', ...' if names[3:] else ''}"
    return Finding(
        ID,
        request.path,
        "no node with the device has the labels of its pool",
        f"the Pod requests {request.what}, which nodes offer ({shown}), but no node has "
        f"{' or '.join(map(describe_labels, request.pools))} "
        f"({request.pool_names}), so gpufence adds no node affinity",
        "The Pod can run. The cluster administrator should correct nodeSelector of the pool in "
        "the policy, or remove it from a pool of a DRA driver: gpufence policy discover prints it",
        "warn",
    )


def _of_other_nodes(requests: Sequence[DeviceRequest]) -> Iterator[DeviceRequest]:
    """Yield the requests that no node can meet together with those before."""
    common: frozenset[Labels] = frozenset()
    for request in requests:
        if not has_labels(request.pools):
            continue
        nodes = labels_of_nodes(request.pools)
        if common and common.isdisjoint(nodes):
            yield request
        else:
            common = common & nodes or nodes


def _too_large(pod: Pod, requests: Sequence[DeviceRequest], context: Context) -> Iterator[Finding]:
    """Yield a finding if no node has all devices that the Pod needs at its peak.

    It is a warning: the nodes of a cluster change, and the policy does not describe their size.
    """
    request = next((request for request in requests if request.resource), None)
    if request is None:
        return
    needed = device_peaks(pod, context.policy)
    largest = largest_offers(pod, request.pools, needed, context)
    missing = [name for name, count in largest.items() if count == 0]
    if missing:
        offered = f"none offers {' or '.join(missing)}"
        names = dict.fromkeys(n for pool in request.pools for n in offered_by(pool, context))
        joins, remediation = "a node with it", f"Request a device of these nodes: {listing(names)}"
    else:
        offered = f"each offers at most {describe_counts(largest, 'or')}"
        joins = "a larger node"
        remediation = "Split the work into several Pods, each of which fits a node"
        if len(largest) == 1:
            remediation = (
                f"Request {describe_counts(largest)} or fewer, or split the work into several Pods"
            )
    if largest:
        yield Finding(
            ID,
            request.path,
            "no node has enough devices",
            f"the Pod needs {describe_counts(needed)} on one node, but of the nodes that it "
            f"selects in {request.pool_names}, {offered}; the Pod stays Pending until {joins} "
            "joins the cluster",
            remediation,
            "warn",
        )


def _pod_level(pod: Pod, resources: ResourceRequirements, context: Context) -> Iterator[Finding]:
    limits, requests = resources.limits or {}, resources.requests or {}
    for name in sorted({*limits, *requests}):
        if context.pools_of_resource(name):
            side = "limits" if name in limits else "requests"
            yield Finding(
                ID,
                pod.at(f"spec.resources.{side}[{name}]"),
                "a device is requested at Pod level",
                f"spec.resources requests {name}, but Kubernetes accepts only CPU, memory and huge "
                "pages at Pod level",
                f"Move {name} to resources.limits of the container that uses the device",
            )


def _unused_claims(pod: Pod, context: Context) -> Iterator[Finding]:
    for named in context.claims(pod):
        offered = context.policy.pools_of_class.keys()
        used = {name for request in named.used_requests for name in request}
        requests = named.claim.requests if named.claim else ()
        classes = {name for request in requests for name in request}
        if used.isdisjoint(offered) and not classes.isdisjoint(offered):
            yield Finding(
                ID,
                named.path,
                "no container uses a claim for GPUs",
                f"claim {named.claim_name} on device class {', '.join(sorted(classes))} would "
                "take a device that no container gets, so it does not make this a GPU Pod",
                f"{_use(named)} of the container that needs the device, or remove the claim",
            )


def _use(named: NamedClaim) -> str:
    """Return how a container uses the whole claim: it may name the claim once only."""
    if named.uses:
        return f"Remove request from the entry name: {named.name} in resources.claims"
    return f"Add name: {named.name} to resources.claims"


def _two_pools(first: DeviceRequest, other: DeviceRequest) -> Finding:
    return Finding(
        ID,
        other.path,
        "the Pod requests devices of two pools",
        f"{_offers(first)} {first.what} (at {first.path}) and {_offers(other)} {other.what}, but a "
        "node belongs to one pool only",
        "Split the work into one Pod for each pool",
    )


def _offers(request: DeviceRequest) -> str:
    return f"{request.pool_names} offer{'s' if len(request.pools) == 1 else ''}"


def _excluded(pod: Pod, request: DeviceRequest, context: Context) -> Finding:
    pools = request.pools
    pool = pools[0]
    for key, value in (pod.spec.node_selector or {}).items():
        if (accepted := pool.selector.get(key)) and value not in accepted:
            path, reason = f"spec.nodeSelector[{key}]", f"its nodeSelector requires {key}={value}"
            break
    else:
        path = REQUIRED_TERMS
        reason = "no term of its required node affinity can match these nodes"
    if not pool.selector:
        instead = ""
    elif len(pools) == 1:
        instead = ": gpufence adds the node affinity for this pool"
    else:
        instead = f", or choose a pool: set {describe_selection(pools)}"
    named = (p for each in named_pools(pod, context.policy.pools, context) for p in each.pools)
    usable = next(filter(context.may_request, named), None)
    if usable and not request.claim:
        instead += (
            f". Or keep it, and request a device of pool {usable.name} in place of {request.what}: "
            f"{' or '.join(offered_by(usable, context))}"
        )
    return Finding(
        ID,
        pod.at(path),
        "the node selection excludes the GPU nodes",
        f"the Pod requests {request.what}, which the nodes of pool {pool.name} offer "
        f"({describe_labels(pool)}), but {reason}{describe_others(pools, 'selection', request)}",
        f"Remove the conflicting node selection{instead}",
    )
