"""Records reviews of a real API server into `reviews/`: `python -m bench.capture`.

Run it again when a new Kubernetes release changes the reviews.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import pods, reviews
from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.poll import until
from release.recorder import Recorder
from reviewing import default_policy
from webhook.controller.text.objects import Registration, configurations

JSON = dict[str, Any]


class Capture(Recorder):
    """Keeps complete reviews by endpoint, name of the object and operation."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.kept: dict[tuple[str, str], JSON] = {}

    def note(self, path: str, request: JSON) -> None:
        metadata = request["object"]["metadata"]
        key = path.removeprefix("/"), f"{metadata['generateName']}{request['operation']}"
        # Reinvoked after gpufence has mutated the Pod; keep the review from before that.
        if path == "/mutate" and key in self.kept:
            return
        self.kept[key] = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": request,
        }


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with (
            ControlPlane(directory / "cluster", binaries()) as cluster,
            Server(directory) as server,
            Capture(directory / "recorder") as recorder,
        ):
            register(cluster, server, recorder)
            send(cluster, recorder)
    reviews.DIRECTORY.mkdir(exist_ok=True)
    for case in reviews.CASES:
        operation = "UPDATE" if case == "ephemeral" else "CREATE"
        for endpoint in reviews.endpoints(case):
            review = recorder.kept[endpoint, f"{case}-{operation}"]
            text = json.dumps(review, separators=(",", ":")).encode()
            reviews.path(case, endpoint).write_bytes(gzip.compress(text, mtime=0))
            print(f"{case:14} {endpoint:9} {len(text):9} bytes")
    return 0


def register(cluster: ControlPlane, server: Server, recorder: Recorder) -> None:
    """Register the recorder before and after gpufence's mutation."""
    policy = default_policy()
    own, recording = (
        configurations(
            policy, Registration(name=name, url=url, ca_bundle=base64.b64encode(bundle).decode())
        )
        for name, url, bundle in (
            ("gpufence", server.url, server.authority),
            # Mutating webhooks are called in the order of their configurations' names.
            ("before-gpufence", recorder.url, recorder.authority),
        )
    )
    cluster.kubectl.apply(own[0], *recording)


def send(cluster: ControlPlane, recorder: Capture) -> None:
    objects: dict[reviews.Case, JSON] = {
        "gpu-pod": pods.gpu_pod(),
        "large-pod": pods.large_pod(40),
        "megabyte-pod": pods.megabyte_pod(),
    }
    namespace = "/api/v1/namespaces/default/pods"
    first = named("gpu-pod", objects["gpu-pod"])

    def gpu_pod_is_reviewed() -> bool:
        cluster.api.request("POST", f"{namespace}?dryRun=All", first)
        recorded = recorder.kept.get(("validate", "gpu-pod-CREATE"), {})
        return "affinity" in json.dumps(recorded) and ("mutate", "gpu-pod-CREATE") in recorder.kept

    until(gpu_pod_is_reviewed, "the API server to call all webhooks")
    for case, obj in objects.items():
        cluster.api.request("POST", f"{namespace}?dryRun=All", named(case, obj))
    add_debug_container(cluster, namespace)
    deployments = "/apis/apps/v1/namespaces/default/deployments?dryRun=All"
    cluster.api.request("POST", deployments, named("deployment", pods.deployment()))
    # The match conditions of the default policy skip plain Pods.
    for kind in ("mutating", "validating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/before-gpufence"
        webhooks = cluster.api.request("GET", path)["webhooks"]
        patch = [
            {"op": "remove", "path": f"/webhooks/{n}/matchConditions"} for n in range(len(webhooks))
        ]
        cluster.api.request("PATCH", path, patch, "application/json-patch+json")

    def plain_pod_is_reviewed() -> bool:
        plain = named("plain-pod", pods.plain_pod())
        cluster.api.request("POST", f"{namespace}?dryRun=All", plain)
        endpoints = reviews.endpoints("plain-pod")
        return {(endpoint, "plain-pod-CREATE") for endpoint in endpoints} <= recorder.kept.keys()

    until(plain_pod_is_reviewed, "the API server to send reviews of plain Pods")


def add_debug_container(cluster: ControlPlane, namespace: str) -> None:
    pod = cluster.api.request("POST", namespace, named("ephemeral", pods.gpu_pod()))
    name = pod["metadata"]["name"]
    debugger = {"name": "debugger", "image": "busybox:1.37", "stdin": True, "tty": True}
    cluster.api.request(
        "PATCH",
        f"{namespace}/{name}/ephemeralcontainers?dryRun=All",
        {"spec": {"ephemeralContainers": [debugger]}},
        "application/strategic-merge-patch+json",
    )


def named(case: str, obj: JSON) -> JSON:
    return {**obj, "metadata": {**obj["metadata"], "generateName": f"{case}-"}}


if __name__ == "__main__":
    sys.exit(main())
