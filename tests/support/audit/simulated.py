"""A cluster to audit, on the fake API server: no controllers, no scheduler."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from audit import fleet
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

    def fill(self, node_count: int, with_devices: int, pod_count: int) -> int:
        """Create a fleet (audit.fleet), and return the number of its Pods."""

        def create(path: str, obj: Object) -> Object:
            kind = obj["kind"]
            if kind == "Job":
                labels = {"batch.kubernetes.io/controller-uid": obj["metadata"]["name"]}
                obj = {**obj, "spec": {**obj["spec"], "selector": {"matchLabels": labels}}}
            return self.add(kind, obj)

        return fleet.fill(create, node_count, with_devices, pod_count)

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
