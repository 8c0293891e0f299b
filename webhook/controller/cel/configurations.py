"""What a release registers: its names, its scope, and its two webhook configurations.

Printed by ``gpufence manifests``, and applied by the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from policies.exemptions import ALWAYS_EXCLUDED
from policies.facts import NAMESPACE_LABEL
from policies.kubernetes.kinds import MERGING_GROUPS, CustomWorkloads
from policies.kubernetes.objects import JSONObject
from policies.policy import FailurePolicy, Policy
from policies.rules import check_pool_trespass
from webhook.controller.cel.additions import is_complete, is_settled
from webhook.controller.cel.match_conditions import (
    changes_spec,
    concerns,
    is_judged,
    is_mutated,
    names_node,
    selects_nodes,
)
from webhook.controller.cel.pod_security import is_denied
from webhook.controller.cel.pods import holds_for_pod, in_namespaces
from webhook.controller.cel.text import all_of, any_of, let, negated, printed

API_VERSION = "admissionregistration.k8s.io/v1"
DOMAIN = ".gpufence.dev"
"""The suffix of the names of gpufence's webhooks, which no other webhook has."""

DESCRIPTION = "gpufence.dev/description"
"""Annotation of an admission policy: what it does, in a sentence."""

LABELS = {"app.kubernetes.io/name": "gpufence"}
"""The label by which a person deletes everything that is registered (docs/operate/break-glass.md).
"""

_WRITES = ("CREATE", "UPDATE")


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
    mutates: bool = False
    """Whether the API server mutates covered Pods (``webhook.controller.cel.covered``)."""
    left_out: frozenset[str] = frozenset()
    """The pools that no covered Pod uses."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, str] | None = None
    """The ownerReference of each object, so that it goes when its owner is deleted."""

    @property
    def is_addressed(self) -> bool:
        """Whether API servers can reach gpufence by it."""
        return self.service is not None or bool(self.url)

    def metadata(self, name: str) -> JSONObject:
        metadata: JSONObject = {"name": name, "labels": dict(LABELS)}
        if self.owner is not None:
            metadata["ownerReferences"] = [dict(self.owner)]
        return metadata


def configurations(policy: Policy, registration: Registration) -> tuple[JSONObject, JSONObject]:
    """Return the mutating and the validating configuration, in this order."""
    return _mutating(policy, registration), _validating(policy, registration)


def _mutating(policy: Policy, registration: Registration) -> JSONObject:
    mutated = is_mutated(policy)
    if registration.mutates:
        # What the admission policies deny needs no replica for it, and gets their reason.
        settled = any_of(is_denied(policy), is_complete(policy, registration.left_out))
        mutated = all_of(mutated, any_of('request.operation == "UPDATE"', negated(settled)))
    webhook = _webhook(
        "pods",
        policy,
        registration,
        path="/mutate",
        rules=[
            resource_rule("", "v1", ["CREATE"], ["pods"]),
            resource_rule("", "v1", ["UPDATE"], ["pods/ephemeralcontainers"]),
        ],
        # Of a new ephemeral container, the stored Pod decides what it gets.
        condition=let("pod", '(request.operation == "CREATE" ? object : oldObject)', mutated),
    )
    webhook["reinvocationPolicy"] = "IfNeeded"
    enforced = list(_by_mode(webhook, policy))[:1]
    return _configuration("MutatingWebhookConfiguration", enforced, registration)


def _validating(policy: Policy, registration: Registration) -> JSONObject:
    webhooks = [
        by_mode
        for webhook in _of_pods(policy, registration)
        for by_mode in _by_mode(webhook, policy)
    ]
    sent = [each for each in policy.custom_workloads if each.group not in MERGING_GROUPS]
    if sent:
        webhooks.append(_custom_workloads(sent, policy, registration))
    return _configuration("ValidatingWebhookConfiguration", webhooks, registration)


def _of_pods(policy: Policy, registration: Registration) -> Iterator[JSONObject]:
    """Yield the webhooks for Pods and pod templates, by what happens while no replica answers.

    The first gets what names a device or a key of a pool. The second gets what only selects nodes:
    plain workloads do that as well, so its failure policy never stops them. It also gets the Pods
    that the API server has mutated: only the nodes can tell more about them. What names a node
    itself must not run unseen, because neither taints nor the admission policies stop it: its
    failure policy is ``Fail``, even where the policy's is ``Ignore``, unless no rule would deny it.

    For a plain Pod, the later parts of each condition are not evaluated.
    """
    webhook = partial(
        _webhook,
        policy=policy,
        registration=registration,
        rules=pod_rules("ephemeralcontainers", "resize"),
    )
    concern, named, judged = concerns(policy), names_node(), is_judged(policy)
    denies = any(actions[check_pool_trespass.ID] == "enforce" for actions in policy.action_sets)
    apart = policy.failure_policy != "Fail" and denies
    first = all_of(negated(named), concern) if apart else any_of(concern, named)
    selects = selects_nodes(with_nodes=registration.with_nodes)
    only_selects = all_of(selects, negated(named), negated(concern))
    ignorable = only_selects
    if registration.mutates:
        settled = is_settled(policy, registration.left_out)
        ignorable = any_of(only_selects, all_of(first, settled))
        first = all_of(first, negated(settled))
    yield webhook("pods", condition=holds_for_pod(all_of(first, judged)))
    yield webhook(
        "pods-placement",
        condition=holds_for_pod(all_of(ignorable, judged)),
        condition_name="selects-nodes",
        failure_policy="Ignore",
    )
    if apart:
        yield webhook(
            "pods-named-node",
            condition=holds_for_pod(all_of(named, judged)),
            condition_name="names-a-node",
            failure_policy="Fail",
        )


def _by_mode(webhook: JSONObject, policy: Policy) -> Iterator[JSONObject]:
    """Yield the webhook, and one with failure policy Ignore for namespaces in another mode.

    Where the mode is not enforce, a Pod does not wait for gpufence.
    """
    elsewhere = in_namespaces(policy, lambda actions: actions.mode != "enforce")
    if elsewhere == "false" or webhook["failurePolicy"] == "Ignore":
        yield webhook
    elif elsewhere == "true":
        yield webhook | {"failurePolicy": "Ignore"}
    else:
        conditions = webhook["matchConditions"]
        here = {"name": "mode-is-enforce", "expression": printed(negated(elsewhere))}
        yield webhook | {"matchConditions": [here, *conditions]}
        there = {"name": "mode-is-not-enforce", "expression": printed(elsewhere)}
        yield webhook | {
            "name": webhook["name"].replace(DOMAIN, f"-not-enforced{DOMAIN}"),
            "failurePolicy": "Ignore",
            "matchConditions": [there, *conditions],
        }


def _custom_workloads(
    sent: Iterable[CustomWorkloads], policy: Policy, registration: Registration
) -> JSONObject:
    """Return the webhook for custom resources, which brings forward what their Pods would meet.

    CEL cannot search an object for pod templates, so that this webhook gets every object. Its
    failure policy lets operators continue while no replica responds: their Pods are validated.
    """
    return _webhook(
        "custom-workloads",
        policy,
        registration,
        rules=[
            resource_rule(custom.group, "*", ["CREATE", "UPDATE"], custom.resources)
            for custom in sent
        ],
        condition=changes_spec(),
        condition_name="changes-the-spec",
        failure_policy="Ignore",
    )


def _configuration(kind: str, webhooks: list[JSONObject], registration: Registration) -> JSONObject:
    metadata = registration.metadata(registration.name)
    if registration.annotations:
        metadata["annotations"] = dict(registration.annotations)
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "webhooks": webhooks}


def _webhook(
    name: str,
    policy: Policy,
    registration: Registration,
    *,
    path: str = "/validate",
    rules: list[JSONObject],
    condition: str,
    condition_name: str = "reaches-for-gpu-nodes",
    failure_policy: FailurePolicy | None = None,
) -> JSONObject:
    """Return one webhook; ``failure_policy`` is the policy's own unless given."""
    # Every field is written out, even with its default: a change of a field that gpufence does not
    # manage would not be drift.
    return {
        "name": f"{name}{DOMAIN}",
        "clientConfig": _client_config(path, registration),
        "rules": rules,
        "matchPolicy": "Equivalent",
        "matchConditions": [{"name": condition_name, "expression": printed(condition)}],
        "failurePolicy": failure_policy or policy.failure_policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": registration.timeout_seconds,
        "objectSelector": {},
        "namespaceSelector": namespace_selector(policy, registration.excluded_namespaces),
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


def namespace_selector(policy: Policy, excluded: frozenset[str]) -> JSONObject:
    """Return the selector of all namespaces but the exempt and the excluded ones."""
    exempt = policy.exemptions.namespaces | excluded | ALWAYS_EXCLUDED
    expression = {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": sorted(exempt)}
    return {"matchExpressions": [expression]}


def resource_rule(
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
    """Return the rules for Pods, and for the kinds in which ``pods`` finds a template.

    ``subresources`` are those of Pods whose updates are judged.
    """
    apps = ("deployments", "statefulsets", "daemonsets", "replicasets")
    return [
        resource_rule("", "v1", _WRITES, ("pods", "podtemplates", "replicationcontrollers")),
        resource_rule("", "v1", ("UPDATE",), [f"pods/{name}" for name in subresources]),
        resource_rule("apps", "v1", _WRITES, apps),
        resource_rule("batch", "v1", _WRITES, ("jobs", "cronjobs")),
    ]
