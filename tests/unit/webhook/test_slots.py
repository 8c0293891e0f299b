"""Slots for reviews: who gets the next one, and who is rejected."""

from __future__ import annotations

import asyncio

import pytest

from webhook.http.slots import NoSlotError, Slots

MANY, FEW = "10.0.0.1", "10.0.0.2"


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_free_slot_goes_to_the_address_with_the_fewest_slots() -> None:
    slots, order = Slots(2), list[str]()
    for _ in range(2):
        await slots.take(MANY, 1)

    async def wait(address: str) -> None:
        await slots.take(address, 10)
        order.append(address)

    # The one that came last, and holds none, is the first to get one.
    waiting = [asyncio.create_task(wait(address)) for address in ("10.0.0.3", FEW, FEW)]
    await turns()
    assert order == []
    slots.release(MANY)
    slots.release(MANY)
    await turns()
    assert sorted(order) == [FEW, "10.0.0.3"]
    slots.release("10.0.0.3")
    await asyncio.gather(*waiting)
    assert order[-1] == FEW
    assert slots.in_flight == 2


async def test_an_address_with_all_slots_is_rejected_while_another_waits() -> None:
    slots = Slots(1)
    await slots.take(MANY, 1)
    with pytest.raises(NoSlotError, match="gpufence is answering 1 requests already"):
        await slots.take(MANY, 10)
    waiting = asyncio.create_task(slots.take(FEW, 10))
    await turns()
    assert not waiting.done()
    slots.release(MANY)
    await waiting


async def test_a_wait_that_times_out_is_rejected_and_leaves_no_entry() -> None:
    slots = Slots(1)
    await slots.take(MANY, 1)
    with pytest.raises(NoSlotError):
        await slots.take(FEW, 0.01)
    slots.release(MANY)
    assert slots.in_flight == 0
    await slots.take(FEW, 1)
    assert slots.in_flight == 1


@pytest.mark.parametrize("granted", [False, True], ids=["while it waits", "when it was granted"])
async def test_a_cancelled_request_holds_no_slot(granted: bool) -> None:
    slots = Slots(1)
    await slots.take(MANY, 1)
    waiting = asyncio.create_task(slots.take(FEW, 10))
    await turns()
    if granted:
        slots.release(MANY)
        waiting.cancel()
    else:
        waiting.cancel()
        slots.release(MANY)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert slots.in_flight == 0
