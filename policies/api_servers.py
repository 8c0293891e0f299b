"""What API servers know of the policy: literals of CEL, in place of POLICY and NAMES.

The constant text around them is in ``webhook/controller/text``. A field of the policy says in its
definition whether it is here (``InAPIServer``) or left to replicas (``InReplica``). A test compares
that with what these functions read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from policies.kubernetes.claims import IMPLICIT_RESOURCE_PREFIX
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.policy import Actions, NamespaceSelector, Policy, Pool
from policies.pool_nodes import selector_of_every_node
from policies.vocabulary import (
    BASE_CONTAINERS,
    CORE,
    QUEUE_LABEL,
    WRITERS,
    agent_remediation,
    base_advice,
    class_advice,
    scheduler_advice,
    variable_remediation,
    visible_devices_variables,
    volume_remediations,
    wildcard_remediation,
)

Data = Mapping[str, Any]
"""Values of JSON by their name."""

_WORKLOADS = {"Pod", *(kind for _, kind in CORE_WORKLOADS)}
IN_TREE_RULES = {
    # Node agents run on every node.
    "pool-trespass": _WORKLOADS - {"DaemonSet"},
    "device-leak": _WORKLOADS,
}
"""The rules that API servers evaluate in part, and the kinds that they evaluate."""

LONGEST_LITERAL = 90_000
"""The longest literal: API servers accept expressions of 100,000 characters, with the text."""

_WIDTH = 80
"""A longer literal is broken into lines: people review what ``gpufence manifests`` prints."""


def names_of(policy: Policy) -> Data:
    """Return what the policy names, without what belongs together: enough for conditions.

    The first entry of ``namespaces`` whose name fits a namespace is the one for it.
    """
    pools, requirements = policy.pools, [each for pool in policy.pools for each in pool.requires]
    required = {key for each in requirements for key in each.labels}
    if any(each.queue for each in requirements):
        required.add(QUEUE_LABEL)
    return {
        "taints": _sorted(taint.key for pool in pools for taint in pool.fence),
        "effects": _sorted(taint.effect for pool in pools for taint in pool.fence),
        "nodeLabels": _sorted(key for pool in pools for key in pool.selector),
        "hasClasses": bool(policy.pools_of_class),
        "implicit": _implicit(policy),
        "requests": [
            {"scheduler": each.scheduler_name, "annotations": _sorted(each.annotations)}
            for each in policy.pools_of_annotations
        ],
        "annotations": _sorted(key for each in policy.pools_of_annotations for key in each.keys),
        "variables": _sorted(visible_devices_variables(policy)),
        "labels": _sorted(required),
        "namespaces": [
            {"name": name, "enforces": actions.mode == "enforce"}
            for name, actions in _actions_by_namespace(policy)
        ],
    }


def names_for(rule: str, policy: Policy) -> Data:
    """Return the same for the admission policy of a rule, with where the rule does not apply."""
    exempt = policy.exemptions
    return {
        **names_of(policy),
        "namespaces": [
            {"name": name, "denies": actions[rule] == "enforce"}
            for name, actions in _actions_by_namespace(policy)
        ],
        "poolCount": len(policy.pools),
        "usernames": _sorted(exempt.usernames),
    }


def policy_data(rule: str, policy: Policy, today: date | None = None) -> Data:
    """Return the pools, the exceptions to a rule, and the advice that the sentences end with.

    ``today`` leaves out the exceptions that have expired.
    """
    return {
        "pools": [_pool(pool) for pool in policy.pools],
        "taints": _sorted(taint.key for pool in policy.pools for taint in pool.fence),
        "implicit": _implicit(policy),
        "deviceFiles": [
            {"part": file, "remediation": remediation}
            for file, remediation in volume_remediations(policy).items()
        ],
        "variables": [
            {"name": name, "remediation": variable_remediation(name, policy)}
            for name in visible_devices_variables(policy)
        ],
        "writers": [writer._asdict() for writer in WRITERS],
        "schedulerAdvice": scheduler_advice("SCHEDULER", "OTHERWISE"),
        "agentAdvice": agent_remediation("OTHERWISE"),
        "baseAdvice": base_advice("remove WHAT"),
        "baseContainers": [*BASE_CONTAINERS],
        "classAdvice": class_advice("remove WHAT", (), "POOL"),
        "core": [*CORE],
        "help": policy.help,
        "exceptions": _exceptions(rule, policy, today),
        "overrides": [*_overrides(rule, policy)],
        "requirements": _sorted(
            each for selector in policy.selectors for each in _requirements(selector)
        ),
    }


def _overrides(rule: str, policy: Policy) -> Iterator[Data]:
    """Yield what overrides set, after what the policy sets, if labels of namespaces decide."""
    if not policy.overrides_by_label:
        return
    yield _layer(["*"], [], policy.rules[rule], policy.mode)
    for each in policy.overrides:
        action = each.actions(policy.rules).get(rule)
        if action or each.mode:
            yield _layer(
                [*each.namespaces], _requirements(each.namespace_selector), action, each.mode
            )


def _layer(names: list[str], labels: list[str], action: str | None, mode: str | None) -> Data:
    return {"names": names, "labels": labels, "action": action or "", "mode": mode or ""}


def _requirements(selector: NamespaceSelector | None) -> list[str]:
    """Return each requirement on labels as words: its key, its operator and its values."""
    found = selector.requirements if selector else ()
    return [f"{r.key} {r.operator} ,{','.join(r.values or ())}," for r in found]


def _exceptions(rule: str, policy: Policy, today: date | None) -> list[list[list[str]]]:
    """Return the exceptions that API servers need: namespaces, kinds, names and a date of each.

    Those that differ only in names are one. Without names, it is for all. The last list has the
    labels of further namespaces, if there is one.
    """
    names: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for each in policy.exceptions:
        kinds = each.kinds & IN_TREE_RULES[rule]
        concerns = (not each.rules or rule in each.rules) and (kinds or not each.kinds)
        if concerns and not each.has_expired(today):
            alike = (
                (*each.namespaces.patterns,),
                (*sorted(kinds),),
                (str(each.expires or ""),),
                *([(*labels,)] if (labels := _requirements(each.namespace_selector)) else []),
            )
            names.setdefault(alike, []).extend(each.names.patterns or "*")
    return [
        [[*namespaces], [*kinds], _sorted(found), *map(list, others)]
        for (namespaces, kinds, *others), found in names.items()
    ]


def size_problems(policy: Policy) -> Iterator[str]:
    """Yield for one part after the other why it is too large for API servers, empty if it is not.

    A policy can be so large that a replica makes one literal at a time, between Pods.
    """
    # Counted before the actions of each are known, which takes longer.
    overridden = {name for override in policy.overrides for name in override.namespaces}
    yield _size_problem(len(overridden) * len('{"name": dyn("a"), "denies": dyn(true)}'))
    for rule in IN_TREE_RULES:
        yield _size_problem(len(literal(names_for(rule, policy))))
        yield _size_problem(len(literal(policy_data(rule, policy))))


def _size_problem(size: int) -> str:
    if size <= LONGEST_LITERAL:
        return ""
    return (
        f"API servers would have to know {size:,} characters of it, and accept "
        f"{LONGEST_LITERAL:,}; let an exception or override cover several namespaces and names (a "
        "prefix ends with *), or remove some"
    )


def _pool(pool: Pool) -> Data:
    """Return a pool; ``labels`` are those of all its nodes, with their possible values, if any."""
    allowed = pool.allowed_namespaces
    return {
        "name": pool.name,
        "taints": [
            {"key": taint.key, "effect": taint.effect}
            | ({} if taint.value is None else {"value": taint.value})
            for taint in pool.fence
        ],
        # Whether a selection is of a pool that leaves out nodes is for the webhook to decide.
        "selector": [] if pool.without else _labels(pool.selector),
        "labels": _labels(selector_of_every_node(pool)),
        "isOpen": allowed is None,
        "namespaces": allowed.names.patterns if allowed else [],
        "resources": pool.resources.patterns,
        "hasResource": bool(pool.resources.exact),
        "request": pool.request,
        "wildcard": wildcard_remediation([pool]),
    }


def _labels(selector: Mapping[str, Iterable[str]]) -> list[Data]:
    return [{"key": key, "values": [*values]} for key, values in selector.items()]


def _implicit(policy: Policy) -> list[str]:
    """Return the resources by which containers request the DeviceClasses of the pools."""
    return _sorted(f"{IMPLICIT_RESOURCE_PREFIX}{name}" for name in policy.pools_of_class)


def _sorted(values: Iterable[str]) -> list[str]:
    return sorted({*values})


def literal(value: object, indent: str = "") -> str:
    """Return a value of JSON as a literal of CEL, over several lines if it is long.

    All values of a map have one type in CEL, and all items of a list: ``dyn`` makes them so.
    """
    inner = f"{indent}  "
    match value:
        case Mapping():
            start, end = "{}"
            parts = [f'"{key}": dyn({literal(each, inner)})' for key, each in value.items()]
        case list():
            start, end = "[]"
            parts = [literal(each, inner) for each in value]
        case _:
            # CEL reads the strings of JSON, except surrogates: no escapes for what is not ASCII.
            return json.dumps(value, ensure_ascii=False)
    line = ", ".join(parts)
    if len(line) <= _WIDTH and "\n" not in line:
        return f"{start}{line}{end}"
    lines = f",\n{inner}".join(parts)
    return f"{start}\n{inner}{lines}\n{indent}{end}"


def _actions_by_namespace(policy: Policy) -> list[tuple[str, Actions]]:
    """Return the actions by name or prefix of a namespace; the first that fits one counts.

    The last ones are those of all other namespaces.
    """
    strictest = policy.strictest
    return sorted(strictest.items(), key=lambda item: (item[0].endswith("*"), -len(item[0])))
