"""The API's JSON as far as it is read here; msgspec skips the rest without making objects of it.

Sources: ``k8s.io/apimachinery/pkg/apis/meta/v1`` (``ObjectMeta``, ``ListMeta``, ``Status``,
``WatchEvent``).
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of an object. Everything is optional: a bookmark carries a version and nothing else."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None

    @property
    def key(self) -> str:
        """What no other object of the collection is called: its name, within its namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Item(Protocol):
    """An object of a collection."""

    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T")


class PageMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of one page of a list; ``rest`` is the token of the next page, empty on the last."""

    resource_version: str = ""
    rest: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: PageMetadata
    items: list[T] | None = None


class Event(msgspec.Struct, Generic[T], frozen=True):
    """A line of a watch. ``object`` is a Status where ``type`` is ERROR."""

    type: str
    object: T


class Status(msgspec.Struct, frozen=True):
    """How the API server says that it cannot: an HTTP status, and why."""

    code: int = 0
    message: str = ""


class Claim(msgspec.Struct, frozen=True):
    """A ResourceClaim or ResourceClaimTemplate."""

    spec: dict[str, Any]
