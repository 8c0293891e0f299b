"""PolicyReports that cannot be written or must stay; tests/e2e/deploy writes real ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from audit.fleet import LABELS, TAINT
from audit.simulated import PATHS, Cluster, Object, owned, pod, workload
from controlplane.objects import node
from fake_apiserver import FakeKubeApi
from policies.kubernetes.objects import JSONObject
from webhook.kube.client import MOST_BYTES
from webhook.kube.errors import ApiError
from webhook.tools.audit.cluster_audit import Audit
from webhook.tools.audit.policy_reports import publish

NOW = datetime(2026, 11, 21, tzinfo=UTC)
TERMINATING = (
    'reports.openreports.io "gpufence-uid-1" is forbidden: unable to create new content in '
    "namespace old because it is being terminated"
)
PLAIN: Object = {"containers": [{"name": "web", "image": "nginx:1.29"}]}
REACHING = {**PLAIN, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
EVERYTHING = {"web", "bare", "farm", "gpu"}


class _Reports(FakeKubeApi):
    """Keeps reports, and lists all of them: not every API server applies label selectors."""

    def __init__(self) -> None:
        super().__init__()
        self.objects["/apis/openreports.io/v1alpha1"] = {"metadata": {}}

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
        items = [obj for path, obj in self.objects.items() if path.split("/")[-2] == resource]
        return json.dumps({"metadata": {}, "items": items}).encode()


class _Api(_Reports):
    """Has no reports yet, and rejects those of the namespace ``old``."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__()
        self._refusal = refusal

    async def apply(self, path: str, obj: JSONObject) -> JSONObject:
        if obj["metadata"].get("namespace") == "old":
            raise self._refusal
        return await super().apply(path, obj)


@pytest.fixture
async def audit() -> Audit:
    cluster = Cluster()
    cluster.add("Pod", pod("first", REACHING, namespace="old"))
    cluster.add("Pod", pod("second", REACHING, namespace="web"))
    return await cluster.audit()


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
    "refusal", [ApiError(403, "exceeded quota: none"), ApiError(413, "request is too large")]
)
async def test_a_place_that_rejects_reports_is_reported_once_and_other_reports_are_written(
    refusal: ApiError,
) -> None:
    cluster = Cluster()
    for name, namespace in (("first", "old"), ("second", "web"), ("third", "old")):
        cluster.add("Pod", pod(name, REACHING, namespace=namespace))
    api = _Api(refusal)
    assert await publish(api, await cluster.audit(), NOW) == (
        (
            "Reports of openreports.io/v1alpha1: 1 created, 0 changed, 0 unchanged, 0 deleted; "
            "2 rejected."
        ),
        (f"In namespace old, the API server rejects 2 reports: {refusal}",),
    )
    assert api.names == {"second"}


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


@pytest.fixture
async def reports() -> _Reports:
    """Have a report about each of them."""
    api = _Reports()
    await publish(api, await cluster_of(REACHING).audit(), NOW)
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
    path: str, status: int, kept: set[str], reports: _Reports
) -> None:
    fixed = cluster_of(PLAIN, TAINT)
    fixed.api.errors[path] = (status, "not now")
    message = (await publish(reports, await fixed.audit(), NOW)).summary
    assert reports.names == kept
    assert f" {len(EVERYTHING - kept)} deleted" in message
    assert message.endswith(
        f"; {len(kept)} kept, because their objects were not audited." if kept else " deleted."
    )


async def test_the_report_of_a_malformed_object_is_kept(reports: _Reports) -> None:
    odd: Object = {
        "containers": [
            {"name": "x", "image": "y", "resources": {"limits": {"nvidia.com/gpu": "many"}}}
        ]
    }
    spoilt = cluster_of(PLAIN, TAINT)
    farm = workload("farm", odd)
    spoilt.api.put(
        "/apis/example.com/v1/farms", {**farm, "metadata": {**farm["metadata"], "uid": "uid-3"}}
    )
    await publish(reports, await spoilt.audit(), NOW)
    assert reports.names == {"farm"}


REPORTS = "/apis/openreports.io/v1alpha1/namespaces/web/reports"


async def test_forbidden_report_deletions_are_reported_without_failing(reports: _Reports) -> None:
    async def refuse(_path: str) -> bool:
        raise ApiError(403, "cannot delete resource reports")

    reports.delete = refuse  # type: ignore[assignment,method-assign]
    fixed = cluster_of(PLAIN)  # But its node has lost the taint.
    assert await publish(reports, await fixed.audit(), NOW) == (
        (
            "Reports of openreports.io/v1alpha1: 0 created, 0 changed, 1 unchanged, 0 deleted; "
            "3 rejected."
        ),
        (
            (
                "In namespace web, the API server rejects 3 reports: cannot delete resource "
                "reports (HTTP 403)"
            ),
        ),
    )


async def test_the_report_of_another_tool_is_not_deleted(reports: _Reports) -> None:
    report = reports.objects[FOREIGN]
    report["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "another"}
    await publish(reports, await cluster_of(PLAIN, TAINT).audit(), NOW)
    assert reports.names == {"web"}


FOREIGN = f"{REPORTS}/gpufence-uid-1"


async def test_a_report_that_is_too_large_is_written_again(reports: _Reports) -> None:
    audit = await cluster_of(REACHING).audit()
    await publish(reports, audit, NOW)
    written = reports.objects[FOREIGN]["results"]
    reports.objects[FOREIGN]["results"] = [{**written[0], "message": "<" * 200_000}]
    published = await publish(reports, audit, NOW)
    assert "1 changed" in published.summary
    assert reports.objects[FOREIGN]["results"] == written
