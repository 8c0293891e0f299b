"""Exceptions of `gpufence check --generate-exceptions` on a cluster: they let their objects in.

The names of the ReplicaSets, Jobs and Pods that come of a workload are chosen by Kubernetes' own
controllers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.fence import Fence
from controlplane.objects import node
from controlplane.poll import until
from running import run_command

JSON = dict[str, Any]

SPEC: JSON = {
    "terminationGracePeriodSeconds": 0,
    "containers": [
        {
            "name": "main",
            "image": "nginx:1.29",
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        }
    ],
}
LONGEST = {"StatefulSet": 52, "Job": 61}
"""How long the name of a kind may be that stands in a Pod's name or label with something behind it;
others may have the 63 characters of a label, which is what selects their Pods here."""


def workload(kind: str, name: str) -> JSON:
    labels = {"app": name}
    once = kind in ("Job", "CronJob")
    spec = {**SPEC, "restartPolicy": "Never"} if once else SPEC
    template = {"metadata": {"labels": labels}, "spec": spec}
    job = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": template}
    body: JSON
    match kind:
        case "Job":
            version, body = "batch/v1", job
        case "CronJob":
            version = "batch/v1"
            body = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}
        case "ReplicationController":
            version, body = "v1", {"selector": labels, "template": template}
        case _:
            version = "apps/v1"
            body = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body}


KINDS = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
WORKLOADS = [workload(kind, kind.lower()) for kind in KINDS]
# Not one of these begins with a name above: its exception would be for this one, too.
WORKLOADS += [
    workload(kind, f"long-{kind.lower()}-{'w' * 63}"[: LONGEST.get(kind, 63)]) for kind in KINDS
]
# The Job that its controller makes of a CronJob is named after the minute.
CRON_JOB = workload("CronJob", "nightly")
ITS_JOB = workload("Job", "nightly-29400000")


@pytest.fixture
def space(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """A namespace whose workloads go in the end; else their controllers would go on trying."""
    with control_plane.nodes(node("plain")):
        yield namespace
        kinds = "deploy,rs,rc,sts,ds,cronjob,job,pod"
        control_plane.kubectl("delete", kinds, "--all", "-n", namespace)


def generated(manifests: Path, namespace: str) -> list[JSON]:
    done = run_command("check", "--generate-exceptions", "-", "--namespace", namespace, manifests)
    entries: list[JSON] = yaml.safe_load(done.out)["exceptions"]
    return entries


def test_only_workloads_with_generated_exceptions_are_admitted(
    control_plane: ControlPlane, fence: Fence, space: str, tmp_path: Path
) -> None:
    manifests = tmp_path / "today.yaml"
    manifests.write_text(yaml.safe_dump_all([*WORKLOADS, CRON_JOB]))
    entries = generated(manifests, space)
    assert len(entries) == len(WORKLOADS) + 1

    def create(*objects: JSON) -> None:
        for each in objects:
            group = each["apiVersion"]
            root = "/api/v1" if group == "v1" else f"/apis/{group}"
            path = f"{root}/namespaces/{space}/{each['kind'].lower()}s"
            control_plane.api.request("POST", path, each)

    def without_pods() -> set[str]:
        pods = control_plane.api.request("GET", f"/api/v1/namespaces/{space}/pods")["items"]
        wanted = {each["metadata"]["name"] for each in (*WORKLOADS, ITS_JOB)}
        return wanted - {pod["metadata"]["labels"]["app"] for pod in pods}

    with fence.other_policy(fence.policy | {"exceptions": entries}):
        create(*WORKLOADS, CRON_JOB, ITS_JOB)
        try:
            until(lambda: not without_pods(), "Pods of every workload")
        except TimeoutError as error:
            raise AssertionError(f"{error}: there are none of {sorted(without_pods())}") from error
        with pytest.raises(ApiError, match="device-leak"):
            create(workload("Deployment", "another"))

    past = [{**entry, "expires": "2026-01-31"} for entry in entries]
    with (
        fence.other_policy(fence.policy | {"exceptions": past}),
        pytest.raises(ApiError, match=r"expired on 2026-01-31"),
    ):
        create(workload("Deployment", "deployment-of-tomorrow"))
