"""The namespaces that API servers never ask about, and decisions that heed it.

Files and a live cluster are judged as the webhook would judge them, which in these namespaces is
not at all. The webhook itself does not look here: where somebody has it asked all the same, the
policy counts.
"""

from __future__ import annotations

from policies.engine import Decision, decide
from policies.facts import Facts, JSONObject
from policies.policy import Policy

ALWAYS_EXCLUDED = frozenset(
    {
        "kube-system",
        "calico-system",
        "kube-flannel",
        "openshift-multus",
        "openshift-ovn-kubernetes",
        "tigera-operator",
    }
)
"""Never asked about, whatever the policy says: what a cluster needs to come up again.

Beside the system, these are the networks whose agents have a namespace of their own. Their Pods
tolerate every taint, and a new node needs them before a replica of gpufence can run there.
"""


def decide_if_asked(obj: JSONObject, policy: Policy, facts: Facts) -> Decision:
    """Decide on one object, as ``decide`` does, unless its namespace is never asked about.

    Raises:
        MalformedObjectError: as ``decide`` does, in any namespace.
    """
    decision = decide(obj, policy, facts)
    if facts.namespace not in ALWAYS_EXCLUDED or decision.exemption or not decision.has_template:
        return decision
    return Decision(
        obj, obj, exemption=f"gpufence is never asked about namespace {facts.namespace}"
    )
