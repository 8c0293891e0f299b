"""The objects that the controller keeps. Each is watched by its name.

The right to list and watch one object by its name covers requests with that name as a field
selector, and no other object of the collection.
"""

from __future__ import annotations

from collections.abc import Callable

from policies.kubernetes.objects import JSONObject
from webhook.kube.collection import Collection, ValueStore, Whole
from webhook.kube.errors import ClusterError
from webhook.kube.reflector import Watches


class Objects:
    """The latest state of each watched object, by its path.

    ``changed`` is called after each change.
    """

    def __init__(self, watches: Watches, changed: Callable[[], None]) -> None:
        self._watches = watches
        self._changed = changed
        self._watched: dict[str, tuple[str, ValueStore[Whole, JSONObject]]] = {}
        """The name of the collection that is limited to the object, and its store."""

    def watch(self, path: str) -> None:
        """Watch the object at the path, whether it exists or not."""
        listed, _, name = path.rpartition("/")
        title = f"{listed.rpartition('/')[2]} {name}"
        store = ValueStore[Whole, JSONObject](lambda item: item.content, lambda *_: self._changed())
        self._watched[path] = title, store
        self._watches.need(Collection(title, listed, Whole, fields=f"metadata.name={name}"), store)

    def read(self, path: str) -> JSONObject | None:
        """Return the object; None if it does not exist.

        Raises:
            ClusterError: it is not known yet.
        """
        title, store = self._watched[path]
        if title not in self._watches.listed:
            reason = self._watches.problems().get(title) or "the API server has not answered"
            raise ClusterError(f"{title} is not read yet: {reason}")
        return next(iter(store.by_name.values()), None)

    def written(self, path: str, obj: JSONObject | None) -> None:
        """Take the answer to a write, which the watch may report later."""
        _, store = self._watched[path]
        if obj is not None:
            store.put(Whole(obj))
            return
        for name in store.names():
            store.remove(name)

    @property
    def problem(self) -> str:
        """Why later states are not known; empty if they are."""
        problems = self._watches.problems()
        return next((problems[each] for each, _ in self._watched.values() if each in problems), "")
