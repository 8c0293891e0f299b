"""Accelerators of a cluster: their nodes, and what is known of clouds (``accelerators.yaml``)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint
from policies.kubernetes.selector import selector_of
from policies.vendors import Vendor, known_vendors, vendors_by_taint
from webhook.documents.files import load_documents

INSTANCE_TYPE = "node.kubernetes.io/instance-type"


class Surroundings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is known of clouds, and of taints that are about something else than accelerators."""

    node_groups: tuple[str, ...]
    """Keys of labels whose value is the name of a group of equal nodes."""
    partition_labels: tuple[str, ...]
    """Keys of labels that tell whole GPUs, partitions and shares of one model apart."""
    sharing_labels: tuple[str, ...]
    sharing_strategies: tuple[str, ...]
    """The values of ``sharing_labels`` with which a resource is a share of a device."""
    transient_taints: tuple[str, ...]
    """Prefixes of taints that Kubernetes, control planes and autoscalers add and remove."""
    quarantine_taints: tuple[str, ...]
    """Prefixes of taints of nodes that start, or that are under repair."""
    state_words: str
    """A regular expression for keys of taints that name such a state in words."""
    generic_taints: tuple[str, ...]
    """Taints that are about something else than accelerators. Pods choose such nodes by their own
    tolerations."""
    platform_namespaces: dict[str, tuple[str, ...]]
    """By the prefix of a label of all nodes, the namespaces of a platform's device plugins."""


[_document] = load_documents(str(Path(__file__).with_suffix(".yaml")))
KNOWN = msgspec.convert(_document.value, Surroundings)

_STATE = re.compile(KNOWN.state_words, re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A node, or a template of nodes, with accelerators of a vendor."""

    source: Node | NodeTemplate
    devices: frozenset[str]
    """The names of the vendor's resources that it offers, also those without a device."""
    is_bare: bool = False
    """Whether the node offers no device at the moment."""
    is_published: bool = False
    """Whether a DRA driver publishes the devices of the node."""
    products: frozenset[str] = frozenset()
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

    def without(self, taints: Collection[Taint]) -> Member:
        """Return the node without some of its taints."""
        source = replace(
            self.source, taints=tuple(t for t in self.source.taints if t not in taints)
        )
        return replace(self, source=source)

    @property
    def shared(self) -> frozenset[str]:
        """The resources that are shares of a device."""
        strategies = {value for key in KNOWN.sharing_labels for value in self.values(key)}
        is_shared = not strategies.isdisjoint(KNOWN.sharing_strategies)
        return frozenset(name for name in self.devices if is_shared or name.endswith(".shared"))

    def amounts(self, vendor: Vendor) -> frozenset[str]:
        """Return the resources of the nodes that are an amount of a device of the vendor."""
        node = self.source
        offered = node.offers if isinstance(node, Node) else node.allocatable or {}
        return frozenset(vendor.fractional) & offered.keys()

    @property
    def kind(self) -> frozenset[str]:
        """Whether the devices are whole ones, partitions or shares."""
        shared = self.shared
        is_partition = any(self.values("cloud.google.com/gke-gpu-partition-size"))
        return frozenset(
            "shares"
            if device in shared
            else "partitions"
            if is_partition or "/mig-" in device or "px_" in device
            else "whole devices"
            for device in self.devices
        )

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values that a label has, or can have on the nodes of a template."""
        if isinstance(self.source, NodeTemplate):
            return tuple(self.source.values(key))
        return (self.source.labels[key],) if key in self.source.labels else ()

    def has(self, key: str, value: str) -> bool:
        """Return whether the nodes have the label, or can have it."""
        if isinstance(self.source, NodeTemplate):
            return self.source.promises({key: (value,)})
        return self.source.labels.get(key) == value


def is_quarantine(taint: Taint) -> bool:
    """Return whether nodes have the taint while they start or are under repair."""
    key = taint.key
    return not key.startswith(KNOWN.transient_taints) and (
        key.startswith(KNOWN.quarantine_taints) or bool(_STATE.search(key))
    )


def is_of_a_vendor(name: str) -> bool:
    """Return whether devices by this name are accelerators of a known vendor."""
    return any(vendor.offers(name) for vendor in known_vendors())


def members_of(
    vendor: Vendor,
    nodes: Iterable[Node],
    templates: Iterable[NodeTemplate],
    products: Mapping[str, Collection[str]],
) -> list[Member]:
    """Return the nodes and the templates with accelerators of the vendor.

    ``products`` are the models by node.
    """
    sources: tuple[Node | NodeTemplate, ...] = (*nodes, *templates)
    members = [_member(source, vendor, products.get(source.name, ())) for source in sources]
    return [member for member in members if _is_of(member, vendor)]


def _member(source: Node | NodeTemplate, vendor: Vendor, products: Iterable[str]) -> Member:
    if not isinstance(source, Node):
        return Member(source, _devices(source.allocatable, vendor))
    offered = {name: n for name, n in source.offers.items() if name not in source.remote}
    has_device = any(count for name, count in offered.items() if name in vendor.offered)
    is_published = any(map(vendor.offers, source.published.keys() - source.remote))
    is_bare = not (has_device or is_published)
    return Member(source, _devices(offered, vendor), is_bare, is_published, frozenset(products))


def _devices(allocatable: Mapping[str, int] | None, vendor: Vendor) -> frozenset[str]:
    names = {name: count for name, count in (allocatable or {}).items() if name in vendor.offered}
    # A node with partitions reports whole devices as well: none.
    return frozenset(name for name, count in names.items() if count) or frozenset(names)


def _is_of(member: Member, vendor: Vendor) -> bool:
    source = member.source
    if isinstance(source, NodeTemplate):
        restricted = {requirement.key for requirement in source.requirements}
        if about := [(key, value) for key, value in vendor.marks.items() if key in restricted]:
            return source.promises(selector_of(dict(about)))
        by_taint = vendors_by_taint()
        if any(by_taint.get(t.key) is vendor or t.key in vendor.offered for t in source.taints):
            return True
    return bool(
        member.devices
        or member.is_published
        or any(any(member.values(key)) for key in vendor.products)
        or any(value in member.values(key) for key, value in vendor.marks.items())
    )
