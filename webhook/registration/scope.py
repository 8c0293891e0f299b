"""The requests that gpufence registers for: namespaces, and core kinds with a pod template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.excluded_namespaces import ALWAYS_EXCLUDED
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace; no client can change it (KEP-2161)."""

_WRITES = ("CREATE", "UPDATE")
RESIZE = "pods/resize"


def namespace_selector(policy: Policy, excluded: frozenset[str]) -> JSONObject:
    """Return the selector of all namespaces but the exempt and the excluded ones."""
    exempt = policy.exemptions.namespaces | excluded | ALWAYS_EXCLUDED
    expression = {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": sorted(exempt)}
    return {"matchExpressions": [expression]}


def rule(
    group: str, version: str, operations: Sequence[str], resources: Sequence[str]
) -> JSONObject:
    """Return a rule of a webhook, or a resource rule of an admission policy."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "operations": list(operations),
        "scope": "Namespaced",
    }


@dataclass(frozen=True, slots=True)
class TemplatePlace:
    """A field with a pod template: a CEL path below the object, empty for a Pod."""

    name: str
    template: str
    kinds: frozenset[str]
    rules: tuple[JSONObject, ...]

    @property
    def spec(self) -> str:
        """The CEL path of the Pod spec below the object."""
        return f"{self.template}.spec" if self.template else "spec"

    @property
    def judged(self) -> str:
        """The CEL path of the field whose change is validated."""
        return self.template or "spec"


TEMPLATE_PLACES = (
    TemplatePlace(
        "pods",
        "",
        frozenset({"Pod"}),
        (
            rule("", "v1", _WRITES, ["pods"]),
            rule("", "v1", ["UPDATE"], ["pods/ephemeralcontainers", RESIZE]),
        ),
    ),
    TemplatePlace(
        "workloads",
        "spec.template",
        frozenset(
            {
                "DaemonSet",
                "Deployment",
                "Job",
                "ReplicaSet",
                "ReplicationController",
                "StatefulSet",
            }
        ),
        (
            rule(
                "apps", "v1", _WRITES, ["deployments", "statefulsets", "daemonsets", "replicasets"]
            ),
            rule("batch", "v1", _WRITES, ["jobs"]),
            rule("", "v1", _WRITES, ["replicationcontrollers"]),
        ),
    ),
    TemplatePlace(
        "cronjobs",
        "spec.jobTemplate.spec.template",
        frozenset({"CronJob"}),
        (rule("batch", "v1", _WRITES, ["cronjobs"]),),
    ),
    TemplatePlace(
        "podtemplates",
        "template",
        frozenset({"PodTemplate"}),
        (rule("", "v1", _WRITES, ["podtemplates"]),),
    ),
)
