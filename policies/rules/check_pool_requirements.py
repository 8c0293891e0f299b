"""GPU Pod that does not state what the pool requires: labels, a run time, a queue, a fair share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import floor

from msgspec.structs import replace

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.core_v1 import ObjectMeta
from policies.kubernetes.editor import Addition
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.objects import mapping
from policies.kubernetes.paths import descend, field_path
from policies.kubernetes.pod import Pod, host_peaks
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.kubernetes.workload import convert
from policies.policy import Pool, PoolRequirement
from policies.reach import CONTROLLER_MANAGER, CONTROLLERS, is_kept_off
from policies.requests import claimed_of_host, devices_in_pool
from policies.vocabulary import QUEUE_LABEL

ID = "pool-requirements"
SUMMARY = "the annotations that keep autoscalers from removing its node"

ANNOTATIONS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Sources: kubernetes-sigs/karpenter, ``pkg/apis/v1/labels.go``; kubernetes/autoscaler,
``cluster-autoscaler/utils/drain/drain.go``."""

_DEADLINE = "activeDeadlineSeconds"
_JOBS = frozenset({"CronJob", "Job", "JobSet"})
_HOLDERS_OF_DEADLINE = {
    "Pod": "spec",
    "ClusterWorkflowTemplate": "spec",
    "CronWorkflow": "spec.workflowSpec",
    "RayJob": "spec",
    "TrainJob": "spec",
    "Workflow": "spec",
    "WorkflowTemplate": "spec",
} | dict.fromkeys(
    ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"), "spec.runPolicy"
)
"""Where objects that end have ``activeDeadlineSeconds``. Jobs have it next to their template.

Sources: ray-project/kuberay, ``ray-operator/apis/ray/v1/rayjob_types.go``; kubeflow/trainer,
``pkg/apis/trainer/v1alpha1/trainjob_types.go`` (from v2.2); kubeflow/training-operator,
``pkg/apis/kubeflow.org/v1/common_types.go`` (RunPolicy); argoproj/argo-workflows,
``pkg/apis/workflow/v1alpha1/workflow_types.go``.
"""
_CORE_KINDS = frozenset(kind for _, kind in CORE_WORKLOADS)
_COMPLETED = frozenset({"argoproj.io", "serving.kserve.io"})
"""Groups whose objects may leave it to an operator what their Pods are."""
_SERVICE_ACCOUNT = "system:serviceaccount:"
_CONTROLLERS = {CONTROLLER_MANAGER, *CONTROLLERS.values()}
"""Who creates the Pods and the objects of core workloads. An operator has any service account."""
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_UNITS = {"cpu": (NANOS, " CPUs"), "memory": (NANOS * 2**30, "Gi of memory")}


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each requirement of its pools that the Pod does not meet."""
    requested: Iterable[Pool] = context.requested_pools
    if len(context.requested_pools) > 1 and any(pool.requires for pool in requested):
        # Of several pools, known nodes tell which ones the Pod can get.
        within_reach = [pool for pool in requested if not is_kept_off(pod, pool, context)]
        requested = within_reach or requested
    for pool in requested:
        for entry in pool.requires:
            for unmet in _unmet(pod, pool, entry, context):
                yield replace(unmet, action=entry.action)


def meets(pod: Pod, pool: Pool, context: Context) -> bool:
    """Return whether the Pod meets what the pool requires, as far as the policy enforces it."""
    return context.actions.written[ID] != "enforce" or not any(
        any(_unmet(pod, pool, entry, context))
        for entry in pool.requires
        if entry.action == "enforce"
    )


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Add the annotations where a pool requires them and the metadata are those of the Pod."""
    for pool in context.requested_pools:
        for entry in pool.requires:
            if entry.do_not_disrupt and entry.action == "enforce":
                if pod.has_metadata and _loses_its_work(pod):
                    yield Addition(pod.metadata, ("metadata", "annotations"), {**ANNOTATIONS})
                return


def _unmet(pod: Pod, pool: Pool, entry: PoolRequirement, context: Context) -> Iterator[Finding]:
    yield from _priority(pod, pool, entry)
    if not pod.devices_only:
        yield from _labels(pod, pool, entry)
        if entry.do_not_disrupt and entry.action == "warn":
            yield from _disruption(pod, pool)
    if (entry.max_runtime or entry.queue) and not _is_judged_at_owner(pod, context):
        yield from _runtime(pod, pool, entry)
        if entry.queue and not any(labels.get(QUEUE_LABEL) for labels in _labels_of_workload(pod)):
            yield _missing_queue(pod, pool)
    yield from _share(pod, pool, entry, context)


def _labels(pod: Pod, pool: Pool, entry: PoolRequirement) -> Iterator[Finding]:
    template, sources = pod.template, [pod.metadata.labels or {}]
    path = pod.at("metadata.labels")
    if template.spec_path[-1] != "spec" and "metadata" not in template.raw:
        # The operator takes the labels of the Pod from elsewhere in its object.
        path = "metadata.labels"
        for _, holder in template.holders():
            sources += [
                mapping(descend(holder, at)) for at in (("labels",), ("metadata", "labels"))
            ]
    for key, values in entry.labels.items():
        found = {labels[key] for labels in sources if labels.get(key) is not None}
        if not found or (values and found.isdisjoint(values)):
            yield missing_label(pool, key, values, path)


def missing_label(pool: Pool, key: str, values: tuple[str, ...], path: str) -> Finding:
    """Return what to say about a Pod without one of the values of a label."""
    needed = f"{key} with the value {' or '.join(values)}" if values else key
    return Finding(
        ID,
        path,
        "the Pod lacks a label that the GPU pool requires",
        f"Pods need the label {needed} to use GPU pool {pool.name}",
        "Add it to the labels of the Pod, or of the pod template",
    )


def _priority(pod: Pod, pool: Pool, entry: PoolRequirement) -> Iterator[Finding]:
    name = pod.spec.priority_class_name
    if entry.priority_classes and name and name not in entry.priority_classes:
        yield wrong_priority(pool, entry, pod.at("spec.priorityClassName"))


def wrong_priority(pool: Pool, entry: PoolRequirement, path: str) -> Finding:
    """Return what to say about a Pod with another PriorityClass."""
    classes = " or ".join(sorted(entry.priority_classes))
    return Finding(
        ID,
        path,
        "the GPU pool does not accept the priority class of the Pod",
        f"Pods of this class can evict other teams' Pods; GPU pool {pool.name} accepts {classes}",
        f"Set priorityClassName to {classes}, or remove it",
    )


def _runtime(pod: Pod, pool: Pool, entry: PoolRequirement) -> Iterator[Finding]:
    if entry.max_runtime is None:
        return
    most = f"{(longest := seconds(entry.max_runtime))} or less ({entry.max_runtime})"
    if limits := dict(_deadlines(pod)):
        path = min(limits, key=lambda path: limits[path])
        if limits[path] > longest:
            yield Finding(
                ID,
                path,
                "the Pod may run for longer than the GPU pool allows",
                f"{limits[path]} seconds are more than the {entry.max_runtime} that a Pod may use "
                f"GPU pool {pool.name}",
                f"Set it to {most}, and save checkpoints from which the next run continues",
            )
        return
    place = _HOLDERS_OF_DEADLINE.get(pod.kind)
    if pod.kind in _JOBS:
        above = pod.template.spec_path[:-2]
        # The Jobs of Volcano have several templates, and no deadline of their own.
        place = field_path(above) if above[-1:] == ("spec",) else pod.at("spec")
    yield Finding(
        ID,
        place or pod.at("spec"),
        "nothing limits the run time of the Pod",
        f"a Pod may use GPU pool {pool.name} for {entry.max_runtime}, and this {pod.kind} sets no "
        f"{_DEADLINE}",
        f"Set {place}.{_DEADLINE} to {most}"
        if place
        else "Workloads of this kind have no run-time limit: run the work as a Job with "
        f"spec.{_DEADLINE} of {most}. For a service, request an exception from the cluster "
        "administrator",
    )


def _deadlines(pod: Pod) -> Iterator[tuple[str, int]]:
    """Yield the run-time limits of the Pod and of what it stands in, in seconds, by their path."""
    if pod.spec.active_deadline_seconds is not None:
        yield pod.at(f"spec.{_DEADLINE}"), pod.spec.active_deadline_seconds
    for path, holder in pod.template.holders():
        for steps in ((_DEADLINE,), ("runPolicy", _DEADLINE)):
            value = descend(holder, steps)
            if isinstance(value, int):
                yield field_path((*path, *steps)), value


def _labels_of_workload(pod: Pod) -> Iterator[Mapping[str, str | None]]:
    """Yield the labels by which Kueue finds the queue: a CronJob's own are not on its Jobs."""
    yield pod.metadata.labels or {}
    for path, holder in pod.template.holders():
        if path or pod.kind != "CronJob":
            yield mapping(descend(holder, ("metadata", "labels")))


def _missing_queue(pod: Pod, pool: Pool) -> Finding:
    place = f"metadata.labels of the {pod.kind}"
    path = pod.at("metadata.labels") if pod.kind in _CORE_KINDS - _JOBS else "metadata.labels"
    if pod.kind == "CronJob":
        path = place = "spec.jobTemplate.metadata.labels"
    return Finding(
        ID,
        path,
        "the Pod has no queue",
        f"Pods wait for GPU pool {pool.name} in a queue of Kueue, and the label {QUEUE_LABEL} is "
        "missing",
        f"Set {QUEUE_LABEL} in {place} to a queue of your namespace (kubectl get localqueues)",
    )


def _share(pod: Pod, pool: Pool, entry: PoolRequirement, context: Context) -> Iterator[Finding]:
    """Yield what is wrong with the number of devices and with the requests for each of them."""
    if not (entry.min_devices or entry.max_cpu_per_device or entry.max_memory_per_device):
        return
    devices = devices_in_pool(pod, pool, context, min)
    if not devices:
        return
    if entry.min_devices and devices < entry.min_devices:
        yield few_devices(pool, entry.min_devices, pod.at("spec"))
    limits = {"cpu": entry.max_cpu_per_device, "memory": entry.max_memory_per_device}
    for requested, (name, limit) in zip(host_peaks(pod.spec), limits.items(), strict=True):
        if limit is None:
            continue
        claimed, most = claimed_of_host(pod, name, context), parse_quantity(limit) * devices
        if requested + claimed > most:
            counted = f" ({shown_host(name, claimed)} by its claims)" if claimed else ""
            yield Finding(
                ID,
                pod.at("spec.resourceClaims")
                if claimed > requested
                else largest_request(pod, name),
                f"the Pod requests more {name} than its share of a GPU node",
                f"the Pod requests {shown_host(name, requested + claimed)}{counted} for {devices} "
                f"{'device' if devices == 1 else 'devices'}; GPU pool {pool.name} has "
                f"{shown_host(name, parse_quantity(limit))} for each device",
                f"Request {shown_host(name, most)} or less, all containers "
                f"{'and claims ' if claimed else ''}together",
            )


def few_devices(pool: Pool, least: int, path: str) -> Finding:
    """Return what to say about a Pod with too few devices."""
    return Finding(
        ID,
        path,
        "the Pod requests fewer devices than the GPU pool is for",
        f"GPU pool {pool.name} is for Pods with {least} devices or more",
        f"Request {least}, or select the nodes of another pool",
    )


def largest_request(pod: Pod, name: str) -> str:
    """Return where the largest request of cpu or memory stands, or the limit in its place.

    If no container has one, the overhead of the RuntimeClass is what the Pod requests.
    """
    own = pod.spec.resources
    if own and name in {**(own.limits or {}), **(own.requests or {})}:
        return pod.at("spec.resources")
    sizes = {
        container.field: {**container.resources("limits"), **container.resources("requests")}
        for container in pod.containers
    }
    requested = [field for field in sizes if name in sizes[field]]
    largest = max(requested, key=lambda field: parse_quantity(sizes[field][name]), default="")
    return pod.at(f"{largest}.resources" if largest else "spec.overhead")


def shown_host(name: str, nanos: float) -> str:
    """Return an amount of cpu or memory, for messages."""
    unit, text = _UNITS[name]
    return f"{floor(nanos * 100 / unit) / 100:.12g}{text}"


def _disruption(pod: Pod, pool: Pool) -> Iterator[Finding]:
    missing = [key for key in ANNOTATIONS if key not in pod.annotations]
    if missing and _loses_its_work(pod):
        wanted = " and ".join(f'{key}: "{ANNOTATIONS[key]}"' for key in missing)
        yield Finding(
            ID,
            pod.at("metadata.annotations"),
            f"the Pod lacks {SUMMARY}",
            f"an autoscaler may remove the node of GPU pool {pool.name} before the Pod ends, and "
            "then its work is lost",
            f"Add the annotations {wanted}",
        )


def _loses_its_work(pod: Pod) -> bool:
    """Return whether nothing continues the Pod's work when its node is removed.

    A Job replaces its Pods, which start from the beginning. It takes no Pods that always restart.
    """
    owners = pod.metadata.owner_references or ()
    is_controlled = pod.kind != "Pod" or any(owner.controller for owner in owners)
    return not is_controlled or pod.spec.restart_policy in ("Never", "OnFailure")


def _is_judged_at_owner(pod: Pod, context: Context) -> bool:
    """Return whether a controller makes the object from another one that gpufence judges.

    Any client can write an owner reference: it counts where the account of a controller sends the
    request. An existing Pod keeps the owners that are stored.
    """
    metadata = pod.metadata
    if pod.kind != "Pod":
        metadata = convert(mapping(pod.template.root.get("metadata")), ObjectMeta)
    custom = {workloads.group for workloads in context.policy.custom_workloads} - _COMPLETED
    user = context.request.username
    stored = context.old_owners if context.exists(pod) else ()
    for owner in metadata.owner_references or ():
        is_known = owner in stored or not context.request.fail_closed
        group, slash, _ = (owner.api_version or "").partition("/")
        key = (group if slash else "", owner.kind)
        if owner.controller and (
            (key in CORE_WORKLOADS and (is_known or user in _CONTROLLERS))
            or (key[0] in custom and (is_known or user.startswith(_SERVICE_ACCOUNT)))
        ):
            return True
    return False


def seconds(duration: str) -> int:
    """Return the seconds of a duration: ``1h30m``."""
    parts = re.findall("([0-9]+)([hms])", duration)
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)
