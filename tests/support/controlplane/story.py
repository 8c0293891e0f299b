"""The chapters of the demo. Each one runs commands, and checks that they do what it says."""

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
PAUSE = "registry.k8s.io/pause:3.10"
KUBERNETES_OWN = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
"""The tolerations of every Pod, from the admission plugin DefaultTolerationSeconds."""
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
    """What a chapter in the cluster uses."""

    screen: Screen
    cluster: ControlPlane
    server: Server
    folder: Path


def play_files(screen: Screen) -> None:
    """Play the chapters that need no cluster.

    Raises:
        StoryError: a command did not do what the chapter says.
    """
    for number, (title, chapter) in enumerate(FILES.items(), 1):
        screen.chapter(f"{number}. {title}")
        chapter(screen)


def play_cluster(stage: Stage) -> None:
    """Play the chapters in the cluster.

    Raises:
        StoryError: a command did not do what the chapter says. Also KubectlError, TimeoutError and
            ControlPlaneError, if a command or the cluster failed in another way.
    """
    for number, (title, chapter) in enumerate(CLUSTER.items(), 1 + len(FILES)):
        stage.screen.chapter(f"{number}. {title}")
        chapter(stage)


def check(screen: Screen) -> None:
    files = [f"{SAMPLES}/{name}.yaml" for name in ("gpu-job", "web", "web-on-gpu-nodes")]
    checked = screen.run("gpufence", "check", *files, check=False)
    expect(checked.returncode == 1, f"gpufence check exits with 1, not {checked.returncode}")
    expect("pool-trespass" in checked.stdout, "the check names its rule")
    screen.good("one manifest is denied, before it reaches a cluster; the others are accepted")


def mutate(screen: Screen) -> None:
    screen.run("gpufence", "mutate", f"{SAMPLES}/gpu-job.yaml")
    screen.good("the Pod of this Job, with what the webhook will add to it")


def explain(screen: Screen) -> None:
    screen.run("gpufence", "explain", "pool-trespass")
    screen.good("each rule has such a page")


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
    stage.screen.good("the Job requests a GPU and stays pending: it does not tolerate the taint")
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
    screen.good("the API server calls gpufence for new Pods and workloads that reach for GPU nodes")


def gpu_job(stage: Stage) -> None:
    screen = stage.screen
    stage.cluster.create_namespace("ml")
    levels = [f"pod-security.kubernetes.io/{m}" for m in ("enforce=restricted", "warn=privileged")]
    screen.run("kubectl", "label", "namespace", "ml", *levels)
    screen.run("kubectl", "apply", "-n", "ml", "-f", f"{SAMPLES}/gpu-job.yaml")
    [pod] = pods(stage, "ml", 1)
    placed = stage.cluster.bound_to("ml", pod["metadata"]["name"])
    screen.run("kubectl", "get", "pods", "-n", "ml", "-o", PLACED)
    expect(placed in GPU_NODES, f"the Pod lands on a GPU node, but it is on {placed}")
    screen.good(f"the same Job, and its Pod is on {placed}. gpufence added:")
    screen.run("kubectl", "get", "pods", "-n", "ml", "-o", ADDED)
    expect_fenced_and_hardened(pod["spec"])
    job = stage.cluster.kubectl.json("get", "job", "train", "-n", "ml")
    template = job["spec"]["template"]["spec"]
    untouched = not template.get("tolerations") and not template.get("affinity")
    expect(untouched, "the Job itself is left as its author wrote it")
    screen.good("the Pod passes Pod Security restricted, and the Job is as its author wrote it")


def expect_fenced_and_hardened(spec: dict[str, Any]) -> None:
    """Check a GPU Pod's spec, as the API server has it, against what the README says."""
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
    screen.good("its Pods are on plain nodes, without a change")


def trespass(stage: Stage) -> None:
    screen = stage.screen
    manifest = f"{SAMPLES}/web-on-gpu-nodes.yaml"
    for extra in (["--dry-run=server"], []):
        denied = screen.run("kubectl", "apply", *extra, "-n", "shop", "-f", manifest, check=False)
        expect(denied.returncode != 0, "the Deployment is denied")
        by = 'admission webhook "workloads.gpufence.dev" denied the request'
        expect(by in denied.stderr, "gpufence denies it")
        expect("tolerations[0]" in denied.stderr, "the message names the toleration")
    there = screen.quiet("kubectl", "get", "deployment", "web-on-gpu-nodes", "-n", "shop")
    expect("NotFound" in there.stderr, "the Deployment does not exist")
    screen.good("denied, in a dry run as well: a pipeline reports it before it applies anything")


def unequal(stage: Stage) -> None:
    screen = stage.screen
    manifest = f"{SAMPLES}/gpu-job-unequal.yaml"
    checked = screen.run("gpufence", "check", manifest, check=False)
    expect(checked.returncode == 1, f"gpufence check exits with 1, not {checked.returncode}")
    expect("unequal-device-limits" in checked.stdout, "the check names its rule")
    denied = screen.run(
        "kubectl", "apply", "--dry-run=server", "-n", "ml", "-f", manifest, check=False
    )
    expect(denied.returncode != 0, "the Job is rejected")
    expect("must be equal to nvidia.com/gpu limit" in denied.stderr, "the message says why")
    screen.good("gpufence check denies the file, and the API server itself rejects the Job")


def outage(stage: Stage) -> None:
    screen = stage.screen
    stage.server.stop()
    screen.say("  (gpufence is stopped: no replica answers)")
    screen.run("kubectl", "run", "plain", "-n", "shop", f"--image={PAUSE}")
    denied = screen.run(
        "kubectl", "apply", "-n", "before", "-f", f"{SAMPLES}/gpu-job.yaml", check=False
    )
    expect(denied.returncode != 0, "the GPU Job has to wait")
    expect("failed calling webhook" in denied.stderr, "the message names the webhook")
    screen.good("plain Pods are created without gpufence; only GPU Pods wait for it")
    stage.server.start()
    screen.say("  (gpufence is back)")
    screen.run("kubectl", "apply", "-n", "before", "-f", f"{SAMPLES}/gpu-job.yaml")
    [pod] = pods(stage, "before", 1)
    placed = stage.cluster.bound_to("before", pod["metadata"]["name"])
    expect(placed in GPU_NODES, f"the Pod lands on a GPU node, but it is on {placed}")
    screen.good(f"the Pod of the Job is on {placed}")


def pods(stage: Stage, namespace: str, count: int) -> list[dict[str, Any]]:
    """Wait until a namespace has so many Pods, and return them."""

    def look() -> list[dict[str, Any]]:
        found = stage.cluster.api.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        items: list[dict[str, Any]] = found["items"]
        return items if len(items) == count else []

    return until(look, f"{count} Pods in namespace {namespace}")


FILES: dict[str, Callable[[Screen], None]] = {
    "Manifests, checked in files": check,
    "A GPU Job, as the cluster admits it": mutate,
    "Why a manifest is denied": explain,
}
CLUSTER: dict[str, Callable[[Stage], None]] = {
    "Two GPU nodes behind a taint, two plain nodes": nodes,
    "Before gpufence: a GPU Job": before,
    "gpufence is installed": install,
    "The same Job again, in a namespace that enforces Pod Security restricted": gpu_job,
    "A web Deployment": web,
    "A web Deployment that tolerates the GPU taint": trespass,
    "One GPU requested, two as the limit": unequal,
    "An outage: no replica of gpufence answers": outage,
}
