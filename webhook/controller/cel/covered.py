"""Which GPU Pods the API server can mutate by itself.

A Pod is *covered* if the object alone decides what the mutations add, and no check that a policy
enforces finds anything in it. The conditions are an allow-list. What they do not name is left to
the webhook, so the API server mutates a Pod completely or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from string import Template
from typing import NamedTuple

from policies.kubernetes.field_types import NameSet
from policies.kubernetes.scheduling import Taint
from policies.kubernetes.selector import Selector
from policies.policy import Actions, Policy, Pool
from policies.registry import RULES
from policies.rules import (
    set_device_requests,
    set_gpu_runtime_class,
    set_pool_node_affinity,
    set_pool_toleration,
    set_restricted_security_context,
    set_void_visible_devices,
)
from policies.rules.check_system_priority import CLASSES
from webhook.controller.cel.match_conditions import (
    mounts_devices,
    names_devices,
    sets_visible_devices,
)
from webhook.controller.cel.pod_security import may_violate
from webhook.controller.cel.pods import (
    IS_EXTENDED_RESOURCE,
    TERMS,
    all_resources,
    containers,
    in_namespaces,
    listed,
    mapped,
    names_device,
    some,
    some_container,
    some_resource,
)
from webhook.controller.cel.text import (
    Variable,
    all_of,
    any_of,
    below,
    call,
    commented,
    is_in,
    let,
    names,
    negated,
    printed,
    text,
)

COMPILED = frozenset(
    {
        set_device_requests.ID,
        set_gpu_runtime_class.ID,
        set_pool_node_affinity.ID,
        set_pool_toleration.ID,
        set_restricted_security_context.ID,
        set_void_visible_devices.ID,
    }
)
"""The mutations that the API server can make."""

MOST = 20
"""The most containers, resources of a container, tolerations, node labels and values of a term's
expression that a covered Pod has. The engine accepts more, but evaluates it faster."""
MOST_TERMS = 10
"""The same for terms, and for the expressions of each."""


class Target(NamedTuple):
    """What the mutations add for a Pod whose candidate pools are exactly these."""

    pools: tuple[Pool, ...]
    labels: Selector

    @property
    def taints(self) -> list[Taint]:
        """The taints of all pools."""
        return list(dict.fromkeys(chain.from_iterable(pool.fence for pool in self.pools)))


def targets(policy: Policy, left_out: frozenset[str]) -> list[Target]:
    """Return each pool, and the pools together that offer the same and differ in one label.

    ``left_out`` has the names of pools that only the webhook can judge.
    """
    pools = [pool for pool in policy.pools if pool.name not in left_out and _is_static(pool)]
    alike: dict[NameSet, list[Pool]] = {}
    for pool in policy.pools:
        alike.setdefault(pool.resources, []).append(pool)
    found: dict[tuple[Pool, ...], Selector] = {(pool,): pool.selector for pool in pools}
    for group in alike.values():
        # A namespace may request the pools that all may request, and those of its own.
        for namespaces in (None, *(pool.allowed_namespaces for pool in group)):
            together = tuple(p for p in group if p.allowed_namespaces in (None, namespaces))
            if len(together) > 1 and all(pool in pools for pool in together):
                labels = _together(together)
                if labels is not None:
                    found[together] = labels
    return [Target(pools, labels) for pools, labels in found.items()]


def _is_static(pool: Pool) -> bool:
    """Return whether the object alone decides about the pool's Pods."""
    by_labels = pool.allowed_namespaces is not None and pool.allowed_namespaces.by_labels
    required = any(each.action == "enforce" for each in pool.requires)
    return bool(pool.resources) and not (
        by_labels or required or pool.hardening or pool.largest_request
    )


def _together(pools: Sequence[Pool]) -> Selector | None:
    """Return the labels of the nodes of all pools, if they differ in the values of one label."""
    first, *others = pools
    if any(
        pool.runtime_class != first.runtime_class
        or ("nvidia.com" in pool.vendors) != ("nvidia.com" in first.vendors)
        for pool in others
    ):
        return None
    common = {
        key: values
        for key, values in first.selector.items()
        if all(pool.selector.get(key) == values for pool in others)
    }
    rest = [{*pool.selector} - {*common} for pool in pools]
    keys = set[str]().union(*rest)
    if len(keys) != 1 or not all(rest):
        return None
    (key,) = keys
    choices = [pool.selector[key] for pool in pools]
    return {**common, key: tuple(dict.fromkeys(chain(*choices)))} if all(choices) else None


def conditions(policy: Policy, left_out: frozenset[str]) -> Iterator[Variable]:
    """Yield what a covered Pod meets besides having a target; nothing if no Pod is covered.

    The first condition is false for plain Pods.
    """
    offered, hardening = all_resources(policy), policy.hardening
    usual = in_namespaces(policy, _is_usual)
    if usual == "false" or hardening.level == "off" or hardening.host_users is False:
        return
    if not targets(policy, left_out):
        return
    usernames = policy.exemptions.usernames
    yield Variable(
        "requestsDevice",
        "The Pod requests a device.",
        all_of(
            *([] if usual == "true" else [usual]),
            *([f"!(request.userInfo.username in {names(usernames)})"] if usernames else []),
            some_container(some_resource(is_in("k", offered))),
        ),
    )
    yield Variable(
        "hasShortLists",
        "The lists of the Pod are short.",
        all_of(
            f"size({containers()}) <= {MOST}",
            f"size({listed('pod.spec', 'tolerations')}) <= {MOST}",
            f"size({listed('pod.spec', _TERMS)}) <= {MOST_TERMS}",
            f"size({mapped('pod.spec', 'nodeSelector')}) <= {MOST}",
        ),
    )
    opens = any_of(sets_visible_devices('e.?value.orValue("") != "void"', policy), mounts_devices())
    annotations = {key for each in policy.pools_of_annotations for key in each.keys}
    requests = f"k in {names(annotations)}"
    exempt = policy.exemptions.runtime_classes
    yield Variable(
        "podDecides",
        "Nothing but the Pod decides.",
        all_of(
            "!has(pod.spec.nodeName)",
            "!has(pod.spec.resourceClaims)",
            negated(names_device("pod.spec", policy)),
            *([f'!(pod.spec.?runtimeClassName.orValue("") in {names(exempt)})'] if exempt else []),
            f'!(pod.spec.?priorityClassName.orValue("") in {names(CLASSES)})',
            negated(names_devices()),
            *([negated(some("pod", "metadata.annotations", "k", requests))] if annotations else []),
            negated(some_container(opens)),
            negated(some_container(_unusual_resources(policy, offered))),
            negated(some("pod.spec", "tolerations", "t", _unusual_toleration())),
            negated(some("pod.spec", TERMS, "t", _unusual_term())),
        ),
    )
    yield Variable(
        "meetsProfile",
        "The Pod Security profile of the policy accepts what the Pod sets.",
        negated(any_of(*may_violate(hardening.level))),
    )


_TERMS = TERMS.replace(".", ".?")
_HAS_TARGET = "size($target) == 1"
_POD = re.compile(r'"(?:[^"\\]|\\.)*"|\bpod\b')
"""A string literal, or the name of the Pod."""


def _is_usual(actions: Actions) -> bool:
    """Return whether the mutations are made, and no check is stricter than by default."""
    if actions.mode != "enforce" or actions.hardening is not None:
        return False
    return all(
        actions[rule.id] == "enforce"
        if rule.id in COMPILED
        else rule.default == "enforce" or actions[rule.id] != "enforce"
        for rule in RULES
    )


def _unusual_resources(policy: Policy, offered: NameSet) -> str:
    """Return CEL that holds for a container with device resources that are not plain requests.

    A quantity of 0, requests that differ from the limits, several shares of a device, and what a
    DeviceClass may serve.
    """
    quantity = "string(c.resources[side][k])"
    shared = NameSet(pattern for pool in policy.pools for pattern in pool.shared_resources.patterns)
    unusual = [f'{quantity} == "0"']
    if shared:
        unusual.append(all_of(is_in("k", shared), f'{quantity} != "1"'))
    kinds = [all_of(is_in("k", offered), any_of(*unusual))]
    if policy.pools_of_class:
        kinds.append(all_of('k.contains("/")', negated(is_in("k", offered))))
    return any_of(
        *(f"size(c.?resources.?{side}.orValue({{}})) > {MOST}" for side in ("limits", "requests")),
        some_resource(any_of(*kinds)),
        all_of(
            "has(c.resources) && has(c.resources.limits) && has(c.resources.requests)",
            call(
                "c.resources.requests",
                "exists",
                "k",
                all_of(
                    IS_EXTENDED_RESOURCE,
                    'string(c.resources.limits[?k].orValue("")) != string(c.resources.requests[k])',
                ),
            ),
        ),
    )


def _unusual_toleration() -> str:
    return any_of("!has(t.key)", '!(t.?operator.orValue("Equal") in ["Equal", "Exists"])')


def _unusual_term() -> str:
    """Return CEL that holds for a term ``t`` that names fields, or a label twice."""
    operators = names(["In", "NotIn", "Exists", "DoesNotExist"])
    keys = "t.matchExpressions.map(o, o.key)"
    twice = f"size({keys}.filter(key, key == e.key)) > 1"
    return any_of(
        "has(t.matchFields)",
        "!has(t.matchExpressions)",
        f"size(t.matchExpressions) > {MOST_TERMS}",
        call(
            "t.matchExpressions",
            "exists",
            "e",
            any_of(
                f"!(e.operator in {operators})",
                f"size({listed('e', 'values')}) > {MOST}",
                f"e.key in {mapped('pod.spec', 'nodeSelector')}",
                twice,
            ),
        ),
    )


def covers(policy: Policy, left_out: frozenset[str], complete: str) -> str:
    """Return CEL that holds for a covered ``pod``; ``complete`` is a further condition on it.

    Each part has a comment. The first one is false for plain Pods, and ends the evaluation.
    """
    parts = [(each.comment, each.expression) for each in conditions(policy, left_out)]
    if not parts:
        return "false"
    fits = all_of(_HAS_TARGET, complete)
    parts.append(("The Pod fits one entry of the table of pools.", defined(policy, left_out, fits)))
    all_containers = containers()
    lines = commented("&&", parts).replace(all_containers, "containers")
    return let("containers", all_containers, lines)


def variables(policy: Policy, left_out: frozenset[str]) -> Iterator[Variable]:
    """Yield the variables of the policy that mutates.

    ``isCovered`` leaves out the first condition, which is the match condition of the policy.
    """
    _, *others = conditions(policy, left_out)
    yield Variable("containers", "", containers("object"))
    comment = "Whether the policy mutates the Pod. The webhook mutates the others."
    covered = all_of(*(f"${each.name}" for each in others), _HAS_TARGET)
    for each in (*others, *definitions(policy, left_out), Variable("isCovered", comment, covered)):
        yield each._replace(expression=with_variables(printed(each.expression)))


def of_object(expression: str) -> str:
    """Return CEL about the ``object`` for CEL about the ``pod``."""
    return _POD.sub(lambda found: "object" if found[0] == "pod" else found[0], expression)


def with_variables(expression: str) -> str:
    """Return CEL about the ``object`` that uses the variables of the policy that mutates."""
    about = referring(of_object(expression), "variables.")
    return about.replace(containers("object"), "variables.containers")


def definitions(policy: Policy, left_out: frozenset[str]) -> Iterator[Variable]:
    """Yield the values that tell what to add to a Pod, each after its ``$references``."""
    offered = all_resources(policy)
    rows = _list(_row(pool) for pool in policy.pools if pool.resources)
    additions = _list(_target(each, policy) for each in targets(policy, left_out))
    yield Variable("pools", "The pools, and whether the namespace may use them.", rows)
    yield Variable("targets", "What a Pod gets, by its candidate pools.", additions)
    yield Variable("selector", "The nodeSelector of the Pod.", mapped("pod.spec", "nodeSelector"))
    yield Variable(
        "terms", "The required node selector terms of the Pod.", listed("pod.spec", _TERMS)
    )
    own = any_of("k in p.resources", "p.prefixes.exists(x, k.startsWith(x))")
    others = some_resource(all_of(is_in("k", offered), negated(own)))
    selected = any_of(
        "!(l.key in $selector)", "size(l.values) == 0", "$selector[l.key] in l.values"
    )
    by_term = call("p.labels", "all", "l", _term_admits())
    candidate = all_of(
        "p.isAllowed",
        negated(call(containers(), "exists", "c", others)),
        call("p.labels", "all", "l", selected),
        any_of("size($terms) == 0", call("$terms", "exists", "t", by_term)),
    )
    yield Variable(
        "candidates",
        "The pools that offer all that the Pod requests, and whose nodes it can select.",
        call("$pools", "filter", "p", candidate),
    )
    by_terms = call("x.matchExpressions", "exists", "e", "e.key in t.otherKeys")
    tolerated = listed("pod.spec", "tolerations")
    fits = all_of(
        "t.pools == $candidates.map(p, p.name)",
        "!t.otherKeys.exists(k, k in $selector)",
        f"!$terms.exists(x, {by_terms})",
        f"!{tolerated}.exists(x, x.key in t.otherKeys)",
    )
    yield Variable(
        "target",
        "The entry for these pools, unless the Pod names the key of another pool.",
        call("$targets", "filter", "t", fits),
    )
    required = all_of(
        "l.key in $selector", any_of("size(l.values) == 0", "$selector[l.key] in l.values")
    )
    yield Variable(
        "labels",
        "The labels of the entry that nodeSelector does not require.",
        f"$target.map(t, {call('t.labels', 'filter', 'l', negated(required))})",
    )


def referring(expression: str, prefix: str) -> str:
    """Return the expression with the prefix for each reference to a definition."""
    template = Template(expression)
    return template.safe_substitute({n: f"{prefix}{n}" for n in template.get_identifiers()})


def defined(policy: Policy, left_out: frozenset[str], condition: str) -> str:
    """Return a condition on ``pod`` with the definitions that it refers to."""
    for name, _, expression in reversed([*definitions(policy, left_out)]):
        if name in Template(condition).get_identifiers():
            condition = let(name, expression, condition)
    return referring(condition, "")


def _term_admits() -> str:
    """Return CEL that holds for a term ``t`` that some node with the label ``l`` meets."""
    met = (
        '(size(l.values) == 0 ? e.operator != "DoesNotExist"\n'
        '  : e.operator == "In" ? e.values.exists(v, v in l.values)\n'
        '  : e.operator == "NotIn" ? l.values.exists(v, !(v in e.values))\n'
        '  : e.operator == "Exists")'
    )
    return call("t.matchExpressions", "all", "e", any_of("e.key != l.key", met))


def _row(pool: Pool) -> str:
    allowed = pool.allowed_namespaces
    return _map(
        name=text(pool.name),
        resources=names(pool.resources.exact),
        prefixes=names(pool.resources.prefixes),
        labels=_labels(pool.selector),
        isAllowed=is_in("request.namespace", allowed.names) if allowed else "true",
    )


def _target(target: Target, policy: Policy) -> str:
    first = target.pools[0]
    own = {*target.labels, *(taint.key for taint in target.taints)}
    return _map(
        pools=json.dumps([pool.name for pool in target.pools]),
        labels=_labels(target.labels),
        tolerations=_list(map(_toleration, target.taints)),
        runtimeClass=text(first.runtime_class or ""),
        otherKeys=names(policy.pools_by_key.keys() - own),
        hidesDevices="true" if "nvidia.com" in first.vendors else "false",
    )


def _labels(selector: Selector) -> str:
    return _list(
        _map(key=text(key), operator=text("In"), values=json.dumps(values))
        if values
        else _map(key=text(key), operator=text("Exists"), values="[]")
        for key, values in selector.items()
    )


def _toleration(taint: Taint) -> str:
    added: dict[str, str] = {"key": taint.key}
    if taint.value is None:
        added["operator"] = "Exists"
    else:
        added |= {"operator": "Equal", "value": taint.value}
    return _map(**{key: text(value) for key, value in (added | {"effect": taint.effect}).items()})


def _map(**fields: str) -> str:
    entries = [f"{text(key)}: dyn({value})" for key, value in fields.items()]
    line = f"{{{', '.join(entries)}}}"
    if len(line) <= 90 and "\n" not in line:
        return line
    return "{\n  " + ",\n  ".join(map(below, entries)) + "\n}"


def _list(entries: Iterable[str]) -> str:
    given = list(entries)
    line = f"[{', '.join(given)}]"
    if len(line) <= 90 and "\n" not in line:
        return line
    return "[\n  " + ",\n  ".join(map(below, given)) + "\n]"
