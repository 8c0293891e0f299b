"""The fields of API objects that gpufence reads; msgspec skips all others.

Sources: ``k8s.io/apimachinery/pkg/apis/meta/v1`` (``ObjectMeta``, ``ListMeta``, ``Status``,
``WatchEvent``).
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """ObjectMeta. All fields are optional: a bookmark has only a version."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None

    @property
    def key(self) -> str:
        """The unique key of the object in its collection: namespace and name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Item(Protocol):
    """An object of a collection."""

    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T")


class PageMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """ListMeta; ``rest`` is the token of the next page, empty on the last."""

    resource_version: str = ""
    rest: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: PageMetadata
    items: list[T] | None = None


class Event(msgspec.Struct, Generic[T], frozen=True):
    """An event of a watch. ``object`` is a Status if ``type`` is ERROR."""

    type: str
    object: T


class Status(msgspec.Struct, frozen=True):
    """The Status of a failed request: HTTP status and message."""

    code: int = 0
    message: str = ""


class Claim(msgspec.Struct, frozen=True):
    """A ResourceClaim or ResourceClaimTemplate."""

    spec: dict[str, Any]
