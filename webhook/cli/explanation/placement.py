"""Which nodes kube-scheduler can place a Pod on.

Only labels, taints and allocatable devices of the nodes count. CPU, memory, and devices that other
Pods hold do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policies.facts import Facts
from policies.kubernetes.nodes import Node
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import (
    FENCING_EFFECTS,
    Alternative,
    Taint,
    can_match,
    matches_node,
    tolerates,
)
from policies.policy import Policy, Pool
from policies.requests import device_peaks
from policies.supply import nodes_of, shortages

_SIGNS = {"In": "in", "NotIn": "not in", "Exists": "exists", "DoesNotExist": "does not exist"}


@dataclass(frozen=True, slots=True)
class PoolPlacement:
    """The nodes of a pool that fit a Pod, and the others with the reason why they do not."""

    pool: Pool
    fitting: tuple[str, ...]
    others: Mapping[str, tuple[str, ...]]
    """Names of nodes by reason."""


def selection(pod: Pod) -> list[str]:
    """Return the alternatives of the Pod's node selection in words.

    An empty list means that no node can match, an empty text that every node matches.
    """
    return [_in_words(alternative) for alternative in pod.selection()]


def obstacle(pod: Pod, pool: Pool) -> str:
    """Return why the Pod does not fit the nodes that the policy describes; empty if it does.

    Source: the predicates of kube-scheduler (``policies.kubernetes.scheduling``).
    """
    if not any(can_match(alternative, pool.node_selector) for alternative in pod.selection()):
        return "its node selection excludes them"
    taint = _untolerated(pod, pool.taints)
    return "" if taint is None else f"it does not tolerate their taint {taint}"


def placement(pod: Pod, pool: Pool, policy: Policy, facts: Facts) -> PoolPlacement:
    """Return which of the pool's nodes fit the Pod."""
    needed = device_peaks(pod, policy)
    fitting: list[str] = []
    others: dict[str, list[str]] = {}
    for node in sorted(nodes_of(pool, facts), key=lambda node: node.name):
        reason = next(_obstacles(pod, node, needed), None)
        if reason is None:
            fitting.append(node.name)
        else:
            others.setdefault(reason, []).append(node.name)
    return PoolPlacement(pool, tuple(fitting), {r: tuple(names) for r, names in others.items()})


def _obstacles(pod: Pod, node: Node, needed: Mapping[str, int]) -> Iterator[str]:
    bound = pod.spec.node_name
    if bound and bound != node.name:
        yield f"nodeName binds the Pod to {bound}"
    if not matches_node(pod.spec, node.name, node.labels):
        yield "the Pod's node selection excludes it"
    if (taint := _untolerated(pod, node.taints)) is not None:
        yield f"the Pod does not tolerate its taint {taint}"
    for resource, offered in shortages(node, needed):
        yield f"it has {offered} {resource}, and the Pod needs {needed[resource]}"


def _untolerated(pod: Pod, taints: tuple[Taint, ...]) -> Taint | None:
    tolerations = pod.spec.tolerations or []
    for taint in taints:
        if taint.effect in FENCING_EFFECTS and not any(tolerates(t, taint) for t in tolerations):
            return taint._replace(value=taint.value or None)
    return None


def _in_words(alternative: Alternative) -> str:
    parts = [f"{key}={value}" for key, value in alternative.labels.items()]
    for requirement in (*alternative.expressions, *alternative.fields):
        key, values = requirement.key, requirement.values or []
        operator = requirement.operator or ""
        text = ", ".join(values)
        if operator == "In" and len(values) == 1:
            parts.append(f"{key}={text}")
        else:
            parts.append(f"{key} {_SIGNS.get(operator, operator)} {text}".rstrip())
    return " and ".join(dict.fromkeys(parts))
