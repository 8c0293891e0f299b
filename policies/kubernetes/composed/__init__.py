"""Custom resources whose Pods a controller composes: no complete pod template is in the object.

Each module knows one project. It returns the Pods as the controller composes them, and names the
parts of the object whose Pods cannot be judged there: other objects, or values that are known only
when the controller runs, contribute to them. The webhook judges these Pods when they are created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from policies.kubernetes.composed import argo, flink, runtimes, spark
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import Path
from policies.kubernetes.template import Template, Unjudged

Composer = Callable[[JSONObject, Path, JSONObject], Iterator[Template | Unjudged]]
"""Yields the Pods of an object: of its spec, which is at a path, and of the object itself."""

_SPEC = ("spec",)
COMPOSERS: Mapping[tuple[str, str], tuple[tuple[str, ...], Composer]] = {
    ("argoproj.io", "ClusterWorkflowTemplate"): (_SPEC, argo.compose),
    ("argoproj.io", "CronWorkflow"): (("spec", "workflowSpec"), argo.compose),
    ("argoproj.io", "Workflow"): (_SPEC, argo.compose),
    ("argoproj.io", "WorkflowTemplate"): (_SPEC, argo.compose),
    ("flink.apache.org", "FlinkBlueGreenDeployment"): (("spec", "template", "spec"), flink.compose),
    ("flink.apache.org", "FlinkDeployment"): (_SPEC, flink.compose),
    ("serving.kserve.io", "InferenceService"): (_SPEC, runtimes.compose_service),
    ("serving.kserve.io", "LLMInferenceService"): (_SPEC, runtimes.compose_llm_service),
    ("serving.kserve.io", "LLMInferenceServiceConfig"): (_SPEC, runtimes.compose_llm_service),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): (("spec", "template"), spark.compose),
    ("sparkoperator.k8s.io", "SparkApplication"): (_SPEC, spark.compose),
    ("trainer.kubeflow.org", "TrainJob"): (_SPEC, runtimes.compose_train_job),
}
"""By API group and kind, in any version: the path of the spec, and its composer."""
