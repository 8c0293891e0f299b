"""Pools for the accelerators of a cluster, and what is inconsistent about its nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex, NodeSet
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint
from policies.kubernetes.selector import describe, selects
from policies.reach import HOST
from policies.vendors import Vendor, vendors_by_taint
from policies.wording import listing
from webhook.cluster.state import ClusterState
from webhook.tools.cli.discover.accelerators import (
    INSTANCE_TYPE,
    KNOWN,
    Member,
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

    @property
    def where(self) -> str:
        """The nodes of the pool, for messages."""
        return f"Nodes with {describe(self.selector) or f'{self.vendor.name} devices'}"

    def is_fenced(self, member: Member) -> bool:
        """Return whether a taint of the pool keeps other Pods off the node."""
        return not {taint.key for taint in self.taints}.isdisjoint(t.key for t in member.taints)

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
        names.update(chain.from_iterable(each.amounts | each.provided for each in self.members))
        mig = "nvidia.com/mig-"
        return sorted({f"{mig}*" if name.startswith(mig) else name for name in names})

    @property
    def device_classes(self) -> list[str]:
        """The DeviceClasses that accept devices of the pool, and those of the vendor."""
        return sorted(self.known_classes.union(*(member.classes for member in self.members)))

    @property
    def mixed_types(self) -> list[str]:
        """The instance types, if there are several and the models are unknown."""
        types = {value for member in self.members for value in member.values(INSTANCE_TYPE)}
        return [] if self.models or len(types) == 1 else sorted(types)

    @property
    def document(self) -> dict[str, Any]:
        """The pool as a part of the policy document."""
        whole = {name for each in self.members for name in each.devices - each.shared}
        fields = {
            "name": self.name,
            "resources": self.resources,
            "sharedResources": sorted({n for each in self.members for n in each.shared} - whole),
            "fractionalResources": sorted({n for each in self.members for n in each.amounts}),
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


def draft_of(state: ClusterState) -> Draft:
    """Return the pools of the accelerators that nodes offer, and that templates will offer."""
    drafted = Draft([*state.nodes.index], state.templates)
    pools, findings = drafted.pools, drafted.findings
    known_classes = frozenset(state.offers.device_classes.names())
    startup = {(t.key, t.effect) for each in state.templates for t in each.startup_taints}
    sources: list[Source] = [_without(node, startup) for node in drafted.nodes]
    sources += (each for template in state.templates for each in models_apart(template))
    by_vendor = members_of(sources, state)
    offering = {number for members in by_vendor.values() for number in members}
    others = [source for n, source in enumerate(sources) if n not in offering]
    every = [member for members in by_vendor.values() for member in members.values()]
    mixed = {vendor for each in every if len(each.vendors) > 1 for vendor in each.vendors}
    common = {(taint.key, taint.value) for source in others for taint in source.taints}
    for vendor, members in by_vendor.items():
        classes = known_classes.intersection(vendor.device_classes)
        bare = [member.name for member in members.values() if member.is_bare]
        if bare and not classes:
            findings.append(
                f"{counted(len(bare), 'node')} with {vendor.name} labels and without "
                f"{vendor.resource}: {some(bare)}. Check the device plugin of the node"
            )
        if classes or len(bare) < len(members):
            drafting = _Drafting(vendor, sources, members, common, findings, vendor in mixed)
            pools += drafting.pools()
    for pool in pools:
        vendors = {vendor for member in pool.members for vendor in member.vendors}
        own = chain.from_iterable(vendor.device_classes for vendor in vendors)
        pool.known_classes = known_classes.intersection(own)
    if not any(map(_is_open, others)) and any(
        not pool.is_fenced(each) for pool in pools for each in pool.members
    ):
        findings.append(
            "No node without accelerators takes Pods that tolerate no taint. Add one: Pods that "
            "tolerate the taint of GPU nodes are kept off them at once, and all others, also those "
            "of the platform, once the nodes have it"
        )
    in_pools = {name for pool in pools for name in pool.device_classes}
    if pools and (left := sorted(known_classes - in_pools - {*KNOWN.other_classes})):
        findings.append(
            f"{counted(len(left), 'DeviceClass').replace('Classs', 'Classes')} of no pool: "
            f"{some(left)}. If Pods get accelerators by a claim on one, add it to deviceClasses"
        )
    _set_names(pools)
    drafted.quarantine = sorted(
        {
            Taint(taint.key, taint.effect)
            for number, source in enumerate((*drafted.nodes, *sources[len(drafted.nodes) :]))
            if number in offering
            for taint in (*source.taints, *getattr(source, "startup_taints", ()))
            if taint.effect in FENCING_EFFECTS
            and (is_quarantine(taint) or (taint.key, taint.effect) in startup)
        }
    )
    return drafted


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
    """The pools of one vendor.

    ``common`` are the taints of nodes without accelerators. ``is_mixed`` is true if nodes have
    devices of another vendor as well.
    """

    def __init__(
        self,
        vendor: Vendor,
        sources: Sequence[Source],
        members: Mapping[int, Member],
        common: Collection[tuple[str, str | None]],
        findings: list[str],
        is_mixed: bool,
    ) -> None:
        self.vendor, self.findings = vendor, findings
        self._common, self._is_mixed = common, is_mixed
        counts = Counter(t for member in members.values() for t in member.taints)
        rare = {t for t, n in counts.items() if n == 1 and t.key != vendor.taint}
        self.members = {n: self._typical(member, rare) for n, member in members.items()}
        usual = Counter(t for t in counts.elements() if self._unfit(t) is None)
        # Of equally many, the first one in the alphabet.
        self._usual = min(usual, key=lambda t: (-usual[t], t), default=None)
        # The labels of a node that starts may be missing.
        bare = {n for n, member in members.items() if member.is_bare}
        self._starting = bare if len(bare) < len(members) else set[int]()
        self._known = {n: m for n, m in self.members.items() if n not in self._starting}
        self._labels = Labels(sources, self._known, self._starting)

    def pools(self) -> Iterator[PoolDraft]:
        """Yield the pools, and add what is wrong to the findings."""
        groups = [
            *groups_of(self.vendor, self._known, self._labels, lambda t: self._unfit(t) is None)
        ]
        lost = [group for group, _, identity in groups if identity is None]
        for group, traits, identity in groups:
            if identity is not None:
                if len(traits) > 1 and (apart := _apart(traits)):
                    self.findings.append(
                        f"Nodes with {describe(identity.selector)} are one pool{apart}. To "
                        "separate them, label the nodes"
                    )
                yield self._pool(identity.selector, group, traits, identity.reason)
        numbers = frozenset[int]().union(*lost)
        nodes = frozenset(n for n in numbers if not self.members[n].is_template)
        if templates := [*dict.fromkeys(self._names(numbers - nodes))]:
            self.findings.append(
                f"No label of {some(templates)} identifies {self.vendor.name} nodes. An autoscaler "
                "adds no node for a Pod that requires another label. Add one to the template"
            )
        if not nodes:
            return
        traits = set[Traits]().union(*(own for group, own, _ in groups if group & nodes))
        # A pool without labels has every node with its devices, also those of another vendor's.
        is_whole = len(lost) == len(groups) and not self._is_mixed
        if is_whole and any(self.members[n].classes for n in nodes):
            key = next(iter(self.vendor.marks), "a label of your own")
            self.findings.append(
                f"No label identifies the {self.vendor.name} nodes, so all are one pool without "
                f"labels{_apart(traits)}. Pods that tolerate every taint are denied, because no "
                f"label keeps them off: {some(self._names(nodes))}. Label the nodes with {key}, "
                "and select it"
            )
            yield self._pool({}, nodes, traits)
            return
        self.findings.append(
            f"No label identifies the {self.vendor.name} devices of {some(self._names(nodes))}. A "
            f"pool selects the nodes by {HOST}, and needs a change for new nodes{_apart(traits)}. "
            "Give them a label of their own, and select it"
        )
        sources = (self.members[n].source for n in nodes)
        hosts = sorted(source.labels.get(HOST, source.name) for source in sources)
        yield self._pool({HOST: tuple(hosts)}, nodes, traits)

    def _pool(
        self,
        selector: dict[str, tuple[str, ...]],
        group: Numbers,
        traits: Iterable[Traits],
        reason: str = "",
    ) -> PoolDraft:
        starting = (n for n in self._starting if selects(selector, self.members[n].source.labels))
        members = [self.members[n] for n in sorted(group.union(starting))]
        models = tuple(sorted({each.model for each in traits} - {""}))
        pool = PoolDraft(self.vendor, selector, members, reason, models)
        self._set_taints(pool)
        return pool

    def _names(self, numbers: Iterable[int]) -> list[str]:
        return [self.members[n].name for n in sorted(numbers)]

    def _typical(self, member: Member, rare: Collection[Taint]) -> Member:
        """Return the node without a taint that no other node of the vendor has.

        It has another taint as well. One node is no rule: it may be under repair.
        """
        odd = {t for t in member.taints if t in rare and self._unfit(t) is None}
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
            return ", which nodes without accelerators have as well"
        return ", which is not about accelerators" if is_generic(taint) else None

    def _set_taints(self, pool: PoolDraft) -> None:
        """Set the taints that fence the nodes, and report nodes without them."""
        shares = Counter(taint for member in pool.members for taint in member.taints)
        unfit = {taint: why for taint in sorted(shares) if (why := self._unfit(taint))}
        fencing = shares.keys() - unfit.keys()
        stronger = {
            t for t in fencing if t.key == self.vendor.taint or shares[t] * 2 > len(pool.members)
        }
        for taint in sorted(fencing - stronger, key=lambda taint: (shares[taint], taint)):
            having = [member for member in pool.members if taint in member.taints]
            if all(stronger & each.taints and not each.is_template for each in having):
                number = f"{counted(len(having), 'node')} of {len(pool.nodes)}"
                unfit[taint] = f" on {number}, in addition to another one"
        fencing -= unfit.keys()
        self.findings += [
            f"{pool.where} have the taint {taint}{why}. It is not part of taints. If GPU Pods "
            "should run there, add it to tolerate of the pool"
            for taint, why in unfit.items()
        ]
        fenced = [member for member in pool.members if not fencing.isdisjoint(member.taints)]
        for taint in sorted(fencing):
            if untainted := [member.name for member in fenced if taint not in member.taints]:
                self.findings.append(
                    f"{pool.where} have the taint {taint}, except {some(untainted)}"
                )
        if bare := [
            member.name
            for member in pool.members
            if fencing.isdisjoint(member.taints) and not member.is_virtual
        ]:
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
        single = [each[0] for k, each in pool.selector.items() if len(each) == 1 and k != HOST]
        telling = (v for v in single if re.search("[A-Za-z]", v) and v not in _PRESENT)
        [named] = pool.models if len(pool.models) == 1 else ["-".join(telling)]
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
