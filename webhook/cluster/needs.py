"""The cluster facts that the rules of a policy need."""

from __future__ import annotations

from policies.context import Fact
from policies.policy import Policy
from policies.vocabulary import describe_pools

_BOUND_POD_RULES = ("pool-trespass", "missing-device")


def needed_facts(policy: Policy) -> dict[Fact, str]:
    """Return the facts that the rules need, each with what the webhook does without it.

    Without a pool, there are none: a process starts so, before it knows its policy.
    """
    needs: dict[Fact, str] = {}
    if not policy.pools:
        return needs
    if any(each[rule] != "off" for rule in _BOUND_POD_RULES for each in policy.action_sets):
        needs["nodes"] = (
            "Pods with spec.nodeName are denied, and Pods that select GPU nodes by other labels "
            "than those of a pool are not found"
        )
    if pools := [
        pool for pool in policy.pools if (own := pool.allowed_namespaces) and own.by_labels
    ]:
        needs["namespaces"] = (
            f"requests for {describe_pools(pools)} are denied, except in the namespaces that "
            "allowedNamespaces.names lists"
        )
    elif policy.selectors:
        needs["namespaces"] = (
            "the stricter settings count where namespaceSelector of an override decides, and no "
            "exception counts by its namespaceSelector"
        )
    if any(each["unrequested-gpu-runtime"] != "off" for each in policy.action_sets):
        needs["runtimeclasses"] = "RuntimeClasses of GPUs with names of their own are not found"
    if pools := [pool for pool in policy.pools if pool.runtime_class]:
        needs["runtimeclasses"] = f"GPU Pods of {describe_pools(pools)} get no runtime class"
    if pools := [pool for pool in policy.pools if pool.device_classes]:
        needs["deviceclasses"] = (
            f"a request for an extended resource that a device class of {describe_pools(pools)} "
            "provides is not found"
        )
    needs["resourceslices"] = (
        "the devices of DRA drivers are not found: Pods that select their nodes are admitted, and "
        "GPU Pods must have the labels of the pool"
    )
    return needs
