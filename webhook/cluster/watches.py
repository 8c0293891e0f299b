"""The watched collections of one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from webhook.kube.client import KubeApi
from webhook.kube.collection import Collection, ItemT, Store
from webhook.kube.reflector import Reflector, WatchTiming


class Watches:
    """Reflectors by the names of their collections; the connection stays open when they end.

    ``restarted`` is called with a collection's name when its list or watch has failed.
    """

    def __init__(
        self,
        connection: KubeApi,
        *,
        restarted: Callable[[str], None],
        clock: Callable[[], float],
        timing: WatchTiming,
    ) -> None:
        self._reflector = partial(
            Reflector[Any], connection, clock=clock, restarted=restarted, timing=timing
        )
        self._running = False
        self._tasks: dict[str, asyncio.Task[NoReturn]] = {}
        self._reflectors: dict[str, Reflector[Any]] = {}

    def need(self, collection: Collection[ItemT], store: Store[ItemT], needed: bool = True) -> None:
        """Start or stop watching a collection; its store is emptied when it stops."""
        name = collection.name
        if needed and name not in self._reflectors:
            self._reflectors[name] = self._reflector(collection, store)
            self._restart(name)
        elif not needed and name in self._reflectors:
            del self._reflectors[name]
            if task := self._tasks.pop(name, None):
                task.cancel()
            for item in list(store.names()):
                store.remove(item)

    def relist(self, collection: Collection[Any]) -> None:
        """List a collection again, because its store now keeps other fields."""
        self._reflectors[collection.name].relist()
        self._restart(collection.name)

    def start(self) -> None:
        """Start the watches that are needed now and later."""
        self._running = True
        for name in self._reflectors:
            self._restart(name)

    async def stop(self) -> None:
        """Stop all watches; the stores keep their items."""
        self._running = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def load(self) -> None:
        """List the needed collections once, without watching them."""
        for reflector in self._reflectors.values():
            await reflector.load()

    @property
    def listed(self) -> set[str]:
        """The names of the collections that have been listed completely."""
        return {name for name, reflector in self._reflectors.items() if reflector.synced}

    def missing(self) -> dict[str, str]:
        """Return the collections that are not listed yet, with the error if there is one."""
        return {
            name: reflector.problem
            for name, reflector in self._reflectors.items()
            if not (reflector.synced or reflector.collection.may_be_forbidden)
        }

    def staleness(self) -> dict[str, float | None]:
        """Return the seconds since each collection's last response, ``None`` without one."""
        return {name: reflector.staleness() for name, reflector in self._reflectors.items()}

    def objects(self) -> dict[str, int]:
        """Return the number of stored objects of each collection."""
        return {name: len(reflector.store) for name, reflector in self._reflectors.items()}

    def _restart(self, name: str) -> None:
        if task := self._tasks.pop(name, None):
            task.cancel()
        if self._running:
            running = self._reflectors[name].run()
            self._tasks[name] = asyncio.create_task(running, name=f"watch of {name}")
