"""Collections of the API, and the stores of their items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from webhook.kube.wire import Item

ItemT = TypeVar("ItemT", bound=Item)
ItemT_contra = TypeVar("ItemT_contra", bound=Item, contravariant=True)


class Store(Protocol[ItemT_contra]):
    """Stores the items of a collection by name: the key of the metadata."""

    def put(self, item: ItemT_contra, /) -> None:
        """Store an item, and replace the one with its name."""

    def remove(self, name: str, /) -> None:
        """Remove the item with this name, if there is one."""

    def names(self) -> Iterable[str]:
        """Return the names of all items."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Collection(Generic[ItemT]):
    """A cluster-wide collection: its name, its path, and the type with the fields to read.

    A collection that is ``optional`` may be missing from an API server, and is then empty.
    ``fields`` is a field selector.
    """

    name: str
    path: str
    item: type[ItemT]
    optional: bool = False
    may_be_forbidden: bool = False
    """Whether gpufence works without it if the account may not list it. Nothing waits for it."""
    fields: str = ""
