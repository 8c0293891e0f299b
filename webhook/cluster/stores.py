"""Stores of the items of a collection, which keep only what is used of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from webhook.kube.collection import ItemT_contra

AllT = TypeVar("AllT")
ValueT = TypeVar("ValueT")
KeyT = TypeVar("KeyT", bound=Hashable)


class ValueStore(Generic[ItemT_contra, ValueT, AllT]):
    """Keeps the value that ``read`` returns of each item; items without a value are dropped.

    ``all`` is what ``combine`` makes of the values by name. It is made again after each change.
    """

    def __init__(
        self,
        read: Callable[[ItemT_contra], ValueT | None],
        combine: Callable[[Mapping[str, ValueT]], AllT],
    ) -> None:
        self._read = read
        self._combine = combine
        self._values: dict[str, ValueT] = {}
        self.all: AllT = combine(self._values)

    def put(self, item: ItemT_contra, /) -> None:
        key, value = item.metadata.key, self._read(item)
        if value is None:
            self.remove(key)
        elif self._values.get(key) != value:
            self._values[key] = value
            self.all = self._combine(self._values)

    def remove(self, name: str, /) -> None:
        if self._values.pop(name, None) is not None:
            self.all = self._combine(self._values)

    def names(self) -> Iterable[str]:
        return self._values.keys()

    def __len__(self) -> int:
        return len(self._values)


class Tally(Generic[ItemT_contra, KeyT]):
    """A store that adds up what ``count`` returns of each item.

    Reading the ``sums`` costs nothing that grows with the items.
    """

    def __init__(self, count: Callable[[ItemT_contra], Mapping[KeyT, int]]) -> None:
        self.sums: Counter[KeyT] = Counter()
        self._count = count
        self._of_item: dict[str, tuple[tuple[KeyT, int], ...]] = {}

    def put(self, item: ItemT_contra, /) -> None:
        name, counts = item.metadata.key, self._count(item)
        self.remove(name)
        if counts:
            self._of_item[name] = tuple(counts.items())
            self.sums.update(counts)

    def remove(self, name: str, /) -> None:
        for key, number in self._of_item.pop(name, ()):
            self.sums[key] -= number
            if not self.sums[key]:
                del self.sums[key]

    def names(self) -> Iterable[str]:
        """Return the names of the items that add something."""
        return self._of_item.keys()

    def __len__(self) -> int:
        return len(self._of_item)
