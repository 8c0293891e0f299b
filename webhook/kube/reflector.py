"""Keeps stores equal to collections of the API: lists each once, then watches it.

Works like client-go's Reflector (``k8s.io/client-go/tools/cache/reflector.go``): pages of a
consistent list, a watch from the version of the list, bookmarks that advance the version, and a new
list when the version is too old.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from policies.kubernetes.objects import JSONObject
from webhook.kube.client import KubeApi
from webhook.kube.collection import Collection, ItemT, Store, Whole
from webhook.kube.errors import (
    FORBIDDEN,
    GONE,
    INVALID,
    NOT_FOUND,
    UNAUTHORIZED,
    ApiError,
    ClusterError,
    FailureStatus,
    UnexpectedAnswerError,
    UnreachableError,
    backoff,
    spread,
)
from webhook.kube.pages import read_pages
from webhook.logs import event

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """Seconds."""

    watch_seconds: float = 300.0
    """The shortest time requested for a watch; the longest is twice that, as in client-go."""
    quiet_seconds: float = 150.0
    """The silence after which a watch counts as lost: API servers send a bookmark each minute."""
    first_delay: float = 0.25
    longest_delay: float = 10.0
    steady_seconds: float = 10.0
    """An attempt of this duration resets the delays."""
    missing_seconds: float = 60.0
    """The delay before a collection that the API server does not serve is tried again, and how long
    a collection that was listed before is kept: an API server that starts does not serve all."""


DEFAULT_TIMING = WatchTiming()

T = TypeVar("T")


class Event(msgspec.Struct, Generic[T], frozen=True):
    """An event of a watch (``metav1.WatchEvent``). ``object`` is a Status if ``type`` is ERROR."""

    type: str
    object: T


# After so many failures of one version, the next list starts from the current one: the history of a
# cluster that was restored from a backup is another one.
_FAILURES_OF_A_VERSION = 5

# The items between two turns of the event loop. Each takes up to 0.5 ms, and a page has 500.
_ITEMS_IN_TURN = 20

# The lines of a watch after which what is stored is excluded from the search for garbage again,
# which takes about 2 ms for as many changed nodes.
_LINES_TO_SETTLE = 1_000

# The share of the requested time after which a watch has ended as requested: clocks differ.
_WHOLE = 0.9


class Reflector(Generic[ItemT]):
    """One collection, one store. ``run`` runs until its task is canceled.

    ``clock`` returns monotonic seconds. ``restarted`` is called with the collection's name after
    each failure of a list or a watch.
    """

    def __init__(
        self,
        connection: KubeApi,
        collection: Collection[ItemT],
        store: Store[ItemT],
        *,
        clock: Callable[[], float],
        restarted: Callable[[str], None] = lambda _name: None,
        timing: WatchTiming = DEFAULT_TIMING,
    ) -> None:
        self.collection = collection
        self.store = store
        self.synced = False
        """Whether the store has been equal to the collection once."""
        self.problem = ""
        """The current failure of the list or watch; empty if it works."""
        self._connection = connection
        self._clock = clock
        self._restarted = restarted
        self._timing = timing
        self._selector = {"fieldSelector": collection.fields} if collection.fields else {}
        self._version = ""
        self._version_failures = 0
        self._is_streaming = False
        self._lines = 0
        """The lines of all watches."""
        self._responded_at: float | None = None
        self._refused_at: float | None = None
        """When the API server last rejected a request: it is within reach."""
        self._missed_at: float | None = None
        """Since when the API server does not serve the collection."""
        kind: Any = collection.item  # a variable, which mypy takes for no type
        self._items: msgspec.json.Decoder[ItemT] = msgspec.json.Decoder(kind, dec_hook=_whole)
        self._events: msgspec.json.Decoder[Event[ItemT]] = msgspec.json.Decoder(
            Event[kind], dec_hook=_whole
        )

    def staleness(self) -> float | None:
        """Return the seconds since the last response; ``None`` if the collection is not served."""
        return None if self._responded_at is None else self._clock() - self._responded_at

    @property
    def heard_at(self) -> float | None:
        """The last sign of the API server: a response, or the rejection of a request."""
        signs = (self._responded_at, self._refused_at)
        return max((sign for sign in signs if sign is not None), default=None)

    def relist(self) -> None:
        """Let the next ``run`` list everything again; the store keeps its items until then."""
        self._version = ""

    async def run(self) -> NoReturn:
        """Follow the collection until the task is canceled."""
        timing, failures = self._timing, 0
        while True:
            began, pause = self._clock(), 0.0
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ApiError as error:
                if error.status != UNAUTHORIZED:
                    self._refused_at = self._clock()
                if self._may_miss(error) and not self._keeps():
                    self._is_missing(error)
                    pause = timing.missing_seconds
                else:
                    self._failed(error)
                    pause = spread(error.retry_after)
            except Exception as error:
                # Unexpected errors as well: a reflector that ends would leave the store stale.
                self._failed(error)
            # An attempt that fails soon is a failure, even if its connection was established.
            failures = 1 if self._clock() - began >= timing.steady_seconds else failures + 1
            delay = backoff(failures, timing.first_delay, timing.longest_delay)
            await asyncio.sleep(max(pause, delay))

    async def load(self) -> None:
        """List the collection into the store; accept that an optional collection is missing."""
        try:
            await self._list()
        except ApiError as error:
            if not self._may_miss(error):
                raise
            self._is_missing(error)

    async def _list(self) -> None:
        # For a store that keeps few of many items, this set is small.
        missing = set[str]()
        for number, name in enumerate(self.store.names()):
            missing.add(name)
            await _turn(number)
        version = ""
        pages = read_pages(self._connection, self.collection.path, self._items, self._selector)
        async for listed, page in pages:
            self._responded_at, version = self._clock(), listed
            for number, item in enumerate(page):
                missing.discard(item.metadata.key)
                self.store.put(item)
                await _turn(number)
            # Not among all objects that the process has made since its start.
            _settle(1)
        for number, name in enumerate(missing):
            self.store.remove(name)
            await _turn(number)
        self._version = version
        self.synced = True

    async def _watch(self) -> None:
        """Follow the watch until the API server ends it after its timeout.

        Raises:
            ClusterError: it ended otherwise.
        """
        timing = self._timing
        seconds = round(timing.watch_seconds * (1 + random.random()))  # noqa: S311 - spreads load
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
            **self._selector,
        }
        path, quiet_seconds = self.collection.path, timing.quiet_seconds
        began = self._clock()
        self._is_streaming = False
        limits = {"seconds": seconds + quiet_seconds, "quiet_seconds": quiet_seconds}
        async with self._connection.lines(path, query, **limits) as lines:
            self._is_streaming = True
            self._is_followed()
            async for line in lines:
                self._apply(line)
                self._lines += 1
                await _turn(self._lines)
                if self._lines % _LINES_TO_SETTLE == 0:
                    _settle(2)
        if self._clock() - began < seconds * _WHOLE:
            raise UnreachableError("the API server ended the watch before its time")

    def _apply(self, line: bytes) -> None:
        try:
            change = self._events.decode(line)
        except INVALID as error:
            # The Status of an ERROR need not look like an object of the collection.
            raise _failure(line, str(error)) from error
        match change.type:
            case "ADDED" | "MODIFIED":
                self.store.put(change.object)
            case "DELETED":
                self.store.remove(change.object.metadata.key)
            case "ERROR":
                raise _failure(line, "an ERROR")
        self._version = change.object.metadata.resource_version or self._version
        self._responded_at = self._clock()
        self._version_failures = 0

    def _is_followed(self) -> None:
        if self.problem:
            event(_log, logging.INFO, "watch restored", resource=self.collection.name)
        self.problem, self._missed_at = "", None

    def _failed(self, error: Exception) -> None:
        """Count the failure, and drop the version if the failure is about it.

        A failure to reach the API server, or its overload, says nothing about the version: if each
        of these led to a new list, all replicas would list everything when the API server is back.
        """
        self._restarted(self.collection.name)
        expired = isinstance(error, ApiError) and error.status == GONE
        # "Too large resource version", "Invalid value" (k8s.io/apiserver/pkg/storage/errors.go).
        invalid = isinstance(error, ApiError) and "resource version" in error.message.lower()
        self._version_failures += self._is_streaming or invalid
        if expired or self._version_failures >= _FAILURES_OF_A_VERSION:
            self._version, self._version_failures = "", 0
        self._is_streaming = False
        problem = str(error) or type(error).__name__
        # A failure that repeats is logged once.
        if problem != self.problem:
            self.problem = problem
            level = logging.INFO if expired else logging.WARNING
            unexpected = not isinstance(error, ClusterError)
            fields = {"resource": self.collection.name, "problem": problem}
            event(_log, level, "watch lost", failure=unexpected, **fields)

    def _may_miss(self, error: ApiError) -> bool:
        missing = self.collection.optional and error.status == NOT_FOUND
        return missing or (self.collection.may_be_forbidden and error.status == FORBIDDEN)

    def _keeps(self) -> bool:
        """Return whether the items stay for now, although the API server does not serve them.

        An API server that starts rejects requests until it has read all roles.
        """
        if self._responded_at is None:
            return False
        if self._missed_at is None:
            self._missed_at = self._clock()
        return self._clock() - self._missed_at < self._timing.missing_seconds

    def _is_missing(self, error: ApiError) -> None:
        """Empty the store: the API server does not serve the collection."""
        for name in list(self.store.names()):
            self.store.remove(name)
        self._version, self._responded_at, self.synced = "", None, True
        if not self.problem:
            event(_log, logging.INFO, "not served", resource=self.collection.name)
        self.problem = str(error)


class Watches:
    """The watched collections of one cluster: reflectors by the names of their collections.

    ``restarted`` is called with a collection's name when its list or watch has failed. ``clock``
    returns seconds that never go back.
    """

    def __init__(
        self,
        connection: KubeApi,
        *,
        restarted: Callable[[str], None] = lambda _name: None,
        clock: Callable[[], float] = time.monotonic,
        timing: WatchTiming = DEFAULT_TIMING,
    ) -> None:
        self.connection = connection
        self.clock = clock
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

    async def start(self) -> None:
        """Start the watches that are needed now and later.

        Raises:
            ConfigurationError: there is no way to the cluster. That it cannot be reached is no
                error: it is tried for as long as this runs.
        """
        await self.connection.prepare()
        self._running = True
        for name in self._reflectors:
            self._restart(name)

    async def stop(self) -> None:
        """Stop all watches, and close the connection; the stores keep their items."""
        self._running = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        await self.connection.close()

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

    def problems(self) -> dict[str, str]:
        """Return the failure of each list or watch that does not work now."""
        reflectors = self._reflectors.items()
        return {name: reflector.problem for name, reflector in reflectors if reflector.problem}

    def lost(self) -> list[str]:
        """Return the collections that are listed and no longer followed, one line for each."""
        return [
            f"{name} are as they were {age:.0f} s ago: {reflector.problem}"
            for name, reflector in self._reflectors.items()
            if reflector.problem and (age := reflector.staleness()) is not None
        ]

    def heard_at(self) -> float | None:
        """Return when the API server last gave a sign, ``None`` before the first."""
        signs = (reflector.heard_at for reflector in self._reflectors.values())
        return max((sign for sign in signs if sign is not None), default=None)

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


async def _turn(number: int) -> None:
    """Let the event loop answer reviews between items that have all arrived."""
    if number % _ITEMS_IN_TURN == 0:
        await asyncio.sleep(0)


def _settle(generation: int) -> None:
    """Search for garbage up to this generation, and exclude what is left from later searches.

    Items stay for as long as their objects exist, and have no cycles. A search among those of
    100,000 nodes would stop the event loop for 80 to 160 ms.
    """
    gc.collect(generation)
    gc.freeze()


def _whole(kind: type[Whole], content: JSONObject) -> Whole:
    return kind(content)


def _failure(line: bytes, problem: str) -> ClusterError:
    """Return the error for an ERROR event, or for an invalid line."""
    try:
        failure = msgspec.json.decode(line, type=Event[FailureStatus])
    except INVALID:
        return UnexpectedAnswerError(f"the watch broke off, or sent no event: {problem}")
    if failure.type != "ERROR":
        return UnexpectedAnswerError(f"the watch sent an object as it should not be: {problem}")
    return ApiError(failure.object.code, failure.object.message)
