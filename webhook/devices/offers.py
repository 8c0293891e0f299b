"""What nodes offer, kept up to date while Nodes, DeviceClasses and ResourceSlices change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from policies.policy import Policy
from webhook.devices.classes import (
    DEVICE_CLASSES,
    DeviceClassObject,
    Selectors,
    classes_by_resource,
)
from webhook.devices.nodes import NODES, NodeStore
from webhook.devices.published import PublishedDevices, ResourceSlice, TaintedDevices
from webhook.devices.slices import (
    RESOURCE_SLICES,
    TAINT_RULES,
    ResourceSliceObject,
    read_slice,
    tainted_by,
)
from webhook.kube.collection import Collection, Store, ValueStore


class Offers:
    """The stores that tell which devices nodes offer, by device plugins and by DRA drivers.

    Without a policy, every extended resource of a node counts as a device, and the models of
    devices are kept. ``outdated`` is called when the ResourceSlices must be read again:
    DeviceClasses select other devices.
    """

    def __init__(self, policy: Policy | None, outdated: Callable[[], None]) -> None:
        self._outdated = outdated
        self._selectors = Selectors({})
        self._keeps_products = policy is None
        self.products: dict[str, set[str]] = {}
        """By node, the models that drivers name, if they are kept."""
        self.by_resource: Mapping[str, str] = {}
        """The DeviceClass of each extended resource."""
        self.published = PublishedDevices()
        self.nodes = NodeStore(policy, self.published)
        self.device_classes: ValueStore[DeviceClassObject, DeviceClassObject] = ValueStore(
            lambda item: item, self._reclassify
        )
        self.slices = ValueStore(self._read, self._replace)
        self.of_drivers: dict[Collection[Any], Store[Any]] = {
            # Before the slices, which are read by what the classes select.
            DEVICE_CLASSES: self.device_classes,
            RESOURCE_SLICES: self.slices,
            TAINT_RULES: ValueStore(tainted_by, self._taint),
        }
        """The stores of what DRA drivers publish, which no cluster needs to have."""
        self.stores: dict[Collection[Any], Store[Any]] = {NODES: self.nodes, **self.of_drivers}

    @property
    def problems(self) -> list[str]:
        """A sentence for each DeviceClass with a selector that gpufence cannot evaluate."""
        return self._selectors.problems

    def _reclassify(self, *_: DeviceClassObject | None) -> None:
        classes = self.device_classes.by_name
        self.by_resource = classes_by_resource(classes)
        provided = {device_class: name for name, device_class in self.by_resource.items()}
        if provided != self.published.resources:
            self.published.resources = provided
            self.nodes.publish([""])
        wanted = {name: item.spec.expressions for name, item in classes.items()}
        if wanted != self._selectors.expressions:
            self._selectors = Selectors(wanted)
            if len(self.slices):
                self._outdated()

    def _read(self, item: ResourceSliceObject) -> ResourceSlice:
        if self._keeps_products:
            found = self.products.setdefault(item.spec.node_name or "", set())
            found.update(name for each in item.spec.devices or () if (name := each.product))
        return read_slice(item, self._selectors.classes_of)

    def _replace(self, before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        self.nodes.publish(self.published.replace(before, after))

    def _taint(self, before: TaintedDevices | None, after: TaintedDevices | None) -> None:
        self.nodes.publish(self.published.taint(before, after))
