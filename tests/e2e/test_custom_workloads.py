"""Custom resources that embed pod templates, before there are Pods, on the real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.cluster import ControlPlane
from controlplane.fence import Fence
from controlplane.objects import TOLERATION, definition
from controlplane.poll import until
from controlplane.webhooks import calls
from specs import JSON

WEBHOOK = "custom-workloads.gpufence.dev"
GPU = "nvidia.com/gpu"
# As an operator installs it, but with a schema that accepts every field.
DEFINITION = definition("kubeflow.org", "v1", "PyTorchJob")


@pytest.fixture(scope="module", autouse=True)
def _defined(control_plane: ControlPlane, fence: Fence) -> Iterator[None]:
    with control_plane.defined(DEFINITION):
        until(
            lambda: WEBHOOK in refusal(control_plane, job(worker=TRESPASSER)),
            "this webhook to be called",
        )
        yield


def container(**fields: Any) -> JSON:
    return {"name": "pytorch", "image": "pytorch:2.9", **fields}


PLAIN: JSON = {"containers": [container()]}
TRAINS: JSON = {
    "containers": [
        container(
            resources={"limits": {GPU: "8"}},
            volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - of the Pod
        )
    ],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
}
TRESPASSER: JSON = {**PLAIN, "tolerations": [TOLERATION]}


def job(*, master: JSON = PLAIN, worker: JSON = PLAIN, **metadata: Any) -> JSON:
    specs = {"Master": master, "Worker": worker}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "default", **metadata},
        "spec": {
            "pytorchReplicaSpecs": {
                role: {"replicas": 1, "template": {"spec": spec}} for role, spec in specs.items()
            }
        },
    }


def refusal(cluster: ControlPlane, obj: JSON) -> str:
    """Return why the object cannot be created; "" if it can."""
    return cluster.api.refusal("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", obj)


def call_count(cluster: ControlPlane) -> int:
    """Return how often the API server has called the webhook for custom resources."""
    return calls(cluster.api.text("/metrics"))["validating", WEBHOOK]


def test_a_dry_run_of_a_custom_resource_reports_findings_of_its_pods(
    control_plane: ControlPlane,
) -> None:
    message = refusal(control_plane, job(master=TRAINS, worker=TRESPASSER))
    assert f'admission webhook "{WEBHOOK}" denied the request' in message
    assert "gpufence found 1 problem in PyTorchJob default/" in message
    assert "spec.pytorchReplicaSpecs.Worker.template.spec.tolerations[0]: " in message


def test_a_custom_resource_without_findings_is_admitted_unchanged(
    control_plane: ControlPlane,
) -> None:
    good = job(master=TRAINS, worker=TRAINS)
    done = control_plane.kubectl(
        *("apply", "--dry-run=server", "-o", "json", "-f", "-"), stdin=json.dumps(good)
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["spec"] == good["spec"]


def test_only_a_spec_update_of_a_custom_resource_calls_the_webhook(
    control_plane: ControlPlane, namespace: str
) -> None:
    kubectl, where = control_plane.kubectl, ("pytorchjob/train", "-n", namespace, "--type=merge")
    kubectl.create(job(worker=TRAINS, namespace=namespace))
    before = call_count(control_plane)
    # This definition has no status subresource, and neither has that of Argo's workflows.
    kubectl("patch", *where, "-p", json.dumps({"status": {"phase": "Running"}}))
    kubectl("label", "pytorchjob/train", "team=a", "-n", namespace)
    assert call_count(control_plane) == before
    worse = {"spec": job(worker=TRESPASSER)["spec"]}
    refused = kubectl("patch", *where, "-p", json.dumps(worse), check=False)
    assert "pool-trespass" in refused.stderr
    assert call_count(control_plane) == before + 1
