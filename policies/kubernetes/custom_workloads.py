"""Custom resources that embed pod templates, and that a cluster is configured to send.

Templates are found by structure (``policies.kubernetes.templates``), whatever the
kind. An API server sends only the resources that are registered; these are the well-known ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from policies.kubernetes.field_types import CustomGroup, Label, NotEmpty, Part


@dataclass(frozen=True, slots=True)
class CustomWorkloads(Part):
    """Custom resources that embed pod templates."""

    group: CustomGroup
    """The API group, without a version: kubeflow.org."""
    resources: Annotated[tuple[Label, ...], NotEmpty()]
    """The plural resource names: pytorchjobs."""


WELL_KNOWN: tuple[CustomWorkloads, ...] = (
    CustomWorkloads("argoproj.io", ("cronworkflows", "rollouts", "workflows", "workflowtemplates")),
    CustomWorkloads("batch.volcano.sh", ("jobs",)),
    CustomWorkloads("flink.apache.org", ("flinkdeployments",)),
    CustomWorkloads("jobset.x-k8s.io", ("jobsets",)),
    CustomWorkloads(
        "kubeflow.org",
        (
            "jaxjobs",
            "mpijobs",
            "notebooks",
            "paddlejobs",
            "pytorchjobs",
            "tfjobs",
            "xgboostjobs",
        ),
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
"""Each with its definition in the project's own CustomResourceDefinitions, in any version."""
