"""A cluster to audit, on the fake API server: no controllers, no scheduler."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from audit.fleet import LABELS, TAINT, pod_spec
from controlplane.objects import node
from fake_apiserver import FakeApiServer
from policies.policy import Policy
from policies.shipped import shipped_policy
from webhook.cluster.gangs import QUOTAS
from webhook.cluster.kinds import POD, WORKLOADS
from webhook.cluster.objects import LiveObjects, Progress, Reader
from webhook.kube.client import KubeApi
from webhook.kube.kubeconfig import kubeconfig
from webhook.tools.audit.cluster_audit import Audit, audit

Object = dict[str, Any]

TODAY = date(2026, 11, 21)
NODES = "/api/v1/nodes"
PATHS = {
    **{kind.kind: kind.path for kind in (*WORKLOADS, POD)},
    "Node": NODES,
    "Namespace": "/api/v1/namespaces",
    "ResourceQuota": QUOTAS.path,
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
}
# The discovery documents are stored like other objects: below a path, by name.
_ROOT, _GROUPS = "", "apis"


class Cluster:
    """Objects as an API server lists them, each with a uid."""

    def __init__(self) -> None:
        self.api = FakeApiServer(_ROOT, *PATHS.values())
        self._paths = dict(PATHS)
        self._groups: list[Object] = []
        self._count = 0
        self.kubeconfig = Path()
        """The file that an audit reads its credentials from."""
        self._tell_groups()

    def add(self, kind: str, obj: Object) -> Object:
        """Add an object with a new uid, in any namespace."""
        self._count += 1
        metadata = {"uid": f"uid-{self._count}", **obj["metadata"]}
        stored = {**obj, "metadata": metadata}
        self.api.put(self._paths[kind], stored)
        return stored

    def add_gpu_nodes(self, *names: str, devices: int = 8) -> None:
        """Add nodes of the default policy's pool."""
        resources = {"nvidia.com/gpu": str(devices)}
        for name in names:
            self.add("Node", node(name, labels=LABELS, taints=[TAINT], resources=resources))

    def serve(
        self, group: str, version: str, kind: str, resource: str, *, namespaced: bool = True
    ) -> None:
        """Serve a custom resource, as after the creation of its definition.

        The version that a group has first is the one that it prefers.
        """
        path = f"/apis/{group}/{version}/{resource}"
        self._paths[kind] = path
        resources = [{"name": resource, "kind": kind, "namespaced": namespaced, "verbs": ["list"]}]
        self.api.serve(path)
        self.api.serve(f"/apis/{group}")
        self.api.put(f"/apis/{group}", {"metadata": {"name": version}, "resources": resources})
        known = next((entry for entry in self._groups if entry["name"] == group), None)
        if known is None:
            known = {"name": group, "preferredVersion": {"version": version}, "versions": []}
            self._groups.append(known)
        known["versions"].append({"version": version})
        self._tell_groups()

    async def audit(
        self, policy: Policy | None = None, progress: Progress = lambda _title, _count: None
    ) -> Audit:
        """Serve it, and audit it by a policy, the default one unless given."""
        await self.api.start()
        with NamedTemporaryFile() as file:
            self.kubeconfig = self.api.kubeconfig(Path(file.name))
            api = KubeApi(kubeconfig(self.kubeconfig))
            try:
                reader = Reader(LiveObjects(api), progress)
                return await audit(reader, policy or shipped_policy(), TODAY)
            finally:
                await api.close()
                await self.api.stop()

    def fill(self, node_count: int, with_devices: int, pod_count: int) -> None:
        """Add nodes and the Pods of Jobs, as controllers and the scheduler would.

        Of the nodes with devices, the first has no taint and the second no label. Most are held in
        parts; some Pods wait; some plain ones sit on GPU nodes or want to.
        """
        teams = ("ml-vision", "ml-language", "ml-speech", "simulation", "web", "batch")
        shapes = ((4, 2, 1), (8,), (2, 2, 2, 2), (4, 4), (1, 1, 1), ())
        reaching: Object = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}

        def job(namespace: str, name: str, spec: Object, pods: dict[str, str]) -> None:
            """Add a Job, and its Pods by name, each on its node."""
            owner = self.add("Job", workload(name, spec, namespace=namespace))
            for each, place in pods.items():
                its = pod(each, spec, app=name, node=place, namespace=namespace)
                self.add("Pod", owned(its, owner, "Job", "batch/v1"))

        for index in range(with_devices):
            labels, taints = {} if index == 1 else LABELS, [] if index == 0 else [TAINT]
            resources, place = {"nvidia.com/gpu": "8"}, f"gpu-{index + 1}"
            self.add("Node", node(place, labels=labels, taints=taints, resources=resources))
            for number, devices in enumerate(shapes[index % len(shapes)]):
                name = f"train-{index + 1}-{number}"
                spec = pod_spec(devices, **reaching)
                job(teams[(index + number) % 4], name, spec, {f"{name}-x7k2p": place})
        waiting = {f"pretrain-{number}": "" for number in range(3)}
        job("ml-language", "pretrain", pod_spec(8), waiting)
        places = ("gpu-1", "gpu-4", f"gpu-{with_devices}")
        warmers = {f"cache-warmer-{number}": place for number, place in enumerate(places, 1)}
        job("web", "cache-warmer", pod_spec(**reaching), warmers)
        self.add("Pod", pod("debug-shell", pod_spec(), node="gpu-1", namespace="batch"))
        others = node_count - with_devices
        for number in range(others):
            self.add("Node", node(f"cpu-{number + 1}"))
        left = pod_count - sum(path.startswith(f"{PATHS['Pod']}/") for path in self.api.objects)
        for number in range(0, left, 12):
            name = f"work-{number // 12}"
            some = range(number, min(number + 12, left))
            pods = {f"{name}-{each % 12}": f"cpu-{each % others + 1}" for each in some}
            job(teams[number // 12 % len(teams)], name, pod_spec(), pods)

    def _tell_groups(self) -> None:
        self.api.put(_ROOT, {"metadata": {"name": _GROUPS}, "groups": self._groups})


def owned(obj: Object, owner: Object, kind: str, api_version: str = "apps/v1") -> Object:
    """Return the object with a controller."""
    reference = {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}


def workload(name: str, spec: Object, *, namespace: str = "web", **more: Any) -> Object:
    """Return a Deployment, ReplicaSet or DaemonSet that selects what carries its labels."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **more},
    }


def pod(
    name: str, spec: Object, *, app: str = "", node: str = "", namespace: str = "web"
) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": {"app": app or name}}
    placed = {"nodeName": node} if node else {}
    return {"metadata": metadata, "spec": {**spec, **placed}, "status": {"phase": "Running"}}
