"""PolicyReports that cannot be written or must stay; tests/e2e/deploy writes real ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from audit.fleet import LABELS, TAINT
from audit.simulated import PATHS, Cluster, Object, owned, pod, workload
from controlplane.objects import node
from fake_apiserver import FakeKubeApi
from policies.kubernetes.objects import JSONObject
from webhook.audit.cluster_audit import Audit
from webhook.audit.policy_reports import publish
from webhook.kube.client import MOST_BYTES
from webhook.kube.errors import ApiError

NOW = datetime(2026, 11, 21, tzinfo=UTC)
TERMINATING = (
    'reports.openreports.io "gpufence-uid-1" is forbidden: unable to create new content in '
    "namespace old because it is being terminated"
)
PLAIN: Object = {"containers": [{"name": "web", "image": "nginx:1.29"}]}
REACHING = {**PLAIN, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
EVERYTHING = {"web", "bare", "farm", "gpu"}


class _Reports(FakeKubeApi):
    """Keeps reports, and lists them by their labels, or all unless it ``selects``."""

    def __init__(self, *, selects: bool = True) -> None:
        super().__init__()
        self.objects["/apis/openreports.io/v1alpha1"] = {"metadata": {}}
        self._selects = selects

    @property
    def names(self) -> set[str]:
        """What there are reports about."""
        return {obj["scope"]["name"] for obj in self.objects.values() if "scope" in obj}

    async def get(
        self, path: str, query: Any = None, *, seconds: float, most_bytes: int = MOST_BYTES
    ) -> bytes:
        if query is None:
            return await super().get(path, seconds=seconds)
        resource = path.rpartition("/")[2]
        label, _, value = query["labelSelector"].partition("=")
        items = [
            obj
            for where, obj in self.objects.items()
            if where.split("/")[-2] == resource
            and (not self._selects or obj["metadata"]["labels"].get(label) == value)
        ]
        return json.dumps({"metadata": {}, "items": items}).encode()


class _Api(_Reports):
    """Has no reports yet, and rejects those of the namespace ``old``."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__()
        self._refusal = refusal

    async def create(
        self, collection: str, obj: JSONObject, *, dry_run: bool = False
    ) -> JSONObject:
        if obj["metadata"].get("namespace") == "old":
            raise self._refusal
        return await super().create(collection, obj, dry_run=dry_run)


@pytest.fixture
async def audit(tmp_path: Path) -> Audit:
    cluster = Cluster()
    cluster.add("Pod", pod("first", REACHING, namespace="old"))
    cluster.add("Pod", pod("second", REACHING, namespace="web"))
    await cluster.api.start()
    try:
        return await cluster.audit(tmp_path)
    finally:
        await cluster.api.stop()


@pytest.mark.parametrize("refusal", [ApiError(403, TERMINATING), ApiError(404, "not found")])
async def test_reports_outside_a_terminating_namespace_are_written(
    audit: Audit, refusal: ApiError
) -> None:
    api = _Api(refusal)
    published = await publish(api, audit, NOW)
    assert published.summary == (
        "Reports of openreports.io/v1alpha1: 1 created, 0 changed, 0 unchanged, 0 deleted; "
        "1 not written, because their objects are being deleted."
    )
    assert sum("/namespaces/web/reports/" in path for path in api.objects) == 1


@pytest.mark.parametrize(
    ("refusal", "conflict"),
    [
        (
            ApiError(403, "exceeded quota: none"),
            "In namespace old, the API server rejects reports: exceeded quota: none (HTTP 403)",
        ),
        (
            ApiError(413, "etcdserver: request is too large"),
            (
                "Report old/gpufence-uid-1, about Pod first, was rejected: "
                "etcdserver: request is too large (HTTP 413)"
            ),
        ),
    ],
)
async def test_a_rejected_report_is_reported_and_other_reports_are_written(
    audit: Audit, refusal: ApiError, conflict: str
) -> None:
    api = _Api(refusal)
    published = await publish(api, audit, NOW)
    assert published == (
        (
            "Reports of openreports.io/v1alpha1: 1 created, 0 changed, 0 unchanged, 0 deleted; "
            "1 rejected."
        ),
        (conflict,),
    )
    assert api.names == {"second"}


async def test_a_namespace_that_rejects_reports_is_reported_once(tmp_path: Path) -> None:
    cluster = Cluster()
    for name in ("first", "second", "third"):
        cluster.add("Pod", pod(name, REACHING, namespace="old"))
    api = _Api(ApiError(403, "cannot create resource reports"))
    published = await publish(api, await audited(cluster, tmp_path), NOW)
    assert published.summary.endswith("; 3 rejected.")
    [conflict] = published.conflicts
    assert conflict.startswith("In namespace old, the API server rejects reports: cannot create")


async def test_a_server_error_on_write_is_raised(audit: Audit) -> None:
    with pytest.raises(ApiError, match="leader changed"):
        await publish(_Api(ApiError(500, "etcdserver: leader changed")), audit, NOW)


def cluster_of(spec: Object, *taints: Object) -> Cluster:
    """Return a cluster of one object of each kind; uids are the same for each that is made."""
    cluster = Cluster()
    cluster.serve("example.com", "v1", "Farm", "farms")
    cluster.add("Deployment", workload("web", spec))
    cluster.add("Pod", pod("bare", spec))
    farm = cluster.add("Farm", workload("farm", spec))
    cluster.add("Pod", owned(pod("farm-0", PLAIN), farm, "Farm", "example.com/v1"))
    gpus = {"nvidia.com/gpu": "8"}
    cluster.add("Node", node("gpu", labels=LABELS, taints=[*taints], resources=gpus))
    return cluster


async def audited(cluster: Cluster, directory: Path) -> Audit:
    await cluster.api.start()
    try:
        return await cluster.audit(directory)
    finally:
        await cluster.api.stop()


@pytest.fixture
async def reports(tmp_path: Path) -> _Reports:
    """Have a report about each of them."""
    api = _Reports()
    await publish(api, await audited(cluster_of(REACHING), tmp_path), NOW)
    assert api.names == EVERYTHING
    return api


@pytest.mark.parametrize(
    ("path", "status", "kept"),
    [
        ("/nothing", 403, set()),
        (PATHS["ReplicaSet"], 403, set()),
        (PATHS["Deployment"], 403, {"web"}),
        ("/apis/example.com/v1/farms", 403, {"farm"}),
        ("/apis/example.com/v1/farms", 500, {"farm"}),
        ("/apis/example.com/v1", 503, {"farm"}),
        # A finding in an owner's report may be about its Pods and their nodes.
        (PATHS["Pod"], 403, EVERYTHING - {"gpu"}),
        (PATHS["Node"], 403, EVERYTHING),
        (PATHS["Namespace"], 403, EVERYTHING - {"gpu"}),
        (PATHS["RuntimeClass"], 403, EVERYTHING - {"gpu"}),
    ],
)
async def test_a_report_is_deleted_only_if_all_related_resources_were_listed(
    path: str, status: int, kept: set[str], reports: _Reports, tmp_path: Path
) -> None:
    fixed = cluster_of(PLAIN, TAINT)
    fixed.api.errors[path] = (status, "not now")
    message = (await publish(reports, await audited(fixed, tmp_path), NOW)).summary
    assert reports.names == kept
    assert f" {len(EVERYTHING - kept)} deleted" in message
    assert message.endswith(
        f"; {len(kept)} kept, because their objects were not audited." if kept else " deleted."
    )


async def test_the_report_of_a_malformed_object_is_kept(reports: _Reports, tmp_path: Path) -> None:
    odd: Object = {"containers": [{"name": "x", "image": "y", "resources": {"limits": "many"}}]}
    spoilt = cluster_of(PLAIN, TAINT)
    farm = workload("farm", odd)
    spoilt.api.put(
        "/apis/example.com/v1/farms", {**farm, "metadata": {**farm["metadata"], "uid": "uid-3"}}
    )
    await publish(reports, await audited(spoilt, tmp_path), NOW)
    assert reports.names == {"farm"}


async def test_results_for_unlisted_objects_are_kept_in_a_report(tmp_path: Path) -> None:
    api, cluster = _Reports(), cluster_of(REACHING)
    deployment = cluster.add("Deployment", workload("shop", REACHING))
    sitting = pod("shop-0", REACHING, app="shop", node="gpu")
    cluster.add("Pod", owned(sitting, deployment, "Deployment"))
    await publish(api, await audited(cluster, tmp_path), NOW)
    path = f"{REPORTS}/gpufence-{deployment['metadata']['uid']}"
    report = api.objects[path]
    assert report["summary"]["fail"] == len(report["results"]) == 2

    cluster.api.errors[PATHS["Pod"]] = (403, "not now")
    message = (await publish(api, await audited(cluster, tmp_path), NOW)).summary
    assert "0 changed" in message
    assert api.objects[path] == report

    cluster.api.errors.clear()
    cluster.api.remove(PATHS["Pod"], "shop-0")
    message = (await publish(api, await audited(cluster, tmp_path), NOW)).summary
    assert "1 changed" in message
    assert api.objects[path]["results"] == report["results"][:1]
    assert api.objects[path]["summary"]["fail"] == 1


REPORTS = "/apis/openreports.io/v1alpha1/namespaces/web/reports"


async def test_forbidden_report_deletions_are_reported_without_failing(
    reports: _Reports, tmp_path: Path
) -> None:
    async def refuse(_path: str) -> bool:
        raise ApiError(403, "cannot delete resource reports")

    reports.delete = refuse  # type: ignore[assignment,method-assign]
    fixed = cluster_of(PLAIN)  # But its node has lost the taint.
    published = await publish(reports, await audited(fixed, tmp_path), NOW)
    assert published == (
        (
            "Reports of openreports.io/v1alpha1: 0 created, 0 changed, 1 unchanged, 0 deleted; "
            "3 rejected."
        ),
        (
            (
                "In namespace web, the API server rejects reports: cannot delete resource reports "
                "(HTTP 403)"
            ),
        ),
    )


FOREIGN = f"{REPORTS}/gpufence-uid-1"


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "somebody"}])
@pytest.mark.parametrize("selects", [True, False])
async def test_a_report_of_another_tool_is_reported_and_not_overwritten(
    labels: dict[str, str], selects: bool, tmp_path: Path
) -> None:
    api = _Reports(selects=selects)
    foreign: Object = {"metadata": {"name": "gpufence-uid-1", "namespace": "web", "labels": labels}}
    api.objects[FOREIGN] = foreign
    published = await publish(api, await audited(cluster_of(REACHING), tmp_path), NOW)
    assert published.summary == (
        "Reports of openreports.io/v1alpha1: 3 created, 0 changed, 0 unchanged, 0 deleted."
    )
    [conflict] = published.conflicts
    assert conflict == (
        "Report web/gpufence-uid-1, about Deployment web, lacks the label "
        "app.kubernetes.io/managed-by=gpufence-audit, so gpufence did not write it. Delete it or "
        "add the label, and run the audit again."
    )
    assert api.objects[FOREIGN] == foreign
    assert api.names == EVERYTHING - {"web"}


async def test_a_report_that_is_too_large_is_written_again(
    reports: _Reports, tmp_path: Path
) -> None:
    audit = await audited(cluster_of(REACHING), tmp_path)
    await publish(reports, audit, NOW)
    written = reports.objects[FOREIGN]["results"]
    reports.objects[FOREIGN]["results"] = [{**written[0], "message": "<" * 200_000}]
    published = await publish(reports, audit, NOW)
    assert "1 changed" in published.summary
    assert reports.objects[FOREIGN]["results"] == written


async def test_a_concurrently_changed_report_is_reported(reports: _Reports, tmp_path: Path) -> None:
    fixed = cluster_of(REACHING | {"nodeSelector": {"nvidia.com/gpu.present": "true"}})
    reports.write_error = ApiError(409, "the object has been modified")
    audit = await audited(fixed, tmp_path)
    published = await publish(reports, audit, NOW)
    assert len(published.conflicts) == 3
    assert published.conflicts[0] == (
        "Report web/gpufence-uid-1, about Deployment web, was changed by another client at the "
        "same time, so gpufence did not write it. Run the audit again."
    )
