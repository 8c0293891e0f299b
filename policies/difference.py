"""What a change of a policy does, in Pods.

Both policies decide on the smallest Pod of each class that they can tell apart. Classes that differ
in the same way are one difference, with the smallest Pod that shows it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date
from typing import Any, NamedTuple

from msgspec import UNSET

from policies.decision import Decision, Verdict
from policies.engine import decide
from policies.exemptions import ALWAYS_EXCLUDED
from policies.finding import Finding
from policies.kubernetes.field_types import NameSet, camel_case
from policies.kubernetes.objects import JSONObject
from policies.policy import Exemptions, Policy, Pool
from policies.registry import RULES
from policies.traits import (
    BY_NODES,
    ELSEWHERE,
    IN_PODS,
    Class,
    Trait,
    accepted,
    excepted,
    namespace,
    namespaces,
    objects_of,
    runtime_class,
    scope_of,
    settings,
    traits_of_pool,
    user,
)

CHANGES = "changes"
"""The outcome of a mutation that changes the object."""

_ABSENT = object()
_MANY = 5


class Change(NamedTuple):
    """How the decisions on one object differ in what a rule does.

    ``before`` and ``after`` are the outcomes of the rule's findings, or ``changes`` of a mutation.
    """

    rule: str
    before: str
    after: str


class Changes(NamedTuple):
    """How two decisions on one object differ; without ``rules``, they do not."""

    verdicts: tuple[Verdict, Verdict]
    rules: frozenset[Change]


@dataclass(frozen=True)
class Difference:
    """Classes of Pods on which the policies decide differently in the same way.

    ``objects`` are the smallest member, after the objects that it needs; ``before`` and ``after``
    are the decisions on it.
    """

    rules: Sequence[Change]
    classes: Sequence[Class]
    objects: Sequence[JSONObject]
    before: Decision
    after: Decision


@dataclass(frozen=True)
class Comparison:
    """The comparison of two policies.

    ``changed`` are the fields that differ, by their path, each with both values. ``elsewhere`` are
    those of them that say more than a decision on a Pod shows.
    """

    differences: Sequence[Difference]
    changed: Mapping[str, tuple[Any, Any]]
    elsewhere: Mapping[str, str]
    classes: int
    """The number of classes that were compared."""

    @property
    def is_equal(self) -> bool:
        return not (self.differences or self.elsewhere)


def compare(old: Policy, new: Policy, today: date) -> Comparison:
    """Compare two policies. Without known nodes, as for files."""
    fields_of = dict(_leaves(old)), dict(_leaves(new))
    changed = {
        path: tuple(each.get(path, _ABSENT) for each in fields_of)
        for path in dict.fromkeys((*fields_of[0], *fields_of[1]))
    }
    changed = {path: (a, b) for path, (a, b) in changed.items() if a != b}
    comparer = Comparer(old, new, today)
    # A Pod that touches nothing that changed is decided alike.
    touched: defaultdict[str, set[str]] = defaultdict(set)
    for path in changed:
        touched[_pool(path)].add(_field(path))
    names = [[pool.name for pool in each.pools] for each in (old, new)]
    common = {*names[0]} & {*names[1]}
    if [n for n in names[0] if n in common] != [n for n in names[1] if n in common]:
        for name in common:
            touched[name].add("pools")
    comparer.run(touched)
    found = comparer.differences()
    by_nodes = {
        f"rules[{rule}]": "denials that depend on known nodes" for rule in comparer.by_nodes
    }
    elsewhere = {
        path: ELSEWHERE.get(field, "a field that gpufence does not compare")
        for path in changed
        if (field := _field(path)) not in IN_PODS
        # The fields of what is new, or is gone, follow from it.
        and (_ABSENT not in changed[path] or (field == "pools.name" and not found))
    }
    return Comparison(found, changed, elsewhere | by_nodes, comparer.count)


def classes(policy: Policy, today: date) -> Iterator[Class]:
    """Yield the classes that are compared when every field of the pools changes."""
    comparer = Comparer(policy, policy, today)
    every = {field for field in IN_PODS if field.startswith("pools.")}
    comparer.run({pool.name: every for pool in policy.pools})
    yield from comparer.found


def changes(before: Decision, after: Decision) -> Changes:
    """Return how two decisions on the same object differ.

    Their messages do not count, nor the order of what mutations add.
    """
    found = []
    outcomes = [_outcomes(decision.findings) for decision in (before, after)]
    for rule in dict.fromkeys((*outcomes[0], *outcomes[1])):
        sides = [" and ".join(sorted(each.get(rule, ()))) for each in outcomes]
        if sides[0] != sides[1]:
            found.append(Change(rule, *sides))
    if before.operations != after.operations:
        made = [_by_rule(decision) for decision in (before, after)]
        differing = [rule for rule in {**made[0], **made[1]} if _differ(rule, *made)]
        is_order = all(rule in each for rule in differing for each in made)
        if not (is_order and _ordered(before.mutated) == _ordered(after.mutated)):
            found += [
                Change(rule, *(CHANGES if rule in each else "" for each in made))
                for rule in differing
            ]
    return Changes((before.verdict, after.verdict), frozenset(found))


def _outcomes(findings: Iterable[Finding]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in findings:
        found.setdefault(finding.rule, set()).add(finding.outcome)
    return found


def _by_rule(decision: Decision) -> dict[str, list[tuple[str, Any]]]:
    made: dict[str, list[tuple[str, Any]]] = {}
    for rule, operation in zip(decision.mutations, decision.operations, strict=True):
        made.setdefault(rule, []).append((operation.path, operation.value))
    return made


def _differ(rule: str, *made: Mapping[str, Sequence[object]]) -> bool:
    """Return whether a mutation writes different values, in any order."""
    before, after = (each.get(rule, ()) for each in made)
    return before != after and _ordered([*before]) != _ordered([*after])


def _ordered(value: Any) -> Any:
    """Return the value with its lists in one order."""
    if isinstance(value, dict):
        return {key: _ordered(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return sorted(map(_ordered, value), key=lambda each: json.dumps(each, sort_keys=True))
    return None if value is UNSET else value


# The fields of policies.


def _leaves(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each field of a policy with its path; pools count by their names."""
    if isinstance(part, tuple) and part and is_dataclass(part[0]):
        for index, item in enumerate(part):
            yield from _leaves(item, f"{path}[{getattr(item, 'name', index)}]")
    elif is_dataclass(part):
        for each in fields(part):
            key = camel_case(each.name)
            yield from _leaves(getattr(part, each.name), f"{path}.{key}" if path else key)
    elif isinstance(part, NameSet):
        yield path, part.patterns
    elif isinstance(part, frozenset):
        yield path, sorted(part)
    else:
        yield path, part


def _pool(path: str) -> str:
    """Return the name of the pool that a field belongs to, or nothing."""
    found = re.match(r"pools\[([^]]*)\]", path)
    return found[1] if found else ""


def _field(path: str) -> str:
    """Return the entry of ``IN_PODS`` or ``ELSEWHERE`` for a path, or the path without indexes."""
    name = re.sub(r"\[[^]]*\]", "", path)
    steps = name.split(".")
    known = (".".join(steps[:size]) for size in range(len(steps), 0, -1))
    return next((each for each in known if each in IN_PODS or each in ELSEWHERE), name)


# The classes that show a change.


class Comparer:
    def __init__(self, old: Policy, new: Policy, today: date) -> None:
        self._policies = old, new
        self._today = today
        self._runtime_classes = frozenset(
            pool.runtime_class for each in (old, new) for pool in each.pools if pool.runtime_class
        )
        self.found: dict[Class, Changes] = {}
        self.by_nodes: set[str] = set()
        self._kinds: set[Trait] = set()

    @property
    def count(self) -> int:
        return len(self.found)

    def run(self, changed: Mapping[str, set[str]]) -> None:
        """Compare the classes that show changes of these fields: by pool, and by "" the others."""
        old, new = self._policies
        pools = {pool.name: [pool] for pool in old.pools}
        for pool in new.pools:
            pools.setdefault(pool.name, []).append(pool)
        of_policy = changed.get("", set())
        for name, versions in pools.items():
            own = {*changed.get(name, ())}
            if "hardening" in of_policy and any(not pool.hardening for pool in versions):
                own.add("pools.hardening")
            if "quarantineTaints" in of_policy and versions[0] is old.pools[0]:
                own.add("quarantineTaints")
            if own:
                groups = {group for each in own for group in IN_PODS.get(each, "").split(", ")}
                traits = self._traits_of(versions, groups)
                self._combine(traits, {})
                for pool in versions:
                    self._combine(traits, accepted(pool))
        if of_policy:
            self._compare_names()

    def _traits_of(self, versions: Sequence[Pool], groups: set[str]) -> list[Trait]:
        every = [pool for policy in self._policies for pool in policy.pools]
        found: dict[Trait, None] = {}
        for pool in versions:
            sharing = [each for each in every if each.name == pool.name or each.shared_device(pool)]
            found |= dict.fromkeys(traits_of_pool(pool, sharing))
        if groups & {"setting", "toleration"}:
            found |= {trait: None for policy in self._policies for trait in settings(policy)}
        if "namespace" in groups:
            self._kinds |= {*self._kinds_of_namespaces()} - found.keys()
            found |= dict.fromkeys(self._kinds)
        return [trait for trait in found if _shows(trait, groups)]

    def _combine(self, traits: Sequence[Trait], others: Mapping[str, Trait]) -> None:
        """Compare the classes of one and two of the traits, and of two with a first device.

        Each is of another aspect, and at most one is not simple: the others of an aspect show
        nothing in such a class that the simple ones do not show. The Pods have the ``others`` as
        well, as far as they are of further aspects.
        """
        requests = [trait for trait in traits if trait.group == "device"]
        first = next(iter(requests), None)
        # One of each way to request a device: by resource, by claim, and by annotation.
        firsts = {(trait.verb, bool(trait.objects)): trait for trait in reversed(requests)}

        def compare_with_others(*own: Trait) -> None:
            aspects = {trait.aspect for trait in own}
            if any(trait.group in ("selection", "choice") for trait in own):
                aspects.add("selection")
            more = [trait for aspect, trait in others.items() if aspect not in aspects]
            if more or not others:
                self._compare({*own, *more})

        for trait in traits:
            compare_with_others(trait)
        for pair in itertools.combinations(traits, 2):
            is_simple = all(each.is_simple for each in pair)
            about = {trait.group for trait in pair}
            if pair[0].aspect == pair[1].aspect:
                continue
            if "device" in about:
                if is_simple or any(trait in firsts.values() for trait in pair):
                    compare_with_others(*pair)
            elif "choice" not in about and any(each.is_simple for each in pair) and not others:
                self._compare(pair)
                if first:
                    self._compare({first, *pair})

    def _compare(self, traits: Iterable[Trait]) -> Changes:
        """Return how the decisions on the smallest Pod of a class differ."""
        own = frozenset(traits)
        found = self.found.get(own)
        if found is None:
            found = self.found[own] = changes(*self._decide(own))
        return found

    def _decide(self, traits: Class, objects: list[JSONObject] | None = None) -> list[Decision]:
        objects = objects or objects_of(traits)
        request, facts = scope_of(traits, objects, self._runtime_classes, self._today)
        return [
            decide(objects[-1], policy, request, facts, excluded_namespaces=ALWAYS_EXCLUDED)
            for policy in self._policies
        ]

    # Namespaces, users and other names.

    def _namespaces(self) -> Iterator[Trait]:
        """Yield each namespace that a policy names, one for each prefix, and another one."""
        names = NameSet(
            pattern
            for policy in self._policies
            for patterns in (
                policy.exemptions.namespaces,
                policy.overridden,
                *(entry.namespaces.patterns for entry in policy.exceptions),
            )
            for pattern in patterns
        )
        yield from namespaces(NameSet([*names.patterns, "*"]))

    def _settings_in(self, trait: Trait) -> list[object]:
        """Return what each policy says of a namespace besides its pools."""
        name = trait.what
        found: list[object] = []
        for policy in self._policies:
            own = policy.actions_in(name)
            is_exempt = name in policy.exemptions.namespaces
            hardening = own.hardening or policy.hardening
            actions = sorted(own.written.items())
            found.append("exempt" if is_exempt else (own.mode, hardening, actions))
        return found

    def _kinds_of_namespaces(self) -> list[Trait]:
        """Return a namespace for each pair of settings."""
        found: dict[str, Trait] = {}
        for trait in self._namespaces():
            found.setdefault(repr(self._settings_in(trait)), trait)
        return list(found.values())

    def _compare_names(self) -> None:
        """Compare what depends on names, by Pods on which each rule has something to say."""
        triggers = self.triggers()
        every = {own for found in triggers.values() for own in found}
        exempt = [policy.exemptions for policy in self._policies]
        frames: dict[Class, set[Class]] = {}
        for trait in (None, *self._namespaces()):
            settings_ = self._settings_in(trait or namespace("default"))
            if settings_[0] != settings_[1]:
                frames[frozenset({trait} if trait else ())] = every
                self.by_nodes.update(self._changed_by_nodes(trait))
        for name in exempt[0].usernames ^ exempt[1].usernames:
            frames[frozenset({user(name)})] = every
        for name in exempt[0].runtime_classes ^ exempt[1].runtime_classes:
            frames[frozenset({runtime_class(name)})] = every
        entries = [policy.exceptions for policy in self._policies]
        for entry in {*entries[0]} ^ {*entries[1]}:
            about = {own for rule in entry.rules or triggers for own in triggers.get(rule, ())}
            taken = {name for each in (*entries[0], *entries[1]) for name in each.namespaces.exact}
            for own in excepted(entry, self._today, taken):
                frames.setdefault(own, set()).update(about)
        for frame, classes in frames.items():
            aspects = {trait.aspect for trait in frame}
            for own in classes:
                self._compare(frame | {trait for trait in own if trait.aspect not in aspects})

    def _changed_by_nodes(self, trait: Trait | None) -> Iterator[str]:
        """Yield the changed rules whose denials no class shows, because they need known nodes."""
        name = trait.what if trait else "default"
        before, after = (policy.actions_in(name).written for policy in self._policies)
        yield from (rule for rule in BY_NODES if before[rule] != after[rule])

    def triggers(self) -> dict[str, set[Class]]:
        """Return the smallest Pods on which each rule has something to say, for each policy."""
        found: defaultdict[str, set[Class]] = defaultdict(set)
        for policy in self._policies:
            bare = replace(
                policy,
                mode="enforce",
                rules={rule.id: "enforce" for rule in RULES},
                overrides=(),
                exceptions=(),
                exemptions=Exemptions(),
            )
            seen: set[tuple[str, str]] = set()
            covered: set[str] = set()
            for pool in policy.pools:
                own_fields = {each.name for each in fields(pool) if getattr(pool, each.name)}
                if own_fields <= covered:
                    continue
                covered |= own_fields
                traits = [*traits_of_pool(pool), *settings(policy)]
                traits = [t for t in traits if t.is_simple or t.group == "setting"]
                requests = [trait for trait in traits if trait.group == "device"]
                others = [trait for trait in traits if trait.group != "namespace"]
                classes = [frozenset({trait}) for trait in traits]
                classes += [frozenset({own, t}) for t in others for own in requests[:1]]
                privileged = [trait for trait in others if trait.verb == "run privileged"]
                for one in requests[:1]:
                    classes += [frozenset({one, t}) for t in traits if t.group == "namespace"]
                    classes.append(frozenset({one, *accepted(pool).values()}))
                for each in others:
                    if each.group == "toleration":
                        classes += [frozenset({each, *privileged})]
                for own in classes:
                    objects = objects_of(own)
                    scope = scope_of(own, objects, self._runtime_classes, self._today)
                    decision = decide(objects[-1], bare, *scope)
                    says = {(each.rule, str(each.action)) for each in decision.findings}
                    says |= {(rule, CHANGES) for rule in decision.mutations}
                    for rule, _ in says - seen:
                        found[rule].add(own)
                    seen |= says
        return dict(found)

    # Differences.

    def differences(self) -> list[Difference]:
        """Return what was found, each as its smallest classes.

        Changes that the same classes show are one difference, and so are several rules whose
        outcomes change alike.
        """
        least: defaultdict[Change, dict[Class, None]] = defaultdict(dict)
        for own in sorted(self.found, key=lambda own: (len(own), sorted(map(str, own)))):
            for change in self.found[own].rules:
                if not self._follows(own, change):
                    least[change][self._least(own, change)] = None
        alike: defaultdict[object, list[Change]] = defaultdict(list)
        for change, classes in least.items():
            alike[frozenset(classes)].append(change)
        if len(alike) > _MANY:
            alike.clear()
            for change in least:
                alike[change.before, change.after].append(change)
        return [
            self._difference(made, dict.fromkeys(own for each in made for own in least[each]))
            for made in alike.values()
        ]

    def _difference(self, made: Sequence[Change], classes: Iterable[Class]) -> Difference:
        def size(own: Class) -> tuple[int, int]:
            return len(self.found[own].rules.difference(made)), len(str(objects_of(own)))

        ordered = sorted(classes, key=size)
        objects = objects_of(ordered[0])
        before, after = self._decide(ordered[0], objects)
        return Difference(made, ordered, objects, before, after)

    def _follows(self, own: Class, change: Change) -> bool:
        """Return whether other settings in a namespace show what Pods elsewhere show as well."""
        elsewhere = own - self._kinds
        found = self._compare(elsewhere).rules if elsewhere != own else ()
        return any(each.rule == change.rule for each in found)

    def _least(self, own: Class, change: Change) -> Class:
        """Return the smallest class below this one that shows the change."""
        for trait in own:
            for fewer in (own - {trait}, own - {trait} | {trait.plain} if trait.plain else own):
                if fewer != own and change in self._compare(fewer).rules:
                    return self._least(fewer, change)
        return own


def _shows(trait: Trait, groups: Collection[str]) -> bool:
    """Return whether the trait is in one of the groups: some have only the simple ones."""
    return trait.group in groups or (trait.is_simple and f"simple {trait.group}" in groups)
