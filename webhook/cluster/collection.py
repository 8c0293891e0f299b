"""What is followed of an API server, and who keeps what is known of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from webhook.cluster.wire import Item

ItemT = TypeVar("ItemT", bound=Item)
ItemT_contra = TypeVar("ItemT_contra", bound=Item, contravariant=True)


class Store(Protocol[ItemT_contra]):
    """Takes the items of a collection, which have names of their own in it."""

    def put(self, item: ItemT_contra, /) -> None:
        """Take an item in place of what was known under its name."""

    def remove(self, name: str, /) -> None:
        """Forget the item of that name, if it is known."""

    def names(self) -> Iterable[str]:
        """Return the names of all items."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Collection(Generic[ItemT]):
    """A collection of cluster-scoped objects: what it is called, where it is, what is read of it.

    One that is ``optional`` may be missing from an API server, and is then empty.
    """

    name: str
    path: str
    item: type[ItemT]
    optional: bool = False
