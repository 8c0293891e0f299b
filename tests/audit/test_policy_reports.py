"""PolicyReports that cannot be written; a real cluster takes them in tests/deploy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from audit.simulated import Cluster, pod
from fake_kubeapi import FakeKubeApi
from webhook.audit.audit import Audit
from webhook.audit.policy_reports import publish
from webhook.cluster.errors import ApiError
from webhook.kubeapi import JSONObject

NOW = datetime(2026, 11, 21, tzinfo=UTC)
TERMINATING = (
    'reports.openreports.io "gpufence-uid-1" is forbidden: unable to create new content in '
    "namespace old because it is being terminated"
)
REACHING = {
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "containers": [{"name": "web", "image": "nginx:1.29"}],
}


class _Api(FakeKubeApi):
    """Has no reports yet, and refuses those of the namespace ``old``."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__()
        self.objects["/apis/openreports.io/v1alpha1"] = {"metadata": {}}
        self._refusal = refusal

    async def get(self, path: str, query: object = None, *, seconds: float) -> bytes:
        return b'{"metadata": {}, "items": []}'

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
async def test_a_namespace_that_is_being_deleted_keeps_no_other_report_from_being_written(
    audit: Audit, refusal: ApiError
) -> None:
    api = _Api(refusal)
    assert await publish(api, audit, NOW) == (
        "Reports of openreports.io/v1alpha1: 1 created, 0 changed, 0 unchanged, 0 deleted; "
        "1 not written, whose objects are going."
    )
    assert sum("/namespaces/web/reports/" in path for path in api.objects) == 1


async def test_a_right_that_is_missing_is_an_error(audit: Audit) -> None:
    with pytest.raises(ApiError, match="cannot create"):
        await publish(_Api(ApiError(403, "cannot create resource reports")), audit, NOW)
