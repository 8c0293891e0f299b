"""Pods that platforms make for a node, or as copies of other Pods: volume helpers, data movers.

A GPU does not help such a Pod, and its author is a controller. The policy can exempt its namespace.
"""

from __future__ import annotations

from policies.context import Context
from policies.kubernetes.core_v1 import host_path
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import is_wildcard
from policies.reach import names_hosts
from policies.vocabulary import COPIES


def of_platform(remove: str, pod: Pod, context: Context) -> str:
    """Return what to do about a Pod of a platform that uses GPU nodes; empty for other Pods."""
    return _copied(pod, context) or _debugging(pod) or _bound(remove, pod, context)


def _copied(pod: Pod, context: Context) -> str:
    labels = pod.metadata.labels or {}
    for copy in COPIES:
        if copy.label in labels and copy.value in ("", labels[copy.label]):
            return copy.advice(context.request.namespace)
    return ""


def _debugging(pod: Pod) -> str:
    spec = pod.spec
    if pod.kind != "Pod" or pod.metadata.owner_references:
        return ""
    if not (spec.node_name and spec.host_pid):
        return ""
    node = f"node/{spec.node_name}"
    return (
        f"To debug the node, use an exempt namespace: kubectl debug {node} "
        f"--namespace=kube-system, or oc debug {node} --to-namespace=kube-system"
    )


def _bound(remove: str, pod: Pod, context: Context) -> str:
    spec = pod.spec
    is_agent = _mounts_node(pod) or spec.host_pid or spec.host_ipc or spec.host_network
    is_pinned = names_hosts(pod) and any(map(is_wildcard, spec.tolerations or ()))
    if not (spec.node_name or is_agent or is_pinned):
        return ""
    namespace = context.request.namespace
    exempt = f"exempt namespace {namespace} in the policy (exemptions.namespaces)"
    return (
        "If a platform of the cluster creates this Pod, have the cluster administrator "
        f"{'add an exception for it' if namespace == 'default' else exempt}. Otherwise {remove}"
    )


def _mounts_node(pod: Pod) -> bool:
    return any(host_path(volume) for volume in pod.spec.volumes or ())
