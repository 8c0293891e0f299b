"""Accelerators of a cluster: their nodes, and what is known of clouds (``accelerators.yaml``)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from policies.kubernetes.node_templates import NODE_POOL_LABEL, NodeTemplate
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint
from policies.kubernetes.selector import selector_of
from policies.vendors import Vendor, known_vendors, vendors_by_taint
from webhook.cluster.state import ClusterState
from webhook.documents.files import load_documents

INSTANCE_TYPE = "node.kubernetes.io/instance-type"

Source: TypeAlias = Node | NodeTemplate
"""A node, or nodes that an autoscaler can add."""
Published: TypeAlias = tuple[str, frozenset[str]]
"""The driver of a kind of devices, and the DeviceClasses whose selectors accept it."""


class Surroundings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is known of clouds, and of taints that are about something else than accelerators."""

    node_groups: re.Pattern[str]
    """Keys of labels whose value names a group of equal nodes."""
    family_labels: re.Pattern[str]
    """Keys of labels with the family of a GPU."""
    partition_labels: tuple[str, ...]
    """Keys of labels that tell whole GPUs, partitions and shares of one model apart."""
    changing_labels: tuple[str, ...]
    """Such labels whose value changes while a node runs."""
    changing_values: re.Pattern[str]
    """Such values of other labels."""
    discovery_labels: tuple[str, ...]
    """Prefixes of labels that a node gets once it is up: no autoscaler knows them before."""
    accelerator_words: re.Pattern[str]
    """In keys and values of labels that are about accelerators."""
    passing_values: re.Pattern[str]
    """Values of labels that a node does not share with later ones."""
    sharing_labels: tuple[str, ...]
    sharing_strategies: tuple[str, ...]
    """The values of ``sharing_labels`` with which a resource is a share of a device."""
    transient_taints: tuple[str, ...]
    """Prefixes of taints that Kubernetes, control planes and autoscalers add and remove."""
    quarantine_taints: tuple[str, ...]
    """Prefixes of taints of nodes that start, or that are under repair."""
    state_words: re.Pattern[str]
    """In keys of taints that name such a state."""
    generic_taints: tuple[str, ...]
    """Taints that are about something else than accelerators. Pods choose such nodes by their own
    tolerations."""
    generic_words: re.Pattern[str]
    """In keys and values of taints that say so: Spot, and nodes that are no machines."""
    virtual_words: re.Pattern[str]
    """Those of nodes that are no machines."""
    other_classes: tuple[str, ...]
    """DeviceClasses whose devices are no accelerators."""
    platform_namespaces: dict[str, tuple[str, ...]]
    """By the prefix of a label of all nodes, the namespaces of a platform's device plugins."""


[_document] = load_documents(str(Path(__file__).with_suffix(".yaml")))
KNOWN = msgspec.convert(
    _document.value, Surroundings, dec_hook=lambda _, text: re.compile(text, re.IGNORECASE)
)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A node, or a template of nodes, with accelerators of a vendor."""

    source: Source
    vendors: tuple[Vendor, ...]
    """The vendors of its devices; the first one counts."""
    devices: frozenset[str] = frozenset()
    """The names of the vendors' resources that it offers, also those without a device."""
    amounts: frozenset[str] = frozenset()
    """Those of its resources that are an amount of a device."""
    is_bare: bool = False
    """Whether the node offers no device at the moment."""
    classes: frozenset[str] = frozenset()
    """The DeviceClasses whose selectors accept devices that a DRA driver publishes for it."""
    provided: frozenset[str] = frozenset()
    """The extended resources that these classes provide."""
    products: tuple[str, ...] = ()
    """The models of the devices, as the driver names them."""

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def is_template(self) -> bool:
        return isinstance(self.source, NodeTemplate)

    @property
    def taints(self) -> frozenset[Taint]:
        """The taints that keep Pods away for good."""
        return frozenset(
            taint
            for taint in self.source.taints
            if taint.effect in FENCING_EFFECTS
            and not (taint.key.startswith(KNOWN.transient_taints) or is_quarantine(taint))
        )

    @property
    def is_virtual(self) -> bool:
        """Whether a taint says that the node is no machine."""
        return any(
            KNOWN.virtual_words.search(f"{taint.key}={taint.value}") for taint in self.taints
        )

    @property
    def shared(self) -> frozenset[str]:
        """The resources that are shares of a device."""
        strategies = {value for key in KNOWN.sharing_labels for value in self.values(key)}
        is_shared = not strategies.isdisjoint(KNOWN.sharing_strategies)
        own = self.vendors[0].offered
        return frozenset(
            name for name in self.devices if (is_shared and name in own) or name.endswith(".shared")
        )

    @property
    def kind(self) -> frozenset[str]:
        """Whether the devices are whole ones, partitions or shares; empty if it is unknown.

        And the other vendors whose devices the node has.
        """
        is_divided = any(self.values("cloud.google.com/gke-gpu-partition-size"))
        found = {f"{vendor.name} devices" for vendor in self.vendors[1:]}
        for device in self.devices:
            is_partition = is_divided or "/mig-" in device or "px_" in device
            whole = "partitions" if is_partition else "whole devices"
            found.add("shares" if device in self.shared else whole)
        return frozenset(found)

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values that a label has, or can have on the nodes of a template."""
        return tuple(values_of(self.source, key))


def is_quarantine(taint: Taint) -> bool:
    """Return whether nodes have the taint while they start or are under repair."""
    key = taint.key
    return not key.startswith(KNOWN.transient_taints) and (
        key.startswith(KNOWN.quarantine_taints) or bool(KNOWN.state_words.search(key))
    )


def is_generic(taint: Taint) -> bool:
    """Return whether the taint is about something else than accelerators."""
    is_named = taint.key in KNOWN.generic_taints or KNOWN.generic_words.search(
        f"{taint.key}={taint.value}"
    )
    return bool(is_named) and taint.key not in vendors_by_taint()


def is_of_a_vendor(name: str) -> bool:
    """Return whether devices by this name are accelerators of a known vendor."""
    return any(vendor.offers(name) for vendor in known_vendors())


def values_of(source: Source, key: str) -> Iterator[str]:
    """Yield the values that a label has, or can have on the nodes of a template."""
    if isinstance(source, NodeTemplate):
        yield from source.values(key)
    elif key in source.labels:
        yield source.labels[key]


def models_apart(template: NodeTemplate) -> list[NodeTemplate]:
    """Return the template once for each model that its nodes can have."""
    found = [template]
    for key in dict.fromkeys(key for vendor in known_vendors() for key in vendor.products):
        if len(models := [*template.values(key)]) > 1:
            found = [replace(t, labels={**t.labels, key: value}) for t in found for value in models]
    return found


def members_of(sources: Sequence[Source], state: ClusterState) -> dict[Vendor, dict[int, Member]]:
    """Return the sources with accelerators by vendor and number.

    A node with devices of several vendors is one of the first vendor only, since pools share no
    nodes. And its labels say nothing: a scheduler may offer devices of a vendor by its own names.
    """
    published: defaultdict[str, set[Published]] = defaultdict(set)
    for item in state.offers.slices.by_name.values():
        for placement, devices in item.placed:
            # Devices of several nodes, without the name of one, are those of a network.
            published[placement.node].update((item.pool.driver, each.classes) for each in devices)
    vendors = known_vendors()
    found: dict[Vendor, dict[int, Member]] = {vendor: {} for vendor in vendors}
    # A NodePool may say nothing of accelerators, and all its nodes have them.
    of_pools: dict[str, set[Vendor]] = {}
    for number, source in enumerate(sources):
        pool, kinds = source.labels.get(NODE_POOL_LABEL, ""), published.get(source.name, ())
        plugged: tuple[Vendor, ...] = ()
        if isinstance(source, NodeTemplate):
            offered = source.allocatable or {}
        else:
            offered = {name: n for name, n in source.offers.items() if name not in source.remote}
            plugged = tuple(each for each in vendors if _has_devices(each, offered, kinds))
            if pool:
                of_pools[pool] = of_pools.get(pool, {*plugged}).intersection(plugged)
        marked = (v for v in vendors if v in of_pools.get(pool, ()) or _is_of(source, v, offered))
        for own in (plugged,) if plugged else ((vendor,) for vendor in marked):
            found[own[0]][number] = _member(source, own, offered, kinds, state)
    return found


def _has_devices(
    vendor: Vendor, offered: Mapping[str, int], published: Iterable[Published]
) -> bool:
    return any(count and name in vendor.offered for name, count in offered.items()) or any(
        classes and not {driver, *classes}.isdisjoint(vendor.device_classes)
        for driver, classes in published
    )


def _is_of(source: Source, vendor: Vendor, offered: Iterable[str]) -> bool:
    """Return whether a source without devices is about accelerators of the vendor."""
    if isinstance(source, NodeTemplate):
        restricted = {requirement.key for requirement in source.requirements}
        if about := [(key, value) for key, value in vendor.marks.items() if key in restricted]:
            return source.promises(selector_of(dict(about)))
        by_taint = vendors_by_taint()
        if any(by_taint.get(t.key) is vendor or t.key in vendor.offered for t in source.taints):
            return True
    return (
        any(name in vendor.offered for name in offered)
        or any(any(values_of(source, key)) for key in vendor.products)
        or any(value in values_of(source, key) for key, value in vendor.marks.items())
    )


def _member(
    source: Source,
    vendors: tuple[Vendor, ...],
    offered: Mapping[str, int],
    published: Iterable[Published],
    state: ClusterState,
) -> Member:
    named = {name for name in offered if any(name in vendor.offered for vendor in vendors)}
    # A node with partitions reports whole devices as well: none.
    devices = frozenset(name for name in named if offered[name])
    own = {name for vendor in vendors for name in vendor.device_classes}
    driven = (each for driver, each in published if not {driver, *each}.isdisjoint(own))
    classes = frozenset[str]().union(*driven)
    return Member(
        source,
        vendors,
        devices or frozenset(named),
        frozenset(name for vendor in vendors for name in vendor.fractional if name in offered),
        not (isinstance(source, NodeTemplate) or devices or classes),
        classes,
        frozenset(filter(None, map(state.offers.published.resources.get, classes))),
        tuple(sorted(state.offers.products.get(source.name, ()))) if classes else (),
    )
