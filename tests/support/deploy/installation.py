"""The chart, installed by helm into the control plane, with running replicas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from controlplane import pki
from controlplane.cluster import ControlPlane
from controlplane.objects import RESTRICTED, node, taint
from controlplane.poll import until
from controlplane.webhooks import unregister, wait_until_called
from deploy.chart import NAMESPACE, RELEASE, Helm, Object, Values
from deploy.kubelet import Kubelet, RunningPod, kubelet, wait_ready
from paths import CHART, PROJECT
from policies.policy import ALWAYS_EXCLUDED
from specs import default_spec
from webhook.tools.platforms import PLATFORMS

REPLICAS, CONTROLLERS = "gpufence", "gpufence-controller"
"""The label app.kubernetes.io/name of the Pods."""
REPLICA_USER = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
CONTROLLER_USER = f"{REPLICA_USER}-controller"
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
OPTIONS = ("--namespace", NAMESPACE, "--disable-openapi-validation")
"""test_apply.py validates the objects. Helm would download the schemas each time."""
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [REPLICA_USER, CONTROLLER_USER]}, {"level": "None"}],
}
NODES = (
    node("one"),
    node("two"),
    node(
        "gpu",
        labels={"nvidia.com/gpu.present": "true"},
        taints=[taint("nvidia.com/gpu", "present")],
        resources={"nvidia.com/gpu": "8"},
    ),
)


@dataclass(frozen=True)
class Installation:
    """A release, its cluster, and the kubelet of its Pods."""

    cluster: ControlPlane
    helm: Helm
    kubelet: Kubelet
    settings: Settings
    audited: int
    """How long the audit log was before, in bytes."""
    release: str = RELEASE

    @property
    def name(self) -> str:
        """The name of the release's objects."""
        return RELEASE if self.release == RELEASE else f"{self.release}-gpufence"

    def install(self, values: Values) -> None:
        """Install, and wait until both replicas are ready, and the controller has registered."""
        self.cluster.create_namespace(NAMESPACE, RESTRICTED)
        action = ("install", self.release)
        self.helm.with_values(action, values, *OPTIONS)
        wait_ready(self.kubelet, 3)
        until(lambda: len(self.configurations()) == 2, "both webhook configurations")
        # Status that kubelet and replicas write reaches other clients with a delay.
        self.wait_rolled_out()
        wait_until_called(self.cluster, created=True)

    def upgrade(self, values: Values) -> None:
        """Upgrade, and return at once."""
        # Without values, helm would take those of the last release instead of the chart's.
        action = ("upgrade", self.release)
        self.helm.with_values(action, values, *OPTIONS, "--reset-values")

    def wait_rolled_out(self) -> None:
        """Wait until the Deployment has exactly two Pods, both new and ready."""

        def rolled_out() -> bool:
            path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{self.name}"
            deployment = self.cluster.api.request("GET", path)
            status = deployment["status"]
            current = status.get("observedGeneration") == deployment["metadata"]["generation"]
            counts = [status.get(f"{kind}Replicas") for kind in ("updated", "available")]
            return current and counts == [2, 2] and status["replicas"] == 2

        until(rolled_out, "the Deployment to be rolled out")
        until(self.is_controlled, "the controller to be ready")
        until(lambda: len(self.pods()) == 2, "the old Pods to be gone")

    def uninstall(self) -> None:
        self.helm("uninstall", self.release, "--namespace", NAMESPACE)

    def configurations(self) -> list[Object]:
        """Return gpufence's webhook configurations, as they are in the cluster."""
        own = []
        for kind in KINDS:
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}"
            items = self.cluster.api.request("GET", path)["items"]
            own += [item for item in items if item["metadata"]["name"] == self.name]
        return own

    def pods(self, names: str = REPLICAS) -> list[Object]:
        """Return the Pods with one of these names, separated by commas, in their label."""
        self.kubelet.ready()  # A kubelet that has failed ends no Pod.
        selector = quote(f"app.kubernetes.io/name in ({names})")
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}"
        items: list[Object] = self.cluster.api.request("GET", path)["items"]
        return items

    def is_controlled(self) -> bool:
        """Return whether a controller is ready."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{self.name}-controller"
        deployment = self.cluster.api.request("GET", path)
        current = deployment["status"].get("observedGeneration")
        ready = deployment["status"].get("readyReplicas", 0)
        return bool(ready == 1 and current == deployment["metadata"]["generation"])

    def replicas(self) -> list[RunningPod]:
        """Return the replicas that run."""
        names = {each["metadata"]["name"] for each in self.pods()}
        return [each for each in list(self.kubelet.pods.values()) if each.name in names]

    def create_pod(self, pod: Object, namespace: str = "default") -> Object:
        """Create a Pod as a dry run; raise an ApiError if it is rejected."""
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        return self.cluster.api.request("POST", path, pod)

    def refusal(self, pod: Object) -> str:
        """Return the error of creating a Pod; empty if it is admitted."""
        return self.cluster.api.refusal("/api/v1/namespaces/default/pods", pod)

    def audit(self) -> list[Any]:
        """Return the audit events of the requests of replicas and controller."""
        # The last line may be half written.
        written = self.settings.audit_log.read_bytes()[self.audited :].rpartition(b"\n")[0]
        return [json.loads(line) for line in written.splitlines()]


class Settings:
    """What an API server is started with: an audit log, and a certificate for webhooks."""

    def __init__(self, directory: Path) -> None:
        self.audit_log = directory / "audit.log"
        self.clients = pki.Authority(directory)
        """Signed the certificate that the API server presents to a replica that requests one."""
        policy = directory / "audit.yaml"
        policy.write_text(yaml.safe_dump(AUDIT))
        admission = _admission_configuration(directory, self.clients.client("api-server"))
        self.flags = (
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
            f"--admission-control-config-file={admission}",
        )


@contextmanager
def installation(
    cluster: ControlPlane, settings: Settings, directory: Path, helm: Helm
) -> Iterator[Installation]:
    """Have nodes and a kubelet in the block; afterwards, nothing of a release is left."""
    own = replace(helm, kubeconfig=cluster.kubeconfig)
    _delete_known_namespaces(cluster)
    with cluster.nodes(*NODES), kubelet(cluster, NAMESPACE, directory / "pods") as running:
        yield Installation(cluster, own, running, settings, settings.audit_log.stat().st_size)
        own("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found")
        # The kubelet ends the last Pods, and nothing creates others.
        replica_sets = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
        until(lambda: not cluster.api.request("GET", replica_sets)["items"], "no ReplicaSets")
    unregister(cluster)
    cluster.kubectl("delete", "--ignore-not-found", "-f", str(CHART / "crds"))
    _delete_known_namespaces(cluster)


def _delete_known_namespaces(cluster: ControlPlane) -> None:
    """Delete the namespaces that gpufence knows by name, if tests have left them."""
    named = {*ALWAYS_EXCLUDED, *default_spec()["exemptions"]["namespaces"]}
    named |= {platform.namespace for platform in PLATFORMS}
    cluster.delete_namespaces(*sorted(named - {"kube-system", "kube-public", "kube-node-lease"}))


def _admission_configuration(directory: Path, pair: tuple[Path, Path]) -> Path:
    """Write the two files of the page about certificates, and return the API server's.

    The API server presents `pair` to the webhook behind the Service of the chart.
    """
    page = (PROJECT / "docs" / "operate" / "certificates.md").read_text()
    documented = "/etc/kubernetes/admission"
    names = {
        f"{documented}/client.crt": str(pair[0]),
        f"{documented}/client.key": str(pair[1]),
        documented: str(directory),
    }
    for file, title in (("admission.yaml", "# admission.yaml"), ("kubeconfig", f"# {documented}/")):
        [text] = re.findall(rf"(?ms)^```yaml\n({re.escape(title)}.*?)^```", page)
        for name, actual in names.items():
            text = text.replace(name, actual)
        (directory / file).write_text(text)
    return directory / "admission.yaml"
