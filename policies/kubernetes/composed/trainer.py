"""Kubeflow Trainer: a TrainJob names a runtime, another object, which has the pod template.

The TrainJob itself sets the resources of each of its nodes, and patches the template. Source:
kubeflow/trainer, ``pkg/apis/trainer/v1alpha1/trainjob_types.go`` (``ResourcesPerNode``).
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.kubernetes.composed.values import descend, mapping, names_device
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.template import Path, Template, Unjudged

GROUP = "trainer.kubeflow.org"
KINDS = ("TrainJob",)


def compose(obj: JSONObject, at: Path) -> Iterator[Template | Unjudged]:
    """Yield what is known of the trainer's Pods, if they request devices."""
    path = (*at, "spec", "trainer")
    trainer = mapping(descend(obj, ("spec", "trainer")))
    container = {"name": "node", "resources": mapping(trainer.get("resourcesPerNode"))}
    if names_device(container):
        # They replace the resources of the runtime's container of that name.
        aliases = {"containers[0].resources": ".resourcesPerNode"}
        spec = {"containers": [container]}
        yield Template({"spec": spec}, path, obj["kind"], aliases, devices_only=True)
    yield Unjudged((*at, "spec", "runtimeRef"), "the pod template is part of the training runtime")
