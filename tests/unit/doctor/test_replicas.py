"""The doctor's lines on the Lease and on the serving certificate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import Names
from certs.secret import Stored
from webhook.doctor.installation import Installation
from webhook.doctor.line import DoctorLine, ok
from webhook.doctor.replicas import check_certificate, check_running
from webhook.registration.certificates import names_of
from webhook.registration.leader_election import with_holder

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AUTHORITY = create_authority(NOW)


def leader(silent: float, duration: int) -> DoctorLine:
    """Return the line of a Lease that was renewed so many seconds ago."""
    lease = with_holder(None, "gpufence-7d_1234", NOW - timedelta(seconds=silent), duration)
    found = Installation("fence", "gpufence", lease=lease)
    return next(line for line in check_running(found, NOW) if line.check == "leader")


@pytest.mark.parametrize(("silent", "duration"), [(0, 15), (30, 15), (60, 15_000)])
def test_a_holder_that_renews_its_lease_is_ok(silent: float, duration: int) -> None:
    assert leader(silent, duration) == ok("leader", "gpufence-7d is the leader")


@pytest.mark.parametrize(("silent", "duration"), [(31, 15), (61, 15_000)])
def test_a_holder_that_does_not_renew_its_lease_is_a_warning(silent: float, duration: int) -> None:
    message = leader(silent, duration)
    assert message.status == "warn"
    assert message.detail == (
        f"gpufence-7d_1234 has not renewed Lease fence/gpufence for {silent} s; another replica "
        f"leads after {duration} s without renewal"
    )
    assert message.remediation == (
        "Check that a replica runs, and its logs. If gpufence-7d no longer exists, run "
        "kubectl --namespace fence delete lease gpufence"
    )


def registered(url: str) -> dict[str, object]:
    """Return a webhook configuration."""
    return {"webhooks": [{"name": "pods.gpufence.dev", "clientConfig": {"url": f"{url}/mutate"}}]}


@pytest.mark.parametrize(
    ("url", "names", "missing"),
    [
        ("https://10.0.0.7:8443", Names.parse([], ["10.0.0.7"]), ""),
        ("https://10.0.0.7:8443", Names.parse([], ["10.0.0.8"]), "10.0.0.7"),
        ("https://10.0.0.7:8443", Names.parse(["fence.example"]), "10.0.0.7"),
        ("https://[fd00::7]:8443", Names.parse([], ["fd00:0:0:0:0:0:0:7"]), ""),
        ("https://[fd00::7]:8443", Names.parse([], ["10.0.0.7"]), "fd00::7"),
        ("https://fence.example", Names.parse(["fence.example"], ["10.0.0.7"]), ""),
        ("https://fence.example", Names.parse([], ["10.0.0.7"]), "fence.example"),
    ],
)
def test_a_certificate_without_the_registered_host_fails(
    url: str, names: Names, missing: str
) -> None:
    found = Installation("fence", "gpufence", configurations={"Kind": registered(url)})
    found.stored = Stored(AUTHORITY, issue_leaf(AUTHORITY, names, NOW))
    found.secret = {}
    assert found.address is not None
    line, _ = check_certificate(found, names_of(found.address), NOW)
    if missing:
        assert line.status == "fail"
        assert line.detail == f"the serving certificate lacks {missing}"
    else:
        assert line.status == "ok"


@pytest.mark.parametrize(
    ("name", "hinted"),
    [("gpufence:0.2.0", True), ("registry.example:5000/gpufence:0.2.0", False), ("", False)],
)
def test_the_placeholder_image_is_named_when_no_replica_runs(name: str, hinted: bool) -> None:
    pod = {"containers": [{"name": "gpufence", "image": name}]}
    deployment = {"spec": {"replicas": 2, "template": {"spec": pod}}, "status": {}}
    found = Installation("fence", "gpufence", deployment=deployment)
    [line] = [line for line in check_running(found, NOW) if line.check == "replicas"]
    assert line.status == "fail"
    assert ("image.repository" in line.remediation) is hinted
