"""The fields of API objects that gpufence reads; msgspec skips all others.

Sources: ``k8s.io/apimachinery/pkg/apis/meta/v1`` (``ObjectMeta``, ``ListMeta``, ``Status``,
``WatchEvent``).
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec


class Identity(msgspec.Struct, frozen=True, rename="camel"):
    """The name and version in ObjectMeta. A bookmark has only a version."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """The unique key of the object in its collection: namespace and name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Metadata(Identity, frozen=True, rename="camel"):
    """ObjectMeta with labels, which can be many."""

    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None


class Item(Protocol):
    """An object of a collection."""

    @property
    def metadata(self) -> Identity: ...


T = TypeVar("T")


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
