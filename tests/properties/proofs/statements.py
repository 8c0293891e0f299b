"""The statements about the fence, each checked on every member of the finite quotient.

A statement is a generator: it yields 1 for each case that holds, and raises ``RefutedError`` with
the first case that does not. The functions are gpufence's own; the judge is ``proofs.judge``.
``docs/concepts/proofs.md`` has the statements and their assumptions in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from msgspec import to_builtins

from policies.context import Context
from policies.engine import mutate_pod
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim, implicit_resource
from policies.kubernetes.core_v1 import (
    Affinity,
    ContainerSpec,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    PodResourceClaim,
    PodSpec,
    Requirement,
    ResourceClaimUse,
    ResourceRequirements,
    Toleration,
)
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import (
    Taint,
    accepts,
    alternatives,
    may_tolerate,
    reached_taint,
    tolerates,
)
from policies.kubernetes.selector import (
    Selector,
    can_match,
    confines,
    requires,
    requires_labels,
    surely_accepts,
)
from policies.policy import Policy
from policies.reach import HOST
from policies.rules import (
    check_ambiguous_pool,
    check_oversized_device_request,
    check_pool_not_allowed,
    check_pool_requirements,
    check_pool_trespass,
    check_unschedulable_gpu_pod,
)
from proofs import judge, quotient
from proofs.judge import Nodes, NodeTaint
from proofs.quotient import NODE_VALUES, TAINT_VALUES, Constraint
from specs import policy_of

GPU, OTHER_GPU = "example.com/gpu", "example.com/other"
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
Selectors = Sequence[Selector]


class RefutedError(AssertionError):
    """A case for which a statement does not hold."""


class Statement(NamedTuple):
    """A statement by its name, in one sentence, and the program that checks it."""

    name: str
    sentence: str
    check: Callable[[bool], Iterator[int]]


def require(holds: bool, what: str, *case: Any) -> None:
    if not holds:
        raise RefutedError("\n  ".join([what, *(str(to_builtins(part)) for part in case)]))


# ---------------------------------------------------------------------------- single functions


def selection(small: bool) -> Iterator[int]:
    """Check what the functions say of the requirements on one label."""
    nodes = Nodes(("n", {} if v is None else {"a": v}) for v in NODE_VALUES)
    every = quotient.constraints("a", small=small)
    for constraint in itertools.islice(every, 0, None, 5 if small else 1):
        _check_selection(constraint, nodes)
        yield 1
    numbers = Nodes(("n", {} if v is None else {"a": v}) for v in quotient.values_of_numbers())
    for expressions in itertools.islice(
        quotient.number_requirements("a"), 0, None, 13 if small else 1
    ):
        _check_selection(Constraint(None, expressions), numbers)
        yield 1


def _check_selection(constraint: Constraint, nodes: Nodes) -> None:
    alternative, spec = constraint.alternative("a"), _spec({"a": constraint})
    found = nodes.selected_by(spec)
    for number, (name, labels) in enumerate(nodes.nodes):
        same = accepts(alternative, name, labels) == bool(found >> number & 1)
        require(same, "accepts differs from the scheduler", constraint, labels)
    pools = quotient.selectors("a")
    for pool in pools:
        members = _members(nodes, pool)
        may = can_match(alternative, pool)
        require(may == bool(found & members), "can_match is wrong", constraint, pool)
        sure = surely_accepts(alternative, pool)
        require(not sure or not members & ~found, "surely_accepts is wrong", constraint, pool)
        asks = requires_labels(alternative, pool)
        asked = bool(pool) and may and not found & _absent(nodes, "a")
        require(asks == asked, "requires_labels is wrong", constraint, pool)
        if pool and requires(alternative, "a", pool["a"]):
            require(not found & ~members, "requires is wrong", constraint, pool)
    for some in (*itertools.combinations(pools[1:], 1), *itertools.combinations(pools[1:], 2)):
        if confines(alternative, some):
            members = _members(nodes, *some)
            require(not found & ~members, "confines is wrong", constraint, some)


def several_labels(small: bool) -> Iterator[int]:
    """Check the functions that combine several labels, and the name of the node."""
    nodes = _nodes("a", "b")
    for spec in selections(small, fields=True):
        (alternative,) = tuple(alternatives(spec)) or (None,)
        if alternative is None:
            continue
        found = nodes.selected_by(spec)
        for layout in _LAYOUTS.values():
            for pool in layout:
                members = _members(nodes, pool)
                may = can_match(alternative, pool)
                require(may == bool(found & members), "can_match is wrong", spec, pool)
                sure = surely_accepts(alternative, pool)
                require(not (sure and members & ~found), "surely_accepts is wrong", spec, pool)
            if confines(alternative, layout):
                members = _members(nodes, *layout)
                require(not found & ~members, "confines is wrong", spec, layout)
        yield 1


def tolerations(small: bool) -> Iterator[int]:
    """Check the answers about tolerations against every taint that a node of a pool may have."""
    every = itertools.islice(quotient.tolerations(), 0, None, 5 if small else 1)
    for toleration, effect in itertools.product(every, EFFECTS):
        wide = Taint("gpu", effect)
        for value in TAINT_VALUES:
            own, taint = NodeTaint("gpu", value, effect), Taint("gpu", effect, value)
            covered = judge.tolerates(toleration, own, numeric=False)
            perhaps = covered or judge.tolerates(toleration, own, numeric=True)
            case = (toleration, own)
            require(tolerates(toleration, taint) == covered, "tolerates is wrong", *case)
            require(may_tolerate(toleration, taint) == perhaps, "may_tolerate is wrong", *case)
            require(may_tolerate(toleration, wide) or not perhaps, "may_tolerate misses", *case)
            require(covered or not tolerates(toleration, wide), "tolerates is too wide", *case)
            reached = reached_taint(toleration, [wide]) is not None
            fences = effect != "PreferNoSchedule"
            require(reached or not (perhaps and fences), "reached_taint misses", *case)
        yield 1


# ------------------------------------------------------------------------------------- T1, T2


def mutated_selection(small: bool) -> Iterator[int]:
    """T1 and T2 for the node selection: no node is added, and all of them are in candidates."""
    for layout in _LAYOUTS:
        for spec in selections(small, fields=False):
            _check_mutation(layout, spec)
            yield 1
    for spec in selections(small, fields=False):
        _check_mutation("two devices", spec, "")
        yield 1
    every = selections(small, fields=True)
    a_few = list(itertools.islice(every, 0, None, 19 if small else 211))
    a_few += [_with_terms([]), _with_terms([NodeSelectorTerm()]), _with_terms([_unparsable()])]
    for layout, (one, two) in itertools.product(_LAYOUTS, itertools.product(a_few, a_few)):
        terms = [*_terms(one), NodeSelectorTerm(), _unparsable(), *_terms(two)]
        _check_mutation(layout, _with_terms(terms))
        yield 1


def _check_mutation(layout: str, spec: PodSpec, device: str = GPU) -> None:
    """Check a Pod that requests the device; without one, a claim for the device of a pool."""
    nodes, selectors = _nodes("a", "b"), _LAYOUTS[layout]
    before = nodes.selected_by(spec)
    pod = _gpu_pod(spec, device)
    facts = Facts(claims={("default", "claim"): Claim((frozenset({"class-0"}),))})
    context = Context.of(pod, _policy(layout), Request(), facts)
    mutate_pod(pod, context)
    after = nodes.selected_by(pod.spec)
    names = {pool.name for pool in context.requested_pools}
    candidates = _members(nodes, *(each for i, each in enumerate(selectors) if f"p{i}" in names))
    case = (layout, spec, pod.spec)
    require(not after & ~before, "T1: the mutation allows a node", *case)
    require(bool(after) or not before, "T4: the mutation leaves no node", *case)
    if any(check_unschedulable_gpu_pod.check(pod, context)):
        return
    if any(check_ambiguous_pool.check(pod, context)):
        return
    require(not after & ~candidates, "T2: a node outside of the candidate pools", *case)
    offering = _members(nodes, *(selectors[:1] if layout == "two devices" else selectors))
    require(not before & offering & ~after, "a node of the pools is lost", *case)


def mutated_tolerations(small: bool) -> Iterator[int]:
    """T1 for taints: what only the mutated Pod tolerates is a taint of a candidate pool."""
    taints = [Taint("gpu", effect, value) for effect in EFFECTS for value in (None, "yes")]
    own = [NodeTaint(k, v, e) for k in ("gpu", "x") for v in TAINT_VALUES for e in EFFECTS]
    every = itertools.islice(quotient.tolerations(), 0, None, 37 if small else 1)
    for toleration, taint in itertools.product((None, *every), taints):
        fields: dict[str, Any] = {"key": taint.key, "effect": taint.effect}
        fields |= {"value": taint.value} if taint.value else {}
        policy = _make_policy(({"a": ("5",)},), [fields])
        given = [toleration] if toleration else []
        pod = _gpu_pod(PodSpec(tolerations=list(given)), GPU)
        mutate_pod(pod, Context.of(pod, policy, Request(), Facts()))
        now = pod.spec.tolerations or ()
        for each, numeric in itertools.product(own, (False, True)):
            is_own = (each.key, each.effect) == (taint.key, taint.effect)
            is_own = is_own and taint.value in (None, each.value)
            fences = each.effect != "PreferNoSchedule"
            was = any(judge.tolerates(t, each, numeric=numeric) for t in given)
            covered = any(judge.tolerates(t, each, numeric=numeric) for t in now)
            case = (toleration, str(taint), each)
            require(covered == (was or (is_own and fences)), "T1: a taint is tolerated", *case)
        yield 1


# ----------------------------------------------------------------------------------------- T3


def fenced_by_taint(small: bool) -> Iterator[int]:
    """T3: every toleration, without a node selection and with each kind of one."""
    every = itertools.islice(quotient.tolerations(), 0, None, 11 if small else 1)
    for toleration, effect, value in itertools.product(every, EFFECTS[:2], (None, "yes")):
        for layout in ("one label", "any value", "no labels"):
            fields = {"key": "gpu", "effect": effect} | ({"value": value} if value else {})
            policy = _make_policy(_LAYOUTS[layout], [fields])
            spec = PodSpec(tolerations=[toleration])
            if _is_allowed(spec, policy):
                for own in TAINT_VALUES if value is None else (value,):
                    taint = NodeTaint("gpu", own, effect)
                    for numeric in (False, True):
                        fits = not judge.repels([taint], [toleration], numeric=numeric)
                        require(not fits, "T3: an allowed Pod fits", toleration, taint)
            yield 1


def fenced_by_selection(small: bool) -> Iterator[int]:
    """T3: every node selection, with tolerations of the pool's taint."""
    nodes = _nodes("a", "b")
    names = ("one label", "two labels", "one of two values", "any value", "no labels")
    layouts = [(name, _policy(name), _members(nodes, *_LAYOUTS[name])) for name in names]
    layouts += [(name, _policy_of_overlap(name, 0), _of_overlap(nodes, name)) for name in _LEFT_OUT]
    for name, policy, members in layouts:
        for toleration in _REACHING:
            for spec in selections(small, fields=True):
                spec.tolerations = [toleration]
                if _is_allowed(spec, policy):
                    fits = nodes.selected_by(spec) & members
                    require(not fits, "T3: an allowed Pod fits", name, spec)
                yield 1


def fenced_among_known_nodes(small: bool) -> Iterator[int]:
    """T3 with node facts: an allowed Pod fits no known node of the pool, labeled or not yet."""
    taint = (Taint("gpu", "NoSchedule", ""),)
    others = [Node("n4", {"a": "x"}), Node("n5", {"b": "2"})]
    published = {implicit_resource("class-0"): 0}
    of_pools = {
        "one label": [
            Node("n1", {"a": "5", "b": "1"}, taint, {GPU: 1}),
            Node("n2", {"b": "1"}, taint),
            Node("n3", {"b": "1"}, (), {GPU: 1}),
        ],
        "no labels": [
            Node("n1", {"a": "5", "b": "1"}, taint, {}, published),
            Node("n2", {"b": "1"}, taint),
            Node("n3", {"b": "1"}, (), {}, published),
        ],
    }
    for layout, known in of_pools.items():
        yield from _fenced(_policy(layout), [*known, *others], small)


def _fenced(policy: Policy, known: Sequence[Node], small: bool) -> Iterator[int]:
    """Check T3 for a pool of the first three known nodes."""
    fields: list[tuple[Requirement, ...]] = [
        (),
        *((_name(op, n),) for op in _OPS for n in ("n1", "n4")),
    ]
    some = _classes("a", small)
    for listed in (each for size in (1, 2, 3) for each in itertools.combinations(known, size)):
        index = NodeIndex(listed)
        labels = [(node.name, node.labels) for node in listed]
        nodes = Nodes(labels)
        every = itertools.product(some, fields, _B_CONSTRAINTS[:3])
        for constraint, field, b in itertools.islice(every, 0, None, 11 if small else 1):
            spec = _spec({"a": constraint, "b": b}, fields=field)
            spec.tolerations = [_REACHING[0]]
            if _is_allowed(spec, policy, Facts(nodes=index)):
                found = nodes.selected_by(spec)
                fits = [
                    n.name for i, n in enumerate(listed) if found >> i & 1 and n not in known[3:]
                ]
                require(not fits, "T3: an allowed Pod fits a known node", spec, labels, fits)
            yield 1
        for node, user in itertools.product(listed, ("", "system:node:n1", "system:node:other")):
            spec = PodSpec(node_name=node.name)
            if _is_allowed(spec, policy, Facts(nodes=index), Request(username=user)):
                require(node in known[3:], "T3: an allowed Pod is bound to the pool", node.name)
            yield 1


def fenced_from_other_pools(small: bool) -> Iterator[int]:
    """T3 for GPU Pods: they fit no node of a pool whose devices they do not request."""
    policy = _policy("two devices")
    nodes = _nodes("a", "b")
    own, foreign = (_members(nodes, each) for each in _LAYOUTS["two devices"])
    facts = Facts(claims={("default", "claim"): Claim((frozenset({"class-0", "elsewhere"}),))})
    for certain, spec in itertools.product((True, False), selections(small, fields=False)):
        for toleration in (None, *_REACHING):
            spec.tolerations = [toleration] if toleration else None
            pod = _gpu_pod(spec, GPU if certain else "")
            context = Context.of(pod, policy, Request(), facts)
            mutate_pod(pod, context)
            before, after = nodes.selected_by(spec) & own & ~foreign, nodes.selected_by(pod.spec)
            require(
                bool(after & own) or not before, "T4: no node of its pool is left", spec, pod.spec
            )
            # A Pod that selects no node with its device is denied once, for that.
            unschedulable = check_unschedulable_gpu_pod.check(pod, context)
            denied = any(check_pool_trespass.check(pod, context)) or any(
                each.action == "enforce" for each in unschedulable
            )
            if not denied:
                taint = NodeTaint("gpu", "", "NoSchedule")
                if not judge.repels([taint], pod.spec.tolerations or (), numeric=True):
                    fits = after & foreign & ~own
                    require(not fits, "T3: a GPU Pod fits another pool", spec, pod.spec)
            yield 1


def excluded_by_mutation(small: bool) -> Iterator[int]:
    """T1, T3 and T4 for ``pool-exclusion``: a wildcard's Pod stays off the pools, or is denied."""
    nodes = _nodes("a", "b")
    layouts = [(each, _policy(each), _members(nodes, *own)) for each, own in _LAYOUTS.items()]
    layouts += [(name, _policy_of_overlap(name, 0), _of_overlap(nodes, name)) for name in _LEFT_OUT]
    for layout, policy, members in layouts:
        labels = (dict([label]) for pool in policy.pools for label in pool.selector.items())
        excluded = _members(nodes, *labels)
        for spec, effect in itertools.product(selections(small, fields=True), (None, "NoSchedule")):
            spec.tolerations = [Toleration(None, "Exists", None, effect)]
            pod = Pod(_copy(spec))
            context = Context.of(pod, policy, Request(), Facts())
            mutate_pod(pod, context)
            before, after = nodes.selected_by(spec), nodes.selected_by(pod.spec)
            case = (layout, spec, pod.spec)
            require(not after & ~before, "T1: the mutation allows a node", *case)
            require(not before & ~after & ~excluded, "a node of no pool is lost", *case)
            require(bool(after) or not before, "T4: the mutation leaves no node", *case)
            denied = any(check_pool_trespass.check(pod, context))
            fits = bool(after & members)
            require(denied or not fits, "T3: the mutated Pod fits", *case)
            require(fits or not denied, "a Pod that fits no node of a pool is denied", *case)
            # Nothing excludes the nodes of a pool without labels.
            selective = before != nodes.all or not all(pool.selector for pool in policy.pools)
            require(selective or not denied, "a Pod without a selection is denied", *case)
            yield 1


def left_known_nodes(small: bool) -> Iterator[int]:
    """T4 with node facts: the mutation leaves a known node, or the Pod is denied."""
    taint = (Taint("gpu", "NoSchedule", ""),)
    known = [
        Node("n1", {"a": "5", "b": "1", HOST: "n1"}, taint, {GPU: 1}),
        Node("n2", {"a": "7", "b": "1", HOST: "n2"}, taint, {GPU: 1}),
        Node("n3", {"b": "2", HOST: "n3"}, taint, {GPU: 1}),
        Node("n4", {"a": "5", "b": "y", HOST: "n4"}),
        Node("n5", {"b": "2", HOST: "n5"}),
    ]
    names = [(), *((_name(op, n),) for op in _OPS for n in ("n1", "n4"))]
    layouts = ("one label", "two labels", "two pools, one label", "two pools, two labels")
    for layout, listed in itertools.product(
        layouts, (each for size in (1, 2, 3) for each in itertools.combinations(known, size))
    ):
        policy, index = _policy(layout), NodeIndex(listed)
        nodes = Nodes([(node.name, node.labels) for node in listed])
        hosts = [_UNCONSTRAINED, Constraint("n1", ()), Constraint("n4", ())]
        every = itertools.product(_classes("a", True), _B_CONSTRAINTS[:3], hosts, names)
        for a, b, host, field in itertools.islice(every, 0, None, 41 if small else 1):
            spec = _spec({"a": a, "b": b, HOST: host}, fields=field)
            spec.tolerations = [Toleration(None, "Exists")]
            pod = Pod(_copy(spec))
            context = Context.of(pod, policy, Request(), Facts(nodes=index))
            mutate_pod(pod, context)
            before, after = nodes.selected_by(spec), nodes.selected_by(pod.spec)
            # A Pod that accepts every node waits for one that is in no pool.
            left = bool(after) or before in (0, nodes.all)
            denied = any(check_pool_trespass.check(pod, context))
            require(left or denied, "T4: no known node is left", layout, spec, pod.spec)
            yield 1


# ----------------------------------------------------------------------------------------- T5


def kept_off_closed_pools(small: bool) -> Iterator[int]:
    """T5: an allowed GPU Pod accepts no node of a pool that it may not use, and loses no other."""
    nodes = _nodes("a", "b")
    every = selections(small, fields=True)
    a_few = list(itertools.islice(every, 0, None, 23 if small else 251))
    for name, (own, closed) in _OVERLAPS.items():
        policies = [_policy_of_overlap(name, each) for each in _restrictions_of(name)]
        members, others = (_meeting(nodes, pools) for pools in (own, closed))
        pairs = (
            _with_terms([*_terms(one), NodeSelectorTerm(), *_terms(two)])
            for one, two in itertools.product(a_few, a_few)
        )
        for number, spec in enumerate(itertools.chain(selections(small, fields=False), pairs)):
            pod = _gpu_pod(spec, GPU, 2)
            context = Context.of(pod, policies[number % len(policies)], Request(), Facts())
            mutate_pod(pod, context)
            before, after = nodes.selected_by(spec), nodes.selected_by(pod.spec)
            case = (name, spec, pod.spec)
            require(not after & ~before, "T1: the mutation allows a node", *case)
            if _is_denied(pod, context):
                require(not before & members & ~others, "a Pod that may run is denied", *case)
            else:
                require(not after & others, "T5: a node of a closed pool is accepted", *case)
                require(not before & members & ~others & ~after, "an open node is lost", *case)
            yield 1


def kept_off_known_closed_nodes(small: bool) -> Iterator[int]:
    """T5 with node facts: by host name, other labels or ``nodeName``, and no such Pod waits."""
    taint = (Taint("gpu", "NoSchedule", ""),)
    known = [
        Node("n1", {"a": "5", HOST: "n1"}, taint, {GPU: 2}),
        Node("n2", {"a": "5", "b": "1", HOST: "n2"}, taint, {GPU: 2}),
        Node("n3", {"b": "1", HOST: "n3"}, taint, {GPU: 2}),
        Node("n4", {"a": "7", "b": "2", HOST: "n4"}, taint, {GPU: 2}),
        Node("n5", {"b": "1", HOST: "n5"}),
    ]
    names = [(), (_name("In", "n1"),), (_name("NotIn", "n2"),)]
    hosts = [_UNCONSTRAINED, Constraint("n1", ()), Constraint("n2", ())]
    listings = (each for size in (1, 2, 3) for each in itertools.combinations(known, size))
    for listed, name in itertools.product(listings, ("one label", "told apart", "two pools")):
        own, closed = _OVERLAPS[name]
        policy, index = _policy_of_overlap(name, 0), NodeIndex(listed)
        nodes = Nodes([(node.name, node.labels) for node in listed])
        members, others = (_meeting(nodes, pools) for pools in (own, closed))
        every = itertools.product(_classes("a", True), _B_CONSTRAINTS[:4], hosts, names)
        some = itertools.islice(every, 0, None, 43 if small else 1)
        specs = [_spec({"a": a, "b": b, HOST: host}, fields=f) for a, b, host, f in some]
        for spec in (*specs, *(PodSpec(node_name=node.name) for node in listed)):
            pod = _gpu_pod(spec, GPU, 2)
            pod.spec.node_name = spec.node_name
            context = Context.of(pod, policy, Request(), Facts(nodes=index))
            mutate_pod(pod, context)
            before, after = nodes.selected_by(spec), nodes.selected_by(pod.spec)
            if spec.node_name:
                before = after = 1 << [name for name, _ in nodes.nodes].index(spec.node_name)
            case = (name, nodes.nodes, spec, pod.spec)
            denied, may_run = _is_denied(pod, context), before & members & ~others
            require(not (denied and may_run), "a Pod that may run is denied", *case)
            require(denied or not after & others, "T5: a closed node is accepted", *case)
            require(denied or not may_run & ~after, "an open node is lost", *case)
            # A Pod that every node will do for waits for one that is open to it.
            waits = before & members and before != nodes.all and not after
            require(denied or not waits, "a Pod for closed nodes waits", *case)
            yield 1


def _restrictions_of(name: str) -> range:
    """Return the numbers of the restrictions: those of another device count none of the Pod's."""
    return range(0, len(_RESTRICTIONS), 2 if name.startswith("another device") else 1)


def _is_denied(pod: Pod, context: Context) -> bool:
    checks = (
        check_pool_trespass,
        check_unschedulable_gpu_pod,
        check_pool_not_allowed,
        check_oversized_device_request,
        check_pool_requirements,
        check_ambiguous_pool,
    )
    found = (finding for check in checks for finding in check.check(pod, context))
    return any(finding.action == "enforce" for finding in found)


STATEMENTS = (
    Statement(
        "selection",
        "accepts, can_match, surely_accepts, requires, requires_labels and confines are right "
        "about one label",
        selection,
    ),
    Statement("labels", "they are right about two labels and the name of the node", several_labels),
    Statement("tolerations", "tolerates, may_tolerate and reached_taint are right", tolerations),
    Statement(
        "T1, T2",
        "a node that the mutated selection accepts is in a candidate pool, and was accepted before",
        mutated_selection,
    ),
    Statement(
        "T1 taints",
        "a taint that only the mutated Pod tolerates is a taint of a candidate pool",
        mutated_tolerations,
    ),
    Statement(
        "T3 taints",
        "an allowed Pod without a device request does not tolerate the pool's taints",
        fenced_by_taint,
    ),
    Statement(
        "T3 selection",
        "an allowed Pod with such a toleration accepts no node with the pool's labels",
        fenced_by_selection,
    ),
    Statement(
        "T3 known nodes",
        "an allowed Pod fits no known node of the pool, also before the node has its labels",
        fenced_among_known_nodes,
    ),
    Statement(
        "T3 other pools",
        "an allowed GPU Pod fits no node of a pool whose devices it does not request",
        fenced_from_other_pools,
    ),
    Statement(
        "T1, T3, T4 exclusion",
        "a Pod that tolerates every taint loses only nodes with a label of a pool, keeps a node if "
        "it had one, and accepts no node of a pool or is denied",
        excluded_by_mutation,
    ),
    Statement(
        "T4 known nodes",
        "a Pod that tolerates every taint keeps a known node, or is denied",
        left_known_nodes,
    ),
    Statement(
        "T5",
        "an allowed GPU Pod accepts no node of a pool that it may not use, and loses no other node",
        kept_off_closed_pools,
    ),
    Statement(
        "T5 known nodes",
        "the same by host name, other labels and nodeName, and a Pod for closed nodes is denied",
        kept_off_known_closed_nodes,
    ),
)


# ------------------------------------------------------------------------------- Pods and pools

_LAYOUTS: Mapping[str, Selectors] = {
    "one label": [{"a": ("5",)}],
    "two labels": [{"a": ("5",), "b": ("1",)}],
    "one of two values": [{"a": ("5", "7")}],
    "any value": [{"a": ()}],
    "any value and a label": [{"a": (), "b": ("1",)}],
    "two pools, one label": [{"a": ("5",)}, {"a": ("7",)}],
    "two pools, a common label": [{"a": ("5",), "b": ("1",)}, {"a": ("7",), "b": ("1",)}],
    "two pools, two labels": [{"a": ("5",), "b": ("1",)}, {"a": ("7",), "b": ("2",)}],
    "two pools, different keys": [{"a": ("5",)}, {"b": ("1",)}],
    "two pools, any value": [{"a": ()}, {"b": ("1",)}],
    "three pools": [{"a": ("5",), "b": ("1",)}, {"a": ("7",), "b": ("1",)}, {"b": ("2",)}],
    "two devices": [{"a": ("5",)}, {"a": ("7",)}],
    "no labels": [{}],
}
"""The labels of pools that offer the same device; for ``two devices``, one each. The nodes of a
pool without labels are those with its devices: without node facts, each node may be one."""

Labels = Sequence[tuple[str, str, tuple[str, ...]]]
"""The labels of a pool: key, operator and values of each."""
_A5: Labels = [("a", "In", ("5",))]
_B1: Labels = [("b", "In", ("1",))]
_OVERLAPS: Mapping[str, tuple[Sequence[Labels], Sequence[Labels]]] = {
    "one label": ([_A5], [_B1]),
    "another device": ([_A5], [_B1]),
    "any value": ([_A5], [[("b", "Exists", ())]]),
    "another device, a common label": ([_A5], [[*_A5, *_B1]]),
    "two labels": ([_A5], [[("a", "In", ("5", "7")), *_B1]]),
    "two labels of its own": ([_A5], [[*_B1, ("c", "In", ("z",))]]),
    "other values": ([_A5], [[("b", "Exists", ()), ("b", "NotIn", ("2",))]]),
    "a label that is absent": ([_A5], [[*_B1, ("c", "DoesNotExist", ())]]),
    "told apart": ([[*_A5, ("b", "NotIn", ("1",))]], [_B1]),
    "told apart by absence": ([[*_A5, ("b", "DoesNotExist", ())]], [_B1]),
    "two closed pools": ([_A5], [_B1, [("b", "In", ("2",))]]),
    "two closed pools, two labels": ([_A5], [_B1, [("b", "Exists", ()), ("c", "In", ("z",))]]),
    "nothing is left": (
        [[*_A5, ("b", "Exists", ())]],
        [[("b", "In", ("1",))], [("b", "Exists", ()), ("b", "NotIn", ("1",))]],
    ),
    "two pools": ([_A5, [("a", "In", ("7",))]], [_B1]),
    "two pools, two keys": ([_A5, [("b", "In", ("2",))]], [_B1]),
    "two pools, one told apart": ([[*_A5, ("b", "NotIn", ("1",))], [("a", "In", ("7",))]], [_B1]),
}
"""The labels of pools for every Pod, and of pools that are closed to the Pod. They offer the same
device, but where the name says another device."""

_LEFT_OUT = ("told apart", "other values", "a label that is absent")
"""Pools that leave out nodes with their labels."""

_RESTRICTIONS: Sequence[dict[str, Any]] = (
    {"allowedNamespaces": {"names": ["other"]}},
    {"largestRequest": 1},
    {"allowedNamespaces": {"matchLabels": {"team": "a"}, "unknown": "deny"}},
)
"""Why a pool is closed to a Pod with two devices."""

_OPS = ("In", "NotIn")
_REACHING = (
    Toleration("gpu", "Exists"),
    Toleration(None, "Exists", None, "NoSchedule"),
    Toleration("gpu", "Gt", "3", "NoSchedule"),
)
_B_VALUES = (None, "1", "2", "y")
_UNCONSTRAINED = Constraint(None, ())
_B_CONSTRAINTS = (
    _UNCONSTRAINED,
    Constraint("1", ()),
    Constraint(None, (Requirement("b", "NotIn", ["1"]),)),
    Constraint(None, (Requirement("b", "In", ["1", "2"]),)),
    Constraint(None, (Requirement("b", "In", ["2", "y"]),)),
    Constraint(None, (Requirement("b", "Exists"),)),
    Constraint(None, (Requirement("b", "DoesNotExist"),)),
    Constraint(None, (Requirement("b", "In", ["1"]), Requirement("b", "NotIn", ["1"]))),
    Constraint("2", (Requirement("b", "Gt", ["1"]),)),
)
_C_CONSTRAINTS = (
    _UNCONSTRAINED,
    Constraint("z", ()),
    Constraint(None, (Requirement("c", "DoesNotExist"),)),
    Constraint(None, (Requirement("c", "In", ["z"]), Requirement("c", "NotIn", ["z"]))),
)


@cache
def _classes(key: str, small: bool) -> list[Constraint]:
    return quotient.classes(key, quotient.constraints(key, small=small))


@cache
def _nodes(*_: str) -> Nodes:
    """Return a node for each combination of values that the proofs tell apart."""
    return Nodes(
        (name, {k: v for k, v in zip("abc", values, strict=True) if v is not None})
        for *values, name in itertools.product(NODE_VALUES, _B_VALUES, (None, "z"), ("n1", "n2"))
    )


def _members(nodes: Nodes, *selectors: Selector) -> int:
    """Return the nodes that meet one of the selectors."""
    found = 0
    for selector in selectors:
        members = nodes.all
        for key, values in selector.items():
            members &= nodes.with_label(key, "In" if values else "Exists", values)
        found |= members
    return found


def _meeting(nodes: Nodes, pools: Iterable[Labels]) -> int:
    """Return the nodes of one of the pools."""
    found = 0
    for labels in pools:
        members = nodes.all
        for label in labels:
            members &= nodes.with_label(*label)
        found |= members
    return found


def _of_overlap(nodes: Nodes, name: str) -> int:
    return _meeting(nodes, itertools.chain(*_OVERLAPS[name]))


def _absent(nodes: Nodes, key: str) -> int:
    return nodes.with_label(key, "DoesNotExist", ())


def selections(small: bool, *, fields: bool) -> Iterator[PodSpec]:
    """Yield a new spec for each combination of classes of requirements on three labels.

    One of 29 for a small run: 29 divides the number of no list that is combined here.
    """
    names: list[tuple[Requirement, ...]] = [()]
    if fields:
        names += [(_name("In", "n1"),), (_name("NotIn", "n1"),)]
        names += [(_name("In", "n1"), _name("NotIn", "n1")), (_name("In", ""),)]
    every = itertools.product(_classes("a", small), _B_CONSTRAINTS, _C_CONSTRAINTS, names)
    for a, b, c, name in itertools.islice(every, 0, None, 29 if small else 1):
        yield _spec({"a": a, "b": b, "c": c}, fields=name)


def _spec(constraints: Mapping[str, Constraint], fields: tuple[Requirement, ...] = ()) -> PodSpec:
    labels: dict[str, str | None] = {
        key: each.label for key, each in constraints.items() if each.label is not None
    }
    expressions = [each for one in constraints.values() for each in one.expressions]
    spec = PodSpec(node_selector=labels or None)
    if expressions or fields:
        terms = [NodeSelectorTerm(expressions or None, list(fields) or None)]
        spec.affinity = Affinity(NodeAffinity(NodeSelector(terms)))
    return spec


def _with_terms(terms: list[NodeSelectorTerm]) -> PodSpec:
    return PodSpec(affinity=Affinity(NodeAffinity(NodeSelector(terms))))


def _terms(spec: PodSpec) -> list[NodeSelectorTerm]:
    """Return copies of the required terms."""
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    required = node_affinity.required if node_affinity else None
    terms = (required.node_selector_terms if required else None) or []
    return [
        NodeSelectorTerm(
            list(term.match_expressions) if term.match_expressions else None, term.match_fields
        )
        for term in terms
    ]


def _unparsable() -> NodeSelectorTerm:
    return NodeSelectorTerm([Requirement("a", "Like", ["5"])])


def _name(operator: str, value: str) -> Requirement:
    return Requirement("metadata.name", operator, [value])


def _gpu_pod(spec: PodSpec, device: str, count: int = 1) -> Pod:
    """Return a Pod with a copy of the spec that requests the device, or a claim without one."""
    copy = _copy(spec)
    if device:
        resources = ResourceRequirements({device: str(count)})
    else:
        resources = ResourceRequirements(claims=[ResourceClaimUse("c")])
        copy.resource_claims = [PodResourceClaim("c", "claim")]
    copy.containers = [ContainerSpec("c", resources=resources)]
    return Pod(copy)


def _copy(spec: PodSpec) -> PodSpec:
    copy = _with_terms(_terms(spec)) if spec.affinity else PodSpec()
    copy.node_selector = dict(spec.node_selector) if spec.node_selector else None
    copy.tolerations = list(spec.tolerations) if spec.tolerations else None
    return copy


def _is_allowed(
    spec: PodSpec, policy: Policy, facts: Facts | None = None, request: Request | None = None
) -> bool:
    pod = Pod(spec, ObjectMeta())
    context = Context.of(pod, policy, request or Request(), facts or Facts())
    return not any(check_pool_trespass.check(pod, context))


@cache
def _policy(layout: str) -> Policy:
    return _make_policy(_LAYOUTS[layout], [{"key": "gpu"}], several_devices=layout == "two devices")


def _make_policy(
    layout: Selectors, taints: list[dict[str, Any]], *, several_devices: bool = False
) -> Policy:
    return _policy_of(
        {
            "name": f"p{number}",
            "resources": [OTHER_GPU if several_devices and number else GPU],
            "deviceClasses": [f"class-{number}"] if several_devices or not selector else [],
            "taints": taints,
            "matchExpressions": _expressions(
                (key, "In" if values else "Exists", values) for key, values in selector.items()
            ),
        }
        for number, selector in enumerate(layout)
    )


@cache
def _policy_of_overlap(name: str, number: int) -> Policy:
    own, closed = _OVERLAPS[name]
    return _policy_of(
        {
            "name": f"p{index}",
            "resources": [
                OTHER_GPU if index >= len(own) and name.startswith("another device") else GPU
            ],
            "taints": [{"key": "gpu"}],
            "matchExpressions": _expressions(labels),
            **(_RESTRICTIONS[number] if index >= len(own) else {}),
        }
        for index, labels in enumerate([*own, *closed])
    )


def _policy_of(pools: Iterable[dict[str, Any]]) -> Policy:
    # The other mutations add nothing that placement depends on.
    off = (
        "restricted-security-context",
        "unrestricted-gpu-pod",
        "void-visible-devices",
        "gpu-runtime-class",
    )
    return policy_of({"pools": [*pools], "rules": dict.fromkeys(off, "off")})


def _expressions(labels: Iterable[tuple[str, str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    return [
        {"key": key, "operator": operator} | ({"values": [*values]} if values else {})
        for key, operator, values in labels
    ]
