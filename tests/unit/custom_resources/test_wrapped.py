"""The Pods of a wrapper are judged in their own namespace, whatever that of the wrapper is."""

from __future__ import annotations

from typing import Any

import yaml

import deciding
from deciding import TOLERATION
from each import each
from policies.facts import Facts, Request
from policies.policy import Policy
from specs import JSON, default_spec, policy_of
from webhook.tools.custom_resources import judged

POLICY = deciding.policy()
POD: JSON = {"tolerations": [TOLERATION], "containers": [{"name": "c", "image": "nginx"}]}
VALUES = yaml.safe_dump({"tolerations": [TOLERATION], "replicas": 2})


def obj(kind: str, api: str, namespace: str = "", **fields: Any) -> JSON:
    metadata = {"name": "a"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}


def web(namespace: str = "") -> JSON:
    return obj("Deployment", "apps/v1", namespace, spec={"template": {"spec": POD}})


def work(namespace: str, *inside: JSON, api: str = "work.open-cluster-management.io/v1") -> JSON:
    kind = "Work" if "karmada" in api else "ManifestWork"
    return obj(kind, api, namespace, spec={"workload": {"manifests": [*inside]}})


def chart(namespace: str, **spec: Any) -> JSON:
    return obj("HelmChart", "helm.cattle.io/v1", namespace, spec={**spec, "valuesContent": VALUES})


def release(namespace: str, **spec: Any) -> JSON:
    spec |= {"values": {"tolerations": [TOLERATION]}}
    return obj("HelmRelease", "helm.toolkit.fluxcd.io/v2", namespace, spec=spec)


def application(own: str, **destination: Any) -> JSON:
    spec = {"destination": destination, "source": {"helm": {"values": VALUES}}}
    return obj("Application", "argoproj.io/v1alpha1", own, spec=spec)


def template(namespace: str, *objects: JSON) -> JSON:
    return obj("Template", "template.openshift.io/v1", namespace, objects=[*objects])


def crossplane(inside: JSON) -> JSON:
    spec = {"forProvider": {"manifest": inside}}
    return obj("Object", "kubernetes.crossplane.io/v1alpha2", spec=spec)


def governed(namespace: str, inside: JSON) -> JSON:
    own = {"object-templates": [{"complianceType": "musthave", "objectDefinition": inside}]}
    api = "policy.open-cluster-management.io/v1"
    definition = obj("ConfigurationPolicy", api, spec=own)
    spec = {"policy-templates": [{"objectDefinition": definition}]}
    return obj("Policy", api, namespace, spec=spec)


def wrapper(namespace: str, inside: JSON) -> JSON:
    spec = {"components": [{"template": inside}]}
    return obj("AppWrapper", "workload.codeflare.dev/v1beta2", namespace, spec=spec)


def sync_set(namespace: str, *inside: JSON) -> JSON:
    return obj("SyncSet", "hive.openshift.io/v1", namespace, spec={"resources": [*inside]})


CASES: dict[str, tuple[JSON, str]] = {
    "work of an exempt namespace": (work("cluster1", web("gpu-operator")), "allowed"),
    "work in an exempt namespace": (work("kube-system", web("web")), "denied"),
    "work without a namespace": (work("kube-system", web()), "denied"),
    "work of Karmada": (work("kube-system", web("web"), api="work.karmada.io/v1"), "denied"),
    "work of two namespaces": (work("a", web("kube-system"), web("web")), "denied"),
    "work of two exempt ones": (work("a", web("kube-system"), web("gpu-operator")), "allowed"),
    "work with a chart": (work("a", chart("kube-system", targetNamespace="web")), "unknown"),
    "template of a project": (template("kube-system", web()), "denied"),
    "template of an exempt one": (template("web", web("kube-system")), "allowed"),
    "object of Crossplane": (crossplane(web("kube-system")), "allowed"),
    "object in the default namespace": (crossplane(web()), "denied"),
    "policy in a policy": (governed("kube-system", web("web")), "denied"),
    "policy of an exempt namespace": (governed("policies", web("gpu-operator")), "allowed"),
    "sync set": (sync_set("kube-system", web("web")), "denied"),
    "wrapper of its own namespace": (wrapper("kube-system", web()), "allowed"),
    "wrapper of another namespace": (wrapper("kube-system", web("web")), "denied"),
    "chart of another namespace": (chart("kube-system", targetNamespace="web"), "unknown"),
    "chart of an exempt one": (chart("default", targetNamespace="gpu-operator"), "allowed"),
    "chart of its own namespace": (chart("kube-system"), "allowed"),
    "release": (release("kube-system", targetNamespace="web"), "unknown"),
    "release of an exempt namespace": (release("flux", targetNamespace="kube-system"), "allowed"),
    "application": (application("kube-system", namespace="web"), "unknown"),
    "application of an exempt one": (application("argocd", namespace="kube-system"), "allowed"),
    "application without a namespace": (application("kube-system"), "unknown"),
}  # fmt: skip


def facts_in(_namespace: str) -> Facts:
    return Facts()


def test_a_wrapper_is_judged_in_the_namespaces_of_its_pods() -> None:
    def holds(name: str) -> None:
        written, verdict = CASES[name]
        judgement, _ = judged(written, POLICY, Request(), facts_in)
        assert judgement.decision.verdict == verdict, name

    each(CASES, holds)


def test_each_part_of_a_wrapper_keeps_its_path_and_is_decided_by_itself() -> None:
    both = work("a", web("kube-system"), web("web"))
    judgement, _ = judged(both, POLICY, Request(), facts_in)
    [finding] = judgement.decision.findings
    assert finding.path == "spec.workload.manifests[1].spec.template.spec.tolerations[0]"
    assert not judgement.decision.exemption


def judged_by(written: JSON, **spec: Any) -> tuple[str, str]:
    policy: Policy = policy_of({**default_spec(), **spec})
    judgement, request = judged(written, policy, Request(), facts_in)
    return judgement.decision.verdict, request.namespace


def test_exceptions_overrides_and_tenants_count_by_the_wrapped_object() -> None:
    inside = work("hub", web("web"))
    exception = {"namespaces": ["web"], "kinds": ["Deployment"], "names": ["a"], "reason": "moved"}
    assert judged_by(inside, exceptions=[exception]) == ("allowed", "web")
    assert judged_by(inside, exceptions=[exception | {"namespaces": ["hub"]}]) == ("denied", "web")
    override = {"namespaces": ["web"], "rules": {"pool-trespass": "warn"}}
    assert judged_by(inside, overrides=[override]) == ("allowed", "web")
    [pool] = default_spec()["pools"]
    gpu = {
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    }
    asking = web("web") | {"spec": {"template": {"spec": gpu}}}
    for tenant, verdict in (("web", "mutated"), ("hub", "denied")):
        tenants = [{**pool, "allowedNamespaces": {"names": [tenant]}}]
        assert judged_by(work("hub", asking), pools=tenants) == (verdict, "web")
