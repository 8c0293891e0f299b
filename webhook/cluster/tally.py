"""Sums over a collection, which keep only the contribution of each item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from webhook.kube.collection import ItemT_contra

KeyT = TypeVar("KeyT", bound=Hashable)


class Tally(Generic[ItemT_contra, KeyT]):
    """A store that adds up what ``count`` returns of each item; items that add nothing are dropped.

    ``totals`` are the sums: reading them costs nothing that grows with the items.
    """

    def __init__(self, count: Callable[[ItemT_contra], Mapping[KeyT, int]]) -> None:
        self.totals: Counter[KeyT] = Counter()
        self._count = count
        self._of_item: dict[str, tuple[tuple[KeyT, int], ...]] = {}

    def put(self, item: ItemT_contra, /) -> None:
        counts = self._count(item)
        key = item.metadata.key
        self.remove(key)
        if counts:
            self._of_item[key] = tuple(counts.items())
            self.totals.update(counts)

    def remove(self, name: str, /) -> None:
        for key, number in self._of_item.pop(name, ()):
            self.totals[key] -= number
            if not self.totals[key]:
                del self.totals[key]

    def names(self) -> Iterable[str]:
        return self._of_item.keys()

    def __len__(self) -> int:
        return len(self._of_item)
