"""The requests that gpufence registers for: namespaces, and kinds with a pod template."""

from __future__ import annotations

from collections.abc import Sequence

from policies.exemptions import ALWAYS_EXCLUDED
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace; no client can change it (KEP-2161)."""

_WRITES = ("CREATE", "UPDATE")


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


def pod_rules(*subresources: str) -> list[JSONObject]:
    """Return the rules for Pods, and for the kinds that webhook.cel.pods finds a template in.

    ``subresources`` are those of Pods whose updates are judged.
    """
    apps = ("deployments", "statefulsets", "daemonsets", "replicasets")
    return [
        rule("", "v1", _WRITES, ("pods", "podtemplates", "replicationcontrollers")),
        rule("", "v1", ("UPDATE",), [f"pods/{name}" for name in subresources]),
        rule("apps", "v1", _WRITES, apps),
        rule("batch", "v1", _WRITES, ("jobs", "cronjobs")),
    ]
