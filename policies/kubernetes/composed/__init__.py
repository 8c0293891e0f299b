"""Custom resources whose Pods a controller composes: no complete pod template is in the object.

Each module knows one project. It returns the Pods as the controller composes them, and names the
parts of the object whose Pods cannot be judged there: other objects, or values that are known only
when the controller runs, contribute to them. The webhook judges these Pods when they are created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from policies.kubernetes.composed import argo, flink, runtimes, spark
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.template import Path, Template, Unjudged

Composer = Callable[[JSONObject, Path], Iterator[Template | Unjudged]]
"""Yields the Pods of an object; the path is where the object stands in the one that embeds it."""

COMPOSERS: Mapping[tuple[str, str], Composer] = {
    (group, kind): compose
    for group, kinds, compose in (
        (argo.GROUP, argo.KINDS, argo.compose),
        (flink.GROUP, flink.KINDS, flink.compose),
        (runtimes.SERVING_GROUP, runtimes.SERVICES, runtimes.compose_service),
        (runtimes.SERVING_GROUP, runtimes.LLM_SERVICES, runtimes.compose_llm_service),
        (spark.GROUP, spark.KINDS, spark.compose),
        (runtimes.TRAINER_GROUP, runtimes.TRAIN_JOBS, runtimes.compose_train_job),
    )
    for kind in kinds
}
"""By API group and kind, in any version."""
