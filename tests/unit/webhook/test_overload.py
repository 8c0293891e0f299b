"""What a replica answers that has more to do than it should take on at a time."""

from __future__ import annotations

from reviewing import encode, gpu_pod, review
from served import Hook

ADDRESS = "127.0.0.1"
JSON_TYPE = {"Content-Type": "application/json"}


async def test_a_request_over_max_in_flight_gets_429_with_retry_after(hook: Hook) -> None:
    hook.slots.max_in_flight = 2
    for _ in range(2):
        await hook.slots.take(ADDRESS, 1)
    async with hook.client.post(
        "/mutate", data=encode(review(gpu_pod())), headers=JSON_TYPE
    ) as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "1"
        assert response.headers["Connection"] == "close"
        text = await response.text()
    assert text == "gpufence is answering 2 requests already; try again\n"
    # The other replicas would only get what this one does not take.
    async with hook.operations.get("/readyz") as ready:
        assert ready.status == 200
    counted = await hook.metric("gpufence_admission_requests_total")
    labels = 'path="/mutate",operation="unknown",kind="other",result="overloaded"'
    assert {key: n for key, n in counted.items() if "overloaded" in key} == {_sorted(labels): 1.0}


async def test_a_request_is_served_after_a_slot_is_released(hook: Hook) -> None:
    hook.slots.max_in_flight = 1
    await hook.slots.take(ADDRESS, 1)
    status, _ = await hook.post("/mutate", review(gpu_pod()))
    assert status == 429
    hook.slots.release(ADDRESS)
    assert (await hook.response("/mutate", review(gpu_pod())))["allowed"] is True


def _sorted(labels: str) -> str:
    return "{" + ",".join(sorted(labels.split(","))) + "}"
