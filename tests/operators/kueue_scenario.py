"""Kueue: Jobs are suspended, admitted with the node labels of a flavor, evicted and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from operators.audit import AuditLog, Outcome

JSON = dict[str, Any]

GPU = "nvidia.com/gpu"
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
ADMITTED_WITHIN = 60.0

# The flavor repeats the labels and the toleration of the pool, as Kueue's users have it.
_SETUP: list[JSON] = [
    {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "gpu"},
        "spec": {"nodeLabels": {"nvidia.com/gpu.present": "true"}, "tolerations": [TOLERATION]},
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "cpu"},
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "queue"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": [GPU],
                    "flavors": [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": 64}]}],
                },
                {
                    "coveredResources": ["cpu"],
                    "flavors": [
                        {"name": "cpu", "resources": [{"name": "cpu", "nominalQuota": 64}]}
                    ],
                },
            ],
        },
    },
]


def rows(cluster: ControlPlane, audit: AuditLog) -> Iterator[tuple[str, JSON, list[Outcome]]]:
    """Yield the name of each Job, the Job, and what became of the Pods until it was resumed."""
    cluster.kubectl.apply(*_SETUP)
    jobs = {
        "a GPU Job": _job({"limits": {GPU: 1, "cpu": 1}}),
        "a plain Job": _job({"requests": {"cpu": 1}}),
        "a Job that trespasses": _job({"requests": {"cpu": 1}}, tolerations=[TOLERATION]),
    }
    for name, job in jobs.items():
        namespace = cluster.create_namespace("queue-")
        queue = {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "LocalQueue",
            "metadata": {"name": "queue", "namespace": namespace},
            "spec": {"clusterQueue": "queue"},
        }
        cluster.kubectl.apply(queue)
        created = cluster.kubectl(
            "create", "-n", namespace, "-f", "-", stdin=json.dumps(job), check=False
        )
        if created.returncode == 0:
            _evict_and_resume(cluster, namespace)
        yield name, job, audit.settled(namespace)


def _evict_and_resume(cluster: ControlPlane, namespace: str) -> None:
    _wait_for(cluster, namespace, suspended=False)
    patch = ("patch", "clusterqueue", "queue", "--type=merge", "-p")
    cluster.kubectl(*patch, json.dumps({"spec": {"stopPolicy": "HoldAndDrain"}}))
    _wait_for(cluster, namespace, suspended=True)
    cluster.kubectl(*patch, json.dumps({"spec": {"stopPolicy": "None"}}))
    _wait_for(cluster, namespace, suspended=False)


def _wait_for(cluster: ControlPlane, namespace: str, *, suspended: bool) -> None:
    until(
        lambda: (
            cluster.kubectl.json("get", "job", "train", "-n", namespace)["spec"].get(
                "suspend", False
            )
            is suspended
        ),
        f"the Job to be {'suspended' if suspended else 'admitted'}",
        ADMITTED_WITHIN,
    )


def _job(resources: JSON, **spec: Any) -> JSON:
    container = {"name": "train", "image": "train", "resources": resources}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container], **spec}},
        },
    }
