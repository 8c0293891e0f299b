"""Pools for the accelerators of a cluster, and what is inconsistent about its nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import Taint
from webhook.cli.policy.discover.accelerators import (
    CAPACITY_TAINTS,
    INSTANCE_TYPE,
    NODE_GROUPS,
    PARTITION_LABELS,
    VENDORS,
    Member,
    Vendor,
    members_of,
)
from webhook.wording import some

_LONGEST_NAME = 63
# Labels of other domains are the administrator's own.
_OWNED_DOMAINS = re.compile(
    r"(^|\.)(kubernetes\.io|k8s\.io|nvidia\.com|amd\.com|intel\.com|google\.com|amazonaws\.com|aws|"
    r"azure\.com|openshift\.io|karpenter\.sh|habana\.ai)/"
)


@dataclass(slots=True)
class PoolDraft:
    """A pool: its labels, and the nodes and node templates that have them."""

    vendor: Vendor
    node_selector: dict[str, str]
    members: list[Member]
    name: str = ""
    taints: list[Taint] = field(default_factory=list)
    device_classes: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> list[str]:
        return [member.name for member in self.members if not member.is_template]

    @property
    def templates(self) -> list[str]:
        return [member.name for member in self.members if member.is_template]

    @property
    def resources(self) -> list[str]:
        """The resources of the nodes; those of MIG as one pattern."""
        names = {name for member in self.members for name in member.devices} or {
            self.vendor.resource
        }
        mig = "nvidia.com/mig-"
        return sorted({f"{mig}*" if name.startswith(mig) else name for name in names})

    @property
    def shared_resources(self) -> list[str]:
        """The resources that are shares on every node that offers them."""
        whole = {name for member in self.members for name in member.devices - member.shared}
        return sorted({name for member in self.members for name in member.shared} - whole)

    @property
    def instance_types(self) -> list[str]:
        return sorted({value for member in self.members for value in member.values(INSTANCE_TYPE)})


@dataclass(slots=True)
class Draft:
    """The pools of a cluster, and a sentence for each inconsistency."""

    pools: list[PoolDraft] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def draft(
    nodes: Sequence[Node], templates: Sequence[NodeTemplate], device_classes: Iterable[str]
) -> Draft:
    """Return the pools of the accelerators that nodes offer, and that templates will offer."""
    drafted = Draft()
    known_classes = frozenset(device_classes)
    by_vendor = {vendor: members_of(vendor, nodes, templates) for vendor in VENDORS}
    offering = {member.source.name for members in by_vendor.values() for member in members}
    common = {taint for node in nodes if node.name not in offering for taint in node.taints}
    for vendor, members in by_vendor.items():
        classes = [name for name in vendor.device_classes if name in known_classes]
        if not members:
            continue
        if not (classes or any(member.devices or member.is_template for member in members)):
            drafted.findings.append(_without_devices(vendor, members))
            continue
        parts = [
            part
            for node_selector, group in _labelled(vendor, members, drafted.findings)
            for part in _split(PoolDraft(vendor, node_selector, group), drafted.findings)
        ]
        for pool in _merged(parts):
            pool.device_classes = classes
            _set_taints(pool, common, drafted.findings)
            bare = [member for member in pool.members if not (member.devices or member.is_template)]
            if bare and not classes:
                drafted.findings.append(_without_devices(vendor, bare))
            drafted.pools.append(pool)
    _set_names(drafted.pools)
    return drafted


def _labelled(
    vendor: Vendor, members: list[Member], findings: list[str]
) -> Iterator[tuple[dict[str, str], list[Member]]]:
    """Yield labels that identify nodes, and the nodes and templates that have them.

    A label that all templates promise comes first: a Pod that requires another label would not make
    an autoscaler add a node.
    """
    marks = dict(vendor.marks)
    preference: list[Sequence[str]] = [vendor.products, tuple(marks), (INSTANCE_TYPE, *NODE_GROUPS)]
    rest = members
    while rest:
        left = {*rest}
        taken = [member for member in members if member not in left]
        key = next(_keys(vendor, rest, taken, preference), None)
        if key is None:
            findings += _unlabelled(vendor, rest, preference[-1])
            return
        if not any(member.is_template for member in rest):
            # A less specific label of the other nodes would cover these nodes as well.
            level = next(n for n, keys in enumerate(preference) if key in keys)
            preference = preference[: level + 1]
        groups: dict[str, list[Member]] = {}
        mark = marks.get(key)
        for member in rest:
            values = member.values(key) if mark is None else (mark,) * member.has(key, mark)
            for value in values:
                groups.setdefault(value, []).append(member)
        for value in sorted(groups):
            yield {key: value}, groups[value]
        grouped = {member for group in groups.values() for member in group}
        rest = [member for member in rest if member not in grouped]


def _keys(
    vendor: Vendor, rest: list[Member], taken: list[Member], preference: Iterable[Iterable[str]]
) -> Iterator[str]:
    """Yield the keys of labels that identify nodes, in the order of preference.

    Without templates, these are the labels of some nodes. Otherwise, all templates must promise the
    label, or at least the first of them.
    """
    marks = dict(vendor.marks)
    covered: dict[str, list[Member]] = {}
    for keys in preference:
        covering = {
            key: [s for s in rest if (s.has(key, marks[key]) if key in marks else s.values(key))]
            for key in keys
        }
        # The sort is stable: of two keys for as many nodes, the preferred one comes first.
        covered |= sorted(covering.items(), key=lambda item: len(item[1]), reverse=True)
    templates = [member for member in rest if member.is_template]
    for required in (templates, templates[:1], []):
        found_keys = [
            key for key, members in covered.items() if members and {*required} <= {*members}
        ]
        yield from (key for key in found_keys if not _overlaps(key, covered[key], taken))
        yield from found_keys


def _overlaps(key: str, members: Iterable[Member], taken: Iterable[Member]) -> bool:
    """Return whether nodes of earlier pools have one of the values of a label as well."""
    values = {value for member in members for value in member.values(key)}
    return any(not values.isdisjoint(member.values(key)) for member in taken)


def _unlabelled(vendor: Vendor, rest: list[Member], keys: Sequence[str]) -> Iterator[str]:
    nodes = [member.name for member in rest if not member.is_template]
    templates = [member.name for member in rest if member.is_template]
    if nodes:
        yield (
            f"{_counted(nodes, 'node')} with {vendor.name} devices and without the label of a "
            f"pool: {some(nodes)}. GPU Pods are not placed there. Add the label {keys[0]}"
        )
    if templates:
        yield (
            f"{some(templates)} promises no label that identifies {vendor.name} nodes. An "
            "autoscaler adds no node for a Pod that requires another label. Add one to the template"
        )


def _split(pool: PoolDraft, findings: list[str]) -> Iterator[PoolDraft]:
    """Yield the pool, or a pool for each kind of devices and set of taints, if labels differ."""
    for part in _split_by(pool, lambda member: member.kind, "devices", findings):
        yield from _split_by(part, _taints_of, "taints", findings)


def _split_by(
    pool: PoolDraft,
    trait: Callable[[Member], frozenset[Any]],
    what: str,
    findings: list[str],
) -> Iterator[PoolDraft]:
    groups: dict[frozenset[object], list[Member]] = {}
    for member in pool.members:
        if trait(member) and not member.is_template:
            groups.setdefault(trait(member), []).append(member)
    if len(groups) < 2:
        yield pool
        return
    keys = [key for key in _telling_keys(pool) if _tells(key, groups.values(), pool)]
    key = min(keys, key=lambda key: len(_values(key, pool.members)), default=None)
    if key is None:
        findings.append(
            f"Nodes with {_labels(pool.node_selector)} differ in their {what} "
            f"({_alternatives(groups)}), and no label tells them apart, so they are one pool. To "
            "separate them, label the nodes"
        )
        yield pool
        return
    for value in sorted(_values(key, pool.members)):
        members = [member for member in pool.members if value in member.values(key)]
        yield PoolDraft(pool.vendor, {**pool.node_selector, key: value}, members)


def _merged(pools: Iterable[PoolDraft]) -> list[PoolDraft]:
    """Return the pools, where one that has only nodes of another becomes part of it."""
    merged: list[PoolDraft] = []
    for pool in sorted(pools, key=lambda pool: len(pool.node_selector)):
        labels = pool.node_selector.items()
        wide = next((other for other in merged if other.node_selector.items() <= labels), None)
        if wide is None:
            merged.append(pool)
        else:
            wide.members += [member for member in pool.members if member not in wide.members]
    return merged


def _telling_keys(pool: PoolDraft) -> Iterator[str]:
    yield from PARTITION_LABELS
    yield from NODE_GROUPS
    labels = {key for member in pool.members for key in member.source.labels}
    yield from sorted(key for key in labels if not _OWNED_DOMAINS.search(key))


def _tells(key: str, groups: Iterable[list[Member]], pool: PoolDraft) -> bool:
    """Return whether each group has values of its own, and every member one of them."""
    values = [_values(key, group) for group in groups]
    known = set().union(*values)
    if not all(values) or sum(map(len, values)) != len(known):
        return False
    return all(
        len(member.values(key)) == 1 and member.values(key)[0] in known for member in pool.members
    )


def _values(key: str, members: Iterable[Member]) -> set[str]:
    return {value for member in members for value in member.values(key)}


def _taints_of(member: Member) -> frozenset[object]:
    return frozenset(taint for taint in member.taints if taint.key not in CAPACITY_TAINTS)


def _alternatives(groups: Iterable[frozenset[object]]) -> str:
    return " or ".join(sorted(" and ".join(sorted(map(str, group))) for group in groups))


def _set_taints(pool: PoolDraft, common: set[Taint], findings: list[str]) -> None:
    """Set the taints that fence the nodes, and report nodes without them."""
    where = f"Nodes with {_labels(pool.node_selector)}"
    fencing = {taint for member in pool.members for taint in member.taints}
    for taint in sorted(t for t in fencing if t in common and t.key != pool.vendor.taint):
        findings.append(
            f"{where} have the taint {taint}, which nodes without accelerators have as well. It is "
            "not part of the pool, so GPU Pods must tolerate it themselves"
        )
        fencing.discard(taint)
    for taint in sorted(t for t in fencing if t.key in CAPACITY_TAINTS):
        findings.append(
            f"{where} have the taint {taint}, by which Pods choose the kind of capacity. It is not "
            "part of the pool, so GPU Pods must tolerate it themselves"
        )
        fencing.discard(taint)
    customary = Taint(pool.vendor.taint, "NoSchedule")
    fenced = {
        member: member.name for member in pool.members if not fencing.isdisjoint(member.taints)
    }
    for taint in sorted(fencing):
        untainted = [name for member, name in fenced.items() if taint not in member.taints]
        findings += [f"{where} have the taint {taint}, except {some(untainted)}"] * bool(untainted)
    if bare := [member.name for member in pool.members if member not in fenced]:
        expected = min(fencing, default=Taint(pool.vendor.taint, "NoSchedule", "present"))
        findings.append(
            f"{where} must have a taint that keeps other Pods away. These have none: {some(bare)}. "
            f"Add {expected} to their node group"
        )
    pool.taints = sorted(
        {
            Taint(t.key, t.effect) if t.key == pool.vendor.taint else t
            for t in fencing or {customary}
        }
    )


def _without_devices(vendor: Vendor, members: list[Member]) -> str:
    names = [member.name for member in members]
    return (
        f"{_counted(names, 'node')} with {vendor.name} labels and without {vendor.resource}: "
        f"{some(names)}. Check the device plugin of the node"
    )


def _set_names(pools: list[PoolDraft]) -> None:
    taken: set[str] = set()
    for pool in pools:
        values = [value for key, value in pool.node_selector.items() if value != "true"]
        name = _slug("-".join(values)) or pool.vendor.name
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name[: _LONGEST_NAME - 3]}-{number}"
        taken.add(unique)
        pool.name = unique


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_NAME].strip("-")


def _labels(labels: dict[str, str]) -> str:
    return " and ".join(f"{key}={value}" for key, value in labels.items())


def _counted(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}{'s' if len(names) != 1 else ''}"
