"""How many Pods of a workload run at a time, as its kind says.

A suspended workload runs none, and an elastic one its minimum. What is not known is ``None``.

Sources: ``k8s.io/api/batch/v1``; the types of kubernetes-sigs/jobset (``JobSetSpec``),
kubernetes-sigs/lws (``LeaderWorkerSetSpec``), kubeflow/training-operator (``common_types.go``,
``ElasticPolicy``), kubeflow/mpi-operator, kubeflow/trainer (``Trainer``), volcano-sh/volcano
(``JobSpec``, ``TaskSpec``); ray-project/kuberay, ``GetWorkerGroupDesiredReplicas`` in
``ray-operator/controllers/ray/utils/util.go``; kubernetes-sigs/kueue,
``pkg/controller/jobs/job/job_controller.go`` (``JobMinParallelismAnnotation``) and
``apis/kueue/v1beta1/topology_types.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.kubernetes.paths import Path, descend, field_path
from policies.kubernetes.template import Template
from policies.kubernetes.templates import group_kind

_FRAMEWORKS = ("JAX", "MPI", "MX", "Paddle", "PyTorch", "TF", "XGBoost")
_KINDS: Mapping[str, tuple[str, ...]] = {
    "batch": ("CronJob", "Job"),
    "batch.volcano.sh": ("Job",),
    "jobset.x-k8s.io": ("JobSet",),
    "kubeflow.org": tuple(f"{framework}Job" for framework in _FRAMEWORKS),
    "leaderworkerset.x-k8s.io": ("LeaderWorkerSet",),
    "ray.io": ("RayCluster", "RayJob", "RayService"),
    "trainer.kubeflow.org": ("TrainJob",),
    "workload.codeflare.dev": ("AppWrapper",),
}
"""The kinds whose Pods need each other, or are all of one task. A Deployment has others."""

_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
_GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


_EXCLUSIVE = (
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
)
_KUEUE = "kueue.x-k8s.io/podset-"


class AtATime(NamedTuple):
    """The number of Pods of a template that run at a time, and the path of the last factor.

    ``replicas`` is the factor that multiplies Jobs of a JobSet, or groups of a LeaderWorkerSet.
    """

    pods: int
    path: str
    replicas: int = 1


class Together(NamedTuple):
    """So many Pods that have to run on nodes with one value of the label ``key``.

    With several ``groups``, each of them needs a value of its own.
    """

    key: str
    pods: int
    groups: int = 1


class _UnknownError(Exception):
    """A number that the object does not say."""


def is_gang(root: Mapping[str, Any]) -> bool:
    """Return whether the Pods of an object of this kind run together."""
    group, kind = group_kind(root)
    return kind in _KINDS.get(group, ())


def pods_at_a_time(template: Template) -> AtATime | None:
    """Return how many Pods of the template its object runs at a time; ``None`` if unknown."""
    pods, replicas, path = 1, 1, template.spec_path
    try:
        for at, holder in template.holders():
            if True in (holder.get("suspend"), mapping(holder.get("runPolicy")).get("suspend")):
                return AtATime(0, field_path(at))
            for field, factor in _factors(template, at, holder):
                pods *= max(0, factor)
                replicas *= factor if field == "replicas" else 1
                path = (*at, field) if factor != 1 or path == template.spec_path else path
    except _UnknownError:
        return None
    return AtATime(pods, field_path(path), replicas)


def fewest_pods(root: Mapping[str, Any]) -> int | None:
    """Return with how many Pods in all the object starts, if it says so."""
    spec = mapping(root.get("spec"))
    group, _ = group_kind(root)
    path: Path = ("minAvailable",) if group == "batch.volcano.sh" else ()
    if group == "kubeflow.org":
        path = ("runPolicy", "schedulingPolicy", "minAvailable")
    fewest = descend(spec, path) if path else None
    return fewest if type(fewest) is int and fewest > 0 else None


def is_in_turns(root: Mapping[str, Any]) -> bool:
    """Return whether some Pods of the object start after others, which may have ended by then."""
    spec = mapping(root.get("spec"))
    parts = (*mappings(spec.get("replicatedJobs")), *mappings(spec.get("tasks")))
    return any(part.get("dependsOn") for _, part in parts)


def group_of(template: Template) -> str:
    """Return the name of the PodGroup that the Pods of a template belong to; empty without one."""
    metadata = mapping(template.raw.get("metadata"))
    own = descend(template.raw, ("spec", "schedulingGroup", "podGroupName"))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    named = (own, *map(labels.get, _GROUP_LABELS), *map(annotations.get, _GROUP_ANNOTATIONS))
    return next((name for name in named if isinstance(name, str) and name), "")


def together(template: Template, pods: int, replicas: int) -> Iterator[Together]:
    """Yield which Pods of the template have to run in one domain of a topology, such as a rack.

    A Pod affinity whose Pods differ by the label of a controller is not among them.
    """
    each = pods // max(1, replicas)
    for _, holder in template.holders():
        annotations = mapping(descend(holder, ("metadata", "annotations")))
        for key in filter(None, map(annotations.get, _EXCLUSIVE)):
            yield Together(str(key), each, replicas)
    own = mapping(descend(template.raw, ("metadata", "annotations")))
    if key := own.get(f"{_KUEUE}required-topology"):
        # Kueue admits each group of a LeaderWorkerSet by itself.
        yield Together(str(key), each if template.kind == "LeaderWorkerSet" else pods)
    size = str(own.get(f"{_KUEUE}slice-size") or "")
    if (key := own.get(f"{_KUEUE}slice-required-topology")) and size.isdecimal():
        yield Together(str(key), int(size))
    labels = mapping(descend(template.raw, ("metadata", "labels")))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = mapping(descend(template.raw, ("spec", "affinity", "podAffinity"))).get(required)
    for _, term in mappings(terms):
        selector = mapping(term.get("labelSelector"))
        is_plain = selector and term.keys() <= {"labelSelector", "topologyKey"}
        if is_plain and _selects(selector, labels):
            yield Together(str(term.get("topologyKey")), pods)


def _selects(selector: JSONObject, labels: JSONObject) -> bool:
    """Return whether the selector surely selects Pods with these labels."""
    return mapping(selector.get("matchLabels")).items() <= labels.items() and all(
        each.get("operator") == "In"
        and isinstance(values := each.get("values"), list)
        and labels.get(str(each.get("key"))) in values
        for _, each in mappings(selector.get("matchExpressions"))
    )


def _factors(template: Template, at: Path, holder: JSONObject) -> Iterator[tuple[str, int]]:
    """Yield the fields of a part of the object that multiply its Pods, each with its number."""
    last, spec = at[-2:-1], mapping(descend(template.root, at[:-2]))
    if last == ("workerGroupSpecs",):
        yield "replicas", _ray_workers(holder, spec)
        yield "numOfHosts", _number(holder, "numOfHosts", 1)
    elif "parallelism" in holder or "completions" in holder:
        yield "parallelism", _of_job(template.root, at, holder)
    elif "workerTemplate" in holder:
        size, has_leader = _number(holder, "size", 1), "leaderTemplate" in holder
        is_leader = "leaderTemplate" in template.spec_path
        yield "size", 1 if is_leader else size - has_leader
    elif last == ("pytorchReplicaSpecs",) and at[-1] == "Worker" and spec.get("elasticPolicy"):
        elastic = mapping(spec["elasticPolicy"])
        yield "replicas", min(_number(elastic, "minReplicas", 1), _number(holder, "replicas", 1))
    elif last == ("tasks",):
        replicas = _number(holder, "replicas", 1)
        yield "replicas", min(replicas, _number(holder, "minAvailable", replicas))
    elif template.kind == "TrainJob" and at == ("spec", "trainer"):
        yield "numNodes", _number(holder, "numNodes", None)
    elif "replicas" in holder:
        yield "replicas", _number(holder, "replicas", 1)


def _of_job(root: Mapping[str, Any], at: Path, spec: JSONObject) -> int:
    """Return how many Pods of a Job run at a time: those that have succeeded do not run again."""
    pods = _number(spec, "parallelism", 1)
    minimum = descend(spec, ("scheduling", "schedulingPolicy", "gang", "minCount"))
    pods = min(pods, minimum) if type(minimum) is int else pods
    left = _number(spec, "completions", pods)
    if at == ("spec",):
        left -= _number(mapping(root.get("status")), "succeeded", 0)
        annotations = mapping(descend(root, ("metadata", "annotations")))
        given = str(annotations.get(_MIN_PARALLELISM) or "")
        pods = min(pods, int(given)) if given.isdecimal() else pods
    return min(pods, left) if spec.get("completions") is not None else pods


def _ray_workers(group: JSONObject, cluster: JSONObject) -> int:
    """Return the replicas of a worker group: with the autoscaler of Ray, those that it keeps."""
    least = _number(group, "minReplicas", 0)
    if cluster.get("enableInTreeAutoscaling"):
        return least
    replicas = max(_number(group, "replicas", 0), least)
    return min(replicas, _number(group, "maxReplicas", replicas))


def _number(holder: Mapping[str, Any], field: str, default: int | None) -> int:
    """Return the number in a field; raises for another value, and without a default."""
    value = holder.get(field)
    value = default if value is None else value
    if type(value) is not int:
        raise _UnknownError
    return value
