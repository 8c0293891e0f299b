"""DeviceClasses: which devices their selectors select, and which resource they provide."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec

from webhook.devices import cel
from webhook.devices.slices import MOST_KINDS, Amount, Attribute, DeviceObject
from webhook.kube.collection import Collection, LabeledMetadata

_Values: TypeAlias = tuple[tuple[str, ...], tuple[Attribute | Amount, ...]]
"""The names of all attributes or capacities of a device, and the values that selectors read."""


class CELSelector(msgspec.Struct, frozen=True):
    expression: str = ""


class DeviceSelector(msgspec.Struct, frozen=True):
    """A selector of another kind than CEL is one of a later Kubernetes."""

    cel: CELSelector | None = None


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    extended_resource_name: str | None = None
    selectors: tuple[DeviceSelector, ...] | None = None

    @property
    def expressions(self) -> tuple[str, ...]:
        """The CEL expressions that a device of the class meets."""
        return tuple(each.cel.expression if each.cel else "" for each in self.selectors or ())


class DeviceClassObject(msgspec.Struct, frozen=True):
    """``resource.k8s.io/v1`` ``DeviceClass``."""

    metadata: LabeledMetadata
    spec: DeviceClassSpec = DeviceClassSpec()


DEVICE_CLASSES = Collection(
    "deviceclasses", "/apis/resource.k8s.io/v1/deviceclasses", DeviceClassObject, optional=True
)


def classes_by_resource(classes: Mapping[str, DeviceClassObject]) -> Mapping[str, str]:
    """Return the DeviceClass of each extended resource: the newest one, then the lower name.

    Source: ``k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache``.
    """
    # Timestamps are RFC 3339 in UTC and whole seconds, and sort as text.
    by_name = sorted(classes.values(), key=lambda item: item.metadata.name, reverse=True)
    by_age = sorted(by_name, key=lambda item: item.metadata.creation_timestamp or "")
    return {
        resource: item.metadata.name
        for item in by_age
        if (resource := item.spec.extended_resource_name)
    }


class Selectors:
    """The expressions of DeviceClasses. Equal devices are evaluated once."""

    def __init__(self, expressions: Mapping[str, tuple[str, ...]]) -> None:
        self.expressions = expressions
        self._unevaluated: set[str] = set()
        self._parsed = {
            name: [cel.Expression(text) for text in texts] for name, texts in expressions.items()
        }
        names = [each.names for of_class in self._parsed.values() for each in of_class]
        self._names = None if None in names else frozenset[str]().union(*filter(None, names))
        self._reads = lru_cache(MOST_KINDS)(self._find_reads)
        self._selecting = lru_cache(MOST_KINDS)(self._find_selecting)

    @property
    def problems(self) -> list[str]:
        """A sentence for each DeviceClass with a selector that gpufence cannot evaluate."""
        return [
            f"gpufence cannot evaluate the selector of DeviceClass {name} for some devices "
            f"({' && '.join(self.expressions[name])}), and takes them for its devices"
            for name in sorted(self._unevaluated)
        ]

    def classes_of(self, driver: str, device: DeviceObject) -> frozenset[str]:
        """Return the DeviceClasses that select the device, or may do so."""
        return self._selecting(
            driver,
            bool(device.allow_multiple_allocations),
            self._read(device.attributes or {}),
            self._read(device.capacity or {}),
        )

    def _read(self, values: Mapping[str, Attribute | Amount]) -> _Values:
        names = tuple(values)
        return names, tuple([values[name] for name in self._reads(names)])

    def _find_reads(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of attributes or capacities whose values a selector may read."""
        wanted = self._names
        return tuple(n for n in names if wanted is None or n.rpartition("/")[2] in wanted)

    def _find_selecting(
        self, driver: str, multiple: bool, attributes: _Values, capacity: _Values
    ) -> frozenset[str]:
        device = {
            "driver": driver,
            "allowMultipleAllocations": multiple,
            "attributes": self._by_domain(driver, attributes),
            "capacity": self._by_domain(driver, capacity),
        }
        return frozenset(name for name in self._parsed if self._selects(name, {"device": device}))

    def _by_domain(self, driver: str, values: _Values) -> cel.Attributes:
        """Return the values by domain, which is the driver's unless a name has one, and by name."""
        names, read = values
        known = dict(zip(self._reads(names), read, strict=True))
        found = cel.Attributes()
        for name in sorted(names):
            domain, _, own = name.rpartition("/")
            value = known[name].in_cel if name in known else cel.UNKNOWN
            found.setdefault(domain or driver, {})[own] = value
        return found

    def _selects(self, name: str, scope: cel.Scope) -> bool:
        is_unknown = False
        for expression in self._parsed[name]:
            result = expression.evaluate(scope)
            if result is cel.UNKNOWN:
                is_unknown = True
            elif result is not True:
                return False
        if is_unknown:
            self._unevaluated.add(name)
        return True
