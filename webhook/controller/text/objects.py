"""What is registered with API servers: two webhook configurations, and the admission policies.

Printed by ``gpufence manifests``, and applied by the controller. The objects are the YAML files
in this directory. Their expressions are constant: in place of POLICY and NAMES, they get a literal
of the policy's data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from policies.api_servers import IN_TREE_RULES, literal, names_for, names_of, policy_data
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.selector import NAMESPACE_LABEL
from policies.policy import ALWAYS_EXCLUDED, Policy
from policies.vocabulary import ANNOTATIONS, device_files
from webhook.registered import DOMAIN

FENCE_POLICY = "gpufence.dev/fence-policy"
"""Annotation of the webhook configurations: the name of the FencePolicy that replicas follow."""

LABELS = {"app.kubernetes.io/name": "gpufence"}
"""The label by which docs/operate/break-glass.md deletes everything that is registered."""

POLICY_KIND = "ValidatingAdmissionPolicy"
BINDING_KIND = "ValidatingAdmissionPolicyBinding"
STATIC_SUFFIX = ".static.k8s.io"
"""What the name of an object that API servers read from disk must end with (KEP-5793)."""

_FORMER_ENDINGS = ("pods", "pods-warn", "pods-audit")
"""How the names of the admission policies of gpufence 0.2 end."""

MERGING_GROUPS = frozenset(
    {
        "argoproj.io",
        "flink.apache.org",
        "ome.io",
        "serving.kserve.io",
        "sparkoperator.k8s.io",
        "trainer.kubeflow.org",
    }
)
"""Groups whose operators merge a template with defaults, with other objects, or with other fields:
what their Pods are is certain when they are created."""

_PODS, _PLACEMENT, _NAMED_NODE = (
    f"{name}{DOMAIN}" for name in ("pods", "pods-placement", "pods-named-node")
)
_OBSERVED, _CUSTOM_WORKLOADS = f"pods-observed{DOMAIN}", f"custom-workloads{DOMAIN}"
_UPDATED = {"device-leak": "pods/ephemeralcontainers", "pool-trespass": "pods"}
"""Whose updates the admission policy of a rule matches: others do not change what the rule reads.

Updates of pod templates are left to the webhook. Before Kubernetes 1.37, each policy costs four
conversions of the template, and their Pods are judged when they are created.
"""

_PATHS = {f"policies{DOMAIN}": "/validate-policy"}
"""Of a webhook that calls another path than its configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How the API server reaches gpufence, and what it does when it cannot.

    ``service`` is namespace, name and port of a Service; ``url`` takes its place where the API
    server is to dial an address by itself. ``ca_bundle`` is base64 of PEM, or empty where another
    controller writes it.
    """

    name: str = "gpufence"
    service: tuple[str, str, int] | None = None
    url: str = ""
    ca_bundle: str = ""
    timeout_seconds: int = 3
    with_nodes: bool = True
    """Whether gpufence knows the nodes, so that any node selection may concern it."""
    excluded_namespaces: frozenset[str] = frozenset()
    """Excluded in addition to ALWAYS_EXCLUDED and the namespaces that the policy exempts."""
    fence_policy: str = ""
    """The FencePolicy that replicas follow; empty where they read a file."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, str] | None = None
    """The ownerReference of each object, so that it goes when its owner is deleted."""

    @property
    def is_addressed(self) -> bool:
        """Whether API servers can reach gpufence by it."""
        return self.service is not None or bool(self.url)

    def metadata(self, name: str, annotations: Mapping[str, str]) -> JSONObject:
        metadata: JSONObject = {"name": name, "labels": dict(LABELS)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        if self.owner is not None:
            metadata["ownerReferences"] = [dict(self.owner)]
        return metadata


def configurations(policy: Policy, registration: Registration) -> tuple[JSONObject, JSONObject]:
    """Return the mutating and the validating configuration, in this order."""
    mutating, validating = _read("webhooks.yaml")
    # What only names a node fails closed, unless no rule would deny it.
    denies = any(actions["pool-trespass"] == "enforce" for actions in policy.action_sets)
    apart = policy.failure_policy == "Ignore" and denies
    waits = policy.enforces and policy.failure_policy == "Fail"
    names = {
        **names_of(policy),
        "hasNodes": registration.with_nodes,
        "deviceAnnotations": sorted(ANNOTATIONS),
        "deviceFiles": [*device_files(policy)],
        "namingNode": _NAMED_NODE if apart else _PODS,
        "observing": _PLACEMENT if waits else _PODS,
    }
    runtime = {actions["unrequested-gpu-runtime"] for actions in policy.action_sets}
    names["byRuntime"] = "" if runtime == {"off"} else names["observing"]
    if "enforce" in runtime:
        names["byRuntime"] = _PODS
    made = {_CUSTOM_WORKLOADS: _rules_of_custom_workloads(policy)}
    needed = {
        _PLACEMENT: waits,
        _NAMED_NODE: apart,
        _CUSTOM_WORKLOADS: bool(made[_CUSTOM_WORKLOADS]),
        _OBSERVED: not all(each["enforces"] for each in names["namespaces"]),
    }
    mutating, validating = (
        {
            **configuration,
            "webhooks": [
                {**each, "rules": each["rules"] or made.get(each["name"], workload_rules())}
                for each in configuration["webhooks"]
                if needed.get(each["name"], True)
            ],
        }
        for configuration in (mutating, validating)
    )
    return (
        _configuration(mutating, "/mutate", names, policy, registration),
        _configuration(validating, "/validate", names, policy, registration),
    )


def workload_rules(updated: str = "") -> list[JSONObject]:
    """Return the rules that match Pods and core workloads, or only the updates of one resource."""
    resources: dict[str, list[str]] = {"": ["pods"]}
    for group, kind in CORE_WORKLOADS:
        if group != "extensions":  # No longer served.
            resources.setdefault(group, []).append(f"{kind.lower()}s")
    operations = ["CREATE"] if updated else ["CREATE", "UPDATE"]
    matched = [(group, operations, names) for group, names in resources.items()]
    subresources = ["pods/ephemeralcontainers", "pods/resize"]
    matched.insert(1, ("", ["UPDATE"], [updated] if updated else subresources))
    return [
        {
            "operations": operations,
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "scope": "Namespaced",
            "resources": names,
        }
        for group, operations, names in matched
    ]


def _rules_of_custom_workloads(policy: Policy) -> list[JSONObject]:
    return [
        {
            "apiGroups": [custom.group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": [*custom.resources],
            "scope": "Namespaced",
        }
        for custom in policy.custom_workloads
        if custom.group not in MERGING_GROUPS
    ]


def _configuration(
    text: JSONObject, path: str, names: JSONObject, policy: Policy, registration: Registration
) -> JSONObject:
    webhooks = [
        {
            "name": webhook["name"],
            "clientConfig": _client_config(_PATHS.get(webhook["name"], path), registration),
            **_with_data(webhook, NAMES={**names, "webhook": webhook["name"]}),
            "failurePolicy": _failure_policy(webhook, policy),
            "timeoutSeconds": _timeout(webhook, policy, registration),
            "namespaceSelector": _namespace_selector(policy, registration),
        }
        for webhook in text["webhooks"]
    ]
    # Empty rather than absent: the name of before must not stay.
    annotations = {**registration.annotations, FENCE_POLICY: registration.fence_policy}
    metadata = registration.metadata(registration.name, annotations)
    return {**text, "metadata": metadata, "webhooks": webhooks}


def _failure_policy(webhook: JSONObject, policy: Policy) -> Any:
    """Return the policy's own for the first webhook. Where nothing is enforced, no Pod waits."""
    if not policy.enforces:
        return "Ignore"
    return policy.failure_policy if webhook["name"] == _PODS else webhook["failurePolicy"]


def _timeout(webhook: JSONObject, policy: Policy, registration: Registration) -> int:
    """Return the shortest timeout that an API server takes where no answer changes anything."""
    observes = webhook["name"] == _OBSERVED or not policy.enforces
    return 1 if observes else registration.timeout_seconds


def _client_config(path: str, registration: Registration) -> JSONObject:
    config: JSONObject = {}
    if registration.service is not None:
        namespace, name, port = registration.service
        config["service"] = {"namespace": namespace, "name": name, "path": path, "port": port}
    else:
        config["url"] = f"{registration.url}{path}"
    if registration.ca_bundle:
        config["caBundle"] = registration.ca_bundle
    return config


def admission_policies(
    policy: Policy, registration: Registration, *, today: date | None = None, static: bool = False
) -> tuple[JSONObject, ...]:
    """Return the admission policy of each rule that is enforced somewhere, and its binding.

    ``today`` leaves out the exceptions that have expired. ``static`` makes the objects that an API
    server reads from its own disk.
    """
    return tuple(
        obj
        for rule in IN_TREE_RULES
        if any(actions[rule] == "enforce" for actions in policy.action_sets)
        for obj in _admission_policy(rule, policy, registration, today, static=static)
    )


def _admission_policy(
    rule: str, policy: Policy, registration: Registration, today: date | None, *, static: bool
) -> Iterator[JSONObject]:
    text, binding = _read(f"{rule}.yaml")
    name = f"{registration.name}-{rule}{STATIC_SUFFIX if static else ''}"
    spec = _with_data(
        text["spec"], NAMES=names_for(rule, policy), POLICY=policy_data(rule, policy, today)
    )
    matched = {**spec["matchConstraints"], "resourceRules": workload_rules(_UPDATED[rule])}
    constraints = {**matched, "namespaceSelector": _namespace_selector(policy, registration)}
    yield {
        **text,
        "metadata": registration.metadata(name, text["metadata"]["annotations"]),
        "spec": {**spec, "matchConstraints": constraints},
    }
    # It repeats what the policy matches: the controller may write the policy, and not its binding.
    # Nothing owns it, so that the chart can contain it.
    excluded = registration.excluded_namespaces | ALWAYS_EXCLUDED
    repeated = {**matched, "namespaceSelector": _all_but(excluded)}
    yield {
        **binding,
        "metadata": replace(registration, owner=None).metadata(name, {}),
        "spec": {"policyName": name, **binding["spec"], "matchResources": repeated},
    }


def all_names(name: str) -> tuple[str, ...]:
    """Return every name that an admission policy of this installation, and its binding, may have.

    Those of earlier versions are among them: their objects would keep denying.
    """
    return tuple(f"{name}-{ending}" for ending in (*IN_TREE_RULES, *_FORMER_ENDINGS))


def _namespace_selector(policy: Policy, registration: Registration) -> JSONObject:
    """Return the selector of all namespaces but the exempt and the excluded ones."""
    excluded = registration.excluded_namespaces | ALWAYS_EXCLUDED
    return _all_but(policy.exemptions.namespaces | excluded)


def _all_but(excluded: frozenset[str]) -> JSONObject:
    expression = {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": sorted(excluded)}
    return {"matchExpressions": [expression]}


@cache
def _read(name: str) -> Sequence[JSONObject]:
    """Return the objects of a file. Callers do not change them."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return tuple(yaml.load_all(text, Loader=_LOADER))


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _with_data(part: Any, **data: Mapping[str, Any]) -> Any:
    """Return a part of an object with a literal of the data in place of their name."""
    literals = {name: literal(value) for name, value in data.items()}
    names = re.compile(rf"\b({'|'.join(literals)})\b")

    def filled(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: filled(each) for key, each in part.items()}
        if isinstance(part, list):
            return [filled(each) for each in part]
        return names.sub(lambda name: literals[name[0]], part) if isinstance(part, str) else part

    return filled(part)
