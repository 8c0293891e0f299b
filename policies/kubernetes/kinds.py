"""What gpufence knows of the kinds of objects that make Pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from policies.kubernetes.field_types import NOT_EMPTY, CustomGroup, InAPIServer, Label, Part

_SPEC_TEMPLATE = ("spec", "template")
# By API group and kind, in any version: manifests outlive versions.
CORE_WORKLOADS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _SPEC_TEMPLATE,
    ("apps", "DaemonSet"): _SPEC_TEMPLATE,
    ("apps", "Deployment"): _SPEC_TEMPLATE,
    ("apps", "ReplicaSet"): _SPEC_TEMPLATE,
    ("apps", "StatefulSet"): _SPEC_TEMPLATE,
    ("extensions", "DaemonSet"): _SPEC_TEMPLATE,
    ("extensions", "Deployment"): _SPEC_TEMPLATE,
    ("extensions", "ReplicaSet"): _SPEC_TEMPLATE,
    ("batch", "Job"): _SPEC_TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}


@dataclass(frozen=True, slots=True)
class CustomWorkloads(Part):
    """Custom resources that embed pod templates."""

    group: InAPIServer[CustomGroup]
    """The API group, without a version: kubeflow.org."""
    resources: InAPIServer[Annotated[tuple[Label, ...], NOT_EMPTY]]
    """The plural resource names: pytorchjobs."""


WELL_KNOWN: tuple[CustomWorkloads, ...] = (
    CustomWorkloads("argoproj.io", ("cronworkflows", "rollouts", "workflows", "workflowtemplates")),
    CustomWorkloads("batch.volcano.sh", ("jobs",)),
    CustomWorkloads("flink.apache.org", ("flinkdeployments",)),
    CustomWorkloads("jobset.x-k8s.io", ("jobsets",)),
    CustomWorkloads(
        "kubeflow.org",
        ("jaxjobs", "mpijobs", "notebooks", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"),
    ),
    CustomWorkloads("leaderworkerset.x-k8s.io", ("leaderworkersets",)),
    CustomWorkloads("machinelearning.seldon.io", ("seldondeployments",)),
    CustomWorkloads("ray.io", ("rayclusters", "rayjobs", "rayservices")),
    CustomWorkloads("serving.knative.dev", ("services",)),
    CustomWorkloads(
        "serving.kserve.io", ("inferenceservices", "llminferenceservices", "servingruntimes")
    ),
    CustomWorkloads("sparkoperator.k8s.io", ("scheduledsparkapplications", "sparkapplications")),
    CustomWorkloads("trainer.kubeflow.org", ("trainingruntimes", "trainjobs")),
    CustomWorkloads("workload.codeflare.dev", ("appwrappers",)),
)
"""Resources with the names of the projects' own CustomResourceDefinitions, in any version. Their
templates are found whatever their kind."""
