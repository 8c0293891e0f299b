"""The chapters of the demo: each runs commands and verifies their results."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controlplane import webhooks
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Controller, Replica
from controlplane.objects import node, taint
from controlplane.poll import until
from controlplane.screen import Result, Screen, expect, names
from deploy.chart import NAMESPACE
from release.volume import Volume

SAMPLES = "deploy/samples"
GPU_NODES = {"gpu-a", "gpu-b"}
PLAIN_NODES = {"web-a", "web-b"}
FENCE = taint("nvidia.com/gpu", "present")
LABEL = "nvidia.com/gpu.present"
PAUSE = "registry.k8s.io/pause:3.10"
TRESPASS = ("kubectl", "apply", "-n", "shop", "-f", f"{SAMPLES}/web-on-gpu-nodes.yaml")
KUBERNETES_OWN = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
"""The tolerations of every Pod, from the admission plugin DefaultTolerationSeconds."""
PLACED = "custom-columns=POD:.metadata.name,NODE:.spec.nodeName"


@dataclass(frozen=True)
class Processes:
    """What an installation runs, and the certificate that a kubelet mounts for the replica."""

    controller: Controller
    replica: Replica
    mounted: Volume


@dataclass(frozen=True)
class Stage:
    """What a chapter in the cluster uses."""

    screen: Screen
    cluster: ControlPlane
    processes: Processes


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
    checked = screen.run("gpufence", "check", f"{SAMPLES}/web-on-gpu-nodes.yaml", check=False)
    expect(checked.returncode == 1, f"gpufence check exits with 1, not {checked.returncode}")
    expect("pool-trespass" in checked.stdout, "the check names its rule")
    screen.good("denied before it reaches a cluster: it tolerates the taint, but requests no GPU")


def added(screen: Screen) -> None:
    checked = screen.run("gpufence", "check", f"{SAMPLES}/gpu-job.yaml")
    expect("nvidia.com/gpu.present" in checked.stdout, "the node affinity is shown")
    screen.good("allowed, with what the webhook adds to the Pods of the Job")


def nodes(stage: Stage) -> None:
    gpus, labels = {"nvidia.com/gpu": "8"}, {LABEL: "true"}
    stage.cluster.create_nodes(
        *(node(name, labels=labels, taints=[FENCE], resources=gpus) for name in sorted(GPU_NODES)),
        *(node(name) for name in sorted(PLAIN_NODES)),
    )
    stage.screen.run("kubectl", "get", "nodes", "-L", LABEL)
    stage.screen.say("(The nodes are simulated: the scheduler binds Pods to them, but none runs.)")


def before(stage: Stage) -> None:
    namespace = stage.cluster.create_namespace("before")
    stage.screen.run("kubectl", "apply", "-n", namespace, "-f", f"{SAMPLES}/gpu-job.yaml")
    [pod] = pods(stage, namespace, 1)
    reason = stage.cluster.unschedulable(namespace, pod["metadata"]["name"])
    stage.screen.run("kubectl", "get", "pods", "-n", namespace)
    expect("untolerated taint" in reason, f"the taint keeps the Pod away, but: {reason}")
    stage.screen.good("its Pod stays Pending: it does not tolerate the taint of the GPU nodes")
    deleted = stage.screen.quiet("kubectl", "delete", "job", "train", "-n", namespace)
    expect(deleted.returncode == 0, "the Job is deleted")


def install(stage: Stage) -> None:
    screen = stage.screen
    screen.run("kubectl", "apply", "--server-side", "-f", "deploy/helm/gpufence/crds")
    # kubectl wait ends with an error if the definition has no conditions yet.
    until(
        lambda: screen.quiet("kubectl", "get", "fencepolicies").returncode == 0,
        "the API server to serve FencePolicies",
    )
    screen.run("kubectl", "apply", "--server-side", "-f", "deploy/install.yaml", lines=3)
    screen.say("(Nothing runs Pods here: the demo runs the controller and a replica as processes.)")
    screen.run("kubectl", "delete", "deployments", "--all", "--namespace", NAMESPACE)
    controller = stage.processes.controller
    screen.command("gpufence", *controller.process.command[1:])
    controller.start()
    until(lambda: mount(stage), "the controller to issue the certificate")
    start_replica(stage)
    screen.good("the controller has registered gpufence: webhooks and admission policies")


def mount(stage: Stage) -> bool:
    """Write the Secret with the certificate into files, and return whether there is one."""
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/gpufence-serving"
    try:
        data = stage.cluster.api.request("GET", path).get("data")
    except ApiError:
        return False
    if not data:
        return False
    stage.processes.mounted.write({key: base64.b64decode(text) for key, text in data.items()})
    return True


def start_replica(stage: Stage) -> None:
    replica = stage.processes.replica
    stage.screen.command("gpufence", *replica.process.command[1:])
    replica.start()
    replica.wait()
    webhooks.wait_until_called(stage.cluster)


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
    expect_fenced_and_hardened(pod["spec"])
    job = stage.cluster.kubectl.json("get", "job", "train", "-n", "ml")
    template = job["spec"]["template"]["spec"]
    untouched = not template.get("tolerations") and not template.get("affinity")
    expect(untouched, "the Job itself is left as its author wrote it")
    screen.good(f"its Pod runs on {placed} and meets Pod Security restricted; the Job is unchanged")


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
    expect_denied(screen.run(*TRESPASS, check=False))
    expect_denied(screen.quiet(*TRESPASS, "--dry-run=server"))
    deployment = screen.quiet("kubectl", "get", "deployment", "web-on-gpu-nodes", "-n", "shop")
    expect("NotFound" in deployment.stderr, "the Deployment does not exist")
    screen.good("denied, and in a dry run as well")


def expect_denied(denied: Result) -> None:
    expect(denied.returncode != 0, "the Deployment is denied")
    expect("pool-trespass" in denied.stderr, "the message names the rule")
    expect("tolerations[0]" in denied.stderr, "the message names the toleration")


def outage(stage: Stage) -> None:
    screen = stage.screen
    stage.processes.replica.stop()
    screen.say("(gpufence is stopped: no replica answers.)")
    screen.run("kubectl", "run", "plain", "-n", "shop", f"--image={PAUSE}")
    screen.good("a Pod that touches no GPU node does not need gpufence")
    job = ("kubectl", "apply", "-n", "before", "-f", f"{SAMPLES}/gpu-job.yaml")
    denied = screen.run(*job, check=False)
    expect(denied.returncode != 0, "the GPU Job is rejected")
    expect("failed calling webhook" in denied.stderr, "the message names the webhook")
    screen.good("GPU workloads are rejected until a replica answers: apply them again then")
    expect_denied(screen.quiet(*TRESPASS))
    screen.good("the Deployment with the toleration is still denied, by the admission policies")
    start_replica(stage)
    screen.run(*job)
    [pod] = pods(stage, "before", 1)
    placed = stage.cluster.bound_to("before", pod["metadata"]["name"])
    expect(placed in GPU_NODES, f"the Pod lands on a GPU node, but it is on {placed}")
    screen.good(f"a replica answers again: the Pod of the Job is on {placed}")


def pods(stage: Stage, namespace: str, count: int) -> list[dict[str, Any]]:
    """Wait until a namespace has so many Pods, and return them."""

    def listed() -> list[dict[str, Any]]:
        response = stage.cluster.api.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        items: list[dict[str, Any]] = response["items"]
        return items if len(items) == count else []

    return until(listed, f"{count} Pods in namespace {namespace}")


FILES: dict[str, Callable[[Screen], None]] = {
    "A web Deployment that tolerates the GPU taint, as a file": check,
    "A GPU Job, as a file": added,
}
CLUSTER: dict[str, Callable[[Stage], None]] = {
    "A cluster with two GPU nodes behind a taint": nodes,
    "The GPU Job without gpufence": before,
    "gpufence is installed": install,
    "The same Job, in a namespace that enforces Pod Security restricted": gpu_job,
    "A web Deployment without GPUs": web,
    "The web Deployment that tolerates the GPU taint": trespass,
    "An outage: no replica of gpufence runs": outage,
}
