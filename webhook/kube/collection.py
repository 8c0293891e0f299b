"""Collections of the API: the fields of their items that are read, and the stores of these.

msgspec skips all other fields. Source: ``k8s.io/apimachinery/pkg/apis/meta/v1`` (``ObjectMeta``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from policies.kubernetes.objects import JSONObject


class Identity(msgspec.Struct, frozen=True, rename="camel"):
    """The name and version in ObjectMeta. A bookmark has only a version."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """The unique key of the object in its collection: namespace and name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class LabeledMetadata(Identity, frozen=True, rename="camel"):
    """ObjectMeta with labels, which can be many."""

    uid: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None


class AnnotatedMetadata(LabeledMetadata, frozen=True, rename="camel"):
    """ObjectMeta with labels and annotations."""

    annotations: dict[str, str] | None = None


class Whole:
    """An object with all its fields, for those that compare or replace it."""

    def __init__(self, content: JSONObject) -> None:
        self.content = content
        self.metadata = msgspec.convert(content["metadata"], Identity)


class Item(Protocol):
    """An object of a collection."""

    @property
    def metadata(self) -> Identity: ...


AnyT = TypeVar("AnyT")
ItemT = TypeVar("ItemT", bound=Item)
ItemT_contra = TypeVar("ItemT_contra", bound=Item, contravariant=True)
ValueT = TypeVar("ValueT")


class Store(Protocol[ItemT_contra]):
    """Stores the items of a collection by name: the key of the metadata."""

    def put(self, item: ItemT_contra, /) -> None:
        """Store an item, and replace the one with its name."""

    def remove(self, name: str, /) -> None:
        """Remove the item with this name, if there is one."""

    def names(self) -> Iterable[str]:
        """Return the names of all items."""

    def __len__(self) -> int: ...


class ValueStore(Generic[ItemT_contra, ValueT]):
    """Keeps what ``read`` returns of each item, by name; items without a value are dropped.

    ``changed`` is called after each change, with the value before and after it.
    """

    def __init__(
        self,
        read: Callable[[ItemT_contra], ValueT | None],
        changed: Callable[[ValueT | None, ValueT | None], object] = lambda _before, _after: None,
    ) -> None:
        self._read = read
        self._changed = changed
        self.by_name: dict[str, ValueT] = {}

    def put(self, item: ItemT_contra, /) -> None:
        self.keep(item.metadata.key, self._read(item))

    def remove(self, name: str, /) -> None:
        self.keep(name, None)

    def names(self) -> Iterable[str]:
        return list(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def keep(self, name: str, value: ValueT | None) -> None:
        """Keep the value under the name, or drop the one before."""
        before = self.by_name.get(name)
        if value == before:
            return
        if value is None:
            del self.by_name[name]
        else:
            self.by_name[name] = value
        self._changed(before, value)


@dataclass(frozen=True, slots=True)
class Collection(Generic[AnyT]):
    """A cluster-wide collection: its name, its path, and the type with the fields to read.

    A collection that is ``optional`` may be missing from an API server, and is then empty.
    ``fields`` is a field selector.
    """

    name: str
    path: str
    item: type[AnyT]
    optional: bool = False
    may_be_forbidden: bool = False
    """Whether gpufence works without it if the account may not list it. Nothing waits for it."""
    fields: str = ""

    @property
    def title(self) -> str:
        """The name for kubectl: ``jobs.batch``."""
        _, root, group, *_ = self.path.split("/")
        return f"{self.name}.{group}" if root == "apis" else self.name
