"""Kinds whose structure alone does not tell whether they make Pods, and whose Pods these are.

Sources of the names of Pods: the types of kubeflow/training-operator (``...ReplicaSpecs``),
kubernetes-sigs/jobset, ray-project/kuberay, kubernetes-sigs/lws, volcano-sh/volcano,
argoproj/argo-workflows, kserve/kserve, kubeflow/spark-operator and
apache/flink-kubernetes-operator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import Path as Steps
from policies.kubernetes.paths import descend


class Kinds(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The tables of ``kinds.toml``, whose head explains them. A kind is ``GROUP/KIND``."""

    groups_without_pods: frozenset[str]
    kinds_without_pods: frozenset[str]
    charts: frozenset[str]
    applied_elsewhere: frozenset[str]
    namespaces: dict[str, str]
    operators: dict[str, frozenset[str]]


KNOWN = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Kinds)

_LISTS = {
    "replicatedJobs": ("replicated job", "name"),
    "tasks": ("task", "name"),
    "templates": ("template", "name"),
    "workerGroupSpecs": ("worker group", "groupName"),
}
"""Lists of templates: what an item of the list is, and the field that names it."""

_FIELDS = {
    "driver": "the driver",
    "executor": "the executors",
    "explainer": "the explainer",
    "headGroupSpec": "the head",
    "jobManager": "the job manager",
    "leaderTemplate": "the leader",
    "predictor": "the predictor",
    "submitterPodTemplate": "the submitter",
    "taskManager": "the task managers",
    "trainer": "the trainer",
    "transformer": "the transformer",
    "workerSpec": "the workers",
    "workerTemplate": "the workers",
}
_REPLICAS = "ReplicaSpecs"
"""How the mappings from roles to templates end: ``pytorchReplicaSpecs``."""


def role(obj: JSONObject, path: Steps) -> str:
    """Return whose template is at ``path``; an empty string if the kind has no name for it."""
    value: Any = obj
    title = ""
    for before, step in zip(("", *path), path, strict=False):
        value = descend(value, (step,))
        if before in _LISTS and isinstance(value, dict):
            what, key = _LISTS[before]
            title = f'{what} "{value[key]}"' if value.get(key) else title
        elif str(before).endswith(_REPLICAS):
            title = f"the {step} replicas"
        else:
            title = _FIELDS.get(str(step), title)
    return title
