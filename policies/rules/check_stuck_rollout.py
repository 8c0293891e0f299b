"""Workload whose update waits for a GPU that only its old Pod can free."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.objects import mapping
from policies.kubernetes.paths import descend, field_path
from policies.kubernetes.pod import Pod
from policies.kubernetes.template import Template
from policies.kubernetes.templates import group_kind
from policies.reach import can_be_added, selected_nodes
from policies.requests import describe_counts, device_peaks

ID = "stuck-rollout"

_PERCENT = re.compile(r"([0-9]{1,9})%", re.ASCII)
_KNATIVE = ("Knative", "Serverless")
_SETTINGS = "{maxUnavailable: 1, maxSurge: 0}"
_IN_KNATIVE = (
    "Set the annotation serving.kserve.io/deploymentMode: Standard, and deploymentStrategy: "
    f"{{rollingUpdate: {_SETTINGS}}} in the component"
)


class _Rollout(NamedTuple):
    """An update that deletes no old Pod before a new one is ready.

    ``at`` is the path of the settings, and ``pods`` counts the Pods of the template in a replica.
    ``is_rounded`` is true where a percentage of the replicas is less than one.
    """

    at: str
    replicas: int
    pods: int
    why: str
    remediation: str
    is_rounded: bool = False


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if an update of the Pod's workload may never end."""
    rollout = _rollout(pod.template) if pod.template.root else None
    if rollout is None or not (rollout.replicas and rollout.pods):
        return
    needed = device_peaks(pod, context.policy)
    request = next((each for each in context.device_requests if each.resource in needed), None)
    if request is None:
        return
    if (nodes := context.facts.nodes) is None:
        is_shared = all(request.resource in pool.shared_resources for pool in request.pools)
        if is_shared or (rollout.is_rounded and rollout.replicas > 1):
            return
        more = describe_counts({name: count * rollout.pods for name, count in needed.items()})
        problem = (
            f"The new Pod{' needs' if rollout.pods == 1 else 's need'} {more} that no old Pod "
            f"holds. If {request.pool_names} has none free, the update never ends"
        )
    else:
        wanted = (rollout.replicas + 1) * rollout.pods
        room = nodes.room_for(needed, selected_nodes(pod, request.pools, context, nodes), wanted)
        # If not even one Pod fits, unschedulable-gpu-pod reports it.
        if room in (0, wanted) or can_be_added(pod, request.pools, needed, context.facts):
            return
        problem = (
            f"It needs room for {wanted} Pods with {describe_counts(needed)}. The nodes of "
            f"{request.pool_names} that the Pod selects have room for {room}, so the new Pod stays "
            "Pending, and the update never ends"
        )
    yield Finding(
        ID,
        rollout.at,
        "an update may wait forever for a device that only an old Pod can free",
        f"an update of this {pod.kind} deletes no old Pod before a new one is ready, because "
        f"{rollout.why}. {problem}",
        rollout.remediation,
    )


def _rollout(template: Template) -> _Rollout | None:
    """Return how the object updates the Pods of the template, if it can wait for a device."""
    obj, path = template.root, template.spec_path
    spec = mapping(obj.get("spec"))
    match group_kind(obj):
        # A patch in a file has no selector, and may leave out the strategy.
        case ("apps", "Deployment") if spec.get("selector"):
            return _of_deployment(spec.get("replicas"), spec.get("strategy"), "spec.strategy")
        case ("serving.kserve.io", "InferenceService") if len(path) == 2:
            component, at = mapping(spec.get(str(path[1]))), field_path(path)
            if "workerSpec" in component:
                return None
            annotations = descend(obj, ("metadata", "annotations"))
            replicas, strategy = component.get("minReplicas"), component.get("deploymentStrategy")
            if mapping(annotations).get("serving.kserve.io/deploymentMode") not in _KNATIVE:
                return _of_deployment(replicas, strategy, f"{at}.deploymentStrategy")
            why = "Knative keeps the old revision until the new one is ready"
            return _Rollout(at, _count(replicas), 1, why, _IN_KNATIVE)
        case ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"):
            group = mapping(spec.get("leaderWorkerTemplate"))
            is_leader = "workerTemplate" not in path
            pods = 1 if is_leader else _count(group.get("size")) - ("leaderTemplate" in group)
            at = "spec.rolloutStrategy.rollingUpdateConfiguration"
            given = descend(spec, ("rolloutStrategy", "rollingUpdateConfiguration"))
            return _rolling(given, at, (1, 0), _count(spec.get("replicas")), pods)
    return None


def _of_deployment(replicas: Any, strategy: Any, at: str) -> _Rollout | None:
    if mapping(strategy).get("type") == "Recreate":
        return None
    given = mapping(strategy).get("rollingUpdate")
    return _rolling(given, f"{at}.rollingUpdate", ("25%", "25%"), _count(replicas), 1)


def _rolling(
    given: Any, at: str, defaults: tuple[Any, Any], replicas: int, pods: int
) -> _Rollout | None:
    """Return the update with the given settings; None if it can delete an old Pod first.

    ``defaults`` are those of maxUnavailable and maxSurge. If both are 0, a Deployment deletes one
    Pod at a time, and other kinds reject it. Sources: k8s.io/kubernetes,
    ``ResolveFenceposts`` in ``pkg/controller/deployment/util/deployment_util.go``;
    kubernetes-sigs/lws, ``rollingUpdateParameters`` in ``leaderworkerset_controller.go``.
    """
    unavailable, surge = (
        default if mapping(given).get(name) is None else given[name]
        for name, default in zip(("maxUnavailable", "maxSurge"), defaults, strict=True)
    )
    # With the sign, maxSurge rounds up.
    if _scaled(unavailable, replicas) != 0 or not _scaled(surge, -replicas):
        return None
    is_rounded = unavailable not in (0, "0%")
    why = f"maxUnavailable is 0{f' ({unavailable} of {replicas}, rounded down)' * is_rounded}"
    holder, _, field = at.rpartition(".")
    remediation = (
        f"Set {field}: {_SETTINGS} in {holder}. An old Pod then ends before its replacement "
        "starts. Or keep the devices of one replica free"
    )
    return _Rollout(at, replicas, pods, why, remediation, is_rounded)


def _scaled(value: Any, replicas: int) -> int | None:
    """Return a number of replicas, or a percentage of them rounded down; None for anything else."""
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        return int(match[1]) * replicas // 100
    return value if isinstance(value, int) else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 1
