"""The doctor's lines on the Lease: who leads, or that no replica does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from webhook.doctor import running
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, ok
from webhook.registration.leader_election import with_holder

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def leader(silent: float, duration: int) -> Line:
    """Return the line of a Lease that was renewed so many seconds ago."""
    lease = with_holder(None, "gpufence-7d_1234", NOW - timedelta(seconds=silent), duration)
    found = Installation("fence", "gpufence", lease=lease)
    return next(line for line in running.check(found, NOW) if line.check == "leader")


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
