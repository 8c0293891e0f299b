"""The story that the demo plays: chapters that each show commands and hold what they promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane import webhooks
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.objects import node, taint
from controlplane.poll import until
from controlplane.screen import Screen, expect, names

SAMPLES = "deploy/samples"
GPU_NODES = {"gpu-a", "gpu-b"}
PLAIN_NODES = {"web-a", "web-b"}
FENCE = taint("nvidia.com/gpu", "present")
LABEL = "nvidia.com/gpu.present"
KUBERNETES_OWN = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
"""What every Pod tolerates, by the admission plugin DefaultTolerationSeconds."""
PLACED = "custom-columns=POD:.metadata.name,NODE:.spec.nodeName"
WHY = 'SCHEDULER:.status.conditions[?(@.type=="PodScheduled")].message'
FENCES = (
    "custom-columns=NODE:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu,"
    "TAINT:.spec.taints[*].key,LABEL:.metadata.labels.nvidia\\.com/gpu\\.present"
)
ADDED = (
    "jsonpath={range .items[*].spec}"
    'tolerations: {.tolerations}{"\\n\\n"}affinity: {.affinity}{"\\n\\n"}'
    'securityContext: {.securityContext}{"\\n\\n"}'
    "securityContext of the container: {.containers[*].securityContext}{end}"
)


@dataclass(frozen=True)
class Stage:
    """What a chapter plays on."""

    screen: Screen
    cluster: ControlPlane
    server: Server
    folder: Path


def play(stage: Stage) -> None:
    """Play every chapter.

    Raises:
        StoryError: something did not come out as told. Also KubectlError, TimeoutError and
            ControlPlaneError, where a command or the cluster failed in another way.
    """
    for number, (title, chapter) in enumerate(CHAPTERS.items(), 1):
        stage.screen.chapter(f"{number}. {title}")
        chapter(stage)


def nodes(stage: Stage) -> None:
    gpus, labels = {"nvidia.com/gpu": "8"}, {LABEL: "true"}
    for name in sorted(GPU_NODES):
        stage.cluster.create_nodes(node(name, labels=labels, taints=[FENCE], resources=gpus))
    stage.cluster.create_nodes(*(node(name) for name in sorted(PLAIN_NODES)))
    stage.screen.run("kubectl", "get", "nodes", "-o", FENCES)
    stage.screen.say("(The nodes are simulated: Pods are bound to them for real, but do not run.)")


def before(stage: Stage) -> None:
    namespace = stage.cluster.create_namespace("before")
    stage.screen.run("kubectl", "apply", "-n", namespace, "-f", f"{SAMPLES}/gpu-job.yaml")
    [pod] = pods(stage, namespace, 1)
    reason = stage.cluster.unschedulable(namespace, pod["metadata"]["name"])
    stage.screen.run("kubectl", "get", "pods", "-n", namespace, "-o", f"{PLACED},{WHY}")
    expect("untolerated taint" in reason, f"the taint keeps the Pod away, but: {reason}")
    stage.screen.good("the Job asks for a GPU, and waits for ever: it does not tolerate the taint")
    stage.screen.run("kubectl", "delete", "job", "train", "-n", namespace)


def install(stage: Stage) -> None:
    screen, server = stage.screen, stage.server
    screen.run("gpufence", *server.issue)
    screen.command("gpufence", *server.serve)
    server.start()
    screen.say(f"  (in the background; it serves on {server.url}, its log is {server.process.log})")
    manifest = stage.folder / "configurations.yaml"
    screen.save(manifest, "gpufence", *server.manifests)
    screen.run("kubectl", "apply", "-f", str(manifest))
    webhooks.wait_until_called(stage.cluster)
    screen.good(
        "the API server asks gpufence about new Pods and workloads that reach for GPU nodes"
    )


def gpu_job(stage: Stage) -> None:
    screen = stage.screen
    stage.cluster.create_namespace("ml")
    levels = [f"pod-security.kubernetes.io/{m}" for m in ("enforce=restricted", "warn=privileged")]
    screen.run("kubectl", "label", "namespace", "ml", *levels)
    screen.say(
        "  (No warnings: they would be about the Job's template, and it is the Pod that counts.)"
    )
    screen.run("kubectl", "apply", "-n", "ml", "-f", f"{SAMPLES}/gpu-job.yaml")
    [pod] = pods(stage, "ml", 1)
    placed = stage.cluster.bound_to("ml", pod["metadata"]["name"])
    screen.run("kubectl", "get", "pods", "-n", "ml", "-o", PLACED)
    expect(placed in GPU_NODES, f"the Pod lands on a GPU node, but it is on {placed}")
    screen.good(f"the same Job, and its Pod is on {placed}. What it was given:")
    screen.run("kubectl", "get", "pods", "-n", "ml", "-o", ADDED)
    expect_fenced_and_hardened(pod["spec"])
    job = stage.cluster.kubectl.json("get", "job", "train", "-n", "ml")
    template = job["spec"]["template"]["spec"]
    untouched = not template.get("tolerations") and not template.get("affinity")
    expect(untouched, "the Job itself is left as its author wrote it")
    screen.good("it passes Pod Security restricted, and the Job itself is as its author wrote it")


def expect_fenced_and_hardened(spec: dict[str, Any]) -> None:
    """Hold a GPU Pod's spec, as the API server has it, against what the README promises."""
    tolerated = {(t.get("key"), t.get("effect")) for t in spec["tolerations"]}
    expect(("nvidia.com/gpu", "NoSchedule") in tolerated, "the Pod tolerates the pool's taint")
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in required["nodeSelectorTerms"]:
        wanted = {"key": LABEL, "operator": "In", "values": ["true"]}
        expect(wanted in term["matchExpressions"], "every term requires the pool's label")
    context = spec["securityContext"]
    expect(context.get("runAsNonRoot") is True, "the Pod runs as another user than root")
    expect(context.get("seccompProfile") == {"type": "RuntimeDefault"}, "seccomp is on")
    for container in spec["containers"]:
        own = container["securityContext"]
        expect(own.get("allowPrivilegeEscalation") is False, "no privilege escalation")
        expect("ALL" in own.get("capabilities", {}).get("drop", []), "all capabilities dropped")


def web(stage: Stage) -> None:
    screen = stage.screen
    stage.cluster.create_namespace("shop")
    screen.run("kubectl", "apply", "-n", "shop", "-f", f"{SAMPLES}/web.yaml")
    seen = pods(stage, "shop", 3)
    placed = {stage.cluster.bound_to("shop", pod["metadata"]["name"]) for pod in seen}
    screen.run("kubectl", "get", "pods", "-n", "shop", "-o", PLACED)
    expect(placed <= PLAIN_NODES, f"web Pods land on plain nodes, but: {names(placed)}")
    for spec in (pod["spec"] for pod in seen):
        tolerated = {toleration["key"] for toleration in spec["tolerations"]}
        expect(tolerated <= KUBERNETES_OWN, f"no toleration is added, but: {names(tolerated)}")
        added = [key for key in ("affinity", "securityContext") if spec.get(key)]
        expect(not added, f"a Pod without a GPU is left alone, but given {names(added)}")
    screen.good("its Pods are on plain nodes, and nothing was changed about them")


def trespass(stage: Stage) -> None:
    screen = stage.screen
    manifest = f"{SAMPLES}/web-on-gpu-nodes.yaml"
    for extra in (["--dry-run=server"], []):
        refused = screen.run("kubectl", "apply", *extra, "-n", "shop", "-f", manifest, check=False)
        expect(refused.returncode != 0, "the Deployment is refused")
        by = 'admission webhook "workloads.gpufence.dev" denied the request'
        expect(by in refused.stderr, "it is gpufence that refuses it")
        expect("tolerations[0]" in refused.stderr, "the refusal names the toleration")
    there = screen.quiet("kubectl", "get", "deployment", "web-on-gpu-nodes", "-n", "shop")
    expect("NotFound" in there.stderr, "nothing of the refused Deployment is there")
    screen.good("refused, in a dry run as well: pipelines learn it before anything is applied")


def unequal(stage: Stage) -> None:
    screen = stage.screen
    manifest = f"{SAMPLES}/gpu-job-unequal.yaml"
    checked = screen.run("gpufence", "check", manifest, check=False)
    expect(checked.returncode == 1, f"gpufence check exits with 1, not {checked.returncode}")
    expect("unequal-device-limits" in checked.stdout, "the check names its rule")
    refused = screen.run(
        "kubectl", "apply", "--dry-run=server", "-n", "ml", "-f", manifest, check=False
    )
    expect(refused.returncode != 0, "the Job is refused")
    expect("must be equal to nvidia.com/gpu limit" in refused.stderr, "the refusal says why")
    screen.good("refused: in files by gpufence check, at the API server by its own validation,")
    screen.say("    which comes before any validating webhook for the kinds that it knows.")


def pods(stage: Stage, namespace: str, count: int) -> list[dict[str, Any]]:
    """Wait until a namespace has so many Pods, and return them."""

    def look() -> list[dict[str, Any]]:
        found = stage.cluster.api.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        items: list[dict[str, Any]] = found["items"]
        return items if len(items) == count else []

    return until(look, f"{count} Pods in namespace {namespace}")


CHAPTERS: dict[str, Callable[[Stage], None]] = {
    "Two GPU nodes behind a taint, two plain nodes": nodes,
    "Before: a GPU Job as people write it": before,
    "gpufence is installed": install,
    "The same Job again, in a namespace that enforces Pod Security restricted": gpu_job,
    "A web Deployment": web,
    "A web Deployment that tolerates the GPU taint": trespass,
    "One GPU requested, two as the limit": unequal,
}
