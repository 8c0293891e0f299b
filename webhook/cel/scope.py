"""The requests that gpufence registers for: namespaces, and kinds with a pod template."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policies.exemptions import ALWAYS_EXCLUDED
from policies.kubernetes.names import NameSet
from policies.kubernetes.objects import JSONObject
from policies.policy import Actions, Policy
from webhook.cel.text import is_in

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace; no client can change it (KEP-2161)."""

_WRITES = ("CREATE", "UPDATE")


def namespace_selector(policy: Policy, excluded: frozenset[str]) -> JSONObject:
    """Return the selector of all namespaces but the exempt and the excluded ones."""
    exempt = policy.exemptions.namespaces | excluded | ALWAYS_EXCLUDED
    expression = {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": sorted(exempt)}
    return {"matchExpressions": [expression]}


def in_namespaces(policy: Policy, holds: Callable[[Actions], bool]) -> str | None:
    """Return CEL that holds in the namespaces for whose actions ``holds`` is true.

    None where that is no namespace, and empty where it is every one.
    """
    has = {name: holds(actions) for name, actions in policy.overridden.items()}
    here = holds(policy.general)
    if not (here or any(has.values())):
        return None
    if here and all(has.values()):
        return ""
    # The exact name counts before the longest prefix.
    prefixes = sorted((name for name in has if name.endswith("*")), key=len, reverse=True)
    exact = has.keys() - set(prefixes)
    groups = [({name for name in exact if has[name] == same}, same) for same in (False, True)]
    groups += [({name}, has[name]) for name in prefixes]
    choices = [
        f"{is_in('request.namespace', NameSet(group))} ? {_literal(same)}"
        for group, same in groups
        if group
    ]
    return "(" + "\n  : ".join([*choices, _literal(here)]) + ")"


def _literal(value: bool) -> str:
    return "true" if value else "false"


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
