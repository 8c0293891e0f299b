"""Pools for the accelerators of a cluster, and what is inconsistent about its nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex, NodeSet
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint
from policies.kubernetes.selector import describe, selects
from policies.reach import HOST
from policies.vendors import Vendor, known_vendors, vendors_by_taint
from policies.wording import listing
from webhook.cluster.state import ClusterState
from webhook.tools.cli.discover.accelerators import (
    INSTANCE_TYPE,
    KNOWN,
    NOTHING_PUBLISHED,
    Member,
    PublishedDevices,
    Source,
    is_generic,
    is_quarantine,
    members_of,
    models_apart,
)
from webhook.tools.cli.discover.groups import Labels, Numbers, Traits, groups_of
from webhook.wording import counted, some

_LONGEST_NAME = 63
_PRESENT = ("true", "on", "yes", "enabled", "present")
"""Values of labels that name nothing."""


@dataclass(slots=True)
class PoolDraft:
    """A pool: its labels, and the nodes and node templates that have them."""

    vendor: Vendor
    selector: dict[str, tuple[str, ...]]
    members: list[Member]
    reason: str = ""
    """Why these labels were selected, as a clause."""
    models: tuple[str, ...] = ()
    name: str = ""
    taints: list[Taint] = field(default_factory=list)
    known_classes: frozenset[str] = frozenset()
    """The vendor's DeviceClasses that the cluster has."""

    @property
    def nodes(self) -> list[str]:
        return [member.name for member in self.members if not member.is_template]

    @property
    def templates(self) -> list[str]:
        return [*dict.fromkeys(member.name for member in self.members if member.is_template)]

    def is_fenced(self, member: Member) -> bool:
        """Return whether a taint of the pool keeps other Pods off the node."""
        return not {taint.key for taint in self.taints}.isdisjoint(t.key for t in member.taints)

    @property
    def where(self) -> str:
        """The nodes of the pool, for messages."""
        return f"Nodes with {describe(self.selector) or f'{self.vendor.name} devices'}"

    @property
    def resources(self) -> list[str]:
        """The resources of the nodes; those of MIG as one pattern.

        Nodes whose devices are unknown promise the vendor's resource, and so do templates, unless
        the nodes of the pool have devices that a DRA driver publishes, and no others.
        """
        names = {name for member in self.members for name in member.devices}
        unknown = any(each.is_template and not each.devices for each in self.members)
        if (unknown and names) or not any(names or each.classes for each in self.members):
            names.add(self.vendor.resource)
        names.update(self.fractional_resources, *(member.provided for member in self.members))
        mig = "nvidia.com/mig-"
        return sorted({f"{mig}*" if name.startswith(mig) else name for name in names})

    @property
    def device_classes(self) -> list[str]:
        """The DeviceClasses that accept devices of the pool, and those of the vendor."""
        return sorted(self.known_classes.union(*(member.classes for member in self.members)))

    @property
    def shared_resources(self) -> list[str]:
        """The resources that are shares on every node that offers them."""
        whole = {name for member in self.members for name in member.devices - member.shared}
        return sorted({name for member in self.members for name in member.shared} - whole)

    @property
    def fractional_resources(self) -> list[str]:
        """The resources of the nodes that are an amount of a device."""
        return sorted({name for member in self.members for name in member.amounts})

    @property
    def mixed_types(self) -> list[str]:
        """The instance types, if there are several and the models are unknown."""
        types = {value for member in self.members for value in member.values(INSTANCE_TYPE)}
        is_known = self.models or len(types) == 1
        return [] if is_known else sorted(types)

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
    names = state.offers.device_classes.names()
    published = PublishedDevices.of(state)
    drafted = draft(list(state.nodes.index), state.templates, names, published)
    in_pools = {name for pool in drafted.pools for name in pool.device_classes}
    if drafted.pools and (others := sorted({*names} - in_pools - {*KNOWN.other_classes})):
        drafted.findings.append(
            f"{counted(len(others), 'DeviceClass').replace('Classs', 'Classes')} of no pool: "
            f"{some(others)}. If Pods get accelerators by a claim on one, add it to deviceClasses"
        )
    return drafted


def draft(
    nodes: Sequence[Node],
    templates: Sequence[NodeTemplate],
    device_classes: Iterable[str],
    published: PublishedDevices = NOTHING_PUBLISHED,
) -> Draft:
    """Return the pools of the accelerators that nodes offer, and that templates will offer."""
    drafted = Draft(nodes, templates)
    known_classes = frozenset(device_classes)
    startup = {(t.key, t.effect) for template in templates for t in template.startup_taints}
    sources: list[Source] = [_without(node, startup) for node in nodes]
    sources += (each for template in templates for each in models_apart(template))
    by_vendor = {vendor: members_of(vendor, sources, published) for vendor in known_vendors()}
    by_vendor = _by_first_vendor(by_vendor)
    offering = {number for members in by_vendor.values() for number in members}
    others = [source for n, source in enumerate(sources) if n not in offering]
    every = [member for members in by_vendor.values() for member in members.values()]
    mixed = {vendor for each in every if len(each.vendors) > 1 for vendor in each.vendors}
    common = {(taint.key, taint.value) for source in others for taint in source.taints}
    for vendor, members in by_vendor.items():
        classes = known_classes.intersection(vendor.device_classes)
        bare = [member.name for member in members.values() if member.is_bare]
        if bare and not classes:
            drafted.findings.append(
                f"{counted(len(bare), 'node')} with {vendor.name} labels and without "
                f"{vendor.resource}: {some(bare)}. Check the device plugin of the node"
            )
        if classes or len(bare) < len(members):
            drafting = _Drafting(
                vendor, sources, members, common, drafted.findings, is_mixed=vendor in mixed
            )
            for pool in drafting.pools():
                vendors = {v for member in pool.members for v in member.vendors}
                pool.known_classes = known_classes.intersection(
                    name for each in vendors for name in each.device_classes
                )
                drafted.pools.append(pool)
    if not any(map(_is_open, others)) and any(
        not pool.is_fenced(each) for pool in drafted.pools for each in pool.members
    ):
        drafted.findings.append(
            "No node without accelerators takes Pods that tolerate no taint. Add one before the "
            "GPU nodes get their taint: other Pods, also those of the platform, have no node then"
        )
    _set_names(drafted.pools)
    found = {
        Taint(taint.key, taint.effect)
        for number, source in enumerate((*nodes, *sources[len(nodes) :]))
        if number in offering
        for taint in (*source.taints, *getattr(source, "startup_taints", ()))
        if is_quarantine(taint) or (taint.key, taint.effect) in startup
    }
    drafted.quarantine = sorted(t for t in found if t.effect in FENCING_EFFECTS)
    return drafted


def _by_first_vendor(
    by_vendor: Mapping[Vendor, dict[int, Member]],
) -> dict[Vendor, dict[int, Member]]:
    """Return each node with devices of several vendors as one of the first vendor only.

    Pools share no nodes. And labels say nothing of a node with other devices: a scheduler may offer
    the devices of a vendor by names of its own.
    """
    plugged: dict[int, Vendor] = {}
    found: dict[Vendor, dict[int, Member]] = {}
    for vendor, members in by_vendor.items():
        found[vendor] = {}
        for number, member in members.items():
            owns = member.is_bare or member.is_template
            first = vendor if owns else plugged.setdefault(number, vendor)
            if first is vendor:
                found[vendor][number] = member
            else:
                found[first][number] = found[first][number].with_devices_of(member)
    return {
        vendor: {n: m for n, m in members.items() if not (m.is_bare and n in plugged)}
        for vendor, members in found.items()
    }


def nodes_of(drafted: Draft, nodes: NodeIndex) -> dict[str, NodeSet]:
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


def _is_open(source: Source) -> bool:
    """Return whether Pods that tolerate no taint can run on the node, once it is ready."""
    return all(
        taint.effect not in FENCING_EFFECTS or taint.key.startswith("node.kubernetes.io/")
        for taint in source.taints
    )


def _without(node: Node, startup: Collection[tuple[str, str]]) -> Node:
    """Return the node as it is once it has started: without the taints that a template removes."""
    taints = (taint for taint in node.taints if (taint.key, taint.effect) not in startup)
    return replace(node, taints=tuple(taints)) if startup else node


class _Drafting:
    """The pools of one vendor. ``common`` are the taints of nodes without accelerators.

    ``is_mixed`` is true if nodes have devices of another vendor as well.
    """

    def __init__(
        self,
        vendor: Vendor,
        sources: Sequence[Source],
        members: Mapping[int, Member],
        common: Collection[tuple[str, str | None]],
        findings: list[str],
        *,
        is_mixed: bool,
    ) -> None:
        self.vendor, self.members, self.findings = vendor, members, findings
        self._common, self._is_mixed = common, is_mixed
        # The labels of a node that starts may be missing.
        bare = {n for n, member in members.items() if member.is_bare}
        self._starting = bare if len(bare) < len(members) else set[int]()
        self._known = {n: m for n, m in members.items() if n not in self._starting}
        self._labels = Labels(sources, self._known, self._starting)
        counts = Counter(t for member in members.values() for t in member.taints)
        self._rare = {t for t, n in counts.items() if n == 1 and t.key != vendor.taint}
        usual = Counter(t for t in counts.elements() if self._unfit(t) is None)
        # Of equally many, the first one in the alphabet.
        self._usual = min(usual, key=lambda t: (-usual[t], t), default=None)

    def pools(self) -> Iterator[PoolDraft]:
        """Yield the pools, and add what is wrong to the findings."""
        fences = {n: frozenset(self._fences(member)) for n, member in self._known.items()}
        groups = [*groups_of(self.vendor, self._known, self._labels, fences)]
        lost = [group for group, _, identity in groups if identity is None]
        for group, traits, identity in groups:
            if identity is not None:
                self._report_union(describe(identity.selector), traits)
                yield self._pool(identity.selector, group, traits, identity.reason)
        numbers = frozenset[int]().union(*lost)
        if templates := [*dict.fromkeys(self._names(numbers, templates=True))]:
            self.findings.append(
                f"No label of {some(templates)} identifies {self.vendor.name} nodes. An autoscaler "
                "adds no node for a Pod that requires another label. Add one to the template"
            )
        nodes = frozenset(n for n in numbers if not self.members[n].is_template)
        if not nodes:
            return
        traits = set[Traits]().union(*(own for group, own, _ in groups if group & nodes))
        # A pool without labels has every node with its devices, also those of another vendor's.
        is_whole = len(lost) == len(groups) and not self._is_mixed
        if is_whole and any(self.members[n].classes for n in nodes):
            yield from self._without_labels(nodes, traits)
        else:
            yield from self._by_host(nodes, traits)

    def _pool(
        self,
        selector: dict[str, tuple[str, ...]],
        group: Iterable[int],
        traits: Iterable[Traits],
        reason: str,
    ) -> PoolDraft:
        numbers = {*group} | {
            n for n in self._starting if selects(selector, self.members[n].source.labels)
        }
        models = tuple(sorted({each.model for each in traits} - {""}))
        members = [self._typical(self.members[n]) for n in sorted(numbers)]
        pool = PoolDraft(self.vendor, selector, members, reason, models)
        self._set_taints(pool)
        return pool

    def _names(self, numbers: Iterable[int], *, templates: bool = False) -> list[str]:
        found = (self.members[n] for n in sorted(numbers))
        return [member.name for member in found if member.is_template is templates]

    def _without_labels(
        self, nodes: frozenset[int], traits: Collection[Traits]
    ) -> Iterator[PoolDraft]:
        key = next(iter(self.vendor.marks), "a label of your own")
        self.findings.append(
            f"No label identifies the {self.vendor.name} nodes, so all are one pool without "
            f"labels{_apart(traits)}. Pods that tolerate every taint are denied, because no label "
            f"keeps them off: {some(self._names(nodes))}. Label the nodes with {key}, and select it"
        )
        yield self._pool({}, nodes, traits, "")

    def _by_host(self, nodes: Numbers, traits: Collection[Traits]) -> Iterator[PoolDraft]:
        named = frozenset(n for n in nodes if self._labels.hosts(frozenset((n,))))
        if named:
            self.findings.append(
                f"No label identifies the {self.vendor.name} devices of "
                f"{some(self._names(named))}. A pool selects the nodes by {HOST}, and needs a "
                f"change for new nodes{_apart(traits)}. Give them a label of their own, and select "
                "it"
            )
            yield self._pool({HOST: self._labels.hosts(named)}, named, traits, "")
        if nameless := self._names(nodes - named):
            self.findings.append(
                f"{counted(len(nameless), 'node')} with {self.vendor.name} devices and without the "
                f"label of a pool: {some(nameless)}. GPU Pods are not placed there. Add the label "
                f"{HOST}"
            )

    def _report_union(self, labels: str, traits: Collection[Traits]) -> None:
        if len(traits) > 1 and (apart := _apart(traits)):
            self.findings.append(
                f"Nodes with {labels} are one pool{apart}. To separate them, label the nodes"
            )

    def _fences(self, member: Member) -> set[Taint]:
        """Return the taints of a node that are about its accelerators."""
        odd = member.taints & self._rare
        is_typical = member.is_template or odd == member.taints
        return {t for t in member.taints if self._unfit(t) is None and (is_typical or t not in odd)}

    def _typical(self, member: Member) -> Member:
        """Return the node without a taint that no other node of the vendor has.

        It has another taint as well. One node is no rule: it may be under repair.
        """
        odd = {t for t in member.taints & self._rare if self._unfit(t) is None}
        if member.is_template or not odd or odd == member.taints:
            return member
        self.findings += [
            f"{member.name} has the taint {taint}, and no other node with {self.vendor.name} "
            "devices has it. It is not part of the pool, so that GPU Pods do not tolerate it: the "
            "node may be under repair"
            for taint in sorted(odd)
        ]
        taints = tuple(t for t in member.source.taints if t not in odd)
        return replace(member, source=replace(member.source, taints=taints))

    def _unfit(self, taint: Taint) -> str | None:
        """Return why a taint is about something else than accelerators, as a clause."""
        if taint.key == self.vendor.taint:
            return None
        if (taint.key, taint.value) in self._common:
            return "which nodes without accelerators have as well"
        return "which is not about accelerators" if is_generic(taint) else None

    def _set_taints(self, pool: PoolDraft) -> None:
        """Set the taints that fence the nodes, and report nodes without them."""
        fencing = {taint for member in pool.members for taint in member.taints}
        unfit = {taint: why for taint in sorted(fencing) if (why := self._unfit(taint))}
        fencing -= unfit.keys()
        shares = Counter(taint for member in pool.members for taint in member.taints)
        for taint in sorted(fencing, key=lambda taint: (shares[taint], taint)):
            stronger = {
                t
                for t in fencing
                if t.key == self.vendor.taint or shares[t] * 2 > len(pool.members)
            }
            having = [member for member in pool.members if taint in member.taints]
            if taint in stronger or any(each.is_template for each in having):
                continue
            if all(stronger & each.taints for each in having):
                unfit[taint] = (
                    f"on {counted(len(having), 'node')} of {len(pool.nodes)}, in addition to "
                    "another one"
                )
                fencing.discard(taint)
        self.findings += [
            f"{pool.where} have the taint {taint}{',' * why.startswith('which')} {why}. It is not "
            "part of taints. If GPU Pods should run there, add it to tolerate of the pool"
            for taint, why in unfit.items()
        ]
        fenced = {m: m.name for m in pool.members if not fencing.isdisjoint(m.taints)}
        for taint in sorted(fencing):
            untainted = [name for m, name in fenced.items() if taint not in m.taints]
            if untainted:
                self.findings.append(
                    f"{pool.where} have the taint {taint}, except {some(untainted)}"
                )
        bare = [m.name for m in pool.members if m not in fenced and not m.is_virtual]
        if bare:
            usual = min(fencing, key=lambda t: (-shares[t], t), default=self._usual)
            expected = usual or Taint(self.vendor.taint, "NoSchedule", "present")
            self.findings.append(
                f"{pool.where} must have a taint that keeps other Pods away. These have none: "
                f"{some(bare)}. Add {expected} to their node group"
            )
        pool.taints = sorted(
            {
                Taint(t.key, t.effect) if t.key == self.vendor.taint else t
                for t in fencing or {Taint(self.vendor.taint, "NoSchedule")}
            }
        )


def _apart(traits: Collection[Traits]) -> str:
    """Return in what the nodes of a pool differ, and what it costs, as a clause."""
    differences = []
    for what, values in (
        ("models", {each.model for each in traits}),
        ("devices", {" and ".join(sorted(each.kind)) for each in traits}),
        ("taints", {" and ".join(sorted(map(str, each.taints))) for each in traits}),
    ):
        if len(known := values - {""}) > 1:
            differences.append(f"{what} ({listing(sorted(known), 'or')})")
    if not differences:
        return ""
    return (
        f", although they differ in their {listing(differences)}: they have the same tenants and "
        "limits, and GPU Pods may run on each of them"
    )


def _set_names(pools: list[PoolDraft]) -> None:
    """Name each pool by its model, or else by the values of its labels, or by the vendor."""
    names = []
    for pool in pools:
        values = [
            each[0]
            for key, each in pool.selector.items()
            if len(each) == 1 and re.search("[A-Za-z]", each[0]) and key != HOST
        ]
        values = [value for value in values if value not in _PRESENT]
        [named] = pool.models if len(pool.models) == 1 else ["-".join(values)]
        names.append(_slug(named) or pool.vendor.name)
    taken: set[str] = set()
    for pool, name in zip(pools, names, strict=True):
        kinds = frozenset[str]().union(*(member.kind for member in pool.members))
        is_divided = names.count(name) > 1 and kinds in ({"partitions"}, {"shares"})
        base = f"{name[: _LONGEST_NAME - 14]}-{listing(kinds)}" if is_divided else name
        pool.name, number = base, 1
        while pool.name in taken:
            number += 1
            pool.name = f"{base[: _LONGEST_NAME - 3]}-{number}"
        taken.add(pool.name)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_NAME].strip("-")
