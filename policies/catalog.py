"""Every rule by its id, in the order in which it runs: what it is about, and its default action.

The ids are part of gpufence's interface.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies.finding import Action

TITLES: Mapping[str, str] = {
    "device-requests": "Missing requests and limits of device resources.",
    "pool-toleration": "Tolerations for the taints of the pool.",
    "pool-node-affinity": "Required node affinity for the nodes of the pool.",
    "pool-exclusion": "Node affinity that keeps a Pod off GPU nodes that it may not use.",
    "restricted-security-context": "Security context that the Pod Security profile `restricted` "
    "requires.",
    "void-visible-devices": "NVIDIA_VISIBLE_DEVICES=void in containers of a GPU Pod that get no "
    "device by a variable.",
    "assigned-devices": "NVIDIA_VISIBLE_DEVICES removed from containers that request devices.",
    "gpu-runtime-class": "RuntimeClass of the pool.",
    "unequal-device-limits": "Device request that is not equal to its limit, or not a whole "
    "number.",
    "shared-device-count": "Container that requests more than one share of a GPU.",
    "oversized-device-request": "Pod that requests more devices of a pool than the policy allows.",
    "pool-not-allowed": "GPU Pod in a namespace that may not use the GPU pool.",
    "pool-requirements": "GPU Pod that does not state what the pool requires: labels, a run time, "
    "a queue, a fair share.",
    "unschedulable-gpu-pod": "GPU Pod that cannot run on any node.",
    "ambiguous-pool": "GPU Pod for which gpufence cannot choose between pools.",
    "missing-device": "GPU Pod whose containers do not get a device that they request or need.",
    "unrestricted-gpu-pod": "GPU Pod that violates the Pod Security profile `restricted`.",
    "pool-trespass": "Pod without a GPU request that can run on GPU nodes.",
    "system-priority": "GPU Pod or node agent with a priority class of the system, which evicts "
    "other Pods.",
    "device-leak": "Container that uses devices without requesting them.",
    "unrequested-gpu-runtime": "Pod with the RuntimeClass of GPUs that requests none.",
    "privileged-near-devices": "Privileged container that can run on GPU nodes without a GPU "
    "request.",
    "missing-shared-memory": "Container with several GPUs and a small /dev/shm.",
    "admin-access-claim": "Pod with administrative access to the devices of other Pods.",
    "tolerated-device-taint": "GPU Pod that tolerates the taints of broken devices or of nodes in "
    "quarantine.",
    "unknown-device-resource": "Request for a device that no pool offers, without a number, or in "
    "a wrong place.",
    "needs-root": "Container that likely needs root, a home directory, or a privilege that it "
    "does not have.",
    "stuck-rollout": "Workload whose update waits for a GPU that only its old Pod can free.",
    "oversized-gang": "Workload whose Pods can never all run at a time.",
    "stranded-devices": "GPU Pod that makes other devices of its node useless.",
}

DEFAULT_ACTIONS: dict[str, Action] = {
    **dict.fromkeys(TITLES, "enforce"),
    "unrequested-gpu-runtime": "warn",
    "privileged-near-devices": "warn",
    "missing-shared-memory": "warn",
    "admin-access-claim": "warn",
    "tolerated-device-taint": "warn",
    "unknown-device-resource": "warn",
    "needs-root": "warn",
    "stuck-rollout": "warn",
    "oversized-gang": "warn",
    "stranded-devices": "warn",
}
"""The action of a rule where a policy does not name it."""
