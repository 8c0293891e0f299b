"""Kueue: Jobs are suspended, admitted with the node labels of a flavor, evicted and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from controlplane import objects
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from operators.audit import AuditLog, Outcome

JSON = dict[str, Any]

GPU = "nvidia.com/gpu"
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
ADMITTED_WITHIN = 60.0

LABELS = {"nvidia.com/gpu.present": "true"}
RACK = "example.com/rack"


def _flavor(name: str, **spec: Any) -> JSON:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": spec,
    }


def _cluster_queue(name: str, flavors: JSON) -> JSON:
    groups = [
        {
            "coveredResources": resources,
            "flavors": [
                {
                    "name": flavor,
                    "resources": [{"name": each, "nominalQuota": 64} for each in resources],
                }
            ],
        }
        for flavor, resources in flavors.items()
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups},
    }


# The flavors repeat the labels and the toleration of the pool, as Kueue's users write them.
_SETUP: list[JSON] = [
    _flavor("gpu", nodeLabels=LABELS, tolerations=[TOLERATION]),
    _flavor("cpu"),
    _flavor("racks", nodeLabels=LABELS, tolerations=[TOLERATION], topologyName="racks"),
    _cluster_queue("queue", {"gpu": [GPU], "cpu": ["cpu"]}),
    _cluster_queue("held", {"gpu": [GPU], "cpu": ["cpu"]}),
    _cluster_queue("racks", {"racks": [GPU, "cpu"]}),
    {
        "apiVersion": "kueue.x-k8s.io/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
    },
]


def rows(cluster: ControlPlane, audit: AuditLog) -> Iterator[tuple[str, str, JSON, list[Outcome]]]:
    """Yield each Job's name, what happened to it, the Job, and what became of its Pods."""
    cluster.kubectl.apply(*_SETUP)
    resumed = "admitted, evicted, resumed"
    gpu = {"limits": {GPU: 1, "cpu": 1}}
    plain = {"requests": {"cpu": 1}}
    for name, job in {
        "a GPU Job": _job(gpu),
        "a plain Job": _job(plain),
        "a Job that trespasses": _job(plain, tolerations=[TOLERATION]),
    }.items():
        namespace = _namespace(cluster, "queue")
        if _create(cluster, namespace, job):
            _evict_and_resume(cluster, namespace)
        yield name, resumed, job, audit.settled(namespace)
    yield from _changed_while_suspended(cluster, audit)
    labels = {**LABELS, RACK: "a"}
    taints = [objects.taint(GPU)]
    with cluster.nodes(
        objects.node("gpu-1", labels=labels, taints=taints, resources={GPU: "8"}),
        objects.node("gpu-2", labels=labels, taints=taints, resources={GPU: "8"}),
    ):
        namespace = _namespace(cluster, "racks")
        job = _job(gpu)
        annotations = {"kueue.x-k8s.io/podset-required-topology": RACK}
        job["spec"]["template"]["metadata"] = {"annotations": annotations}
        _create(cluster, namespace, job)
        until(lambda: _is_placed(cluster, namespace), "Kueue to open the gate", ADMITTED_WITHIN)
        yield "a GPU Job in one rack", "gated, placed", job, audit.settled(namespace)


def _changed_while_suspended(
    cluster: ControlPlane, audit: AuditLog
) -> Iterator[tuple[str, str, JSON, list[Outcome]]]:
    """Change the requests of suspended Jobs, which Kubernetes 1.36 permits, and admit them."""
    one, two = ({"limits": {GPU: count, "cpu": 1}} for count in (1, 2))
    plain = {"requests": {"cpu": 1}}
    for name, before, after in (
        ("a GPU Job gets a second GPU", _job(one), _job(two)),
        ("a plain Job gets a GPU", _job(plain), _job(one)),
        ("a GPU Job loses its GPU", _job(one), _job(plain)),
        (
            "a GPU Job with a toleration loses its GPU",
            _job(one, tolerations=[TOLERATION]),
            _job(plain, tolerations=[TOLERATION]),
        ),
    ):
        namespace = _namespace(cluster, "held")
        _stop(cluster, "held", "Hold")
        _create(cluster, namespace, before)
        containers = after["spec"]["template"]["spec"]["containers"]
        changed = {"spec": {"template": {"spec": {"containers": containers}}}}
        patch = ("patch", "job", "train", "-n", namespace, "--type=merge", "-p")
        cluster.kubectl(*patch, json.dumps(changed), check=False)
        _stop(cluster, "held", "None")
        _wait_for(cluster, namespace, suspended=False)
        yield name, "changed while suspended, admitted", after, audit.settled(namespace)


def _namespace(cluster: ControlPlane, queue: str) -> str:
    namespace = cluster.create_namespace("queue-")
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "queue", "namespace": namespace},
        "spec": {"clusterQueue": queue},
    }
    cluster.kubectl.apply(local)
    return namespace


def _create(cluster: ControlPlane, namespace: str, job: JSON) -> bool:
    create = ("create", "-n", namespace, "-f", "-")
    return cluster.kubectl(*create, stdin=json.dumps(job), check=False).returncode == 0


def _is_placed(cluster: ControlPlane, namespace: str) -> bool:
    """Return whether a Pod had a topology gate opened and is bound to the node of its topology."""
    pods = cluster.kubectl.json("get", "pods", "-n", namespace)["items"]
    return any(
        "kubernetes.io/hostname" in (pod["spec"].get("nodeSelector") or {})
        and pod["spec"].get("nodeName")
        for pod in pods
    )


def _evict_and_resume(cluster: ControlPlane, namespace: str) -> None:
    _wait_for(cluster, namespace, suspended=False)
    _stop(cluster, "queue", "HoldAndDrain")
    _wait_for(cluster, namespace, suspended=True)
    _stop(cluster, "queue", "None")
    _wait_for(cluster, namespace, suspended=False)


def _stop(cluster: ControlPlane, queue: str, policy: str) -> None:
    """Set how a queue is stopped; `None` starts it."""
    patch = ("patch", "clusterqueue", queue, "--type=merge", "-p")
    cluster.kubectl(*patch, json.dumps({"spec": {"stopPolicy": policy}}))


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
