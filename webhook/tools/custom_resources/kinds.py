"""Kinds whose structure alone does not tell whether they make Pods, and whose Pods these are.

Sources of the names of Pods: the types of kubeflow/training-operator (``...ReplicaSpecs``),
kubernetes-sigs/jobset, ray-project/kuberay, kubernetes-sigs/lws, volcano-sh/volcano,
argoproj/argo-workflows, kserve/kserve, kubeflow/spark-operator and
apache/flink-kubernetes-operator.
"""

from __future__ import annotations

from typing import Any

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import Path, descend

# Groups with a dot whose objects make no Pods: built-in ones (k8s.io/client-go/kubernetes/scheme),
# and those that only describe other objects.
GROUPS_WITHOUT_PODS = frozenset(
    {
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
CHARTS = frozenset(
    {
        ("addons.cluster.x-k8s.io", "HelmChartProxy"),
        ("argoproj.io", "Application"),
        ("argoproj.io", "ApplicationSet"),
        ("helm.cattle.io", "HelmChart"),
        ("helm.cattle.io", "HelmChartConfig"),
        ("helm.crossplane.io", "Release"),
        ("helm.k0sproject.io", "Chart"),
        ("helm.toolkit.fluxcd.io", "HelmRelease"),
        ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    }
)
"""Kinds whose Pods are in a Helm chart or a kustomization, with what is set in them."""

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


def role(obj: JSONObject, path: Path) -> str:
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
