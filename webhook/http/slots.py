"""Slots for the reviews in flight, shared fairly between the addresses that send them."""

from __future__ import annotations

import asyncio
from collections import deque

DEFAULT_MAX_IN_FLIGHT = 200
"""The default of ``--max-mutating-requests-inflight`` of kube-apiserver."""


class NoSlotError(Exception):
    """No slot is free, or becomes free in time."""


class Slots:
    """At most ``max_in_flight`` reviews are answered at a time.

    A review takes a slot when its body is complete. If no slot is free it waits, and each slot that
    becomes free goes to the waiting address that holds the fewest. An address that already has
    ``max_in_flight`` reviews here is rejected at once.
    """

    def __init__(self, max_in_flight: int = DEFAULT_MAX_IN_FLIGHT) -> None:
        self.max_in_flight = max_in_flight
        self.in_flight = 0
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def check(self, address: str) -> None:
        """Raise NoSlotError if the address already has as many reviews here as it may."""
        held = self._held.get(address, 0)
        if held + len(self._waiting.get(address, ())) >= self.max_in_flight:
            raise NoSlotError(f"gpufence is answering {self.max_in_flight} requests already")

    def take_free(self, address: str) -> bool:
        """Take a slot and return true if one is free. Call ``release`` afterwards."""
        if self.in_flight >= self.max_in_flight:
            return False
        self._grant(address)
        return True

    async def take(self, address: str, seconds: float) -> None:
        """Take a slot, within ``seconds``. Call ``release`` afterwards.

        Raises:
            NoSlotError: the caller should try again later.
        """
        if self.take_free(address):
            return
        self.check(address)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(granted)
        try:
            async with asyncio.timeout(seconds):
                await granted
        except BaseException as error:
            self._abandon(address, granted)
            if isinstance(error, TimeoutError):
                raise NoSlotError(
                    f"gpufence is answering {self.max_in_flight} requests already"
                ) from error
            raise

    def release(self, address: str) -> None:
        """Give a slot back: to the waiting address that holds the fewest, if one waits."""
        self.in_flight -= 1
        held = self._held.pop(address) - 1
        if held:
            self._held[address] = held
        while self._waiting:
            fewest = min(self._waiting, key=lambda address: self._held.get(address, 0))
            granted = self._waiting[fewest].popleft()
            if not self._waiting[fewest]:
                del self._waiting[fewest]
            if not granted.done():
                self._grant(fewest)
                granted.set_result(None)
                return

    def _grant(self, address: str) -> None:
        self.in_flight += 1
        self._held[address] = self._held.get(address, 0) + 1

    def _abandon(self, address: str, granted: asyncio.Future[None]) -> None:
        if granted.done() and not granted.cancelled():
            # The slot was granted in the same turn of the event loop.
            self.release(address)
            return
        of_address = self._waiting.get(address)
        if of_address is not None and granted in of_address:
            of_address.remove(granted)
            if not of_address:
                del self._waiting[address]
