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
from controlplane.objects import definition
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


# Definitions of the two APIs that have policy reports, with the fields that they both have:
# wgpolicyk8s.io_policyreports.yaml (v1alpha2) of wg-policy-prototypes, and
# openreports.io_reports.yaml of openreports/reports-api, whose schemas name the same.
KINDS = {
    "wgpolicyk8s.io": (
        "v1alpha2",
        (("PolicyReport", "Namespaced"), ("ClusterPolicyReport", "Cluster")),
    ),
    "openreports.io": ("v1alpha1", (("Report", "Namespaced"), ("ClusterReport", "Cluster"))),
}
_TEXT: Object = {"type": "string"}
_COUNT: Object = {"type": "integer"}
_RESULTS = ("pass", "fail", "warn", "error", "skip")


def _fields(**properties: Object) -> Object:
    return {"type": "object", "properties": properties}


_REFERENCE = _fields(apiVersion=_TEXT, kind=_TEXT, namespace=_TEXT, name=_TEXT, uid=_TEXT)
_RESULT = {
    **_fields(
        source=_TEXT,
        policy=_TEXT,
        rule=_TEXT,
        category=_TEXT,
        message=_TEXT,
        result={"type": "string", "enum": list(_RESULTS)},
        severity={"type": "string", "enum": ["critical", "high", "low", "medium", "info"]},
        properties={"type": "object", "additionalProperties": _TEXT},
        timestamp={**_fields(seconds=_COUNT, nanos=_COUNT), "required": ["nanos", "seconds"]},
    ),
    "required": ["policy"],
}
_SCHEMA = _fields(
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata={"type": "object"},
    scope=_REFERENCE,
    summary=_fields(**dict.fromkeys(_RESULTS, _COUNT)),
    results={"type": "array", "items": _RESULT},
)


def definitions(group: str) -> list[Object]:
    """Return the CustomResourceDefinitions of a group."""
    version, kinds = KINDS[group]
    return [definition(group, version, kind, scope=scope, schema=_SCHEMA) for kind, scope in kinds]


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


def test_no_policy_reports_are_written_without_their_definition(audited: Audited) -> None:
    done = audited.run("--quiet", "--policy-reports", "--fail-on", "never", status=0)
    assert "No PolicyReports written: the cluster has neither openreports.io/v1alpha1" in done.err


@pytest.mark.parametrize("group", KINDS)
def test_policy_reports_are_created_and_kept_if_unchanged(audited: Audited, group: str) -> None:
    api = audited.cluster.api
    version, kinds = KINDS[group]
    namespaced, clustered = (f"{kind.lower()}s" for kind, _ in kinds)
    with audited.cluster.defined(*definitions(group)):
        first = audited.run("--quiet", "--policy-reports").err
        assert f"\nReports of {group}/{version}: " in first
        assert " 0 changed, 0 unchanged, 0 deleted" in first
        items = api.request("GET", f"/apis/{group}/{version}/namespaces/web/{namespaced}")["items"]
        [report] = items
        assert report["scope"]["name"] == "cache-warmer"
        assert report["metadata"]["ownerReferences"][0]["kind"] == "Job"
        assert report["summary"] == {"pass": 0, "fail": 2, "warn": 0, "error": 0, "skip": 0}
        assert {result["rule"] for result in report["results"]} == {"pool-trespass"}
        nodes = api.request("GET", f"/apis/{group}/{version}/{clustered}")["items"]
        assert {"gpu-1", "gpu-2"} <= {each["scope"]["name"] for each in nodes}

        assert "0 created, 0 changed" in audited.run("--quiet", "--policy-reports").err
        [again] = api.request("GET", f"/apis/{group}/{version}/namespaces/web/{namespaced}")[
            "items"
        ]
        assert again["metadata"]["resourceVersion"] == report["metadata"]["resourceVersion"]


def test_the_audit_role_grants_the_custom_workloads_of_the_policy(helm: Helm) -> None:
    rules = one(helm.objects(VALUES), "ClusterRole", ACCOUNT)["rules"]
    granted = {(rule["apiGroups"][0], tuple(rule["resources"])) for rule in rules}
    assert granted.issuperset((each.group, each.resources) for each in WELL_KNOWN)
    own = {"policy": {"customWorkloads": [{"group": "example.com", "resources": ["farms"]}]}}
    rules = one(helm.objects(VALUES | own), "ClusterRole", ACCOUNT)["rules"]
    groups = {rule["apiGroups"][0] for rule in rules}
    assert "example.com" in groups
    assert "kubeflow.org" not in groups


def test_the_audit_role_grants_writes_only_for_policy_reports(
    helm: Helm,
) -> None:
    for wanted in (True, False):
        values = {"audit": {"enabled": True, "policyReports": wanted}}
        rules = one(helm.objects(values), "ClusterRole", ACCOUNT)["rules"]
        writing = {rule["apiGroups"][0] for rule in rules if not READS.issuperset(rule["verbs"])}
        assert writing == (set(KINDS) if wanted else set())
