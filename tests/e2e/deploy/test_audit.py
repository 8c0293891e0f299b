"""The audit of a real cluster, with the account that the chart gives it, and its reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from audit.fleet import LABELS, pod_spec
from controlplane import policies
from controlplane.cluster import ControlPlane
from controlplane.objects import node
from controlplane.poll import until
from controlplane.versions import CLAIMS
from deploy.chart import Helm, Values, one
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
    """A cluster, and the way to it with the audit's own account."""

    cluster: ControlPlane
    namespace: str
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
    """A cluster with a GPU node without a taint, on which a Pod sits for which others wait."""
    api, namespace = control_plane.api, control_plane.create_namespace("audit-")
    objects = [each for each in helm.objects(VALUES) if each["metadata"]["name"] == ACCOUNT]
    role, binding = one(objects, "ClusterRole"), one(objects, "ClusterRoleBinding")
    binding["subjects"][0]["namespace"] = namespace
    account = one(objects, "ServiceAccount")
    account["metadata"]["namespace"] = namespace
    open_node = node("open", labels=LABELS, resources={"nvidia.com/gpu": "8"})
    selected = {"nodeSelector": {"kubernetes.io/hostname": "open"}, "schedulerName": "none"}
    job = {"parallelism": 3, "template": {"spec": {**pod_spec(8), **selected}}}
    try:
        api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        api.request("POST", f"{RBAC}/clusterroles", role)
        api.request("POST", f"{RBAC}/clusterrolebindings", binding)
        path = tmp_path_factory.mktemp("audit") / "config"
        with policies.used(control_plane, default_spec()), control_plane.nodes(open_node):
            for path_of, name, spec in (
                (f"/apis/batch/v1/namespaces/{namespace}/jobs", "train", job),
                (
                    f"/api/v1/namespaces/{namespace}/pods",
                    "debug-shell",
                    {**pod_spec(), "nodeName": "open"},
                ),
            ):
                api.request("POST", path_of, {"metadata": {"name": name}, "spec": spec})
            pods = f"/api/v1/namespaces/{namespace}/pods"
            until(lambda: len(api.request("GET", pods)["items"]) == 4, "the Pods of the Job")
            kubeconfig = control_plane.as_account(namespace, ACCOUNT, path)
            yield Audited(control_plane, namespace, kubeconfig)
            control_plane.delete_workloads(namespace)
    finally:
        for kind in ("clusterroles", "clusterrolebindings"):
            api.request("DELETE", f"{RBAC}/{kind}/{ACCOUNT}")


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
    assert rules_of(report, "Pod", "debug-shell") == ["pool-trespass"]
    assert rules_of(report, "Node", "open") == ["gpu-node-without-taint"]
    [pool] = report["pools"]
    rows = [row for row in report["waste"]["rows"] if row["namespace"] == audited.namespace]
    assert [(row["kind"], row["devices"]) for row in rows] == [("pending", 24)]
    # Pods of other tests may be waiting for a node without a taint.
    [trespassers] = [each["trespassers"] for each in pool["nodes"] if each["name"] == "open"]
    assert f"{audited.namespace}/debug-shell" in trespassers


def test_an_audit_without_permissions_reports_unaudited_resources(audited: Audited) -> None:
    path = audited.kubeconfig.with_name("stranger")
    stranger = audited.cluster.as_account(audited.namespace, "default", path)
    named = replace(audited, kubeconfig=stranger).run(status=2).err
    assert 'cannot get resource "fencepolicies"' in named
    assert "Use an account that may get fencepolicies (ClusterRole view), or name a" in named
    unnamed = replace(audited, kubeconfig=stranger, policy=()).run(status=2).err
    assert 'cannot list resource "mutatingwebhookconfigurations"' in unnamed
    assert "Choose a FencePolicy with --fence-policy, use an account that may list mu" in unnamed
    policy = ("--policy", str(DEFAULT))
    output = replace(audited, kubeconfig=stranger, policy=policy).run(status=0).out
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
