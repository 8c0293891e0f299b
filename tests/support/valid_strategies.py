"""Pods and workloads that an API server accepts: those of `strategies` without invalid values.

The validation of the API server defines them (`k8s.io/kubernetes/pkg/apis/core/validation`).
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from deciding import required
from policies.kubernetes.claims import IMPLICIT_RESOURCE_PREFIX
from specs import JSON
from strategies import pods

_OPERATORS = ("Exists", "Equal")

WORKLOADS: dict[str, tuple[str, str]] = {
    "Deployment": ("apps/v1", "/apis/apps/v1/namespaces/{}/deployments"),
    "StatefulSet": ("apps/v1", "/apis/apps/v1/namespaces/{}/statefulsets"),
    "DaemonSet": ("apps/v1", "/apis/apps/v1/namespaces/{}/daemonsets"),
    "ReplicaSet": ("apps/v1", "/apis/apps/v1/namespaces/{}/replicasets"),
    "Job": ("batch/v1", "/apis/batch/v1/namespaces/{}/jobs"),
    "CronJob": ("batch/v1", "/apis/batch/v1/namespaces/{}/cronjobs"),
    "ReplicationController": ("v1", "/api/v1/namespaces/{}/replicationcontrollers"),
    "PodTemplate": ("v1", "/api/v1/namespaces/{}/podtemplates"),
}
"""Kinds with a pod template: their version, and where the API has them."""


@st.composite
def valid_specs(draw: st.DrawFn, of: st.SearchStrategy[JSON] | None = None) -> JSON:
    """A Pod's spec that is accepted in most cases, with more ways to reach for GPU nodes.

    It is made of Pods that may be invalid: by default, of any.
    """
    spec: JSON = draw(pods() if of is None else of)["spec"]
    claims = spec.get("resourceClaims") or []
    fixed: JSON = {
        "containers": _containers(spec["containers"], "main", claims),
        "terminationGracePeriodSeconds": 0,
    }
    if spec.get("initContainers"):
        fixed["initContainers"] = _containers(spec["initContainers"], "init", claims)
    if claims:
        fixed["resourceClaims"] = claims
    if tolerations := [_toleration(t) for t in spec.get("tolerations") or ()]:
        fixed["tolerations"] = tolerations
    if labels := {k: v for k, v in (spec.get("nodeSelector") or {}).items() if v is not None}:
        fixed["nodeSelector"] = labels
    if terms := _terms(spec):
        fixed |= required(*terms)
    if spec.get("nodeName"):
        fixed["nodeName"] = spec["nodeName"]
    volume: JSON | None = draw(
        st.sampled_from([None, None, {"emptyDir": {}}, {"hostPath": {"path": "/dev/kfd"}}])
    )
    if volume is not None:
        fixed["volumes"] = [{"name": "data", **volume}]
    return fixed


def workload(kind: str, name: str, spec: JSON, **metadata: Any) -> JSON:
    """Return a workload of that kind whose template has the spec, and these metadata."""
    labels = {"app": name}
    restarts = {"restartPolicy": "Never"} if kind in ("Job", "CronJob") else {}
    template = {"metadata": {"labels": labels, **metadata}, "spec": {**spec, **restarts}}
    obj: JSON = {"apiVersion": WORKLOADS[kind][0], "kind": kind, "metadata": {"name": name}}
    match kind:
        case "PodTemplate":
            return {**obj, "template": template}
        case "Job":
            # Suspended, so that the controller creates no Pods.
            return {**obj, "spec": {"suspend": True, "template": template}}
        case "CronJob":
            job = {"spec": {"template": template}}
            return {**obj, "spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": job}}
        case "ReplicationController":
            return {**obj, "spec": {"replicas": 0, "selector": labels, "template": template}}
    selector = {"selector": {"matchLabels": labels}, "template": template}
    count = {} if kind == "DaemonSet" else {"replicas": 0}
    return {**obj, "spec": {**selector, **count}}


def _containers(containers: list[JSON], name: str, claims: list[JSON]) -> list[JSON]:
    return [
        _container(container, f"{name}-{index}", claims)
        for index, container in enumerate(containers)
    ]


def _container(source: JSON, name: str, claims: list[JSON]) -> JSON:
    container: JSON = {"name": name, "image": source["image"]}
    if source.get("env"):
        container["env"] = source["env"]
    resources = source.get("resources") or {}
    # Equal on both sides, as devices must be, except by a class's implicit name, which is native to
    # the API; one side alone may only be the limit.
    requests = resources.get("requests") or {}
    both = {**requests, **(resources.get("limits") or {})}
    counts = {key: "0" if str(value) in ("0", "None") else "1" for key, value in both.items()}
    limits: JSON = {"limits": counts} if counts else {}
    if requests and counts:
        limits["requests"] = {
            key: "0"
            if key.startswith(IMPLICIT_RESOURCE_PREFIX) and str(requests.get(key)) == "0"
            else count
            for key, count in counts.items()
        }
    if resources.get("claims") and claims:
        limits["claims"] = [{"name": claims[0]["name"]}]
    if limits:
        container["resources"] = limits
    return container


def _toleration(source: JSON) -> JSON:
    operator = source.get("operator")
    fixed = {"operator": operator if operator in _OPERATORS else "Equal"}
    if source.get("key"):
        fixed["key"] = source["key"]
    else:
        fixed["operator"] = "Exists"
    if fixed["operator"] == "Equal" and source.get("value"):
        fixed["value"] = str(source["value"])
    if source.get("effect") in ("NoSchedule", "NoExecute", "PreferNoSchedule"):
        fixed["effect"] = source["effect"]
    return fixed


def _terms(spec: JSON) -> list[JSON]:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    selector = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return [_term(term) for term in selector.get("nodeSelectorTerms") or ()]


def _term(term: JSON) -> JSON:
    fixed: JSON = {}
    expressions = [e for e in term.get("matchExpressions") or () if _is_valid(e)]
    if expressions:
        fixed["matchExpressions"] = expressions
    fields = [
        field
        for field in term.get("matchFields") or ()
        if field.get("key") == "metadata.name"
        and field.get("operator") in ("In", "NotIn")
        and len(field.get("values") or ()) == 1
        and field["values"][0]
    ]
    if fields:
        fixed["matchFields"] = fields
    return fixed


def _is_valid(expression: JSON) -> bool:
    operator, values = expression.get("operator"), expression.get("values") or []
    if not expression.get("key"):
        return False
    if operator in ("Exists", "DoesNotExist"):
        return not values
    if operator in ("Gt", "Lt"):
        return len(values) == 1 and str(values[0]).isdecimal()
    return operator in ("In", "NotIn") and bool(values)


def pod(spec: JSON, **metadata: Any) -> JSON:
    """Return a Pod with the spec."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-", **metadata},
        "spec": spec,
    }
