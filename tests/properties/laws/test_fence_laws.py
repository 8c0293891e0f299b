"""What the mutations and the fence promise about nodes, with kube-scheduler's code as the judge."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import strategies
from laws.profile import law
from oracle.driver import Oracle
from policies.engine import decide, validate
from policies.facts import Facts, Request
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.scheduling import FENCING_EFFECTS, Alternative
from policies.policy import Policy, Pool
from specs import JSON
from strategies import as_taint
from typed import alternatives, required_terms, tolerates

pytestmark = pytest.mark.timeout(3600)

POLICIES = strategies.policies()
policies = st.sampled_from(list(POLICIES.values()))
SINGLE = ("one taint", "two labels", "several values of a label", "any value of a label")
FENCED = [policy for policy in POLICIES.values() if all(pool.taints for pool in policy.pools)]


@law
@given(st.data(), policies | strategies.overlapping_policies(), strategies.node_sets())
def test_a_mutated_gpu_pod_fits_exactly_the_selected_nodes_of_its_pools(
    oracle: Oracle, data: st.DataObject, policy: Policy, nodes: list[JSON]
) -> None:
    """Nodes of its pools that are closed to it, by another pool, count as nodes of none.

    A Pod is denied for its selection only where that leaves no node of its pools.
    """
    device = data.draw(st.sampled_from([min(pool.resources.exact) for pool in policy.pools]))
    pod = data.draw(strategies.gpu_pods(device))
    count = data.draw(st.sampled_from([1, 2]))
    pod["spec"]["containers"][0]["resources"]["limits"][device] = count
    closed = [pool for pool in policy.pools if is_closed(pool, "default", device, count)]
    offering = [p for p in policy.pools if device in p.resources and p not in closed]
    assume(offering)
    fenced = [data.draw(st.lists(strategies.fenced_nodes(p), max_size=2)) for p in policy.pools]
    nodes = [*nodes, *itertools.chain.from_iterable(fenced)]
    facts = Facts()
    if data.draw(st.booleans()):
        nodes = [*{node["metadata"]["name"]: node for node in nodes}.values()]
        facts = Facts(nodes=NodeIndex(map(strategies.as_node, nodes)))
    decision = decide(pod, policy, facts=facts)
    denied = any(
        finding.reason == "the node selection excludes the GPU nodes"
        or (
            finding.rule == "pool-trespass"
            and any(f"pool {pool.name} " in finding.detail for pool in closed)
        )
        for finding in decision.findings
    )
    before, after = oracle.feasible(pod, nodes), oracle.feasible(decision.mutated, nodes)
    candidates = [pool for pool in offering if pool.name in decision.pools]
    for node, author, verdict in zip(nodes, before, after, strict=True):
        selected = author.affinity and author.node_name
        of_pool = any(belongs(node, own) and is_open(node, own, closed) for own in offering)
        may_run = selected and of_pool and tolerated(pod, node, candidates)
        event(f"feasible: {verdict.feasible}, closed: {len(closed)} of {len(policy.pools)}")
        event(f"denied: {denied}, node of a closed pool: {any(belongs(node, p) for p in closed)}")
        assert not may_run if denied else verdict.feasible is may_run


@law
@given(st.data(), strategies.overlapping_policies(), strategies.node_sets())
def test_a_gpu_pod_is_bound_to_exactly_the_nodes_that_no_pool_closes_to_it(
    data: st.DataObject, policy: Policy, nodes: list[JSON]
) -> None:
    device = data.draw(st.sampled_from([min(pool.resources.exact) for pool in policy.pools]))
    closed = [pool for pool in policy.pools if is_closed(pool, "default", device, 1)]
    offering = [p for p in policy.pools if device in p.resources and p not in closed]
    assume(offering)
    fenced = [data.draw(st.lists(strategies.fenced_nodes(p), max_size=2)) for p in policy.pools]
    nodes = [*{n["metadata"]["name"]: n for n in (*nodes, *itertools.chain(*fenced))}.values()]
    facts = Facts(nodes=NodeIndex(map(strategies.as_node, nodes)))
    for node in nodes:
        containers = [{"name": "c", "resources": {"limits": {device: 1}}}]
        spec = {"nodeName": node["metadata"]["name"], "containers": containers}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        of_pool = [own for own in offering if belongs(node, own)]
        bound = any(is_open(node, own, closed) for own in of_pool)
        found = decide(pod, policy, facts=facts).findings
        event(f"of a pool: {bool(of_pool)}, open: {bound}")
        if of_pool:
            assert bound is not any(each.path == "spec.nodeName" for each in found)


@law
@given(st.data(), st.sampled_from(FENCED), strategies.facts())
def test_an_allowed_pod_without_a_request_fits_no_fenced_node(
    oracle: Oracle, data: st.DataObject, policy: Policy, facts: Facts
) -> None:
    pod = data.draw(strategies.pods())
    if data.draw(st.booleans()):
        pod["spec"]["tolerations"] = data.draw(st.lists(strategies.tolerations(), min_size=1))
    # As the webhook decides: in a file, a claim that is unknown makes the verdict unknown.
    decision = decide(pod, policy, Request(fail_closed=True), facts)
    reached = {f.path for f in decision.findings if f.rule == "pool-trespass"}
    assume(not reached)
    event(f"with tolerations: {bool(pod['spec'].get('tolerations'))}")
    for pool in policy.pools:
        if pool.name in decision.pools:
            continue
        nodes = data.draw(st.lists(strategies.fenced_nodes(pool), min_size=1, max_size=3))
        # A node of two pools is the business of the one whose device is requested.
        nodes = [
            n
            for n in nodes
            if not any(belongs(n, p) for p in policy.pools if p.name in decision.pools)
        ]
        for gate in (False, True):
            verdicts = oracle.feasible(decision.mutated, nodes, comparison_operators=gate)
            assert not any(verdict.feasible for verdict in verdicts)


@law
@given(st.data(), st.sampled_from(FENCED), strategies.node_sets())
def test_an_allowed_pod_without_a_request_fits_no_known_gpu_node(
    oracle: Oracle, data: st.DataObject, policy: Policy, others: list[JSON]
) -> None:
    """The same, where the cluster's nodes are facts and widen or narrow what a Pod may say."""
    pod = data.draw(strategies.pods(devices=(), claims=False))
    pod["spec"]["tolerations"] = data.draw(st.lists(strategies.tolerations(), max_size=2))
    fenced = [
        node
        for pool in policy.pools
        for node in data.draw(st.lists(strategies.fenced_nodes(pool), max_size=2))
    ]
    plain = [node for node in others if not any(is_of(node, p, policy) for p in policy.pools)]
    late = data.draw(
        st.lists(st.sampled_from(fenced).map(unlabeled), max_size=1) if fenced else st.just([])
    )
    fenced += late
    nodes = list({node["metadata"]["name"]: node for node in [*plain, *fenced]}.values())
    assume(nodes)
    facts = Facts(nodes=NodeIndex(map(strategies.as_node, nodes)))
    decision = decide(pod, policy, facts=facts)
    found = [f for f in decision.findings if f.rule == "pool-trespass"]
    event(f"a trespass: {bool(found)}, mutated: {bool(decision.operations)}")
    assume(not found)
    for node, verdict in zip(nodes, oracle.feasible(decision.mutated, nodes), strict=True):
        assert not verdict.feasible or not any(is_of(node, p, policy) for p in policy.pools)


@law
@given(st.data(), st.sampled_from([POLICIES[name] for name in SINGLE]))
def test_a_pod_denied_for_a_toleration_fits_a_possible_fenced_node(
    oracle: Oracle, data: st.DataObject, policy: Policy
) -> None:
    pod = data.draw(strategies.pods(devices=(), claims=False))
    pod["spec"]["tolerations"] = data.draw(st.lists(strategies.tolerations(), max_size=2))
    assume(not any(map(is_refused_by_the_api, pod["spec"]["tolerations"])))
    found = [f for f in validate(pod, policy).findings if f.rule == "pool-trespass"]
    assume(any("tolerations" in finding.path for finding in found))
    (pool,) = policy.pools
    nodes = could_be(pod["spec"], pool)
    verdicts = oracle.feasible(pod, nodes, comparison_operators=True)
    event(f"fits one of {len(nodes) // 100}00 nodes or more")
    assert any(verdict.feasible for verdict in verdicts)


@law
@given(st.data(), st.sampled_from([POLICIES[name] for name in SINGLE]), strategies.node_sets())
def test_with_known_nodes_a_pod_is_denied_exactly_if_it_targets_the_pool(
    oracle: Oracle, data: st.DataObject, policy: Policy, others: list[JSON]
) -> None:
    """An allowed Pod fits no node of the pool; a denied one that fits none has a known reason."""
    (pool,) = policy.pools
    pod = data.draw(strategies.pods(devices=(), claims=False))
    pod["spec"]["tolerations"] = data.draw(st.lists(strategies.tolerations(), max_size=2))
    assume(not any(map(is_refused_by_the_api, pod["spec"]["tolerations"])))
    some = strategies.fenced_nodes(pool)
    fenced = data.draw(st.lists(some | some.map(unlabeled), max_size=2))
    plain = [node for node in others if not is_of(node, pool, policy)]
    nodes = list({node["metadata"]["name"]: node for node in [*plain, *fenced]}.values())
    assume(nodes)
    names = [node["metadata"]["name"] for node in nodes]
    pod["spec"]["nodeName"] = data.draw(st.sampled_from(["", "", "", "unheard-of", *names]))
    facts = Facts(nodes=NodeIndex(map(strategies.as_node, nodes)))
    found = [f for f in validate(pod, policy, facts=facts).findings if f.rule == "pool-trespass"]
    assert is_bound(pod, pool, nodes, policy) is any(
        finding.path == "spec.nodeName" for finding in found
    )
    verdicts = oracle.feasible(pod, nodes)
    fits = any(
        verdict.feasible and is_of(node, pool, policy)
        for node, verdict in zip(nodes, verdicts, strict=True)
    )
    reasons = {
        "is bound to it": is_bound(pod, pool, nodes, policy),
        "asks for its labels": any(
            asks_by_label(oracle, way, pool) for way in each_way(pod["spec"])
        ),
        "asks for its nodes": any(
            asks_by_node(oracle, way, pool, nodes, policy) for way in each_way(pod["spec"])
        ),
        "may be placed there": may_be_placed(oracle, pod, pool, nodes, policy),
    }
    event(f"found: {bool(found)}, fits: {fits}, {[why for why in reasons if reasons[why]]}")
    assert bool(found) is any(reasons.values())
    assert found or not fits


def is_bound(pod: JSON, pool: Pool, nodes: list[JSON], policy: Policy) -> bool:
    """Return whether the author bound the Pod to a node of the pool, without a scheduler."""
    name = pod["spec"].get("nodeName")
    return any(node["metadata"]["name"] == name and is_of(node, pool, policy) for node in nodes)


def asks_by_label(oracle: Oracle, way: JSON, pool: Pool) -> bool:
    """Return whether a node of the pool will do that would not if it lacked any of the labels."""
    nodes = could_be(way, pool)
    without = [[stripped(node, key) for node in nodes] for key in pool.selector]
    accepted, *lacking = (
        [verdict.affinity for verdict in oracle.feasible({"spec": way}, each)]
        for each in (nodes, *without)
    )
    return any(will and not any(others) for will, *others in zip(accepted, *lacking, strict=True))


def asks_by_node(oracle: Oracle, way: JSON, pool: Pool, nodes: list[JSON], policy: Policy) -> bool:
    """Return whether some of the known nodes will do, but not all, and only such of the pool."""
    selected = selects(oracle, way, nodes)
    return 0 < len(selected) < len(nodes) and all(is_of(node, pool, policy) for node in selected)


def may_be_placed(oracle: Oracle, pod: JSON, pool: Pool, nodes: list[JSON], policy: Policy) -> bool:
    """Return whether the scheduler could place the Pod on the pool, today or when it has grown.

    Not where it is bound to a known node outside of it, or every ORed term selects known nodes and
    none of it, unless its selection accepts every node that the pool may get.
    """
    name, spec = pod["spec"].get("nodeName"), pod["spec"]
    bound = [node for node in nodes if node["metadata"]["name"] == name]
    if any(not is_of(node, pool, policy) for node in bound):
        return False
    unbound = {"spec": {key: value for key, value in spec.items() if key != "nodeName"}}

    def fits(some: list[JSON]) -> bool:
        return any(v.feasible for v in oracle.feasible(unbound, some, comparison_operators=True))

    selected = selects(oracle, spec, nodes)
    late = [n for n in selected if is_of(n, pool, policy) and not belongs(n, pool)]
    if not bound and any(fits(with_taint(node, spec, pool)) for node in late):
        return True
    ways = [way for way in each_way(spec) if selects(oracle, way, could_be(way, pool))]
    known = all(selects(oracle, way, nodes) for way in ways)
    of_pool = any(belongs(node, pool) for node in selected)
    if known and not of_pool and not accepts_every_node_of(oracle, spec, pool):
        return False
    return fits(could_be(spec, pool))


def accepts_every_node_of(oracle: Oracle, spec: JSON, pool: Pool) -> bool:
    """Return whether one ORed term of the node selection accepts every node of the pool."""
    named = (spec.get("nodeSelector") or {}).items()
    return all(pool.selector.get(key) == (value,) for key, value in named) and any(
        (nodes := could_be(way, pool)) and selects(oracle, way, nodes) == nodes
        for way in each_way(spec)
    )


def selects(oracle: Oracle, spec: JSON, nodes: list[JSON]) -> list[JSON]:
    """Return the nodes that the Pod's node selection accepts."""
    verdicts = oracle.feasible({"spec": spec}, nodes)
    return [node for node, verdict in zip(nodes, verdicts, strict=True) if verdict.affinity]


def each_way(spec: JSON) -> Iterator[JSON]:
    """Yield the spec with each of its ORed terms alone."""
    terms = required_terms(spec)
    if terms is None:
        yield spec
    for term in terms or ():
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        yield {**spec, "affinity": {"nodeAffinity": required}}


def could_be(spec: JSON, pool: Pool) -> list[JSON]:
    """Return every fenced node of the pool that the words of the spec tell apart."""
    values = taint_values(spec)
    return [node for way in alternatives(spec) for node in described(way, pool, values)]


def with_taint(node: JSON, spec: JSON, pool: Pool) -> list[JSON]:
    """Return the node with the taint of the pool, by each value that the spec tells apart."""
    (taint,) = pool.taints
    taints = [{"key": taint.key, "value": v, "effect": taint.effect} for v in taint_values(spec)]
    return [{**node, "spec": {"taints": [each]}} for each in taints]


def taint_values(spec: JSON) -> list[str]:
    values = {toleration.get("value") or "" for toleration in spec["tolerations"]}
    # Numbers next to the named ones meet Lt and Gt. No taint's value begins with a dash.
    numbers = {int(value) for value in values if value.isdigit()}
    near = {str(number + step) for number in numbers for step in (-1, 1) if number + step >= 0}
    return sorted({""} | values | near)


def stripped(node: JSON, key: str) -> JSON:
    """Return the node without the label."""
    labels = {k: v for k, v in node["metadata"]["labels"].items() if k != key}
    return {**node, "metadata": {**node["metadata"], "labels": labels}}


def belongs(node: JSON, pool: Pool) -> bool:
    labels: JSON = node["metadata"]["labels"]
    return all(
        key in labels and (not values or labels[key] in values)
        for key, values in pool.selector.items()
    ) and not any(
        labels[each.key] in (each.values or [labels[each.key]])
        for each in pool.without
        if each.key in labels
    )


def is_open(node: JSON, own: Pool, closed: list[Pool]) -> bool:
    """Return whether a node of a Pod's pool belongs to none that is closed to the Pod.

    If all nodes of its pool belong to one with other devices, these devices tell the two apart.
    """
    return not any(belongs(node, pool) for pool in closed if not pool.includes(own))


def is_closed(pool: Pool, namespace: str, device: str, count: int) -> bool:
    too_large = device in pool.resources and count > (pool.largest_request or count)
    return too_large or not is_allowed(pool, namespace)


def is_of(node: JSON, pool: Pool, policy: Policy) -> bool:
    """Return whether the node is of the pool: by its labels, or by its taint until it has them."""
    if any(belongs(node, each) for each in policy.pools):
        return belongs(node, pool)
    taints = [as_taint(taint) for taint in node["spec"]["taints"]]
    return any(
        (wanted.key, wanted.effect) == (taint.key, taint.effect)
        and wanted.value in (None, taint.value)
        for wanted in pool.taints
        for taint in taints
        if taint.effect in FENCING_EFFECTS
    )


def unlabeled(node: JSON) -> JSON:
    """Return the node as it was before it got its labels."""
    return {**node, "metadata": {**node["metadata"], "labels": {}}}


def is_allowed(pool: Pool, namespace: str) -> bool:
    return pool.allowed_namespaces is None or namespace in pool.allowed_namespaces.names


def tolerated(pod: JSON, node: JSON, pools: list[Pool]) -> bool:
    """Return whether every taint that keeps Pods away is the author's to tolerate, or a pool's."""
    taints = map(as_taint, node["spec"]["taints"])
    own = pod["spec"].get("tolerations") or []
    return all(
        any(tolerates(toleration, taint) for toleration in own)
        or any(
            (wanted.key, wanted.effect) == (taint.key, taint.effect)
            and wanted.value in (None, taint.value)
            for pool in pools
            for wanted in pool.taints
        )
        for taint in taints
        if taint.effect in FENCING_EFFECTS
    )


def is_refused_by_the_api(toleration: JSON) -> bool:
    """Return whether no Pod has such a toleration: an invalid number, or nothing is below it."""
    value = toleration.get("value") or ""
    return toleration.get("operator") in ("Lt", "Gt") and value in ("05", "-1", "+5")


def described(way: Alternative, pool: Pool, taint_values: list[str]) -> Iterator[JSON]:
    """Yield every node of the pool that the words of a node selection tell apart."""
    mentioned: dict[str, set[str]] = {}
    for expression in way.expressions:
        mentioned.setdefault(expression.key or "", set()).update(expression.values or ())
    free = {k: candidates(values) for k, values in mentioned.items() if k not in way.labels} | {
        key: [*values] or candidates(mentioned.get(key, set()) | {way.labels.get(key, "other")})[1:]
        for key, values in pool.selector.items()
    }
    names = {"other-1"}.union(*(field.values or () for field in way.fields)) - {""}
    (taint,) = pool.taints
    for values in itertools.product(*free.values()):
        chosen = {k: v for k, v in zip(free, values, strict=True) if v is not None}
        labels = {**way.labels, **chosen}
        for name, value in itertools.product(sorted(names), taint_values):
            taints = [{"key": taint.key, "value": value, "effect": taint.effect}]
            yield {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


def candidates(values: set[str]) -> list[str | None]:
    """Return the label values that matter: absent, named, next to a named number, another."""
    numbers = [int(value) for value in values if value.isdigit()]
    near = {f"{zeros}{n + step}" for n in numbers for step in (-1, 1) for zeros in ("", "00")}
    return [None, "other", *sorted(values | {text for text in near if "-" not in text})]
