"""Groups of nodes that become pools, and the labels that identify them.

Nodes and templates of nodes to come are *sources*. A label identifies a group if every source of
the group has one of its values and no other source has, whether or not it has accelerators. Of
several labels, the most stable one counts: an autoscaler knows what the cloud, a node group or a
template sets before a node is up.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.scheduling import Taint
from policies.reach import HOST
from policies.vendors import Vendor, domains_of_vendors, known_vendors
from webhook.tools.cli.discover.accelerators import (
    INSTANCE_TYPE,
    KNOWN,
    Member,
    Source,
    values_of,
)

Numbers: TypeAlias = frozenset[int]
"""Sources, by their number."""

_MOST_PAIRED = 24
"""The most labels that are tried in pairs."""
# Labels of other domains are the administrator's own.
_OWNED_DOMAINS = re.compile(
    rf"^topology\.|(^|\.)({'|'.join(map(re.escape, sorted(domains_of_vendors())))}|kubernetes\.io|"
    r"k8s\.io|google\.com|gke\.io|amazonaws\.com|aws|azure\.com|oraclecloud\.com|openshift\.io|"
    r"karpenter\.sh|cast\.ai)/"
)
_CLOUD, _NODE_GROUP, _DISCOVERY, _OWN, _CHANGING = range(5)
_REASONS = {
    _CLOUD: "which the cloud or a template sets: an autoscaler knows it before a node is up",
    _NODE_GROUP: "the name of a node group: add the name of a new group",
    _DISCOVERY: "which a node gets once it is up: where node groups scale from zero, add it to "
    "their template",
    _OWN: "a label that no other node has",
    _CHANGING: "which changes with how devices are divided: a label of your own lasts longer",
}


_PRODUCTS = {key for vendor in known_vendors() for key in vendor.products}
_DIVIDING = {*KNOWN.partition_labels, *KNOWN.changing_labels}


class Traits(NamedTuple):
    """What the nodes of a pool have in common. What is empty is unknown."""

    model: str
    taints: frozenset[Taint]
    kind: frozenset[str]


class Enclosure(NamedTuple):
    """The smallest group around another one that labels identify."""

    selector: dict[str, tuple[str, ...]]
    sources: Numbers
    stage: int
    values: int
    """How many values they have."""
    ranks: tuple[int, ...]

    @property
    def quality(self) -> tuple[int, int, tuple[int, ...]]:
        """How good the labels are; lower is better."""
        return self.stage, self.values, self.ranks

    @property
    def reason(self) -> str:
        """Why these labels were selected, as a clause."""
        if len(self.ranks) > 1:
            return "two labels: none alone tells these nodes from all others"
        return _REASONS[self.stage]


class Labels:
    """The labels of all sources. ``ignored`` are sources whose labels identify nothing."""

    def __init__(
        self, sources: Sequence[Source], members: Mapping[int, Member], ignored: Collection[int]
    ) -> None:
        self._sources, self._members, self._ignored = sources, members, {*ignored}
        self._having: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(
            lambda: defaultdict(set)
        )
        for number, source in enumerate(sources):
            keys = {*source.labels}
            if isinstance(source, NodeTemplate):
                keys.update(each.key or "" for each in source.requirements)
            for key in keys:
                for value in values_of(source, key):
                    self._having[key][value].add(number)
        promised = {k for m in members.values() if m.is_template for k in m.source.labels}
        # By key, how stable the label is, and its place among the known.
        self._ranks = {
            key: (_stage(key, promised), rank)
            for rank, key in enumerate(_in_order(self._having))
            if self._lasts(key)
        }
        self._with = {
            key: frozenset[int]().union(*self._having[key].values()) for key in self._ranks
        }

    def identity(self, group: Numbers) -> Enclosure | None:
        """Return the best label that identifies the group, or else the best two together."""
        keys = self._common(group)
        singles = [(key,) for key in keys]
        for tried in (singles, combinations(keys[:_MOST_PAIRED], 2)):
            found = [self._enclose(group, each, {}) for each in tried]
            if best := min(filter(None, found), key=lambda each: each.quality, default=None):
                model = next((key for key in keys if key in _PRODUCTS), None)
                if model is None or not best.selector.keys() <= _DIVIDING:
                    return best
                # It says only how devices are divided.
                return best._replace(selector=self._selector([model], group) | best.selector)
        return None

    def part(self, group: Numbers) -> Numbers:
        """Return the largest part of the group that a label identifies, templates first."""
        parts = []
        for key, (stage, _) in self._ranks.items():
            own = group & self._with[key]
            is_part = stage <= _DISCOVERY and own and own != group
            if is_part and (found := self._enclose(own, (key,), {})):
                templates = sum(self._members[n].is_template for n in own)
                parts.append(((-templates, -len(own), found.quality), own))
        return min(parts, key=lambda each: each[0])[1] if parts else frozenset()

    def around(self, group: Numbers, groups: Mapping[Numbers, str]) -> Numbers:
        """Return the fewest of the groups, with this one, that a label identifies together.

        ``groups`` has the models. Models stay apart if that of this group is unknown.
        """
        found = []
        for key in self._common(group):
            if enclosure := self._enclose(group, (key,), groups):
                touched = [each for each in groups if each <= enclosure.sources]
                models = {groups[each] for each in touched} - {""}
                if groups[group] or len(models) < 2:
                    found.append(((len(models), len(touched), enclosure.quality), enclosure))
        return min(found, key=lambda each: each[0])[1].sources if found else frozenset()

    def _common(self, group: Numbers) -> list[str]:
        """Return the keys that every source of the group has, the preferred ones first."""
        keys = [key for key in self._ranks if group <= self._with[key]]
        return sorted(keys, key=lambda key: self._ranks[key])

    def _selector(self, keys: Sequence[str], group: Collection[int]) -> dict[str, tuple[str, ...]]:
        """Return the values of these labels that the group has."""
        return {
            key: tuple(sorted(v for v, n in self._having[key].items() if not n.isdisjoint(group)))
            for key in keys
        }

    def _enclose(
        self, group: Numbers, keys: Sequence[str], groups: Iterable[Numbers]
    ) -> Enclosure | None:
        """Return what the values of these labels identify, if it is the group and other groups."""
        members = {*group}
        while all(members <= self._with[key] for key in keys):
            selector = self._selector(keys, members)
            having = (
                set[int]().union(*(self._having[key][value] for value in values))
                for key, values in selector.items()
            )
            others = set.intersection(*having) - members - self._ignored
            if not others:
                stages, ranks = zip(*(self._ranks[key] for key in keys), strict=True)
                values = [value for own in selector.values() for value in own]
                is_changing = any(map(KNOWN.changing_values.search, values))
                stage = _CHANGING if is_changing else max(stages)
                return Enclosure(selector, frozenset(members), stage, len(values), ranks)
            members.update(*(each for each in groups if not each.isdisjoint(others)))
            if others - members:
                return None
        return None

    def _lasts(self, key: str) -> bool:
        """Return whether new nodes can have the values of a label as well, as far as they tell."""
        having = {self._sources[n].name: values_of(self._sources[n], key) for n in self._members}
        named = [name in values for name, own in having.items() if (values := [*own])]
        is_name = key == HOST or (bool(named) and all(named) and not _OWNED_DOMAINS.search(key))
        return not (is_name or any(map(KNOWN.passing_values.search, self._having[key])))


def groups_of(
    vendor: Vendor,
    members: Mapping[int, Member],
    labels: Labels,
    is_fence: Callable[[Taint], bool],
) -> Iterator[tuple[Numbers, set[Traits], Enclosure | None]]:
    """Yield groups with their traits, and the labels that identify them, if any do.

    Sources that differ in their model, their taints or the kind of their devices are one group only
    if no label tells them apart.
    """
    traits = _traits(vendor, members, is_fence)
    groups = _by_traits(traits)
    unions: set[Numbers] = set()
    identities: dict[Numbers, Enclosure | None] = {}
    while pending := next((each for each in groups if each not in identities), None):
        models = {
            group: ", ".join(sorted({traits[n].model for n in group} - {""})) for group in groups
        }
        if identity := labels.identity(pending):
            identities[pending] = identity
        elif pending not in unions and (part := labels.part(pending)):
            groups = [*(each for each in groups if each != pending), part, pending - part]
        elif union := labels.around(pending, models):
            groups = [*(each for each in groups if not each <= union), union]
            unions.add(union)
        else:
            identities[pending] = None
    for group in sorted(groups, key=min):
        yield group, {traits[n] for n in group}, identities[group]


def _by_traits(traits: Mapping[int, Traits]) -> list[Numbers]:
    """Return the sources by traits. What is unknown joins the only group that it can belong to."""
    groups: defaultdict[Traits, set[int]] = defaultdict(set)
    for number, own in traits.items():
        groups[own].add(number)
    for own in sorted(groups, key=lambda each: bool(each.taints) + bool(each.kind)):
        fitting = [
            each
            for each in groups
            if each != own
            and each.model == own.model
            and own.taints in (frozenset(), each.taints)
            and own.kind in (frozenset(), each.kind)
        ]
        if len(fitting) == 1:
            groups[fitting[0]] |= groups.pop(own)
    return [frozenset(each) for each in groups.values()]


def _traits(
    vendor: Vendor, members: Mapping[int, Member], is_fence: Callable[[Taint], bool]
) -> dict[int, Traits]:
    """Return the traits of the members, with the model by the label that most of them have.

    A template may name the model by another label, which its nodes have as well.
    """
    keys = [k for v in known_vendors() if v.domain == vendor.domain for k in v.products]
    having = Counter(key for member in members.values() for key in keys if member.values(key))
    keys.sort(key=lambda key: -having[key])

    def named(member: Member) -> str:
        return " and ".join(next(filter(None, map(member.values, keys)), member.products))

    by_label: defaultdict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for member in members.values():
        for key in () if member.is_template else keys:
            by_label[key, member.values(key)].add(named(member))

    def model(member: Member) -> str:
        given = [by_label[key, v] for key in keys if (v := member.values(key))]
        names = set.intersection(*given) if given and member.is_template else set()
        return names.pop() if len(names) == 1 else named(member)

    return {
        number: Traits(model(member), frozenset(filter(is_fence, member.taints)), member.kind)
        for number, member in members.items()
    }


def _in_order(having: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the keys that may identify accelerators: those about them first, then the own ones.

    ``having`` has the values of each.
    """
    vendors = known_vendors()
    node_groups = sorted(key for key in having if KNOWN.node_groups.search(key))
    known = [
        *(key for vendor in vendors for key in vendor.products),
        *(key for vendor in vendors for key in vendor.marks),
        *sorted(filter(KNOWN.family_labels.search, having)),
        *KNOWN.partition_labels,
        INSTANCE_TYPE,
        *sorted(node_groups, key=lambda key: not _OWNED_DOMAINS.search(key)),
        *KNOWN.changing_labels,
    ]
    own = sorted(
        (key for key in having if not _OWNED_DOMAINS.search(key)),
        key=lambda key: (not any(map(KNOWN.accelerator_words.search, (key, *having[key]))), key),
    )
    return [key for key in dict.fromkeys([*known, *own]) if key in having]


def _stage(key: str, promised: Collection[str]) -> int:
    if KNOWN.node_groups.search(key):
        return _NODE_GROUP
    if key in KNOWN.changing_labels:
        return _CHANGING
    if key in promised:
        return _CLOUD
    if key.startswith(KNOWN.discovery_labels):
        return _DISCOVERY
    return _CLOUD if _OWNED_DOMAINS.search(key) else _OWN
