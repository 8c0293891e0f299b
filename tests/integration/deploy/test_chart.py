"""What the chart makes of values: on its own here, and before the API server in test_apply.py."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from controlplane.binaries import VERSION
from deploy.chart import NAMESPACE, RELEASE, Helm, Object, Values, is_controllers, one, parsed
from deploy.variants import VARIANTS
from each import each
from paths import CHART, PROJECT
from policies.document import PolicyError, parse_policy
from policies.policy import ALWAYS_EXCLUDED
from specs import default_spec, policy_of
from webhook.cluster.needs import needed_facts
from webhook.controller.drift import drift
from webhook.controller.text.objects import (
    BINDING_KIND,
    Registration,
    admission_policies,
)
from webhook.tools.cli.commands.doctor import read_arguments
from webhook.tools.cli.main import cli
from webhook.tools.doctor import rights
from webhook.tools.doctor.registered import relaxed_namespaces


def each_variant(helm: Helm, test: Callable[[list[Object], Values], None]) -> None:
    """Call a test with the objects of each variant, and with its values."""
    each(VARIANTS, lambda name: test(helm.objects(VARIANTS[name]), VARIANTS[name]))


def policy(objects: list[Object], name: str = "gpufence") -> Any:
    return one(objects, "FencePolicy", name)


def pod(objects: list[Object]) -> Any:
    return one(objects, "Deployment")["spec"]["template"]["spec"]


def pool(name: str, *resources: str, **labels: str) -> Any:
    return {"name": name, "resources": list(resources), "nodeSelector": labels or {"gpu": "true"}}


def arguments(deployment: Object) -> list[str]:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    args: list[str] = container["args"]
    return args


def deployments(objects: list[Object]) -> list[Object]:
    """Return that of the replicas and, if there is one, that of the controller."""
    return [obj for obj in objects if obj["kind"] == "Deployment"]


EVERYTHING: Values = {
    **VARIANTS["everything for Prometheus and Grafana"],
    "audit": {"enabled": True},
    "autoscaling": {"enabled": True},
    "certificates": {"source": "certManager", "issuerRef": {"name": "a"}},
    "createNamespace": True,
    "priorityQuota": True,
}


def test_helm_lint_reports_no_errors_or_warnings(helm: Helm) -> None:
    lint = ("lint", "--strict", "--quiet", "--kube-version", VERSION)
    for values in ({}, EVERYTHING):
        linted = helm.with_values(lint, values).stdout
        assert "[ERROR]" not in linted
        assert "[WARNING]" not in linted


def test_gpufence_accepts_the_arguments_of_deployments_and_jobs(helm: Helm) -> None:
    def are_accepted(objects: list[Object], values: Values) -> None:
        commands = set()
        jobs = [obj["spec"]["jobTemplate"] for obj in objects if obj["kind"] == "CronJob"]
        for runs in [*deployments(objects), *jobs]:
            name, *options = arguments(runs)
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            command.make_context(name, options)
            commands.add(name)
        without = values.get("controller", {}).get("enabled") is False
        assert len(commands) == 3 - without - ("audit" not in values)

    each_variant(helm, are_accepted)


def test_the_policy_is_valid_and_exempts_the_namespace_of_the_release(helm: Helm) -> None:
    def is_right(objects: list[Object], values: Values) -> None:
        document = policy(objects, values.get("fullnameOverride", "gpufence"))
        user = values.get("policy", {}).get("hardening", {}).get("runAsUser", 65532)
        assert parse_policy(document).hardening.run_as_user == user
        assert document["spec"]["exemptions"]["namespaces"].count(NAMESPACE) == 1

    each_variant(helm, is_right)
    elsewhere = policy(helm.objects({}, "elsewhere"))
    assert "elsewhere" in elsewhere["spec"]["exemptions"]["namespaces"]


def test_policy_values_are_merged_into_the_default_policy(helm: Helm) -> None:
    assert policy(helm.objects({}))["spec"] == default_spec()
    rules = {"pool-trespass": "warn", "device-leak": False}
    document = policy(helm.objects({"policy": {"rules": rules}}))
    assert document["spec"] == default_spec() | {"rules": default_spec()["rules"] | rules}
    assert parse_policy(document).rules["device-leak"] == "off"


WRONG = """
replica: 3
replicas: 0
audit: {output: sarif}
priorityQuota: "yes"
autoscaling: {minReplicas: 0}
webhook: {port: 443, clientCA: {key: a/b, secret: a, configMap: b}}
image: {digest: latest}
fullnameOverride: GPU_Fence
nameOverride: GPU_Fence
registration: {excludeNamespaces: [a b], annotations: {a b: c}, enabled: false}
certificates: {source: vault, secretName: A, lifetime: 1 year}
networkPolicy: {apiServerPorts: []}
policy: {rules: {pool-trespas: warn}, kind: Deployment}
logLevel: debug
service: {ipFamilies: [IPv5]}
policyDocument: "kind: FencePolicy"
"""


def test_the_schema_rejects_each_invalid_value_with_its_name(helm: Helm) -> None:
    refusal = helm.refusal(yaml.safe_load(WRONG))

    def is_named(parent: str, values: Values) -> None:
        for key, value in values.items():
            if isinstance(value, dict):
                is_named(f"{parent}/{key}", value)
            else:
                unknown = f"at '{parent}': additional properties .*'{key}'.* not allowed"
                assert re.search(f"at '{parent}/{key}(/0)?': |{unknown}", refusal), (parent, key)

    is_named("", yaml.safe_load(WRONG))


def test_invalid_values_are_rejected_with_their_name(helm: Helm) -> None:
    same = (
        *(("b.c/d", "b.c/d"), ("b.c/d", "b.c/*"), ("b.c/d-*", "b.c/d-e")),
        *(("b.c/d*", "b.c/*"), ("b.c/*", "b.c/d*")),
    )
    rejected: list[tuple[Values, str]] = [
        (
            {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 4}},
            "autoscaling.maxReplicas is 4, below autoscaling.minReplicas, which is 5",
        ),
        ({"enabled": False}, "enabled is for a chart that depends on this one"),
        ({"webhook": {"port": 8080}}, "webhook.port and metrics.port are both 8080"),
        ({"controller": {"enabled": False}}, "the controller that issues them is off"),
        ({"certificates": {"source": "secret"}}, "/certificates/secretName"),
        ({"certificates": {"source": "certManager"}}, "/certificates/issuerRef/name"),
        ({"policy": None}, "the policy has no pools: leave policy and policy.pools out"),
        ({"policy": "none"}, "at '/policy': got string, want object"),
        ({"policy": {"pools": None}}, "missing property 'pools'"),
        ({"policy": {"pools": [pool("a", "b.c/d"), pool("a", "b.c/e")]}}, "two pools named a"),
    ]
    rejected += [
        (
            {"policy": {"pools": [pool("a", one), pool("b", "x.y/z", two)]}},
            f"the policy has {one} in pool a and {two} in pool b",
        )
        for one, two in same
    ]

    def is_rejected(case: tuple[Values, str]) -> None:
        assert case[1] in helm.refusal(case[0])

    each(rejected, is_rejected)


def test_the_chart_rejects_pools_that_the_policy_parser_rejects(helm: Helm) -> None:
    own = pool("a", "b.c/d")
    of_class = {"deviceClasses": ["gpu"]}
    model, zone = {"model": "a"}, {"model": "a", "zone": "1"}
    unknown = "pool a has b.c/e in sharedResources or fractionalResources, and not in resources"

    def is_rejected(case: tuple[Values, str]) -> None:
        with pytest.raises(PolicyError):
            policy_of(default_spec() | case[0])
        assert case[1] in helm.refusal({"policy": case[0]})

    pools = (
        (pool("a", "b.c/d", **model), pool("b", "b.c/d", **model), "b"),
        (pool("a", "b.c/d", **model), pool("b", "b.c/d", **zone), "a"),
        (pool("a", "b.c/d", **zone), pool("b", "b.c/d", **model), "b"),
        (own | of_class, pool("b", "b.c/e") | of_class, "b"),
    )
    rejected: list[tuple[Values, str]] = [
        ({"pools": [own | {"sharedResources": ["b.c/e"]}]}, unknown),
        ({"pools": [own | {"fractionalResources": ["b.c/e"]}]}, unknown),
    ]
    rejected += [
        ({"pools": [one, other]}, f"add a label to the nodeSelector of {wide}")
        for one, other, wide in pools
    ]
    each(rejected, is_rejected)


def test_distinguishable_pools_are_accepted(helm: Helm) -> None:
    for pools in (
        [pool("a", "b.c/d", "b.c/e-*"), pool("b", "b.c/dd", "b.c/e")],
        [pool("a", "b.c/d", model="a"), pool("b", "b.c/d", model="b")],
        [pool("a", "b.c/d", model="a", zone="1"), pool("b", "b.c/*", model="a", disk="ssd")],
    ):
        parse_policy(policy(helm.objects({"policy": {"pools": pools}})))


def test_the_chart_can_leave_the_policy_to_others(helm: Helm) -> None:
    kinds = {obj["kind"] for obj in helm.objects({"policy": {"create": False}})}
    assert "FencePolicy" not in kinds
    assert "Deployment" in kinds


def test_kubernetes_before_1_30_is_rejected(helm: Helm) -> None:
    message = helm("template", "gpufence", str(CHART), "--kube-version", "1.29.9", check=False)
    assert "requires kubeVersion: >=1.30.0-0" in message.stderr


def guarded(helm: Helm, policy: Values) -> list[list[str]]:
    """Return the lists of the namespace guard: exempt names, relaxed names, and prefixes."""
    objects = helm.objects({"policy": policy})
    guard = one(objects, "ValidatingAdmissionPolicy", "gpufence-namespace-guard")
    text = " ".join(variable["expression"] for variable in guard["spec"]["variables"])
    return [json.loads(found) for found in re.findall(r"\[.*?\]", text)]


def test_the_namespace_guard_covers_all_namespaces_exempt_by_name(helm: Helm) -> None:
    for mode in ("enforce", "audit"):
        exempt, *others = guarded(helm, {"mode": mode, "exemptions": {"namespaces": ["agents"]}})
        assert set(exempt) == {*ALWAYS_EXCLUDED, "agents", NAMESPACE}
        assert others == [[], []]


def test_the_namespace_guard_covers_names_for_which_the_policy_is_relaxed(helm: Helm) -> None:
    off: Any = False  # YAML 1.1 reads an unquoted off so.
    overrides = [
        {"namespaces": ["a", "mode-*"], "mode": "audit"},
        {"namespaces": ["rule-*"], "rules": {"pool-trespass": off}},
        {"namespaces": ["level-*"], "hardening": {"level": "off"}},
        {"namespaces": ["version-*"], "hardening": {"version": "v1.33"}},
        {"namespaces": ["*"], "mode": "warn"},
        {"namespaces": ["stricter-*"], "mode": "enforce", "hardening": {"warn": "off"}},
        {"namespaces": ["alike-*"], "rules": {"needs-root": "audit", "device-leak": "enforce"}},
    ]
    exceptions = [{"namespaces": ["except-*", "a"], "reason": "a"}]
    relaxing = {"overrides": overrides, "exceptions": exceptions}
    _, names, prefixes = guarded(helm, relaxing)
    assert names == ["a", "except-*", "level-*", "mode-*", "rule-*", "version-*"]
    assert names == sorted(relaxed_namespaces(policy_of(default_spec() | relaxing)))
    assert prefixes == ["except-", "level-", "mode-", "rule-", "version-"]
    assert guarded(helm, {"mode": "audit", **relaxing})[1:] == [[], []]


def test_the_chart_has_what_its_controller_may_not_create(helm: Helm) -> None:
    """Both Secrets, without what an upgrade would overwrite, and the bindings that it expects."""
    values = {"registration": {"excludeNamespaces": ["cilium"]}}
    objects = helm.objects(values)
    secrets = [obj for obj in objects if obj["kind"] == "Secret"]
    assert [obj.keys() for obj in secrets] == [{"apiVersion", "kind", "metadata"}] * 2
    excluded = frozenset({"cilium", NAMESPACE})
    expected = admission_policies(
        policy_of(default_spec()), Registration(excluded_namespaces=excluded)
    )
    rules = one(objects, "ClusterRole", "gpufence-controller")["rules"]
    [written] = [rule for rule in rules if rule["resources"] == ["validatingadmissionpolicies"]]
    names = [obj["metadata"]["name"] for obj in expected if obj["kind"] == BINDING_KIND]
    assert sorted(written["resourceNames"]) == sorted(names)
    for binding in [obj for obj in expected if obj["kind"] == BINDING_KIND]:
        assert not drift(binding, one(objects, BINDING_KIND, binding["metadata"]["name"]))


def test_the_chart_has_no_webhook_configuration_and_replicas_may_only_read(helm: Helm) -> None:
    def is_so(objects: list[Object], values: Values) -> None:
        assert not [obj for obj in objects if obj["kind"].endswith("WebhookConfiguration")]
        name = values.get("fullnameOverride", "gpufence")
        roles = [obj for obj in objects if obj["kind"] in ("ClusterRole", "Role")]
        own = [obj for obj in roles if obj["metadata"]["name"] == name]
        for rule in [rule for role in own for rule in role["rules"]]:
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
            assert "secrets" not in rule["resources"]

    each_variant(helm, is_so)


def test_the_doctor_reviews_the_rights_of_the_controller_and_others_of_replicas(
    helm: Helm,
) -> None:
    """Each right that the chart gives to the controller, and no other; of replicas, a part."""

    def given(objects: list[Object], name: str) -> set[tuple[str, ...]]:
        roles = [obj for obj in objects if obj["kind"] in ("ClusterRole", "Role")]
        return {
            each
            for role in roles
            if role["metadata"]["name"] == name
            for rule in role["rules"]
            for each in product(
                rule["apiGroups"],
                rule["resources"],
                rule["verbs"],
                rule.get("resourceNames", [""]),
            )
        }

    def reviewed(of_account: Iterable[rights.Right]) -> set[tuple[str, ...]]:
        return {
            each
            for right in of_account
            for each in product([right.group], right.resources, right.verbs, right.names)
        }

    def are_reviewed(objects: list[Object], values: Values) -> None:
        name = values.get("fullnameOverride", "gpufence")
        facts = needed_facts(policy_of(policy(objects, name)["spec"]))
        replicas = rights.of_replicas(name, name, facts)
        uses_facts = values.get("clusterFacts", True)
        assert not uses_facts or reviewed(replicas) <= given(objects, name)
        for words in map(arguments, deployments(objects)):
            if words[0] != "controller":
                continue
            deployed = read_arguments(words)
            needed = rights.of_controller(
                deployed.registration,
                "gpufence-system",
                tuple(filter(None, (deployed.serving_secret, deployed.ca_secret))),
                admission_policies=deployed.admission_policies,
            )
            both = reviewed(needed) ^ given(objects, f"{name}-controller")
            # Without admission policies, it may still delete earlier ones.
            assert {resource for _, resource, _, _ in both} <= {"validatingadmissionpolicies"}
            assert not both or not deployed.admission_policies

    each_variant(helm, are_reviewed)


def test_the_termination_grace_period_grows_with_the_drain(helm: Helm) -> None:
    objects = helm.objects(
        {"webhook": {"drainSeconds": 7.5}, "registration": {"timeoutSeconds": 25}}
    )
    assert pod(objects)["terminationGracePeriodSeconds"] == math.ceil(7.5) + 25 + 5


def test_ports_are_consistent_across_all_objects(helm: Helm) -> None:
    def are_consistent(objects: list[Object], _: Values) -> None:
        for controller in filter(is_controllers, deployments(objects)):
            [container] = controller["spec"]["template"]["spec"]["containers"]
            [metrics] = container["ports"]
            assert f"--metrics-port={metrics['containerPort']}" in container["args"]
        [container] = pod(objects)["containers"]
        ports = {obj["name"]: obj["containerPort"] for obj in container["ports"]}
        assert f"--port={ports['https']}" in container["args"]
        assert f"--metrics-port={ports['metrics']}" in container["args"]
        assert {obj["targetPort"] for obj in one(objects, "Service")["spec"]["ports"]} == set(ports)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            assert container[probe]["httpGet"]["port"] == "metrics"
        policies = [obj for obj in objects if obj["kind"] == "NetworkPolicy"]
        opened = [
            port["port"]
            for obj in policies
            for rule in obj["spec"].get("ingress", ())
            for port in rule["ports"]
        ]
        assert set(opened) <= set(ports.values())

    each_variant(helm, are_consistent)


def test_every_selector_matches_only_its_pods(helm: Helm) -> None:
    def match(objects: list[Object], _: Values) -> None:
        serving = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
        others = [
            obj["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"].items()
            for obj in objects
            if obj["kind"] == "CronJob"
        ]
        for obj in objects:
            if is_controllers(obj) and obj["kind"] == "Deployment":
                controlling = obj["spec"]["template"]["metadata"]["labels"].items()
                others.append(controlling)
                service = one(objects, "Service", obj["metadata"]["name"])
                for selector in (
                    obj["spec"]["selector"]["matchLabels"],
                    service["spec"]["selector"],
                ):
                    assert selector.items() <= controlling
                    assert not selector.items() <= serving
        selectors = [
            one(objects, "Deployment")["spec"]["selector"]["matchLabels"],
            one(objects, "Service")["spec"]["selector"],
            one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        ]
        for selector in selectors:
            assert selector
            assert selector.items() <= serving
            assert not any(selector.items() <= labels for labels in others)
        policies = [
            obj["spec"]["podSelector"]["matchLabels"].items()
            for obj in objects
            if obj["kind"] == "NetworkPolicy"
        ]
        for selected in policies:
            assert selected
            assert len([labels for labels in (serving, *others) if selected <= labels]) == 1
        assert len(policies) in (0, 1 + len(others))

    each_variant(helm, match)


GKE, OTHER = "networking.gke.io/v1", "v1"


def test_the_priority_quota_defaults_to_gke_and_dedicated_namespaces(
    helm: Helm, subtests: pytest.Subtests
) -> None:
    """In kube-system, it would limit CoreDNS."""
    made: list[tuple[str, str, Values, bool]] = [
        ("gpufence-system", OTHER, {}, False),
        ("gpufence-system", GKE, {}, True),
        ("gpufence", GKE, {}, True),
        ("kube-system", GKE, {}, False),
        ("platform", GKE, {}, False),
        ("platform", OTHER, {"priorityQuota": True}, True),
        ("gpufence-system", GKE, {"priorityQuota": False}, False),
        ("gpufence-system", GKE, {"priorityClassName": ""}, False),
    ]
    for namespace, served, values, is_made in made:
        with subtests.test(namespace=namespace, served=served, values=values):
            options = ("--namespace", namespace, "--api-versions", served)
            text = helm.with_values(("template", "gpufence"), values, *options).stdout
            assert ("\nkind: ResourceQuota\n" in text) == is_made


def test_a_priority_quota_in_kube_system_is_rejected(helm: Helm) -> None:
    message = helm.with_values(
        ("template", "gpufence"), {"priorityQuota": True}, "--namespace", "kube-system", check=False
    )
    assert "would limit every Pod of class system-cluster-critical in namespace kube-system" in (
        message.stderr
    )


# Helm takes names of up to 53 characters, with dots and digits first.
LONG = "a" * 53
NAMES = {
    LONG: {},
    f"{LONG[:-1]}b": {},
    "team.gpu-fence": {},
    "1st": {},
    "v1.2.gpufence": {},
    "short": {"fullnameOverride": "b" * 63},
    "other": {"nameOverride": "c" * 63},
    "gpufence": {},
}


def test_every_object_name_is_valid_for_the_api_server_and_unique(helm: Helm) -> None:
    services = {}
    for release, values in NAMES.items():
        rendered = helm.with_values(("template", release), {**values, **EVERYTHING})
        objects = parsed(rendered.stdout)
        for obj in objects:
            name = obj["metadata"]["name"]
            # The name of a Service is a label of RFC 1035, which is the narrowest; CronJobs add 11.
            # Admission policies and bindings have subdomains.
            assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name), obj["kind"]
            longest = 253 if obj["kind"].startswith("ValidatingAdmissionPolicy") else 63
            assert len(name) <= (52 if obj["kind"] == "CronJob" else longest), obj["kind"]
            for label in obj["metadata"]["labels"].values():
                assert len(label) <= 63
        services[release] = one(objects, "Service")["metadata"]["name"]
        for obj in filter(is_controllers, deployments(objects)):
            assert f"--service=default/{services[release]}" in arguments(obj)
    assert services["gpufence"] == "gpufence"
    assert len({*services.values()}) == len(NAMES)


def test_the_startup_probe_allows_a_start_at_the_requested_cpu(helm: Helm) -> None:
    [container] = pod(helm.objects({}))["containers"]
    probe = container["startupProbe"]
    millicores = int(container["resources"]["requests"]["cpu"].removesuffix("m"))
    # A second of CPU, at the share that is requested, twice over.
    assert probe["periodSeconds"] * probe["failureThreshold"] > 2 * 1000 / millicores


def test_the_deployment_has_no_replicas_if_autoscaling_is_enabled(helm: Helm) -> None:
    autoscaling = {"enabled": True, "minReplicas": 3, "maxReplicas": 9}
    objects = helm.objects({"autoscaling": autoscaling, "fullnameOverride": "fence"})
    deployment = one(objects, "Deployment")
    # A number in the Deployment would undo the autoscaler's with each upgrade.
    assert "replicas" not in deployment["spec"]
    spec = one(objects, "HorizontalPodAutoscaler")["spec"]
    assert spec["scaleTargetRef"] == {
        "apiVersion": deployment["apiVersion"],
        "kind": "Deployment",
        "name": deployment["metadata"]["name"],
    }
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 9)
    default = helm.objects({})
    assert one(default, "Deployment")["spec"]["replicas"] == 2
    assert not [obj for obj in default if obj["kind"] == "HorizontalPodAutoscaler"]


def test_the_page_about_the_architecture_has_each_right(helm: Helm) -> None:
    page = (PROJECT / "docs/operate/architecture.md").read_text().partition("## What it may do")[2]
    parts = page.partition("RBAC limits names")[0].split("It has no other right")
    objects = helm.objects({})
    rules = {
        (obj["kind"], obj["metadata"]["name"]): obj["rules"]
        for obj in objects
        if obj["kind"] in {"Role", "ClusterRole"}
    }
    for account, part in zip((RELEASE, f"{RELEASE}-controller"), parts, strict=True):
        rights = {
            (resource, verb)
            for obj in objects
            if account in [subject["name"] for subject in obj.get("subjects", ())]
            for rule in rules[obj["roleRef"]["kind"], obj["roleRef"]["name"]]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        listed = {
            (resource, verb)
            for resources, verbs in re.findall(r"(?m)^\| (`[^|]+) \| ([a-z, ]+) \|", part)
            for resource in re.findall(r"`([\w/]+)`", resources)
            for verb in verbs.split(", ")
        }
        assert listed == rights


def test_max_unavailable_is_1_with_host_network_and_0_otherwise(helm: Helm) -> None:
    """On host ports, two nodes have no room for a third replica: an old one has to go first."""
    rolling = one(helm.objects({"hostNetwork": True}), "Deployment")["spec"]["strategy"]
    assert rolling["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 1}
    rolling = one(helm.objects({}), "Deployment")["spec"]["strategy"]
    assert rolling["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_values_override_the_pod_fields_of_the_chart(helm: Helm) -> None:
    """A key that is there twice is one that kustomize, and so Flux, does not take."""
    key, label = "cluster-autoscaler.kubernetes.io/safe-to-evict", "app.kubernetes.io/version"
    values = {"podAnnotations": {key: "false", "a": "b"}, "podLabels": {label: "mine", "c": "d"}}
    metadata = one(helm.objects(values), "Deployment")["spec"]["template"]["metadata"]
    own = one(helm.objects({}), "Deployment")["spec"]["template"]["metadata"]
    assert metadata["annotations"] == {key: "false", "a": "b"}
    assert metadata["labels"] == own["labels"] | {label: "mine", "c": "d"}
    assert helm.text(values).count(f"{key}:") == 2, "once in each Deployment"
    assert helm.text(values).count(f"{label}:") == helm.text({}).count(f"{label}:")


def test_common_labels_and_annotations_are_on_every_object_and_pod(helm: Helm) -> None:
    given = {"team": "platform", "app.kubernetes.io/name": "other"}
    values = {**EVERYTHING, "commonLabels": given, "commonAnnotations": {"owner": "a"}}
    objects = helm.objects(values)
    assert len(objects) > 25
    templates = [obj["spec"]["template"] for obj in deployments(objects)]
    templates.append(one(objects, "CronJob")["spec"]["jobTemplate"]["spec"]["template"])
    for obj in [*objects, *templates]:
        metadata = obj["metadata"]
        assert metadata["labels"]["team"] == "platform"
        assert metadata["labels"]["app.kubernetes.io/name"].startswith("gpufence")
        assert metadata["annotations"]["owner"] == "a"


def test_the_rules_about_prometheus_are_for_both_services(helm: Helm) -> None:
    objects = helm.objects(VARIANTS["everything for Prometheus and Grafana"])
    selector = one(objects, "ServiceMonitor")["spec"]["selector"]
    [expression] = selector["matchExpressions"]
    services = [obj["metadata"]["labels"] for obj in objects if obj["kind"] == "Service"]
    assert len(services) == 2
    for labels in services:
        assert selector["matchLabels"].items() <= labels.items()
        assert labels[expression["key"]] in expression["values"]


def test_the_alerts_are_those_of_the_file_and_need_no_controller_that_is_off(helm: Helm) -> None:
    rules = {"metrics": {"prometheusRule": {"enabled": True}}}
    off = {
        "controller": {"enabled": False},
        "certificates": {"source": "secret", "secretName": "tls"},
    }
    spec, without = (
        one(helm.objects(rules | values), "PrometheusRule")["spec"] for values in ({}, off)
    )
    assert spec == yaml.safe_load((CHART / "files" / "gpufence.rules.yaml").read_text())
    [alerts, fewer] = (
        {rule["alert"] for rule in obj["groups"][0]["rules"]} for obj in (spec, without)
    )
    assert alerts - fewer == {"GpufenceControllerStalled"}


def test_a_parent_chart_can_disable_the_chart(
    helm: Helm, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    shutil.copytree(CHART, tmp_path / "charts" / "gpufence")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    dependency = {key: chart[key] for key in ("name", "version")}
    dependency["condition"] = "gpufence.enabled"
    whole = {"apiVersion": "v2", "name": "platform", "version": "1.0.0"}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(whole | {"dependencies": [dependency]}))
    for enabled in ("true", "false"):
        with subtests.test(enabled=enabled):
            (tmp_path / "values.yaml").write_text(f"gpufence: {{enabled: {enabled}}}\n")
            rendered = helm("template", "platform", str(tmp_path)).stdout
            assert ("kind: Deployment" in rendered) == (enabled == "true")


def test_the_openshift_variant_sets_no_user_or_group_ids(helm: Helm) -> None:
    context = pod(helm.objects(VARIANTS["OpenShift picks the ids"]))["securityContext"]
    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
