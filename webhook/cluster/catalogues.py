"""The small collections: Namespaces, RuntimeClasses and DeviceClasses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from webhook.kube.collection import Collection
from webhook.kube.wire import Metadata


class NamedObject(msgspec.Struct, frozen=True):
    """An object of which only the metadata is read."""

    metadata: Metadata


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    extended_resource_name: str | None = None


class DeviceClassObject(msgspec.Struct, frozen=True):
    """``resource.k8s.io/v1`` ``DeviceClass``."""

    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()


NAMESPACES = Collection("namespaces", "/api/v1/namespaces", NamedObject)
RUNTIME_CLASSES = Collection("runtimeclasses", "/apis/node.k8s.io/v1/runtimeclasses", NamedObject)
DEVICE_CLASSES = Collection(
    "deviceclasses", "/apis/resource.k8s.io/v1/deviceclasses", DeviceClassObject, optional=True
)


class NamespaceStore:
    """The labels of every namespace."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the namespace's labels, ``None`` if it is unknown."""
        return self._labels.get(namespace)

    def put(self, item: NamedObject, /) -> None:
        self._labels[item.metadata.name] = item.metadata.labels or {}

    def remove(self, name: str, /) -> None:
        self._labels.pop(name, None)

    def names(self) -> Iterable[str]:
        return self._labels.keys()

    def __len__(self) -> int:
        return len(self._labels)


class RuntimeClassStore:
    """The names of the RuntimeClasses."""

    def __init__(self) -> None:
        self.known: frozenset[str] = frozenset()

    def put(self, item: NamedObject, /) -> None:
        self.known |= {item.metadata.name}

    def remove(self, name: str, /) -> None:
        self.known -= {name}

    def names(self) -> Iterable[str]:
        return self.known

    def __len__(self) -> int:
        return len(self.known)


class DeviceClassStore:
    """The DeviceClasses that serve extended resources."""

    def __init__(self) -> None:
        self.by_extended_resource: Mapping[str, str] = {}
        """DeviceClass by the name of its extended resource."""
        self._classes: dict[str, DeviceClassObject] = {}

    def put(self, item: DeviceClassObject, /) -> None:
        self._classes[item.metadata.name] = item
        self._index()

    def remove(self, name: str, /) -> None:
        self._classes.pop(name, None)
        self._index()

    def names(self) -> Iterable[str]:
        return self._classes.keys()

    def __len__(self) -> int:
        return len(self._classes)

    def _index(self) -> None:
        """Prefer the newest class of an extended resource, then the lower name.

        Source: ``k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache``.
        """
        # Timestamps are RFC 3339 in UTC and whole seconds, and sort as text.
        by_name = sorted(self._classes.values(), key=lambda item: item.metadata.name, reverse=True)
        by_age = sorted(by_name, key=lambda item: item.metadata.creation_timestamp or "")
        self.by_extended_resource = {
            resource: item.metadata.name
            for item in by_age
            if (resource := item.spec.extended_resource_name)
        }
