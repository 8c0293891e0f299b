"""The audit of a real cluster, with the account that the chart gives it, and its reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from audit import fleet
from controlplane import policies, scheduler_cache
from controlplane.cluster import ControlPlane
from controlplane.versions import CLAIMS
from deploy.chart import Helm, Object, Values, one
from policies.kubernetes.kinds import WELL_KNOWN
from policies.shipped import DEFAULT
from running import Outcome, run_here
from specs import default_spec

VALUES: Values = {"audit": {"enabled": True}}
ACCOUNT = "gpufence-audit"
READS = {"get", "list"}
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class Audited:
    """A cluster with a fleet, and the way to it with the audit's own account."""

    cluster: ControlPlane
    kubeconfig: Path
    policy: tuple[str, ...] = ("--fence-policy", "gpufence")
    """As the chart names it: the account may list no webhook configurations."""

    def run(self, *options: str, status: int = 1) -> Outcome:
        done = run_here("audit", "--kubeconfig", self.kubeconfig, *self.policy, *options)
        assert done.status == status, done.out + done.err
        return done

    def report(self, *options: str) -> dict[str, Any]:
        return self.run("--output", "json", *options).report


@pytest.fixture(scope="module")
def audited(
    control_plane: ControlPlane, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Audited]:
    api = control_plane.api
    for namespace in fleet.NAMESPACES:
        control_plane.create_namespace(namespace)

    def create(path: str, obj: Object) -> Object:
        if path == "/pods":
            path = f"/api/v1/namespaces/{obj['metadata']['namespace']}/pods"
        return api.request("POST", path, obj)

    objects = [each for each in helm.objects(VALUES) if each["metadata"]["name"] == ACCOUNT]
    role, binding = one(objects, "ClusterRole"), one(objects, "ClusterRoleBinding")
    binding["subjects"][0]["namespace"] = "batch"
    account = one(objects, "ServiceAccount")
    account["metadata"]["namespace"] = "batch"
    try:
        fleet.fill(create, 20, 6, 60)
        api.request("POST", "/api/v1/namespaces/batch/serviceaccounts", account)
        api.request("POST", f"{RBAC}/clusterroles", role)
        api.request("POST", f"{RBAC}/clusterrolebindings", binding)
        path = tmp_path_factory.mktemp("audit") / "config"
        with policies.used(control_plane, default_spec()):
            yield Audited(control_plane, control_plane.as_account("batch", ACCOUNT, path))
    finally:
        for kind in ("clusterroles", "clusterrolebindings"):
            api.request("DELETE", f"{RBAC}/{kind}/{ACCOUNT}")
        for each in fleet.nodes(20, 6):
            api.request("DELETE", f"/api/v1/nodes/{each['metadata']['name']}")
        names = {each["metadata"]["name"] for each in fleet.nodes(20, 6)}
        scheduler_cache.wait_for_none_of(control_plane.scheduler, names)
        for namespace in fleet.NAMESPACES:
            control_plane.delete_workloads(namespace)


def rules_of(report: dict[str, Any], kind: str, name: str) -> list[str]:
    """Return the rules of the findings in the report of an object."""
    [result] = [
        each
        for each in report["results"]
        if (each["object"]["kind"], each["object"]["name"]) == (kind, name)
    ]
    return [finding["rule"] for finding in result["findings"]]


@CLAIMS
def test_the_service_account_of_the_chart_may_list_all_audited_resources(audited: Audited) -> None:
    report = audited.report()
    assert report["kind"] == "AuditReport"
    assert report["notAudited"] == []
    assert rules_of(report, "Job", "cache-warmer") == ["pool-trespass", "pool-trespass"]
    assert rules_of(report, "Pod", "debug-shell") == ["pool-trespass"]
    assert rules_of(report, "Node", "gpu-1") == ["gpu-node-without-taint"]
    [pool] = report["pools"]
    fleets = {name: each for name, each in pool["namespaces"].items() if name in fleet.NAMESPACES}
    assert sum(sum(each["waiting"].values()) for each in fleets.values()) == 3 * fleet.PER_NODE
    rows = [row for row in report["waste"]["rows"] if row["namespace"] in fleet.NAMESPACES]
    [pending] = [row["devices"] for row in rows if row["kind"] == "pending"]
    assert pending >= 3 * fleet.PER_NODE
    # Pods of other tests may be waiting for a node without a taint.
    trespassers = [
        {name for name in node["trespassers"] if name.partition("/")[0] in fleet.NAMESPACES}
        for node in pool["nodes"][:2]
    ]
    assert trespassers == [{"web/cache-warmer-1", "batch/debug-shell"}, set()]


def test_an_audit_without_permissions_reports_unaudited_resources(audited: Audited) -> None:
    path = audited.kubeconfig.with_name("stranger")
    stranger = audited.cluster.as_account("batch", "default", path)
    named = Audited(audited.cluster, stranger).run(status=2).err
    assert 'cannot get resource "fencepolicies"' in named
    assert "Use an account that may get fencepolicies (ClusterRole view), or name a" in named
    unnamed = Audited(audited.cluster, stranger, ()).run(status=2).err
    assert 'cannot list resource "mutatingwebhookconfigurations"' in unnamed
    assert "Choose a FencePolicy with --fence-policy, use an account that may list mu" in unnamed
    policy = ("--policy", str(DEFAULT))
    output = Audited(audited.cluster, stranger, policy).run(status=0).out
    assert "not audited  pods: not listed, so no Pod is audited" in output
    assert "not audited  deployments.apps: not listed" in output


def test_the_audit_role_grants_the_custom_workloads_of_the_policy(helm: Helm) -> None:
    rules = one(helm.objects(VALUES), "ClusterRole", ACCOUNT)["rules"]
    granted = {(rule["apiGroups"][0], tuple(rule["resources"])) for rule in rules}
    assert granted.issuperset((each.group, each.resources) for each in WELL_KNOWN)
    own = {"policy": {"customWorkloads": [{"group": "example.com", "resources": ["farms"]}]}}
    rules = one(helm.objects(VALUES | own), "ClusterRole", ACCOUNT)["rules"]
    groups = {rule["apiGroups"][0] for rule in rules}
    assert "example.com" in groups
    assert "kubeflow.org" not in groups


def test_the_audit_role_grants_no_writes(helm: Helm) -> None:
    rules = one(helm.objects(VALUES), "ClusterRole", ACCOUNT)["rules"]
    assert [rule for rule in rules if not READS.issuperset(rule["verbs"])] == []
