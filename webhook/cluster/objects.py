"""Where the objects of a whole cluster are read: a live cluster, or a dump of one.

Objects are known by group, kind, namespace and name. A dump may lack their UIDs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from policies.kubernetes.objects import JSONObject, MalformedObjectError, mapping
from policies.kubernetes.paths import text_at
from policies.kubernetes.quantity import InvalidQuantityError
from webhook.cluster.kinds import Discovery, Kind
from webhook.documents.document import InputError
from webhook.documents.objects import Manifest
from webhook.kube.client import KubeApi
from webhook.kube.collection import Collection as ObjectCollection
from webhook.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from webhook.kube.listing import list_all
from webhook.wording import printable

_ENDED = ("Succeeded", "Failed")
"""The phases of Pods that an audit does not list."""

_SHOWN_AFTER = 100
_SERVER_ERROR = 500
_MALFORMED = (msgspec.ValidationError, MalformedObjectError, InvalidQuantityError)

ItemT = TypeVar("ItemT")
T = TypeVar("T")

Progress = Callable[[str, int], None]
"""Called with the name of a collection, and the number of its objects that are read."""

Failed = Callable[[str, Exception], None]
"""Called with the title of an object that cannot be read, and why."""


class LiveObjects:
    """The objects of a live cluster, by collection.

    The collections whose path ``is_shared`` accepts are listed once, and kept for several readers.
    """

    is_whole = True
    """Whether a collection that is not found is empty."""

    def __init__(
        self, api: KubeApi, is_shared: Callable[[str], bool] = lambda _path: False
    ) -> None:
        self.api = api
        self._is_shared = is_shared
        self._kept: dict[str, list[Any]] = {}
        self._discovery = Discovery(api)
        self.unavailable = self._discovery.unavailable
        """The groups whose kinds are incomplete, each with the error."""

    async def title(self) -> str:
        """Return the address of the cluster."""
        return await self.api.host()

    async def minor_version(self) -> int | None:
        """Return the minor version of Kubernetes."""
        return await self.api.minor_version()

    async def read(
        self, collection: ObjectCollection[ItemT], take: Callable[[ItemT], T], failed: Failed
    ) -> list[T]:
        """Return the results of ``take`` for all objects but those that ``failed`` is called with.

        Raises:
            ApiError: there is no such collection, or the account may not list it.
            ClusterError: another failure.
        """
        path, results = collection.path, list[T]()

        def contained(item: ItemT) -> None:
            _take(item, collection.name, take, failed, results)

        if not self._is_shared(path):
            fields = collection.fields
            await list_all(self.api, path, collection.item, contained, fields=fields)
            return results
        if path not in self._kept:
            self._kept[path] = await list_all(
                self.api, path, collection.item, lambda item: item, fields=collection.fields
            )
        for item in self._kept[path]:
            contained(item)
        return results

    async def kinds(self, group: str) -> tuple[Kind, ...]:
        """Return the kinds of a group that can be listed."""
        return await self._discovery.kinds(group)


class Dump:
    """The objects of manifests, as ``kubectl get -o json`` prints them: it has what a cluster has.

    A collection has the name that Kubernetes gives its own: the plural of the kind. A Pod that has
    ended is left out.

    Raises:
        InputError: two objects have one identity.
    """

    is_whole = False

    def __init__(self, name: str, manifests: Iterable[Manifest], minor: int | None = None) -> None:
        self.unavailable: dict[str, str] = {}
        self._name = name
        self._minor = minor
        self._items: defaultdict[str, list[JSONObject]] = defaultdict(list)
        self._kinds: defaultdict[str, dict[str, Kind]] = defaultdict(dict)
        lines: dict[tuple[str, ...], int] = {}
        problems = []
        for manifest in manifests:
            obj = manifest.value
            if obj is None or not self._take(obj):
                continue
            names = text_at(obj, "metadata", "namespace"), text_at(obj, "metadata", "name")
            identity = (_group(obj), str(obj.get("kind")), *names)
            if names[1] and identity in lines:
                problems.append(
                    f"{name}:{manifest.line}: {_title(identity[1], *names)} is in the dump twice, "
                    f"first in line {lines[identity]}. Remove one of the two."
                )
            lines.setdefault(identity, manifest.line)
        if problems:
            raise InputError(map(printable, problems))

    def has(self, collection: ObjectCollection[Any]) -> bool:
        return collection.path in self._items

    async def title(self) -> str:
        return self._name

    async def minor_version(self) -> int | None:
        return self._minor

    async def read(
        self, collection: ObjectCollection[ItemT], take: Callable[[ItemT], T], failed: Failed
    ) -> list[T]:
        if not self.has(collection):
            raise ApiError(NOT_FOUND, f"{self._name} has no {collection.title}")
        results: list[T] = []
        for obj in self._items[collection.path]:
            try:
                item = _as(obj, collection.item)
            except (msgspec.ValidationError, MalformedObjectError) as error:
                failed(_name_of(obj, collection.name), error)
            else:
                _take(item, collection.name, take, failed, results)
        return results

    async def kinds(self, group: str) -> tuple[Kind, ...]:
        return tuple(self._kinds[group].values())

    def _take(self, obj: JSONObject) -> bool:
        """Store an object; return whether it counts."""
        version, kind = str(obj.get("apiVersion")), str(obj.get("kind"))
        phase = mapping(obj.get("status")).get("phase")
        if (version, kind) == ("v1", "Pod") and phase in _ENDED:
            return False
        namespaced = bool(text_at(obj, "metadata", "namespace"))
        group = _group(obj)
        of_group = self._kinds[group]
        known = of_group.get(kind)
        if known is None or namespaced:
            known = of_group[kind] = Kind(
                group, version.rpartition("/")[2], kind, _plural(kind.lower()), namespaced
            )
        self._items[known.path].append(obj)
        return True


Objects = LiveObjects | Dump


class Reader:
    """Reads collections of objects, and notes what cannot be read."""

    def __init__(self, objects: Objects, progress: Progress = lambda _title, _count: None) -> None:
        self.objects = objects
        self.skipped: list[str] = []
        """A sentence for each collection or object that is not read."""
        self.malformed: list[tuple[str, str]] = []
        """The objects that are malformed: title and problem."""
        self.bugs: list[tuple[str, str]] = []
        """The objects at which gpufence fails: title and problem."""
        self.failing: list[str] = []
        """The titles of objects at which a rule fails."""
        self._progress = progress

    async def need(
        self, collection: ObjectCollection[ItemT], take: Callable[[ItemT], T]
    ) -> list[T]:
        """Return the results of ``take``.

        Raises:
            ClusterError: the collection cannot be read.
        """
        title, count = collection.title, 0

        def counted(item: ItemT) -> T:
            nonlocal count
            count += 1
            if count % _SHOWN_AFTER == 0:
                self._progress(title, count)
            return take(item)

        return await self.objects.read(collection, counted, self.failed)

    async def read(
        self,
        collection: ObjectCollection[ItemT],
        take: Callable[[ItemT], T],
        without: str = "",
        *,
        custom: bool = False,
    ) -> list[T] | None:
        """Return the results of ``take``; ``None`` if the collection is unknown.

        ``without`` says what a missing permission means; a collection that is optional for gpufence
        needs no such sentence. For ``custom`` resources, server errors count as well: a broken
        conversion webhook must not end the audit.
        """
        try:
            return await self.need(collection, take)
        except ApiError as error:
            if error.status == FORBIDDEN:
                remediation = "allow the verb list"
            elif custom and error.status >= _SERVER_ERROR:
                remediation = "check its API server or its conversion webhook"
            elif error.status == NOT_FOUND:
                return [] if collection.optional and self.objects.is_whole else None
            else:
                raise ApiError(error.status, f"{collection.title}: {error.message}") from error
            if without:
                self.skipped.append(
                    f"{collection.title}: not listed, so {without}; {remediation}: {error}"
                )
        return None

    def failed(self, title: str, error: Exception) -> None:
        """Note an object that cannot be read, and why."""
        if isinstance(error, _MALFORMED):
            self.malformed.append((title, str(error)))
        else:
            self.bugs.append((title, f"gpufence failed with {error!r}, which is a bug: report it"))


def _take(
    item: ItemT, collection: str, take: Callable[[ItemT], T], failed: Failed, results: list[T]
) -> None:
    try:
        results.append(take(item))
    except Exception as error:
        failed(_name_of(item, collection), error)


def _as(obj: JSONObject, kind: Any) -> Any:
    """Return an object as the type of its collection.

    Raises:
        MalformedObjectError, msgspec.ValidationError: a field is of another type.
    """
    for field in ("metadata", "spec", "status"):
        if not isinstance(obj.get(field, {}), dict | None):
            raise MalformedObjectError(field, "must be a mapping")
    return (
        msgspec.Raw(msgspec.json.encode(obj)) if kind is msgspec.Raw else msgspec.convert(obj, kind)
    )


def _name_of(item: Any, collection: str) -> str:
    """Return a title for an object that cannot be read."""
    if isinstance(item, msgspec.Raw):
        item = msgspec.json.decode(item)
    if isinstance(item, dict):
        namespace, name = (text_at(item, "metadata", key) for key in ("namespace", "name"))
    else:
        namespace, name = item.metadata.namespace, item.metadata.name
    return _title(collection, namespace, name)


def _title(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {'/'.join(filter(None, (namespace, name))) or 'without a name'}"


def _group(obj: JSONObject) -> str:
    return str(obj.get("apiVersion")).rpartition("/")[0]


def _plural(kind: str) -> str:
    if re.search("(s|x|ch|sh)$", kind):
        return f"{kind}es"
    return f"{kind[:-1]}ies" if re.search("[^aeiou]y$", kind) else f"{kind}s"
