"""Nodes and node templates, as far as they offer the accelerators of one vendor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint
from webhook.cli.policy.discover.vendors import (
    SHARING_LABELS,
    SHARING_STRATEGIES,
    TRANSIENT_TAINTS,
    Vendor,
)


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A node, or a template of nodes, with accelerators of a vendor."""

    source: Node | NodeTemplate
    devices: frozenset[str]
    """The names of the vendor's resources that it offers."""

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
            if taint.effect in FENCING_EFFECTS and not taint.key.startswith(TRANSIENT_TAINTS)
        )

    @property
    def shared(self) -> frozenset[str]:
        """The resources that are shares of a device."""
        strategies = {value for key in SHARING_LABELS for value in self.values(key)}
        is_shared = not strategies.isdisjoint(SHARING_STRATEGIES)
        return frozenset(name for name in self.devices if is_shared or name.endswith(".shared"))

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
            return self.source.promises({key: value})
        return self.source.labels.get(key) == value


def sites_of(
    vendor: Vendor, nodes: Iterable[Node], templates: Iterable[NodeTemplate]
) -> list[Site]:
    """Return the nodes and the templates with accelerators of the vendor."""
    sites = [Site(node, _devices(node.allocatable, vendor)) for node in nodes]
    sites += [Site(template, _devices(template.allocatable, vendor)) for template in templates]
    return [site for site in sites if _is_of(site, vendor)]


def _devices(allocatable: Mapping[str, int] | None, vendor: Vendor) -> frozenset[str]:
    names = {name: count for name, count in (allocatable or {}).items() if name in vendor.resources}
    # A node with partitions reports whole devices as well: none.
    return frozenset(name for name, count in names.items() if count) or frozenset(names)


def _is_of(site: Site, vendor: Vendor) -> bool:
    source = site.source
    if isinstance(source, NodeTemplate):
        restricted = {requirement.key for requirement in source.requirements}
        if about := [(key, value) for key, value in vendor.marks if key in restricted]:
            return source.promises(dict(about))
        if any(t.key == vendor.taint or t.key in vendor.resources for t in source.taints):
            return True
    return bool(
        site.devices
        or any(any(site.values(key)) for key in vendor.products)
        or any(value in site.values(key) for key, value in vendor.marks)
    )
