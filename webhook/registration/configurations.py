"""The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration of a policy.

Printed by ``gpufence manifests``, and applied by a server that registers itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policies.excluded_namespaces import ALWAYS_EXCLUDED
from policies.kubernetes.objects import JSONObject
from policies.policy import FailurePolicy, Policy
from webhook.registration.match_conditions import (
    concerns,
    differs,
    differs_where_there_is,
    names_devices,
)

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace; no client can change it (KEP-2161)."""

DOMAIN = ".gpufence.dev"
"""The suffix of the names of gpufence's webhooks, which no other webhook has."""

RELEASE_LABEL = {"app.kubernetes.io/name": "gpufence"}
"""The label by which the releases of a cluster find each other's configurations."""

# The core workloads, by where their pod template stands.
_TEMPLATES: tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "workloads",
        "spec.template",
        (
            ("apps", "v1", "deployments,statefulsets,daemonsets,replicasets"),
            ("batch", "v1", "jobs"),
            ("", "v1", "replicationcontrollers"),
        ),
    ),
    (
        "cronjobs",
        "spec.jobTemplate.spec.template",
        (("batch", "v1", "cronjobs"),),
    ),
    ("podtemplates", "template", (("", "v1", "podtemplates"),)),
)


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
    with_nodes: bool = False
    excluded_namespaces: frozenset[str] = frozenset()
    """Excluded in addition to ALWAYS_EXCLUDED and the namespaces that the policy exempts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, str] | None = None
    """The ownerReference of both, so that they go when their owner is deleted."""

    @property
    def is_addressed(self) -> bool:
        """Whether API servers can reach gpufence by it."""
        return self.service is not None or bool(self.url)


def configurations(policy: Policy, registration: Registration) -> tuple[JSONObject, JSONObject]:
    """Return the mutating and the validating configuration, in this order."""
    return _mutating(policy, registration), _validating(policy, registration)


def _mutating(policy: Policy, registration: Registration) -> JSONObject:
    webhook = _webhook(
        "pods",
        "/mutate",
        policy,
        registration,
        rules=[
            _rule("", "v1", ["pods"], ["CREATE"]),
            _rule("", "v1", ["pods/ephemeralcontainers"], ["UPDATE"]),
        ],
        condition=names_devices("object.spec", defaulted=True),
    )
    webhook["reinvocationPolicy"] = "IfNeeded"
    return _configuration("MutatingWebhookConfiguration", [webhook], registration)


def _validating(policy: Policy, registration: Registration) -> JSONObject:
    pods = _webhook(
        "pods",
        "/validate",
        policy,
        registration,
        rules=[
            _rule("", "v1", ["pods"], ["CREATE", "UPDATE"]),
            _rule("", "v1", ["pods/ephemeralcontainers", "pods/resize"], ["UPDATE"]),
        ],
        condition=_may_be_found("spec", "spec", policy, registration, defaulted=True),
    )
    webhooks = [pods]
    for name, template, resources in _TEMPLATES:
        webhooks.append(
            _webhook(
                name,
                "/validate",
                policy,
                registration,
                rules=[
                    _rule(group, version, plural.split(","), ["CREATE", "UPDATE"])
                    for group, version, plural in resources
                ],
                condition=_may_be_found(
                    template, f"{template}.spec", policy, registration, defaulted=False
                ),
            )
        )
    if policy.custom_workloads:
        webhooks.append(_custom_workloads(policy, registration))
    return _configuration("ValidatingWebhookConfiguration", webhooks, registration)


def _may_be_found(
    judged: str, spec: str, policy: Policy, registration: Registration, *, defaulted: bool
) -> str:
    """Return CEL that holds where something new may be found in the field that is ``judged``.

    ``spec`` is the Pod's spec in it; both are CEL below the object. For a plain Pod, the
    later parts of the condition are not evaluated.
    """
    with_nodes = registration.with_nodes
    concern = concerns(f"object.{spec}", policy, defaulted=defaulted, with_nodes=with_nodes)
    return f"{concern} && ({differs(judged)})"


def _custom_workloads(policy: Policy, registration: Registration) -> JSONObject:
    """Return the webhook for custom resources, which brings forward what their Pods would meet.

    CEL cannot search an object for pod templates, so that this webhook gets every object. Its
    failure policy lets operators continue while no replica responds: their Pods are validated.
    """
    return _webhook(
        "custom-workloads",
        "/validate",
        policy,
        registration,
        rules=[
            _rule(group, "*", list(resources), ["CREATE", "UPDATE"])
            for group, resources in policy.custom_workloads
        ],
        condition=differs_where_there_is("spec"),
        condition_name="changes-the-spec",
        failure_policy="Ignore",
    )


def _configuration(kind: str, webhooks: list[JSONObject], registration: Registration) -> JSONObject:
    metadata: JSONObject = {
        "name": registration.name,
        "labels": {**RELEASE_LABEL, **registration.labels},
    }
    if registration.annotations:
        metadata["annotations"] = dict(registration.annotations)
    if registration.owner is not None:
        metadata["ownerReferences"] = [dict(registration.owner)]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def _webhook(
    name: str,
    path: str,
    policy: Policy,
    registration: Registration,
    *,
    rules: list[JSONObject],
    condition: str,
    condition_name: str = "reaches-for-gpu-nodes",
    failure_policy: FailurePolicy | None = None,
) -> JSONObject:
    """Return one webhook; ``failure_policy`` is the policy's own unless given."""
    exempt = policy.exemptions.namespaces | registration.excluded_namespaces | ALWAYS_EXCLUDED
    selector = {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": sorted(exempt)}
    # Every field is written out, even with its default: a change of a field that gpufence does not
    # manage would not be drift.
    return {
        "name": f"{name}{DOMAIN}",
        "clientConfig": _client_config(path, registration),
        "rules": rules,
        "matchPolicy": "Equivalent",
        "matchConditions": [{"name": condition_name, "expression": condition}],
        "failurePolicy": failure_policy or policy.failure_policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": registration.timeout_seconds,
        "objectSelector": {},
        "namespaceSelector": {"matchExpressions": [selector]},
    }


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


def _rule(group: str, version: str, resources: list[str], operations: list[str]) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources,
        "operations": operations,
        "scope": "Namespaced",
    }
