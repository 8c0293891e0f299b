"""Custom resources in files and clusters: what is known of kinds that API servers do not send.

The Pods of some are composed by a controller: no complete pod template is in the object. Each
module knows one project. It returns the Pods as the controller composes them, and names the parts
of the object whose Pods cannot be judged there: other objects, or values that are known only when
the controller runs, contribute to them. The webhook judges these Pods when they are created.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from msgspec.structs import replace

from policies.facts import Facts, Request
from policies.kubernetes import templates
from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.kubernetes.paths import Path, descend, text_at
from policies.kubernetes.template import Template, Unjudged
from policies.kubernetes.templates import Found, Search, group_kind
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from policies.vocabulary import visible_devices_variables
from webhook.cluster.judge import Judgement, judge
from webhook.tools.custom_resources import argo, flink, runtimes, spark
from webhook.tools.custom_resources.charts import settings
from webhook.tools.custom_resources.kinds import KNOWN, role
from webhook.tools.custom_resources.wrapped import Part, joined, part_at

_FROM_PRESET = "its operator creates Pods that this object does not describe"
_SPEC = ("spec",)
_WILDCARD_LINE = re.compile(r"^\s*-\s*operator:\s*[\"']?Exists[\"']?\s*$(?!\s*key:)", re.MULTILINE)
"""A toleration of every taint, in YAML."""

Composer = Callable[[JSONObject, Path, JSONObject], Iterator[Template | Unjudged]]
"""Yields the Pods of an object: of its spec, which is at a path, and of the object itself."""

COMPOSERS: Mapping[tuple[str, str], tuple[tuple[str, ...], Composer]] = {
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
"""By API group and kind, in any version: the path of the spec, and what composes its Pods."""


def workload(obj: JSONObject, policy: Policy) -> Workload:
    """Return an object of a file or a cluster, with the Pods that its controller composes.

    Raises:
        MalformedObjectError: the metadata is malformed.
    """
    return _Composed(obj, policy)


def judged(
    obj: JSONObject, policy: Policy, request: Request, facts_in: Callable[[str], Facts]
) -> tuple[Judgement, Request]:
    """Judge each part of an object in the part's namespace, and return the request of the first.

    ``request`` writes the object, in the object's own namespace if it names one.
    """
    own = text_at(obj, "metadata", "namespace") or request.namespace
    place = partial(part_at, obj, own, request.namespace)
    found = [place(())]
    if "." in group_kind(obj)[0]:
        # The judgement reports what is wrong with the object.
        with suppress(Exception):
            found = [*dict.fromkeys(map(place, find(obj).paths))] or found
    judgements = [
        judge(
            partial(_Composed, obj, policy, part, place if len(found) > 1 else None),
            policy,
            replace(request, namespace=part.namespace),
            facts_in(part.namespace),
        )
        for part in found
    ]
    return joined(judgements), replace(request, namespace=found[0].namespace)


class _Composed(Workload):
    __slots__ = ("_names", "_part", "_place")

    def __init__(
        self,
        obj: JSONObject,
        policy: Policy,
        part: Part | None = None,
        place: Callable[[Path], Part] | None = None,
    ) -> None:
        """Read the object, or one of its parts, to which ``place`` assigns paths."""
        super().__init__(obj)
        self._names = _names(policy)
        self._part, self._place = part, place
        if part and part.applied:
            applied = Workload(descend(obj, part.applied))
            self.kind, self.metadata = applied.kind, applied.metadata

    def found(self, obj: JSONObject) -> Found:
        found, place = find(obj), self._place
        if place is None:
            return found
        return Found(
            tuple(each for each in found.templates if place(each.spec_path) == self._part),
            tuple(each for each in found.unjudged if place(each.path) == self._part),
        )

    def concerns(self, value: Any) -> bool:
        """Return whether a value names a part of a pool, or tolerates every taint."""
        return _is_named(self._names, value)


class _Composers(Search):
    """Composes the Pods of the kinds of a composer, and searches others by structure."""

    def in_object(self, obj: JSONObject, at: Path, kind: str) -> Iterator[Template | Unjudged]:
        if composer := COMPOSERS.get(group_kind(obj)):
            below, compose = composer
            yield from compose(mapping(descend(obj, below)), (*at, *below), obj)
        else:
            yield from super().in_object(obj, at, kind)


def find(obj: JSONObject) -> Found:
    """Return the pod templates of an object of any kind.

    Raises:
        MalformedObjectError, OversizedObjectError: as ``templates.find`` does.
    """
    group, kind = group_kind(obj)
    key = f"{group}/{kind}"
    if group in KNOWN.groups_without_pods or key in KNOWN.kinds_without_pods:
        return Found()
    found = templates.find(obj, _Composers())
    found = found._replace(
        templates=tuple(replace(each, role=role(obj, each.spec_path)) for each in found.templates)
    )
    if key in KNOWN.charts:
        return Found(unjudged=tuple(settings(obj)))
    if not any(found) and kind in KNOWN.operators.get(group, ()):
        return Found(unjudged=(Unjudged(_SPEC, _FROM_PRESET),))
    return found


@lru_cache(maxsize=16)
def _names(policy: Policy) -> re.Pattern[str]:
    """Return a pattern for the names of the devices, labels and taints of pools."""
    names = set[str]()
    for pool in policy.pools:
        exact = (*pool.selector, *(taint.key for taint in pool.taints), *pool.resources.exact)
        names.update(map(re.escape, exact))
        names.update(rf"{re.escape(prefix)}[\w.-]+" for prefix in pool.resources.prefixes)
    names.update(visible_devices_variables(policy))
    return re.compile(rf"(?<![\w./-])({'|'.join(sorted(names))})(?![\w/-])")


def _is_named(names: re.Pattern[str], value: Any) -> bool:
    if isinstance(value, dict):
        tolerations = (each for _, each in mappings(value.get("tolerations")))
        opens_all = any(not t.get("key") and t.get("operator") == "Exists" for t in tolerations)
        return opens_all or _is_named(names, [*value.keys(), *value.values()])
    if isinstance(value, list):
        return any(_is_named(names, item) for item in value)
    return isinstance(value, str) and bool(names.search(value) or _WILDCARD_LINE.search(value))
