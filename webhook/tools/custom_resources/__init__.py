"""Custom resources in files and clusters: what is known of kinds that API servers do not send.

The Pods of some are composed by a controller: no complete pod template is in the object. Each
module knows one project. It returns the Pods as the controller composes them, and names the parts
of the object whose Pods cannot be judged there: other objects, or values that are known only when
the controller runs, contribute to them. The webhook judges these Pods when they are created.
"""

from __future__ import annotations

from policies.kubernetes import templates
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.template import Unjudged
from policies.kubernetes.templates import Composers, Found, group_kind
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from webhook.tools.custom_resources import argo, flink, runtimes, spark
from webhook.tools.custom_resources.kinds import (
    GROUPS_WITHOUT_PODS,
    HELM_CHARTS,
    KINDS_OF_OPERATORS,
    KINDS_WITHOUT_PODS,
)
from webhook.tools.custom_resources.names import concerns

_CHART = "a Helm chart makes Pods from these values; check what helm template prints"
_FROM_PRESET = "its operator creates Pods that this object does not describe"
_SPEC = ("spec",)
COMPOSERS: Composers = {
    ("argoproj.io", "ClusterWorkflowTemplate"): (_SPEC, argo.compose),
    ("argoproj.io", "CronWorkflow"): (("spec", "workflowSpec"), argo.compose),
    ("argoproj.io", "Workflow"): (_SPEC, argo.compose),
    ("argoproj.io", "WorkflowTemplate"): (_SPEC, argo.compose),
    ("flink.apache.org", "FlinkBlueGreenDeployment"): (("spec", "template", "spec"), flink.compose),
    ("flink.apache.org", "FlinkDeployment"): (_SPEC, flink.compose),
    ("ome.io", "ClusterServingRuntime"): (_SPEC, runtimes.compose_runtime),
    ("ome.io", "ServingRuntime"): (_SPEC, runtimes.compose_runtime),
    ("serving.kserve.io", "ClusterServingRuntime"): (_SPEC, runtimes.compose_runtime),
    ("serving.kserve.io", "InferenceService"): (_SPEC, runtimes.compose_service),
    ("serving.kserve.io", "LLMInferenceService"): (_SPEC, runtimes.compose_llm_service),
    ("serving.kserve.io", "LLMInferenceServiceConfig"): (_SPEC, runtimes.compose_llm_service),
    ("serving.kserve.io", "ServingRuntime"): (_SPEC, runtimes.compose_runtime),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): (("spec", "template"), spark.compose),
    ("sparkoperator.k8s.io", "SparkApplication"): (_SPEC, spark.compose),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): (_SPEC, runtimes.compose_runtime),
    ("trainer.kubeflow.org", "TrainJob"): (_SPEC, runtimes.compose_train_job),
    ("trainer.kubeflow.org", "TrainingRuntime"): (_SPEC, runtimes.compose_runtime),
}


def workload(obj: JSONObject, policy: Policy) -> Workload:
    """Return an object of a file or a cluster, with the Pods that its controller composes.

    Raises:
        MalformedObjectError: the metadata is malformed.
    """
    return Workload(obj, find, concerns(policy))


def find(obj: JSONObject) -> Found:
    """Return the pod templates of an object of any kind.

    Raises:
        MalformedObjectError, OversizedObjectError: as ``templates.find`` does.
    """
    group, kind = key = group_kind(obj)
    if group in GROUPS_WITHOUT_PODS or key in KINDS_WITHOUT_PODS:
        return Found()
    found = templates.find(obj, COMPOSERS)
    if key in HELM_CHARTS:
        values = tuple(part._replace(reason=_CHART) for part in found.unjudged)
        return found._replace(unjudged=values)
    if not any(found) and kind in KINDS_OF_OPERATORS.get(group, ()):
        return Found(unjudged=(Unjudged(_SPEC, _FROM_PRESET),))
    return found
