"""What to do about a Pod that uses GPU nodes or devices without a request, by who wrote its fields.

A request helps the author of a workload. It does not help an agent of the node, a copy of another
Pod, a Pod whose fields a controller writes, or a template to which others add the request.
"""

from __future__ import annotations

from typing import Any

from policies.context import Context
from policies.kubernetes.claims import class_of_resource
from policies.kubernetes.core_v1 import host_path
from policies.kubernetes.objects import mapping
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import is_wildcard
from policies.reach import names_hosts
from policies.vocabulary import BASE_CONTAINERS, BASE_KINDS, CORE, WRITERS
from policies.wording import capitalized


def of_others(remove: str, pod: Pod, context: Context) -> str:
    """Return what to do about the placement that others than the Pod's author wrote, or nothing."""
    return (
        _written(remove, pod, context)
        or _debugging(pod)
        or _bound(remove, pod, context)
        or of_owner(remove, pod)
    )


def of_copy(pod: Pod, context: Context) -> str:
    """Return what to do about a Pod that uses the devices or nodes of another one, or nothing."""
    return _written("", pod, context)


def of_owner(remove: str, pod: Pod) -> str:
    """Return what to do about a Pod that the operator of a custom resource created, or nothing."""
    for owner in (pod.kind == "Pod" and pod.metadata.owner_references) or ():
        if owner.controller and (owner.api_version or "") not in CORE:
            return (
                f"{capitalized(remove)} in {owner.kind} {owner.name}, which creates this Pod, or "
                "request a device there"
            )
    return ""


def is_base(pod: Pod) -> bool:
    """Return whether the request is added to the Pod's template by who uses it."""
    containers = [container.name for container in pod.containers]
    return pod.kind in BASE_KINDS or (
        pod.kind == "Pod" and any(name in containers for name in BASE_CONTAINERS)
    )


def unlisted_classes(pod: Pod, context: Context) -> list[str]:
    """Return the device classes that the Pod requests devices of, and that no pool offers."""
    named = {
        device_class
        for claim in context.claims(pod)
        for classes in claim.used_requests
        for device_class in classes
    }
    implicit = {
        class_of_resource(each.name) for each in pod.device_resources if any(each.nanos.values())
    }
    return sorted(filter(None, (named | implicit) - context.policy.pools_of_class.keys()))


def _written(remove: str, pod: Pod, context: Context) -> str:
    metadata = mapping(pod.template.root.get("metadata"))
    found: dict[str, Any] = {}
    for each in (pod.annotations, metadata.get("annotations")):
        found |= mapping(each)
    for each in (metadata.get("labels"), pod.metadata.labels):
        found |= mapping(each)
    what = remove.removeprefix("remove ")
    for writer in WRITERS:
        value = str(found.get(writer.key) or "")
        if value and writer.value in ("", value) and (what or "WHAT" not in writer.advice):
            advice = writer.advice.replace("NAMESPACE", context.request.namespace)
            return advice.replace("WHAT", what).replace("VALUE", value)
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
    owners = pod.metadata.owner_references or ()
    is_agent = (
        any(map(host_path, spec.volumes or ()))
        or any(owner.controller and owner.kind == "DaemonSet" for owner in owners)
        or bool(spec.host_pid or spec.host_ipc or spec.host_network)
    )
    is_pinned = names_hosts(pod) and any(map(is_wildcard, spec.tolerations or ()))
    if not (spec.node_name or is_agent or is_pinned):
        return ""
    namespace = context.request.namespace
    exempt = f"exempt namespace {namespace} in the policy (exemptions.namespaces)"
    return (
        "If a platform of the cluster creates this Pod, have the cluster administrator "
        f"{'add an exception for it' if namespace == 'default' else exempt}. Otherwise {remove}"
    )
