"""Each value that the documentation of the chart lists has an effect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

import click
import pytest

from deploy.chart import Helm, Values, parsed
from each import each
from gpufence_docs.chart import ELSEWHERE, values
from paths import CHART
from policies.api_servers import IN_TREE_RULES
from webhook.tools.cli.main import cli
from webhook.tools.custom_resources.composed import merge

AUDIT: Values = {"audit": {"enabled": True}}
AUTOSCALING: Values = {"autoscaling": {"enabled": True}}
CERT_MANAGER: Values = {"certificates": {"source": "certManager", "issuerRef": {"name": "a"}}}
MONITORING: Values = {
    "metrics": {
        kind: {"enabled": True} for kind in ("serviceMonitor", "prometheusRule", "dashboard")
    }
}
QUOTA: Values = {"priorityQuota": True}

REPLICA, CONTROLLER = "Deployment gpufence", "Deployment gpufence-controller"
AUDITS = "CronJob gpufence-audit"
PODS = {REPLICA, CONTROLLER, AUDITS}
ROLE = "Role gpufence-controller"
CLUSTER_ROLE = "ClusterRole gpufence-controller"
SERVICES = {"Service gpufence", "Service gpufence-controller"}
ACCOUNTS = {f"ServiceAccount gpufence{part}" for part in ("", "-controller", "-audit")}
NETWORK = {"NetworkPolicy gpufence", "NetworkPolicy gpufence-controller"}
LABELS = {"team": "platform"}
PEERS: list[Values] = [{"podSelector": {}}]


class Effect(NamedTuple):
    """Another value than the default, and the objects that it changes."""

    value: Any
    changed: set[str]
    given: Mapping[str, Any] = MappingProxyType({})
    """The values that it needs as well."""


def guard(name: str) -> set[str]:
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    return {f"{kind} gpufence-{name}-guard" for kind in kinds}


def renamed(account: str) -> set[str]:
    return {f"ServiceAccount {name}" for name in (account, "own")}


BINDINGS = {f"ValidatingAdmissionPolicyBinding gpufence-{rule}" for rule in IN_TREE_RULES}
EFFECTS = {
    "image.repository": Effect("registry.example/gpufence", PODS, AUDIT),
    "image.tag": Effect("nightly", PODS, AUDIT),
    "image.digest": Effect(f"sha256:{'0' * 64}", PODS, AUDIT),
    "image.pullPolicy": Effect("Always", PODS, AUDIT),
    "imagePullSecrets": Effect([{"name": "registry"}], ACCOUNTS, AUDIT),
    "logLevel": Effect("warning", {REPLICA, CONTROLLER}, AUDIT),
    "replicas": Effect(5, {REPLICA, "ResourceQuota gpufence-priority"}, QUOTA),
    "autoscaling.enabled": Effect(True, {REPLICA, "HorizontalPodAutoscaler gpufence"}),
    "autoscaling.minReplicas": Effect(3, {"HorizontalPodAutoscaler gpufence"}, AUTOSCALING),
    "autoscaling.maxReplicas": Effect(
        9,
        {"HorizontalPodAutoscaler gpufence", "ResourceQuota gpufence-priority"},
        AUTOSCALING | QUOTA,
    ),
    "autoscaling.targetCPUUtilizationPercentage": Effect(
        80, {"HorizontalPodAutoscaler gpufence"}, AUTOSCALING
    ),
    "webhook.port": Effect(10250, {REPLICA, "NetworkPolicy gpufence"}),
    "webhook.drainSeconds": Effect(30, {REPLICA}),
    "webhook.clientCA.secret": Effect("api-servers", {REPLICA}),
    "webhook.clientCA.configMap": Effect("api-servers", {REPLICA}),
    "webhook.clientCA.key": Effect("a.pem", {REPLICA}, {"webhook": {"clientCA": {"secret": "b"}}}),
    "metrics.port": Effect(9090, {REPLICA, CONTROLLER, *SERVICES, *NETWORK}),
    "metrics.serviceMonitor.enabled": Effect(True, {"ServiceMonitor gpufence"}),
    "metrics.serviceMonitor.interval": Effect("1m", {"ServiceMonitor gpufence"}, MONITORING),
    **{
        f"metrics.serviceMonitor.{name}": Effect(value, {"ServiceMonitor gpufence"}, MONITORING)
        for name, value in {
            "scrapeTimeout": "5s",
            "relabelings": [{"action": "drop"}],
            "metricRelabelings": [{"action": "drop"}],
        }.items()
    },
    "service.annotations": Effect(LABELS, SERVICES),
    "service.ipFamilyPolicy": Effect("PreferDualStack", SERVICES),
    "service.ipFamilies": Effect(["IPv6"], SERVICES),
    "metrics.serviceMonitor.labels": Effect(LABELS, {"ServiceMonitor gpufence"}, MONITORING),
    "metrics.prometheusRule.enabled": Effect(True, {"PrometheusRule gpufence"}),
    "metrics.prometheusRule.labels": Effect(LABELS, {"PrometheusRule gpufence"}, MONITORING),
    "metrics.dashboard.enabled": Effect(True, {"ConfigMap gpufence-dashboard"}),
    "metrics.dashboard.labels": Effect(LABELS, {"ConfigMap gpufence-dashboard"}, MONITORING),
    "networkPolicy.enabled": Effect(False, {*NETWORK, "NetworkPolicy gpufence-audit"}, AUDIT),
    "networkPolicy.webhookFrom": Effect(PEERS, {"NetworkPolicy gpufence"}),
    "networkPolicy.metricsFrom": Effect(PEERS, NETWORK),
    "networkPolicy.apiServerPorts": Effect(
        [16443], {*NETWORK, "NetworkPolicy gpufence-audit"}, AUDIT
    ),
    "priorityClassName": Effect(
        "high", {REPLICA, CONTROLLER, "ResourceQuota gpufence-priority"}, QUOTA
    ),
    "priorityQuota": Effect(True, {"ResourceQuota gpufence-priority"}),
    "hostNetwork": Effect(True, {REPLICA}),
    "resources.requests": Effect({"cpu": "1"}, {REPLICA}, AUDIT),
    "resources.limits": Effect({"cpu": "1"}, {REPLICA}, AUDIT),
    "podSecurityContext": Effect({"fsGroup": 1000}, PODS, AUDIT),
    "securityContext": Effect({"runAsUser": 1000}, PODS, AUDIT),
    "podLabels": Effect(LABELS, PODS, AUDIT),
    "podAnnotations": Effect(LABELS, PODS, AUDIT),
    "dnsConfig": Effect({"options": [{"name": "ndots", "value": "1"}]}, PODS, AUDIT),
    "runtimeClassName": Effect("runc", PODS, AUDIT),
    "extraEnv": Effect([{"name": "TZ", "value": "UTC"}], PODS, AUDIT),
    "nodeSelector": Effect(LABELS, PODS, AUDIT),
    "tolerations": Effect([], PODS, AUDIT),
    "affinity": Effect({"podAffinity": {}}, {REPLICA}, AUDIT),
    "topologySpreadConstraints": Effect([{"maxSkew": 1}], {REPLICA}, AUDIT),
    "extraArgs": Effect(["--log-level=error"], {REPLICA}, AUDIT),
    "podDisruptionBudget.enabled": Effect(False, {"PodDisruptionBudget gpufence"}),
    "podDisruptionBudget.maxUnavailable": Effect("50%", {"PodDisruptionBudget gpufence"}),
    "serviceAccount.create": Effect(False, ACCOUNTS, AUDIT),
    "serviceAccount.names.replicas": Effect(
        "own", {REPLICA, "ClusterRoleBinding gpufence", *renamed("gpufence")}, AUDIT
    ),
    "serviceAccount.names.controller": Effect(
        "own",
        {
            *(CONTROLLER, "ClusterRoleBinding gpufence-controller"),
            *("RoleBinding gpufence-controller", *renamed("gpufence-controller")),
            *(min(guard("registration")), min(guard("secret"))),
        },
        AUDIT,
    ),
    "serviceAccount.names.audit": Effect(
        "own", {AUDITS, "ClusterRoleBinding gpufence-audit", *renamed("gpufence-audit")}, AUDIT
    ),
    "serviceAccount.annotations": Effect(LABELS, ACCOUNTS, AUDIT),
    "extraObjects": Effect([{"kind": "A", "metadata": {"name": "b"}}], {"A b"}),
    "createNamespace": Effect(True, {"Namespace gpufence-system"}),
    "clusterFacts": Effect(False, {REPLICA, CONTROLLER, "ClusterRole gpufence", CLUSTER_ROLE}),
    "controller.enabled": Effect(
        False,
        {
            *(
                f"{kind} gpufence-controller"
                for kind in (
                    *("ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy"),
                    *("Role", "RoleBinding", "Service", "ServiceAccount"),
                )
            ),
            *guard("registration"),
            *BINDINGS,
        },
        {"certificates": {"source": "secret", "secretName": "tls"}},
    ),
    "controller.pod": Effect({"priorityClassName": "high"}, {CONTROLLER}, AUDIT),
    "controller.extraArgs": Effect(["--log-level=error"], {CONTROLLER}, AUDIT),
    "controller.resources": Effect({"limits": {"memory": "1Gi"}}, {CONTROLLER}),
    "registration.timeoutSeconds": Effect(9, {REPLICA, CONTROLLER}),
    "registration.excludeNamespaces": Effect(
        ["cilium"],
        {CONTROLLER, min(guard("namespace")), min(guard("registration")), *BINDINGS},
    ),
    "registration.annotations": Effect(LABELS, {CONTROLLER}),
    "admissionPolicies.enabled": Effect(
        False, {CONTROLLER, CLUSTER_ROLE, *guard("namespace"), *BINDINGS}
    ),
    "certificates.source": Effect(
        "secret",
        {CONTROLLER, ROLE, "Secret gpufence-ca", "Secret tls", *guard("secret")},
        {"certificates": {"secretName": "tls"}},
    ),
    "certificates.secretName": Effect(
        "tls", {REPLICA, CONTROLLER, ROLE, "Secret gpufence-serving", "Secret tls"}
    ),
    "certificates.lifetime": Effect("24h", {CONTROLLER}),
    "certificates.caLifetime": Effect("48h", {CONTROLLER}),
    "certificates.issuerRef.name": Effect("b", {"Certificate gpufence"}, CERT_MANAGER),
    "certificates.issuerRef.kind": Effect("ClusterIssuer", {"Certificate gpufence"}, CERT_MANAGER),
    "certificates.issuerRef.group": Effect("b.example", {"Certificate gpufence"}, CERT_MANAGER),
    "audit.enabled": Effect(
        True,
        {
            AUDITS,
            *(
                f"{kind} gpufence-audit"
                for kind in ("ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "ServiceAccount")
            ),
        },
    ),
    "audit.schedule": Effect("0 * * * *", {AUDITS}, AUDIT),
    "audit.timeZone": Effect("Europe/Berlin", {AUDITS}, AUDIT),
    "audit.output": Effect("json", {AUDITS}, AUDIT),
    "audit.failOn": Effect("warn", {AUDITS}, AUDIT),
    "audit.activeDeadlineSeconds": Effect(60, {AUDITS}, AUDIT),
    "audit.pod": Effect({"tolerations": []}, {AUDITS}, AUDIT),
    "audit.extraArgs": Effect(["--quiet"], {AUDITS}, AUDIT),
    "audit.resources": Effect({"limits": {"memory": "2Gi"}}, {AUDITS}, AUDIT),
}
EVERYWHERE = {"commonLabels", "commonAnnotations"}
"""tests/integration/deploy/test_chart.py has them."""
NAMES = {"nameOverride": "guard", "fullnameOverride": "guard"}
LISTED = [value for value in values() if value.default]


def test_each_documented_value_has_a_test_case() -> None:
    assert {value.path for value in LISTED} == EFFECTS.keys() | NAMES.keys() | EVERYWHERE
    assert ELSEWHERE in {value.path for value in values()}


def test_each_documented_value_has_a_type_or_choices() -> None:
    assert [value.path for value in LISTED if not value.accepted] == []
    for value in LISTED:
        json.loads(value.default)


@pytest.mark.slow("renders the chart with each value")
def test_a_value_changes_only_the_expected_objects(helm: Helm) -> None:
    def is_expected(path: str) -> None:
        effect = EFFECTS[path]
        before = objects(helm, dict(effect.given))
        after = objects(helm, merge(effect.given, nested(path, effect.value), {}))
        names = before.keys() | after.keys()
        assert {name for name in names if before.get(name) != after.get(name)} == effect.changed

    each(EFFECTS, is_expected)


def test_a_setting_of_one_part_replaces_that_of_all_pods_for_its_pod_only(helm: Helm) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    before = objects(helm, AUDIT)

    def is_its_own(case: tuple[str, str]) -> None:
        part, key = case
        given = merge(AUDIT, nested(part, {"pod": {key: EFFECTS[key].value}}), {})
        after = objects(helm, given)
        changed = {name for name in after if before.get(name) != after[name]}
        assert changed == {{"controller": CONTROLLER, "audit": AUDITS}[part]}

    parts = ("controller", "audit")
    each(
        [(part, key) for part in parts for key in schema[part]["properties"]["pod"]["properties"]],
        is_its_own,
    )
    # Helm merges mappings of values; a setting of one part takes the place of the whole mapping.
    own = objects(helm, nested("controller", {"pod": {"nodeSelector": LABELS}}))[CONTROLLER]
    assert own["spec"]["template"]["spec"]["nodeSelector"] == LABELS


def test_two_parts_cannot_share_an_account(helm: Helm) -> None:
    names = {"replicas": "one", "controller": "one"}
    reason = "two parts one account (one, one, gpufence-audit)"
    assert reason in helm.refusal({"serviceAccount": {"names": names}})


def test_name_overrides_are_part_of_every_object_name(helm: Helm) -> None:
    every = {**MONITORING, **AUDIT, **AUTOSCALING, **QUOTA}
    made = {name: objects(helm, {**every, path: name}) for path, name in NAMES.items()}
    # Every release has it under this name, so that Helm rejects a second one.
    shared = "ClusterRole fencepolicies-view"
    own = {name: [one for one in found if one != shared] for name, found in made.items()}
    assert not [(n, one) for n in own for one in own[n] if n not in one.partition(" ")[2]]


def test_audit_accepts_each_output_and_fail_on_value() -> None:
    """test_chart.py tests the arguments of the Job."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    audit = cli.get_command(click.Context(cli), "audit")
    assert audit is not None
    for name, option in (("output", "--output"), ("failOn", "--fail-on")):
        [parameter] = [one for one in audit.params if option in one.opts]
        choices = schema["properties"]["audit"]["properties"][name]["enum"]
        assert all(parameter.type.convert(choice, None, None) for choice in choices)
        assert choices


def objects(helm: Helm, given: Values) -> dict[str, Any]:
    """Return the objects of a release by kind and name."""
    rendered = parsed(helm.text(given))
    return {f"{obj['kind']} {obj['metadata']['name']}": obj for obj in rendered}


def nested(path: str, value: Any) -> Values:
    found: Values = reduce(lambda inner, key: {key: inner}, reversed(path.split(".")), value)
    return found
