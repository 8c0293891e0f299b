"""Templates that a controller reads as they are written need the toleration of GPU nodes."""

from __future__ import annotations

import yaml

import deciding
from dumped import manifests
from each import each
from policies.facts import Request
from webhook.tools.cli.evaluate import evaluate

TAINTS = [{"key": "nvidia.com/gpu"}, {"key": "team"}]
POLICY = deciding.policy(pools=[deciding.POOL | {"taints": TAINTS}])

GPU = "containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]"
TOLERATIONS = "tolerations: [{key: nvidia.com/gpu, operator: Exists}"
TOLERANT = f"{TOLERATIONS}, {{key: team, operator: Exists}}], {GPU}"
AUTOSCALER = "The cluster autoscaler judges"
KRUISE = "The controller of OpenKruise judges"
KUEUE = "Kueue judges"
REQUIRED = "annotations: {kueue.x-k8s.io/podset-required-topology: rack}"


def template(spec: str = GPU, name: str = "a") -> str:
    metadata = f"metadata: {{name: {name}}}"
    return f"{{apiVersion: v1, kind: PodTemplate, {metadata}, template: {{spec: {{{spec}}}}}}}"


def provisioning(name: str = "a", namespace: str = "default") -> str:
    spec = f"podSets: [{{count: 2, podTemplateRef: {{name: {name}}}}}]"
    return of("autoscaling.x-k8s.io/v1", "ProvisioningRequest", spec, f", namespace: {namespace}")


def buffer(name: str = "a") -> str:
    spec = f"podTemplateRef: {{name: {name}}}, replicas: 1"
    return of("autoscaling.x-k8s.io/v1alpha1", "CapacityBuffer", spec)


def of(api: str, kind: str, spec: str, more: str = "") -> str:
    return f"{{apiVersion: {api}, kind: {kind}, metadata: {{name: x{more}}}, spec: {{{spec}}}}}"


def made(api: str, kind: str, spec: str = GPU, metadata: str = "", more: str = "") -> str:
    return of(api, kind, f"template: {{metadata: {{{metadata}}}, spec: {{{spec}}}}}", more)


def flavor(spec: str = "topologyName: racks") -> str:
    return of("kueue.x-k8s.io/v1beta2", "ResourceFlavor", spec)


QUEUED = ", labels: {kueue.x-k8s.io/queue-name: q}"
CASES: dict[str, tuple[list[str], str]] = {
    "of a provisioning request": ([template(), provisioning()], AUTOSCALER),
    "of a buffer": ([template(), buffer()], AUTOSCALER),
    "with its toleration": ([template(TOLERANT), provisioning()], ""),
    "of another request": ([template(), provisioning("b")], ""),
    "of another namespace": ([template(), provisioning(namespace="ml")], ""),
    "by itself": ([template()], ""),
    "a daemon set": ([made("apps/v1", "DaemonSet")], "The DaemonSet controller judges"),
    "a daemon set of kruise": ([made("apps.kruise.io/v1alpha1", "DaemonSet")], KRUISE),
    "an agent of kruise": (
        [
            made(
                "apps.kruise.io/v1alpha1",
                "DaemonSet",
                'nodeSelector: {nvidia.com/gpu.present: "true"}, containers: [{name: c, image: i}]',
            )
        ],
        KRUISE,
    ),
    "a broadcast": ([made("apps.kruise.io/v1alpha1", "BroadcastJob")], KRUISE),
    "a tolerant broadcast": ([made("apps.kruise.io/v1alpha1", "BroadcastJob", TOLERANT)], ""),
    "another kind of kruise": ([made("apps.kruise.io/v1alpha1", "CloneSet")], ""),
    "in a topology": ([made("batch/v1", "Job", GPU, REQUIRED)], KUEUE),
    "a set in a topology": ([made("apps/v1", "StatefulSet", GPU, REQUIRED)], KUEUE),
    "tolerant in a topology": ([made("batch/v1", "Job", TOLERANT, REQUIRED)], ""),
    "a pod in a topology": (
        [f"{{apiVersion: v1, kind: Pod, metadata: {{name: p, {REQUIRED}}}, spec: {{{GPU}}}}}"],
        "",
    ),
    "without a topology": ([made("batch/v1", "Job", more=QUEUED)], ""),
    "queued for a topology": ([flavor(), made("batch/v1", "Job", more=QUEUED)], KUEUE),
    "queued for no topology": ([flavor(""), made("batch/v1", "Job", more=QUEUED)], ""),
    "not queued": ([flavor(), made("batch/v1", "Job")], ""),
    "tolerated by its flavor": (
        [
            flavor(f"topologyName: racks, {TOLERATIONS}, {{key: team, operator: Exists}}]"),
            made("batch/v1", "Job", GPU, REQUIRED, QUEUED),
        ],
        "",
    ),
    "tolerated in part": (
        [flavor(f"topologyName: racks, {TOLERATIONS}]"), made("batch/v1", "Job", more=QUEUED)],
        KUEUE,
    ),
    "an odd flavor": ([flavor("topologyName: racks, tolerations: 1"), template()], ""),
}


def said(documents: list[str]) -> str:
    read = manifests(map(yaml.safe_load, documents))
    results = list(evaluate(read, POLICY, Request()))
    assert all(each.error is None for each in results)
    found = [finding for each in results for finding in each.findings]
    assert all(each.action == "warn" for each in found if "as it is written" in each.detail)
    return " ".join(each.detail for each in found if "as it is written" in each.detail)


def test_templates_that_are_read_as_written_need_the_toleration() -> None:
    def holds(name: str) -> None:
        documents, reader = CASES[name]
        text = said(documents)
        assert reader in text, text
        assert bool(text) == bool(reader), text

    each(CASES, holds)
