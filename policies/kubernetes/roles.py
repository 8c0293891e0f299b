"""What a custom resource calls the Pods of one of its templates: Worker replicas, the head.

A path says where a template stands; for the well-known kinds this says whose it is. Sources: the
types of kubeflow/training-operator (``...ReplicaSpecs``), kubernetes-sigs/jobset, ray-project/
kuberay, kubernetes-sigs/lws, volcano-sh/volcano, argoproj/argo-workflows and kserve/kserve.
"""

from __future__ import annotations

from typing import Any

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.template import Path

_LISTS = {
    "replicatedJobs": ("replicated job", "name"),
    "tasks": ("task", "name"),
    "templates": ("template", "name"),
    "workerGroupSpecs": ("worker group", "groupName"),
}
"""Lists of templates: what one of them is, and the field that names it."""

_FIELDS = {
    "explainer": "the explainer",
    "headGroupSpec": "the head",
    "leaderTemplate": "the leader",
    "predictor": "the predictor",
    "trainer": "the trainer",
    "transformer": "the transformer",
    "workerTemplate": "the workers",
}
_REPLICAS = "ReplicaSpecs"
"""How the mappings from roles to templates end: ``pytorchReplicaSpecs``."""


def role(obj: JSONObject, path: Path) -> str:
    """Return whose template stands at ``path``; nothing where nobody has a name for it."""
    value: Any = obj
    found = ""
    for before, step in zip(("", *path), path, strict=False):
        value = value[step]
        if before in _LISTS and isinstance(value, dict):
            what, key = _LISTS[before]
            found = f'{what} "{value[key]}"' if value.get(key) else found
        elif str(before).endswith(_REPLICAS):
            found = f"the {step} replicas"
        else:
            found = _FIELDS.get(str(step), found)
    return found
