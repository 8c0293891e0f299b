"""Who leads: one Lease, several candidates, and clocks that are set by the test."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from clusters import Clock
from fake_apiserver import FakeKubeApi
from webhook.controller.leader_election import (
    PAUSED,
    LeaderElector,
    lease_path,
    pause,
    with_holder,
)
from webhook.kube.errors import ApiError, ClusterError, UnreachableError

PATH = lease_path("system", "gpufence")
NOW = datetime(2026, 11, 21, 12, 0, 0, 250000, tzinfo=UTC)


@pytest.fixture
def api() -> FakeKubeApi:
    return FakeKubeApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def first(api: FakeKubeApi, clock: Clock) -> LeaderElector:
    return LeaderElector(api, "system", "gpufence", "first", clock=clock, duration=15)


@pytest.fixture
def second(api: FakeKubeApi, clock: Clock) -> LeaderElector:
    return LeaderElector(api, "system", "gpufence", "second", clock=clock, duration=15)


async def test_a_renewed_lease_is_never_taken_over(
    clock: Clock, first: LeaderElector, second: LeaderElector
) -> None:
    await first.acquire_or_renew()
    for _ in range(10):
        clock.now += 10
        assert await first.acquire_or_renew()
        assert not await second.acquire_or_renew()


async def test_a_leader_remains_leader_during_a_renewal(
    api: FakeKubeApi, first: LeaderElector
) -> None:
    await first.acquire_or_renew()
    seen: list[bool] = []

    async def record_leading() -> None:
        seen.append(first.leading)

    api.between(record_leading)
    await first.acquire_or_renew()
    assert seen == [True]


async def test_a_lease_is_taken_over_after_its_duration_without_a_renewal(
    api: FakeKubeApi, clock: Clock, first: LeaderElector, second: LeaderElector
) -> None:
    assert await first.acquire_or_renew()
    assert not await second.acquire_or_renew()
    assert (first.leading, second.leading) == (True, False)
    clock.now += 14.9
    assert not await second.acquire_or_renew()
    clock.now += 0.1
    assert await second.acquire_or_renew()
    assert not await first.acquire_or_renew()
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 1


async def test_the_renew_time_of_another_replica_is_ignored(
    api: FakeKubeApi, clock: Clock, first: LeaderElector, second: LeaderElector
) -> None:
    await first.acquire_or_renew()
    api.objects[PATH]["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    assert not await second.acquire_or_renew()


async def test_a_released_lease_is_acquired_at_once(
    first: LeaderElector, second: LeaderElector
) -> None:
    await first.acquire_or_renew()
    await second.acquire_or_renew()
    await first.release()
    assert not first.leading
    assert await second.acquire_or_renew()


async def test_a_former_holder_does_not_release_the_lease(
    api: FakeKubeApi, clock: Clock, first: LeaderElector, second: LeaderElector
) -> None:
    await first.acquire_or_renew()
    await second.acquire_or_renew()
    clock.now += 20
    await second.acquire_or_renew()
    await first.release()  # it still believed to lead
    assert api.objects[PATH]["spec"]["holderIdentity"] == "second"


async def test_only_one_of_two_concurrent_writers_leads(
    api: FakeKubeApi, first: LeaderElector, second: LeaderElector
) -> None:
    api.between(lambda: first.acquire_or_renew())
    assert not await second.acquire_or_renew()
    assert first.leading


@pytest.mark.parametrize(
    ("requests", "error"),
    [
        ("error", UnreachableError("connection refused")),
        ("error", ApiError(429, "too many requests", 1)),
        # Another client that annotates the Lease all the time, for example.
        ("write_error", ApiError(409, "the object has been modified")),
    ],
)
async def test_failed_renewals_end_leadership_only_after_the_renew_deadline(
    api: FakeKubeApi,
    clock: Clock,
    requests: str,
    error: ClusterError,
    first: LeaderElector,
    second: LeaderElector,
) -> None:
    await first.acquire_or_renew()
    await second.acquire_or_renew()
    setattr(api, requests, error)
    for seconds in (2, 2, 2, 3.9):
        clock.now += seconds
        with pytest.raises(type(error)):
            await first.acquire_or_renew()
        assert first.leading
    clock.now += 0.2
    assert not first.leading, "10 of 15 seconds have passed"
    # No other replica leads before the Lease expires.
    setattr(api, requests, None)
    assert not await second.acquire_or_renew()
    assert await first.acquire_or_renew()


async def test_a_renewal_is_retried_after_a_conflict(
    api: FakeKubeApi, first: LeaderElector
) -> None:
    await first.acquire_or_renew()
    api.between(lambda: pause(api, "system", "gpufence", "today"))
    assert await first.acquire_or_renew()
    assert await first.paused_since() == "today"


async def test_a_failed_release_succeeds_on_retry(
    api: FakeKubeApi, first: LeaderElector, second: LeaderElector
) -> None:
    await first.acquire_or_renew()
    await second.acquire_or_renew()
    api.error = UnreachableError("connection refused")
    with pytest.raises(UnreachableError):
        await first.release()
    assert not first.leading
    api.error = None
    await first.release()
    assert await second.acquire_or_renew()


async def test_an_error_other_than_a_conflict_is_raised(
    api: FakeKubeApi, first: LeaderElector
) -> None:
    api.write_error = ApiError(403, "leases is forbidden")
    with pytest.raises(ApiError, match="forbidden"):
        await first.acquire_or_renew()


async def test_renewals_keep_a_pause_until_it_is_removed(
    api: FakeKubeApi, first: LeaderElector
) -> None:
    assert not await pause(api, "system", "gpufence", "today")
    await first.acquire_or_renew()
    assert await pause(api, "system", "gpufence", "today")
    for _ in range(3):
        assert await first.acquire_or_renew()
        assert await first.paused_since() == "today"
    assert api.objects[PATH]["metadata"]["annotations"] == {PAUSED: "today"}
    assert await pause(api, "system", "gpufence", None)
    await first.acquire_or_renew()
    assert await first.paused_since() == ""


def test_lease_times_are_in_utc_with_microseconds() -> None:
    spec = with_holder(None, "first", NOW, 15)["spec"]
    assert spec["renewTime"] == spec["acquireTime"] == "2026-11-21T12:00:00.250000Z"
    whole = with_holder(None, "first", NOW.replace(microsecond=0), 15)["spec"]
    assert whole["renewTime"] == "2026-11-21T12:00:00.000000Z"


def test_a_renewal_keeps_acquire_time_and_fields_of_other_writers() -> None:
    first = with_holder(None, "first", NOW, 15)
    first["spec"]["strategy"] = "OldestEmulationVersion"
    later = NOW.replace(minute=1)
    renewed = with_holder(first, "first", later, 15)["spec"]
    assert renewed["acquireTime"] == first["spec"]["acquireTime"]
    assert renewed["strategy"] == "OldestEmulationVersion"
    assert renewed["leaseTransitions"] == 0
    taken = with_holder(first, "second", later, 15)["spec"]
    assert taken["acquireTime"] == taken["renewTime"]
    assert taken["leaseTransitions"] == 1
