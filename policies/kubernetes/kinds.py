"""What gpufence knows of the kinds of objects that make Pods.

Sources of the names that custom resources give to the Pods of their templates: the types of
kubeflow/training-operator (``...ReplicaSpecs``), kubernetes-sigs/jobset, ray-project/kuberay,
kubernetes-sigs/lws, volcano-sh/volcano, argoproj/argo-workflows, kserve/kserve,
kubeflow/spark-operator and apache/flink-kubernetes-operator.
"""

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
# Groups whose objects make no Pods: the built-in ones (k8s.io/client-go/kubernetes/scheme), except
# for the workloads above, and those that only describe other objects.
GROUPS_WITHOUT_PODS = frozenset(
    {
        "",
        "apps",
        "autoscaling",
        "batch",
        "extensions",
        "policy",
        "kustomize.config.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        # These describe Pods, or hold patterns of Pods.
        "auto.gke.io",
        "chainsaw.kyverno.io",
        "constraints.gatekeeper.sh",
        "gateway.networking.k8s.io",
        "gpufence.dev",
        "karpenter.sh",
        "kyverno.io",
        "mutations.gatekeeper.sh",
        "policies.kyverno.io",
        "templates.gatekeeper.sh",
    }
)
KINDS_WITHOUT_PODS = frozenset(
    {
        ("kueue.x-k8s.io", "ResourceFlavor"),
        # The DRA driver runs a DaemonSet for each, in its own namespace.
        ("resource.nvidia.com", "ComputeDomain"),
        # Quotas of devices.
        ("kubeflow.org", "Profile"),
        ("nos.nebuly.ai", "CompositeElasticQuota"),
        ("nos.nebuly.ai", "ElasticQuota"),
        # The group of its samples; the one above is that of its documentation.
        ("nos.nebuly.com", "CompositeElasticQuota"),
        ("nos.nebuly.com", "ElasticQuota"),
        ("scheduling.sigs.k8s.io", "ElasticQuota"),
        ("scheduling.volcano.sh", "Queue"),
        ("scheduling.x-k8s.io", "ElasticQuota"),
    }
)
HELM_CHARTS = frozenset(
    {
        ("argoproj.io", "Application"),
        ("helm.cattle.io", "HelmChart"),
        ("helm.cattle.io", "HelmChartConfig"),
        ("helm.toolkit.fluxcd.io", "HelmRelease"),
    }
)
"""Kinds with the values of a Helm chart."""

KINDS_OF_OPERATORS = {
    "amd.com": frozenset({"DeviceConfig"}),
    "apps.nvidia.com": frozenset(
        {
            "NIMBuild",
            "NIMCache",
            "NIMPipeline",
            "NIMService",
            "NemoCustomizer",
            "NemoDatastore",
            "NemoEntitystore",
            "NemoEvaluator",
            "NemoGuardrail",
        }
    ),
    "inference.llmaz.io": frozenset({"Playground"}),
    "kai.scheduler": frozenset({"Config", "SchedulingShard"}),
    "kaito.sh": frozenset({"InferenceSet", "MultiRoleInference", "RAGEngine", "Workspace"}),
    "kubeai.org": frozenset({"Model"}),
    "nvidia.com": frozenset(
        {
            "ClusterPolicy",
            "DynamoComponentDeployment",
            "DynamoGraphDeployment",
            "DynamoGraphDeploymentRequest",
            "NVIDIADriver",
        }
    ),
    "ome.io": frozenset({"BenchmarkJob", "InferenceService"}),
    "run.ai": frozenset(
        {"DistributedWorkload", "InferenceWorkload", "InteractiveWorkload", "TrainingWorkload"}
    ),
    "virtualservers.coreweave.com": frozenset({"VirtualServer"}),
}
"""Kinds, by API group, whose operators make GPU Pods without any field of a Pod in them."""
COMPLETED_BY = {
    "ClusterServingRuntime": "an InferenceService completes its containers",
    "ClusterTrainingRuntime": "a TrainJob completes its containers",
    "ServingRuntime": "an InferenceService completes its containers",
    "TrainingRuntime": "a TrainJob completes its containers",
}
"""Kinds of templates for other objects, which may add devices to their Pods."""

NAMED_LISTS = {
    "replicatedJobs": ("replicated job", "name"),
    "tasks": ("task", "name"),
    "templates": ("template", "name"),
    "workerGroupSpecs": ("worker group", "groupName"),
}
"""Lists of templates: what an item of the list is, and the field that names it."""

NAMED_FIELDS = {
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
NAMED_REPLICAS = "ReplicaSpecs"
"""How the mappings from roles to templates end: ``pytorchReplicaSpecs``."""


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
"""Resources with the names of the projects' own CustomResourceDefinitions, in any version. Their
templates are found whatever their kind."""

MERGING_GROUPS = frozenset(
    {
        "argoproj.io",
        "flink.apache.org",
        "serving.kserve.io",
        "sparkoperator.k8s.io",
        "trainer.kubeflow.org",
    }
)
"""Groups whose operators merge a template with defaults, with other objects, or with other fields:
what their Pods are is certain when they are created. ``policies.kubernetes.composed`` estimates it
for files and audits."""
