"""A KubeApi without an API server: objects in a dict, with versions that are checked.

The real one's behaviour is what tests/e2e is for; here, two writers meet when a test says so.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Awaitable, Callable
from datetime import datetime

from webhook.kube.client import CONFLICT, JSONObject, KubeApi
from webhook.kube.connection import Query
from webhook.kube.errors import ApiError, ClusterError


class FakeKubeApi(KubeApi):
    """Holds objects by their path."""

    def __init__(self) -> None:
        self.objects: dict[str, JSONObject] = {}
        self.error: ClusterError | None = None
        """Raised by every request."""
        self.write_error: ClusterError | None = None
        """Raised by every write."""
        self.now: datetime | None = None
        """By the API server's clock."""
        self._versions = itertools.count(1)
        self._between: Callable[[], Awaitable[object]] | None = None

    def between(self, work: Callable[[], Awaitable[object]]) -> None:
        """Have something done after the next read, before its reader can write."""
        self._between = work

    def time(self) -> datetime | None:
        return self.now

    async def read(self, path: str, query: Query | None = None) -> JSONObject | None:
        self._check(self.error)
        found = copy.deepcopy(self.objects.get(path))
        work, self._between = self._between, None
        if work is not None:
            await work()
        return found

    async def create(
        self, collection: str, obj: JSONObject, *, dry_run: bool = False
    ) -> JSONObject:
        path = f"{collection}/{obj['metadata']['name']}"
        self._check(self.error or self.write_error)
        if path in self.objects:
            raise ApiError(CONFLICT, f"{path} already exists")
        return obj if dry_run else self._store(path, obj)

    async def replace(self, path: str, obj: JSONObject) -> JSONObject:
        self._check(self.error or self.write_error)
        if path not in self.objects:
            raise ApiError(404, f"{path} not found")
        current = self.objects[path]["metadata"]["resourceVersion"]
        if obj["metadata"].get("resourceVersion") != current:
            raise ApiError(CONFLICT, "the object has been modified")
        return self._store(path, obj)

    async def apply(self, path: str, obj: JSONObject) -> JSONObject:
        self._check(self.error or self.write_error)
        return self._store(path, {**self.objects.get(path, {}), **obj})

    async def merge(self, path: str, patch: JSONObject) -> JSONObject:
        self._check(self.error or self.write_error)
        return self._store(path, _merged(self.objects[path], patch))

    async def delete(self, path: str) -> bool:
        self._check(self.error or self.write_error)
        return self.objects.pop(path, None) is not None

    def _store(self, path: str, obj: JSONObject) -> JSONObject:
        stored = copy.deepcopy(obj)
        version = str(next(self._versions))
        stored["metadata"] = {"uid": path, **stored["metadata"], "resourceVersion": version}
        self.objects[path] = stored
        return copy.deepcopy(stored)

    def _check(self, error: ClusterError | None) -> None:
        if error is not None:
            raise error


def _merged(target: JSONObject, patch: JSONObject) -> JSONObject:
    """As RFC 7386."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged
