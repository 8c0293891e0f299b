"""GPU Pod or node agent with a priority class of the system, which evicts other Pods."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.objects import mapping
from policies.kubernetes.pod import Pod
from policies.reach import pools_by_toleration

ID = "system-priority"

CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
"""Every cluster has them. Source: ``k8s.io/kubernetes/pkg/apis/scheduling``, SystemPriorityClasses.
"""


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if the Pod can evict Pods of GPU nodes."""
    name = pod.spec.priority_class_name
    if name not in CLASSES:
        return
    namespace = context.request.namespace
    if context.device_requests:
        subject = "a GPU Pod"
        remediation = (
            "Remove priorityClassName, or use a PriorityClass of your cluster. For a Pod of the "
            f"cluster itself, an administrator can exempt namespace {namespace} in the policy "
            "(exemptions.namespaces)"
        )
    elif pod.kind == "DaemonSet" and (
        pools := pools_by_toleration(pod, pod.spec.tolerations or (), context)
    ):
        subject = f"a node agent on the nodes of pool {pools[0].name}"
        name_of_agent = mapping(pod.template.root.get("metadata")).get("name")
        remediation = (
            "If all nodes need this agent, have the cluster administrator add an exception: "
            f"{{rules: [{ID}], namespaces: [{namespace}], kinds: [DaemonSet], names: "
            f"[{name_of_agent}], reason: TEXT}}. Otherwise, remove priorityClassName, or exclude "
            "GPU nodes in the node affinity"
        )
    else:
        return
    yield Finding(
        ID,
        pod.at("spec.priorityClassName"),
        f"{subject} has a priority class of the system",
        f"where a Pod of class {name} does not fit, the scheduler evicts the Pods of all teams",
        remediation,
    )
