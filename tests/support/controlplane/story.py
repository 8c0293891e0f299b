"""The chapters of the demo: each runs commands and verifies their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controlplane import webhooks
from controlplane.cluster import ControlPlane
from controlplane.objects import node, taint
from controlplane.poll import until
from controlplane.replicas import Replicas
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
REGISTERED = (
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies"
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
    replicas: Replicas


def play_files(screen: Screen) -> None:
    """Play the chapters that need no cluster.

    Raises:
        StoryError: a command had an unexpected result.
    """
    for number, (title, chapter) in enumerate(FILES.items(), 1):
        screen.chapter(f"{number}. {title}")
        chapter(screen)


def play_cluster(stage: Stage) -> None:
    """Play the chapters in the cluster.

    Raises:
        StoryError: a command had an unexpected result. Also KubectlError, TimeoutError and
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
    screen.good("one manifest is denied before it reaches a cluster; the others are accepted")


def explain(screen: Screen) -> None:
    shown = screen.run("gpufence", "explain", f"{SAMPLES}/web-on-gpu-nodes.yaml", check=False)
    expect("It requests no device of a pool" in shown.stdout, "the reason is named")
    screen.good("the Deployment tolerates the taint of GPU nodes, but requests no GPU")


def mutate(screen: Screen) -> None:
    screen.run("gpufence", "mutate", f"{SAMPLES}/gpu-job.yaml")
    screen.good("the Job, with what the webhook adds to its Pod")


def nodes(stage: Stage) -> None:
    gpus, labels = {"nvidia.com/gpu": "8"}, {LABEL: "true"}
    stage.cluster.create_nodes(
        *(node(name, labels=labels, taints=[FENCE], resources=gpus) for name in sorted(GPU_NODES)),
        *(node(name) for name in sorted(PLAIN_NODES)),
    )
    stage.screen.run("kubectl", "get", "nodes", "-o", FENCES)
    stage.screen.say("(The nodes are simulated: the scheduler binds Pods to them, but none runs.)")


def before(stage: Stage) -> None:
    namespace = stage.cluster.create_namespace("before")
    stage.screen.run("kubectl", "apply", "-n", namespace, "-f", f"{SAMPLES}/gpu-job.yaml")
    [pod] = pods(stage, namespace, 1)
    reason = stage.cluster.unschedulable(namespace, pod["metadata"]["name"])
    stage.screen.run("kubectl", "get", "pods", "-n", namespace, "-o", f"{PLACED},{WHY}")
    expect("untolerated taint" in reason, f"the taint keeps the Pod away, but: {reason}")
    stage.screen.good("the Pod requests a GPU and stays pending: it does not tolerate the taint")
    stage.screen.run("kubectl", "delete", "job", "train", "-n", namespace)


def install(stage: Stage) -> None:
    screen = stage.screen
    screen.run("kubectl", "apply", "--server-side", "-f", "deploy/install.yaml")
    screen.say("(This is the chart, rendered with its default values.)")
    stage.replicas.start(screen)
    webhooks.wait_until_called(stage.cluster)
    screen.run("kubectl", "get", REGISTERED, "-o", "name")
    screen.good("gpufence is registered for GPU Pods and for Pods that touch GPU nodes")


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
    screen.good(f"its Pod is on {placed}. gpufence added:")
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
        expression = {"key": LABEL, "operator": "In", "values": ["true"]}
        expect(expression in term["matchExpressions"], "every term requires the pool's label")
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
    listed = pods(stage, "shop", 3)
    placed = {stage.cluster.bound_to("shop", pod["metadata"]["name"]) for pod in listed}
    screen.run("kubectl", "get", "pods", "-n", "shop", "-o", PLACED)
    expect(placed <= PLAIN_NODES, f"web Pods land on plain nodes, but: {names(placed)}")
    for spec in (pod["spec"] for pod in listed):
        tolerated = {toleration["key"] for toleration in spec["tolerations"]}
        expect(tolerated <= KUBERNETES_OWN, f"no toleration is added, but: {names(tolerated)}")
        added = [key for key in ("affinity", "securityContext") if spec.get(key)]
        expect(not added, f"a Pod without a GPU is left alone, but given {names(added)}")
    screen.good("its Pods are on plain nodes, and gpufence changed nothing")


def trespass(stage: Stage) -> None:
    screen = stage.screen
    until(
        lambda: "gpufence-" in webhooks.in_tree_denial(stage.cluster.api),
        "the API server to evaluate the admission policies",
    )
    for extra in (["--dry-run=server"], []):
        expect_denied_trespass(stage, *extra)
    deployment = screen.quiet("kubectl", "get", "deployment", "web-on-gpu-nodes", "-n", "shop")
    expect("NotFound" in deployment.stderr, "the Deployment does not exist")
    screen.good("denied, in a dry run as well: a pipeline reports it before it applies anything")


def expect_denied_trespass(stage: Stage, *extra: str) -> None:
    manifest = f"{SAMPLES}/web-on-gpu-nodes.yaml"
    denied = stage.screen.run("kubectl", "apply", *extra, "-n", "shop", "-f", manifest, check=False)
    expect(denied.returncode != 0, "the Deployment is denied")
    expect("pool-trespass" in denied.stderr, "the message names the rule")
    expect("tolerations[0]" in denied.stderr, "the message names the toleration")


def outage(stage: Stage) -> None:
    screen = stage.screen
    stage.replicas.stop(screen)
    screen.run("kubectl", "run", "plain", "-n", "shop", f"--image={PAUSE}")
    screen.good("plain Pods do not depend on gpufence")
    job = ("kubectl", "apply", "-n", "before", "-f", f"{SAMPLES}/gpu-job.yaml")
    denied = screen.run(*job, check=False)
    expect(denied.returncode != 0, "the GPU Job has to wait")
    expect("failed calling webhook" in denied.stderr, "the message names the webhook")
    screen.good("GPU Pods wait for it, and the error says so")
    expect_denied_trespass(stage, "--dry-run=server")
    screen.good("GPU nodes stay fenced: the API server evaluates the admission policies by itself")
    stage.replicas.start(screen)
    webhooks.wait_until_called(stage.cluster)
    screen.run(*job)
    [pod] = pods(stage, "before", 1)
    placed = stage.cluster.bound_to("before", pod["metadata"]["name"])
    expect(placed in GPU_NODES, f"the Pod lands on a GPU node, but it is on {placed}")
    screen.good(f"a replica answers again, and the Pod of the Job is on {placed}")


def pods(stage: Stage, namespace: str, count: int) -> list[dict[str, Any]]:
    """Wait until a namespace has so many Pods, and return them."""

    def listed() -> list[dict[str, Any]]:
        response = stage.cluster.api.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        items: list[dict[str, Any]] = response["items"]
        return items if len(items) == count else []

    return until(listed, f"{count} Pods in namespace {namespace}")


FILES: dict[str, Callable[[Screen], None]] = {
    "Three manifests, checked as files": check,
    "Why one of them is denied": explain,
    "What gpufence adds to a GPU Job": mutate,
}
CLUSTER: dict[str, Callable[[Stage], None]] = {
    "Two GPU nodes behind a taint, two plain nodes": nodes,
    "Before gpufence: a GPU Job": before,
    "gpufence is installed": install,
    "The same Job again, in a namespace that enforces Pod Security restricted": gpu_job,
    "A web Deployment": web,
    "A web Deployment that tolerates the GPU taint": trespass,
    "An outage: no replica of gpufence runs": outage,
}
