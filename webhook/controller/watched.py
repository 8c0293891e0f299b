"""The objects that the controller keeps. Each is watched by its name.

The right to list and watch one object by its name covers requests with that name as a field
selector, and no other object of the collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from policies.kubernetes.objects import JSONObject
from webhook.kube.collection import Collection, Whole
from webhook.kube.errors import ClusterError
from webhook.kube.reflector import Watches


class Objects:
    """The latest state of each watched object, by its path.

    ``changed`` is called with each new state.
    """

    def __init__(self, watches: Watches, changed: Callable[[], None]) -> None:
        self._watches = watches
        self._changed = changed
        self._stores: dict[str, _One] = {}
        self._collections: dict[str, Collection[Any]] = {}

    def watch(self, path: str) -> None:
        """Watch the object at the path, whether it exists or not."""
        listed, _, name = path.rpartition("/")
        title = f"{listed.rpartition('/')[2]} {name}"
        collection = Collection(title, listed, Whole, fields=f"metadata.name={name}")
        self._collections[path], self._stores[path] = collection, _One(self._changed)
        self._watches.need(collection, self._stores[path])

    def read(self, path: str) -> JSONObject | None:
        """Return the object; None if it does not exist.

        Raises:
            ClusterError: it is not known yet.
        """
        title = self._collections[path].name
        if title not in self._watches.listed:
            reason = self._watches.problems().get(title) or "the API server has not answered"
            raise ClusterError(f"{title} is not read yet: {reason}")
        return self._stores[path].current

    def written(self, path: str, obj: JSONObject | None) -> None:
        """Take the answer to a write, which the watch may report later."""
        self._stores[path].current = obj

    @property
    def problem(self) -> str:
        """Why later states are not known; empty if they are."""
        problems = self._watches.problems()
        own = (problems.get(each.name, "") for each in self._collections.values())
        return next(filter(None, own), "")


class _One:
    """The store of a collection that is limited to one object."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.current: JSONObject | None = None
        self._changed = changed

    def put(self, item: Whole, /) -> None:
        self.current = item.content
        self._changed()

    def remove(self, _name: str, /) -> None:
        self.current = None
        self._changed()

    def names(self) -> Iterable[str]:
        return [] if self.current is None else [self.current["metadata"]["name"]]

    def __len__(self) -> int:
        return self.current is not None
