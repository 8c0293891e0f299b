"""The cluster facts that the rules of a policy need, and what happens without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from policies.context import Context
from policies.kubernetes.pod import Pod
from policies.policy import Policy, Pool
from policies.requests import describe_pools

Fact = Literal["nodes", "namespaces", "runtimeclasses", "deviceclasses"]
"""The plural of a kind of which the rules need to know every object."""

MissingFact = Fact | Literal["resourceclaims"]
"""A fact that a decision lacks; of claims, rules need only those that the Pod names."""

_BOUND_POD_RULES = ("pool-trespass", "missing-device")


def needed_facts(policy: Policy) -> dict[Fact, str]:
    """Return the facts that the rules need, each with what the webhook does without it."""
    needs: dict[Fact, str] = {}
    if any(_is_on(rule, policy) for rule in _BOUND_POD_RULES):
        needs["nodes"] = (
            "Pods with spec.nodeName are denied, and Pods that select GPU nodes by other labels "
            "than those of a pool are not found"
        )
    if pools := [pool for pool in policy.pools if _admits_by_label(pool)]:
        needs["namespaces"] = (
            f"requests for {describe_pools(pools)} are denied, except in the namespaces that "
            "allowedNamespaces.names lists"
        )
    if pools := [pool for pool in policy.pools if pool.runtime_class]:
        needs["runtimeclasses"] = f"GPU Pods of {describe_pools(pools)} get no runtime class"
    if pools := [pool for pool in policy.pools if pool.device_classes]:
        needs["deviceclasses"] = (
            f"a request for an extended resource that a device class of {describe_pools(pools)} "
            "provides is not found"
        )
    return needs


def missing_facts(pod: Pod, context: Context) -> Iterator[MissingFact]:
    """Yield the facts that are unknown and that may change the verdict on the Pod."""
    if pod.spec.node_name and context.facts.nodes is None:
        yield "nodes"
    if context.facts.namespace_labels is None and any(
        _admits_by_label(pool) and context.request.namespace not in pool.allowed_namespaces.names
        for pool in context.offering_pools
        if pool.allowed_namespaces
    ):
        yield "namespaces"
    if (
        pod.spec.resource_claims
        and context.policy.pools_of_class
        and any(named.entry.is_used for named in context.unresolved_claims(pod))
    ):
        yield "resourceclaims"


def _admits_by_label(pool: Pool) -> bool:
    return bool(pool.allowed_namespaces and pool.allowed_namespaces.by_labels)


def _is_on(rule: str, policy: Policy) -> bool:
    return any(actions.get(rule) != "off" for actions in policy.action_sets)
