"""What is followed of an API server, and who keeps what is known of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from webhook.kube.wire import Item

ItemT = TypeVar("ItemT", bound=Item)
ItemT_contra = TypeVar("ItemT_contra", bound=Item, contravariant=True)


class Store(Protocol[ItemT_contra]):
    """Takes the items of a collection, each under a name of its own: the key of its metadata."""

    def put(self, item: ItemT_contra, /) -> None:
        """Take an item in place of what was known under its name."""

    def remove(self, name: str, /) -> None:
        """Forget the item of that name, if it is known."""

    def names(self) -> Iterable[str]:
        """Return the names of all items."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Collection(Generic[ItemT]):
    """Objects of a whole cluster: what they are called, where they are, what is read of them.

    A collection that is ``optional`` may be missing from an API server, and is then empty.
    ``fields`` is a field selector: the API server leaves out what it does not select.
    """

    name: str
    path: str
    item: type[ItemT]
    optional: bool = False
    may_be_forbidden: bool = False
    """Whether gpufence goes without it if the account may not list it. Nothing waits for it."""
    fields: str = ""
