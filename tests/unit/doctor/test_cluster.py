"""The doctor's line on the version of the API server, and on what older versions lack."""

from __future__ import annotations

import pytest

from webhook.doctor.cluster import check_version
from webhook.doctor.installation import Installation
from webhook.doctor.line import Status


@pytest.mark.parametrize(
    ("version", "claims", "status", "found"),
    [
        ("v1.36.3", ("v1",), "ok", "v1.36.3"),
        ("v1.34.10-gke.1000", ("v1", "v1beta2"), "ok", "v1.34.10-gke.1000"),
        ("v1.30.14", (), "ok", "v1.30.14, without dynamic resource allocation"),
        ("v1.33.2", ("v1beta2", "v1beta1"), "warn", "only as v1beta2, v1beta1: a Pod that"),
        ("v1.29.9", (), "fail", "v1.29.9 is older than 1.30"),
        ("", (), "skip", "the version of the API server is unknown"),
        ("devel", (), "skip", "it says 'devel'"),
    ],
)
def test_old_versions_and_missing_claims_are_reported(
    version: str, claims: tuple[str, ...], status: Status, found: str
) -> None:
    line = check_version(Installation("fence", "gpufence", version=version, claim_versions=claims))
    assert line.status == status
    assert found in line.detail
    assert bool(line.remediation) == (status in ("warn", "fail"))


def test_without_permission_for_api_groups_claims_are_not_reported() -> None:
    found = Installation("fence", "gpufence", version="v1.36.3")
    found.forbidden["API groups"] = "forbidden"
    assert check_version(found).status == "ok"
