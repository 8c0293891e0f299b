"""Pools for the accelerators of a cluster, and what is inconsistent about its nodes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex, NodeSet
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint
from policies.kubernetes.selector import describe, includes
from policies.reach import HOST as _HOST
from policies.vendors import Vendor, domains_of_vendors, known_vendors, vendors_by_taint
from policies.wording import listing
from webhook.cluster.state import ClusterState
from webhook.tools.cli.discover.accelerators import (
    INSTANCE_TYPE,
    KNOWN,
    Member,
    is_quarantine,
    members_of,
)
from webhook.wording import counted, some

_Trait: TypeAlias = frozenset[Any]
_LONGEST_NAME = 63
# Labels of other domains are the administrator's own.
_OWNED_DOMAINS = re.compile(
    rf"(^|\.)({'|'.join(map(re.escape, sorted(domains_of_vendors())))}|kubernetes\.io|k8s\.io|"
    r"google\.com|amazonaws\.com|aws|azure\.com|openshift\.io|karpenter\.sh)/"
)


@dataclass(slots=True)
class PoolDraft:
    """A pool: its labels, and the nodes and node templates that have them."""

    vendor: Vendor
    selector: dict[str, tuple[str, ...]]
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
        """The resources of the nodes; those of MIG as one pattern.

        A template that names no devices promises the vendor's.
        """
        names = {name for member in self.members for name in member.devices}
        amounts = self.fractional_resources
        if not names or any(each.is_template and not each.devices for each in self.members):
            names.add(self.vendor.resource)
        mig = "nvidia.com/mig-"
        return sorted({f"{mig}*" if name.startswith(mig) else name for name in {*names, *amounts}})

    @property
    def shared_resources(self) -> list[str]:
        """The resources that are shares on every node that offers them."""
        whole = {name for member in self.members for name in member.devices - member.shared}
        return sorted({name for member in self.members for name in member.shared} - whole)

    @property
    def mixed_types(self) -> list[str]:
        """The instance types, if there are several and the pool selects no model."""
        types = {value for member in self.members for value in member.values(INSTANCE_TYPE)}
        has_model = any(key in self.vendor.products for key in self.selector)
        return [] if has_model or len(types) == 1 else sorted(types)

    @property
    def document(self) -> dict[str, Any]:
        """The pool as a part of the policy document."""
        fields = {
            "name": self.name,
            "resources": self.resources,
            "sharedResources": self.shared_resources,
            "fractionalResources": self.fractional_resources,
            "deviceClasses": self.device_classes,
            "taints": [
                {"key": t.key}
                | ({} if t.value is None else {"value": t.value})
                | {"effect": t.effect}
                for t in self.taints
            ],
            "nodeSelector": {key: each[0] for key, each in self.selector.items() if len(each) == 1},
            "matchExpressions": [
                {"key": key, "operator": "In", "values": list(values)}
                for key, values in self.selector.items()
                if len(values) > 1
            ],
        }
        return {name: value for name, value in fields.items() if value or name == "taints"}

    @property
    def fractional_resources(self) -> list[str]:
        """The resources of the nodes that are an amount of a device."""
        return sorted({name for member in self.members for name in member.amounts(self.vendor)})


@dataclass(slots=True)
class Draft:
    """The pools for nodes and node templates, and a sentence for each inconsistency."""

    nodes: Sequence[Node]
    templates: Sequence[NodeTemplate]
    pools: list[PoolDraft] = field(default_factory=list)
    quarantine: list[Taint] = field(default_factory=list)
    """The taints of nodes with accelerators that start or are under repair."""
    findings: list[str] = field(default_factory=list)

    @property
    def quarantine_document(self) -> JSONObject:
        """The taints as a part of the policy document."""
        taints = [{"key": taint.key, "effect": taint.effect} for taint in self.quarantine]
        return {"quarantineTaints": taints} if taints else {}


def draft_of(state: ClusterState) -> Draft:
    """Return the pools of the accelerators of a cluster."""
    names, products = state.offers.device_classes.names(), state.offers.products
    return draft(list(state.nodes.index), state.templates, names, products)


def draft(
    nodes: Sequence[Node],
    templates: Sequence[NodeTemplate],
    device_classes: Iterable[str],
    products: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Draft:
    """Return the pools of the accelerators that nodes offer, and that templates will offer.

    ``products`` are the models by node, as DRA drivers publish them.
    """
    drafted = Draft(nodes, templates)
    known_classes = frozenset(device_classes)
    startup = {(t.key, t.effect) for template in templates for t in template.startup_taints}
    settled = [_without(node, startup) for node in nodes]
    by_vendor = {
        vendor: members_of(vendor, settled, templates, products) for vendor in known_vendors()
    }
    shared = {m.name: v.domain for v, members in by_vendor.items() for m in members if m.devices}
    by_vendor = {
        # The plugin of a scheduler offers devices of the vendor under names of its own.
        vendor: [m for m in members if not m.is_bare or shared.get(m.name) != vendor.domain]
        for vendor, members in by_vendor.items()
    }
    offering = {member.source.name for members in by_vendor.values() for member in members}
    common = {taint.key for node in nodes if node.name not in offering for taint in node.taints}
    for vendor, members in by_vendor.items():
        classes = [name for name in vendor.device_classes if name in known_classes]
        if not members:
            continue
        if not classes and all(member.is_bare and not member.devices for member in members):
            drafted.findings.append(_without_devices(vendor, members))
            continue
        counts = Counter(taint for member in members for taint in member.taints)
        rare = {t for t, n in counts.items() if n == 1 and t.key not in {*common, vendor.taint}}
        parts = [
            part
            for selector, group in _labelled(vendor, members, drafted.findings)
            for group_draft in [
                _typical(PoolDraft(vendor, selector, group), rare, drafted.findings)
            ]
            for part in _split(group_draft, drafted.findings)
        ]
        for pool in _merged(parts):
            pool.device_classes = classes
            _set_taints(pool, common, drafted.findings)
            bare = [member for member in pool.members if member.is_bare]
            if bare and not classes:
                drafted.findings.append(_without_devices(vendor, bare))
            drafted.pools.append(pool)
    _set_names(drafted.pools)
    sources: Sequence[Node | NodeTemplate] = (*nodes, *templates)
    found = {
        Taint(taint.key, taint.effect)
        for source in sources
        if source.name in offering
        for taint in (*source.taints, *getattr(source, "startup_taints", ()))
        if is_quarantine(taint) or (taint.key, taint.effect) in startup
    }
    drafted.quarantine = sorted(t for t in found if t.effect in FENCING_EFFECTS)
    return drafted


def groups_of(drafted: Draft, nodes: NodeIndex) -> dict[str, NodeSet]:
    """Return the nodes of each pool, and those that only the customary taint of a vendor marks."""
    groups = {
        f"pool {pool.name}": reduce(or_, (1 << nodes.number(name) for name in pool.nodes), 0)
        for pool in drafted.pools
    }
    known = reduce(or_, groups.values(), 0)
    for key, vendor in vendors_by_taint().items():
        taints = [Taint(key, effect) for effect in sorted(FENCING_EFFECTS)]
        groups[f"vendor {vendor.name}"] = nodes.fenced_by(taints) & ~known
    return groups


def _without(node: Node, startup: Collection[tuple[str, str]]) -> Node:
    """Return the node as it is once it has started: without the taints that a template removes."""
    taints = (taint for taint in node.taints if (taint.key, taint.effect) not in startup)
    return replace(node, taints=tuple(taints)) if startup else node


class _Label(NamedTuple):
    """A label that tells nodes apart: by its values, or by one value and its absence."""

    key: str
    value: str = ""

    def values(self, member: Member) -> tuple[str, ...]:
        """Return the values that count and that the nodes have, or can have."""
        if self.value:
            return (self.value,) if member.has(self.key, self.value) else ()
        return member.values(self.key)

    def groups(self, members: Iterable[Member]) -> dict[str, list[Member]]:
        """Return the members by value, in the order of the values."""
        groups: dict[str, list[Member]] = {}
        for member in members:
            for value in self.values(member):
                groups.setdefault(value, []).append(member)
        return dict(sorted(groups.items()))


def _labelled(
    vendor: Vendor, members: list[Member], findings: list[str]
) -> Iterator[tuple[dict[str, tuple[str, ...]], list[Member]]]:
    """Yield labels that identify nodes, and the nodes and templates that have them.

    One label for all, if there is one. Otherwise one for each group, so that no node is left out.
    """
    models = [_Label(key) for key in vendor.products]
    marks = [_Label(key, value) for key, value in vendor.marks.items()]
    groups = [_Label(key) for key in (INSTANCE_TYPE, *KNOWN.node_groups)]
    preference = [models, marks, groups]
    rest, taken = members, set[Member]()
    while rest:
        label = next(
            (each for each in (*models, *marks) if all(map(each.values, members))), None
        ) or _identifying(rest, taken, preference)
        if label is None:
            yield from _by_last_resort(vendor, rest, taken, findings)
            return
        if not any(member.is_template for member in rest):
            # A less specific label of the other nodes would cover these nodes as well.
            level = next(n for n, labels in enumerate(preference) if label in labels)
            preference = preference[: level + 1]
        for value, group in label.groups(rest).items():
            yield {label.key: (value,)}, group
            taken.update(group)
        rest = [member for member in rest if member not in taken]


def _by_last_resort(
    vendor: Vendor, rest: list[Member], taken: Iterable[Member], findings: list[str]
) -> Iterator[tuple[dict[str, tuple[str, ...]], list[Member]]]:
    """Yield the values of one label for all other nodes with devices, which needs a person."""
    if templates := [member.name for member in rest if member.is_template]:
        findings.append(
            f"{some(templates)} promises no label that identifies {vendor.name} nodes. An "
            "autoscaler adds no node for a Pod that requires another label. Add one to the template"
        )
    nodes = [member for member in rest if not member.is_template and not member.is_bare]
    if not nodes:
        return
    names = some([member.name for member in nodes])
    if any(member.is_published for member in nodes):
        yield from _by_product(vendor, nodes, is_whole=not {*taken}, findings=findings)
        return
    for key in (INSTANCE_TYPE, *KNOWN.node_groups, _HOST):
        values = {value for member in nodes for value in member.values(key)}
        if all(member.values(key) for member in nodes) and not any(
            values.intersection(member.values(key)) for member in taken
        ):
            findings.append(
                f"No label identifies the {vendor.name} accelerators of all nodes. A pool "
                f"selects the others by {key}, and needs a change for new nodes: "
                f"{names}. Give them a label of their own, and select it"
            )
            yield {key: tuple(sorted(values))}, nodes
            return
    findings.append(
        f"{counted(len(nodes), 'node')} with {vendor.name} devices and without the label of a "
        f"pool: {names}. GPU Pods are not placed there. Add the label {INSTANCE_TYPE}"
    )


def _by_product(
    vendor: Vendor, nodes: list[Member], *, is_whole: bool, findings: list[str]
) -> Iterator[tuple[dict[str, tuple[str, ...]], list[Member]]]:
    """Yield a pool for each model that a DRA driver publishes, if a label tells them apart.

    Otherwise all nodes of the vendor are one pool without labels. ``is_whole`` is false if other
    nodes of the vendor have another label.
    """
    names = some([member.name for member in nodes])
    what = (
        f"A DRA driver publishes the {vendor.name} devices of nodes without a label that "
        f"identifies them: {names}"
    )
    models: defaultdict[_Trait, list[Member]] = defaultdict(list)
    for member in nodes:
        models[member.products].append(member)
    described = listing(sorted(" and ".join(sorted(each)) or "unknown" for each in models))
    traits: dict[Member, _Trait] = {member: member.products for member in nodes}
    labels = _own_labels(PoolDraft(vendor, {}, nodes))
    telling = [label for label in labels if _tells(label, nodes, traits)]
    label = min(telling, key=lambda label: len(label.groups(nodes)), default=None)
    if is_whole and len(models) > 1 and label is not None:
        findings.append(
            f"{what}. Pools separate the models {described} by {label.key}, and need a change for "
            "nodes with another value"
        )
        for members in models.values():
            values = {value for member in members for value in label.values(member)}
            yield {label.key: tuple(sorted(values))}, members
        return
    separate = f" ({described})" if len(models) > 1 else ""
    findings.append(
        f"{what}. All {vendor.name} nodes are one pool without labels, whose taint protects them. "
        f"To separate models{separate}, label the nodes"
    )
    yield {}, nodes


def _identifying(
    rest: list[Member], taken: Iterable[Member], preference: Iterable[Iterable[_Label]]
) -> _Label | None:
    """Return the preferred label of some nodes; with templates, one that all of them promise.

    Otherwise one that the first template promises: a Pod that requires another label would not make
    an autoscaler add a node.
    """
    covered: dict[_Label, list[Member]] = {}
    for labels in preference:
        covering = {label: [each for each in rest if label.values(each)] for label in labels}
        # The sort is stable: of two labels for as many nodes, the preferred one comes first.
        covered |= sorted(covering.items(), key=lambda item: len(item[1]), reverse=True)
    templates = [member for member in rest if member.is_template]
    for required in (templates, templates[:1], []):
        found = [label for label, has in covered.items() if has and {*required} <= {*has}]
        if found:
            own = (label for label in found if not _overlaps(label.key, covered[label], taken))
            return next(own, found[0])
    return None


def _overlaps(key: str, members: Iterable[Member], taken: Iterable[Member]) -> bool:
    """Return whether nodes of earlier pools have one of the values of a label as well."""
    values = {value for member in members for value in member.values(key)}
    return any(not values.isdisjoint(member.values(key)) for member in taken)


def _split(pool: PoolDraft, findings: list[str]) -> Iterator[PoolDraft]:
    """Yield the pool, or a pool for each kind of devices and set of taints, if labels differ."""
    if not pool.selector:
        yield pool
        return
    for part in _split_by(pool, lambda member: member.kind, "devices", findings):
        yield from _split_by(part, _taints_of, "taints", findings)


def _split_by(
    pool: PoolDraft, trait: Callable[[Member], _Trait], what: str, findings: list[str]
) -> Iterator[PoolDraft]:
    nodes = (member for member in pool.members if not member.is_template)
    traits = {member: found for member in nodes if (found := trait(member))}
    if len({*traits.values()}) < 2:
        yield pool
        return
    labels = [label for label in _own_labels(pool) if _tells(label, pool.members, traits)]
    label = min(labels, key=lambda label: len(label.groups(pool.members)), default=None)
    if label is None:
        alternatives = {" and ".join(sorted(map(str, found))) for found in traits.values()}
        findings.append(
            f"Nodes with {describe(pool.selector)} differ in their {what} "
            f"({' or '.join(sorted(alternatives))}), and no label tells them apart, so they are "
            "one pool. To separate them, label the nodes"
        )
        yield pool
        return
    for value, members in label.groups(pool.members).items():
        yield PoolDraft(pool.vendor, {**pool.selector, label.key: (value,)}, members)


def _own_labels(pool: PoolDraft) -> Iterator[_Label]:
    keys = {key for member in pool.members for key in member.source.labels}
    own = sorted(key for key in keys if not _OWNED_DOMAINS.search(key))
    return map(_Label, (*KNOWN.partition_labels, *own))


def _tells(label: _Label, members: list[Member], traits: Mapping[Member, _Trait]) -> bool:
    """Return whether every member has one value, and each value stands for one trait."""
    if any(len(label.values(member)) != 1 for member in members):
        return False
    return all(
        len({traits[member] for member in group if member in traits}) == 1
        for group in label.groups(members).values()
    )


def _merged(pools: Iterable[PoolDraft]) -> list[PoolDraft]:
    """Return the pools, where one that has only nodes of another becomes part of it."""
    merged: list[PoolDraft] = []
    for pool in sorted(pools, key=lambda pool: len(pool.selector)):
        wide = next((other for other in merged if includes(other.selector, pool.selector)), None)
        if wide is None:
            merged.append(pool)
        else:
            wide.members += [member for member in pool.members if member not in wide.members]
    return merged


def _typical(group: PoolDraft, rare: Collection[Taint], findings: list[str]) -> PoolDraft:
    """Return the nodes without a taint that only one node of the vendor has.

    It has another taint as well. One node is no rule: it may be under repair.
    """
    members = []
    for member in group.members:
        odd = {t for t in member.taints if t in rare and t.key not in KNOWN.generic_taints}
        if member.is_template or not odd or odd == member.taints:
            members.append(member)
            continue
        findings += [
            f"{member.name} has the taint {taint}, and no other node with "
            f"{group.vendor.name} devices has it. It is not part of the pool, so that GPU Pods do "
            "not tolerate it: the node may be under repair"
            for taint in sorted(odd)
        ]
        members.append(member.without(odd))
    return PoolDraft(group.vendor, group.selector, members)


def _taints_of(member: Member) -> _Trait:
    return frozenset(taint for taint in member.taints if taint.key not in KNOWN.generic_taints)


def _set_taints(pool: PoolDraft, common: set[str], findings: list[str]) -> None:
    """Set the taints that fence the nodes, and report nodes without them."""
    where = f"Nodes with {describe(pool.selector) or f'{pool.vendor.name} devices'}"
    fencing = {taint for member in pool.members for taint in member.taints}
    general = {t for t in fencing if t.key in common and t.key != pool.vendor.taint}
    generic = {taint for taint in fencing if taint.key in KNOWN.generic_taints}
    for unfit, why in (
        (general, "which nodes without accelerators have as well"),
        (generic, "which is not about accelerators"),
    ):
        findings += [
            f"{where} have the taint {taint}, {why}. It is not part of the pool, so GPU Pods must "
            "tolerate it themselves"
            for taint in sorted(fencing & unfit)
        ]
        fencing -= unfit
    for taint in sorted(fencing, key=lambda taint: (_share(taint, pool), taint)):
        stronger = {t for t in fencing if t.key == pool.vendor.taint or _share(t, pool) > 0.5}
        having = [member for member in pool.members if taint in member.taints]
        if taint in stronger or any(each.is_template for each in having):
            continue
        if all(stronger & each.taints for each in having):
            findings.append(
                f"{where} have the taint {taint} on {counted(len(having), 'node')} of "
                f"{len(pool.nodes)}, in addition to another one. It is not part of the pool, so "
                "GPU Pods must tolerate it themselves"
            )
            fencing.discard(taint)
    fenced = {
        member: member.name for member in pool.members if not fencing.isdisjoint(member.taints)
    }
    for taint in sorted(fencing):
        untainted = [name for member, name in fenced.items() if taint not in member.taints]
        if untainted:
            findings.append(f"{where} have the taint {taint}, except {some(untainted)}")
    if bare := [member.name for member in pool.members if member not in fenced]:
        expected = min(fencing, default=Taint(pool.vendor.taint, "NoSchedule", "present"))
        findings.append(
            f"{where} must have a taint that keeps other Pods away. These have none: {some(bare)}. "
            f"Add {expected} to their node group"
        )
    pool.taints = sorted(
        {
            Taint(t.key, t.effect) if t.key == pool.vendor.taint else t
            for t in fencing or {Taint(pool.vendor.taint, "NoSchedule")}
        }
    )


def _share(taint: Taint, pool: PoolDraft) -> float:
    """Return the part of the pool's nodes and templates that have the taint."""
    return sum(taint in member.taints for member in pool.members) / len(pool.members)


def _without_devices(vendor: Vendor, members: list[Member]) -> str:
    names = [member.name for member in members]
    return (
        f"{counted(len(names), 'node')} with {vendor.name} labels and without {vendor.resource}: "
        f"{some(names)}. Check the device plugin of the node"
    )


def _set_names(pools: list[PoolDraft]) -> None:
    taken: set[str] = set()
    for pool in pools:
        values = [
            each[0]
            for key, each in pool.selector.items()
            if len(each) == 1 and each != ("true",) and key != _HOST
        ]
        name = _slug("-".join(values)) or pool.vendor.name
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name[: _LONGEST_NAME - 3]}-{number}"
        taken.add(unique)
        pool.name = unique


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_NAME].strip("-")
