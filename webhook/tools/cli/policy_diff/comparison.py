"""The comparison of two policies by the classes of Pods that they can tell apart.

Both policies decide on the smallest Pod of each class, as ``gpufence check`` does. Classes that
differ in the same way are one difference.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date
from itertools import count, product
from typing import Any, NamedTuple

from msgspec import UNSET, structs

from policies.decision import Decision
from policies.exemptions import ALWAYS_EXCLUDED
from policies.facts import Facts, Request
from policies.finding import Action
from policies.kubernetes.field_types import NameSet, camel_case
from policies.kubernetes.objects import JSONObject
from policies.policy import ExceptionEntry, Hardening, Policy, Pool
from policies.registry import RULES
from policies.wording import listing
from webhook.tools.cli.evaluate import evaluate
from webhook.tools.cli.policy_diff.traits import (
    FIELDS,
    KINDS,
    OTHER,
    Trait,
    kind,
    objects_of,
    settings,
    tolerations,
    traits_of,
)
from webhook.tools.documents.document import Document
from webhook.tools.documents.objects import Manifest

Class = frozenset[Trait]
"""The Pods with these traits, and otherwise like the plain one."""

CHANGES = "changes"
"""The outcome of a mutation that changes the object."""

ELSEWHERE: Mapping[str, str] = {
    "failurePolicy": "what API servers do while no replica answers",
    "customWorkloads": "for which custom resources API servers call gpufence, and what audits list",
    "name": "names of pools in messages, metrics and reports",
    "pricePerDeviceHour": "costs in audits",
    "reason": "text of reports",
}
"""By field: what follows from it besides the decisions on Pods."""

_MANY = 5
_DOCUMENT = Document(0, "", 0, path="smallest.yaml")


class Change(NamedTuple):
    """How the decisions on one object differ in what a rule does.

    ``before`` and ``after`` are the outcomes of the rule's findings, or ``changes`` of a mutation.
    """

    rule: str
    before: str
    after: str


_Shown = tuple[tuple[bool, bool], Change]
"""A change, and whether each policy allows the Pods that show it."""


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

    ``changed`` are the paths of the fields that differ, and ``elsewhere`` those of them that no Pod
    shows, with what they are about. ``classes`` is the number of classes that were compared.
    """

    differences: Sequence[Difference]
    changed: Sequence[str]
    elsewhere: Mapping[str, str]
    classes: int

    @property
    def is_equal(self) -> bool:
        return not (self.differences or self.elsewhere)


def compare(old: Policy, new: Policy, today: date) -> Comparison:
    """Compare two policies. Without known nodes, as for files."""
    sides = dict(_leaves(old)), dict(_leaves(new))
    both = {*sides[0]["pools"]} & {*sides[1]["pools"]}
    for each in sides:
        each["pools"] = [name for name in each["pools"] if name in both]
    paths = dict.fromkeys((*sides[0], *sides[1]))
    changed = [path for path in paths if sides[0].get(path) != sides[1].get(path)]
    comparer = Comparer(old, new, today)
    comparer.run(changed)
    found = comparer.differences()
    # The fields of a pool that is new or gone follow from it.
    own = [path for path in changed if not found or all(path in each for each in sides)]
    elsewhere = {
        path: ELSEWHERE[field]
        for path in own
        for field in re.split(r"[.\[]", path)
        if field in ELSEWHERE
    }
    named = {change.rule for each in found for change in each.rules}
    for rule in sorted(comparer.changed_rules() - named):
        elsewhere[f"rules[{rule}]"] = "what the rule says depends on more than these Pods"
    return Comparison(found, changed, elsewhere, len(comparer.answers))


def _leaves(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each field of a policy with its path. Pools and rules count by their names."""
    if isinstance(part, tuple) and part and is_dataclass(part[0]):
        names = [getattr(item, "name", index) for index, item in enumerate(part)]
        yield path, names
        for name, item in zip(names, part, strict=True):
            yield from _leaves(item, f"{path}[{name}]")
    elif is_dataclass(part):
        for each in fields(part):
            name = f"{path}.{camel_case(each.name)}".lstrip(".")
            yield from _leaves(getattr(part, each.name), name)
    elif path.endswith("rules") and isinstance(part, Mapping):
        yield from ((f"{path}[{rule}]", action) for rule, action in part.items())
    else:
        yield path, part.patterns if isinstance(part, NameSet) else part


class Answer(NamedTuple):
    """A decision without its wording, and without the order of what mutations add.

    ``outcomes`` are those of each rule. ``details`` are the problems, and what mutations write.
    """

    allowed: bool
    outcomes: Mapping[str, str]
    details: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, decision: Decision) -> Answer:
        outcomes: defaultdict[str, set[str]] = defaultdict(set)
        details: set[tuple[str, ...]] = set()
        for finding in decision.findings:
            outcomes[finding.rule].add(finding.outcome)
            details.add((finding.rule, finding.path, finding.reason))
        for rule, made in zip(decision.mutations, decision.operations, strict=True):
            outcomes[rule].add(CHANGES)
            place = re.sub(r"/(\d+|-)$", "", made.path)
            values = made.value if isinstance(made.value, list) else [made.value]
            details |= {
                (CHANGES, rule, place, json.dumps(_ordered(value), sort_keys=True))
                for value in values
            }
        joined = {rule: " and ".join(sorted(own)) for rule, own in outcomes.items()}
        return cls(decision.allowed, joined, frozenset(details))

    def written(self, rule: str) -> set[tuple[str, ...]]:
        return {detail for detail in self.details if detail[:2] == (CHANGES, rule)}


def _ordered(value: Any) -> Any:
    """Return the value with its lists in one order."""
    if isinstance(value, dict):
        return {key: _ordered(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(_ordered, value), key=json.dumps)
    return None if value is UNSET else value


def changes(before: Answer, after: Answer) -> frozenset[Change]:
    """Return how two decisions on the same object differ."""
    if before == after:
        return frozenset()
    return frozenset(
        Change(rule, old, new)
        for rule in {**before.outcomes, **after.outcomes}
        for old, new in [(before.outcomes.get(rule, ""), after.outcomes.get(rule, ""))]
        if old != new or before.written(rule) != after.written(rule)
    )


class Comparer:
    """Decides on classes of Pods with two policies."""

    def __init__(self, old: Policy, new: Policy, today: date) -> None:
        self._policies = old, new
        self._today = today
        self._settings = settings()
        named = {name for each in (old, new) for names in _names_in(each) for name in names.exact}
        self._home = OTHER if "default" in named else "default"
        self._alike: dict[Trait, list[Trait]] = {}
        self._pools: defaultdict[str, list[Pool]] = defaultdict(list)
        for pool in (*old.pools, *new.pools):
            self._pools[pool.name].append(pool)
        self.answers: dict[Class, tuple[Answer, Answer]] = {}

    def run(self, changed: Iterable[str]) -> None:
        """Compare the classes that show changes of these fields, by their paths."""
        of_pools: defaultdict[str, set[str]] = defaultdict(set)
        for path in changed:
            steps = re.match(r"pools\[([^]]*)\]\.(\w+)", path)
            if steps:
                of_pools[steps[1]].add(steps[2])
            elif path == "pools":
                of_pools |= {name: of_pools[name] for name in self._pools}
            elif path.startswith("quarantineTaints"):
                of_pools |= {name: of_pools[name] | {"quarantineTaints"} for name in self._few()}
        for name, own in of_pools.items():
            for each in self.combinations(name, own):
                self.answer(each)
        frames = list(self._frames())
        for sample in self.samples() if frames else ():
            for frame in frames:
                self.answer(_with(sample, *frame))

    # The classes that show changes of a pool.

    def _groups(self, name: str) -> tuple[list[Class], list[list[Trait]]]:
        """Return the frames of a pool, and its traits: those of an aspect that are alike together.

        The frames are a plain Pod, one with a device, and one with all that a version of the pool
        accepts. Traits are alike if both policies say the same of each frame with them.
        """
        every = [pool for versions in self._pools.values() for pool in versions]
        taints = [taint for policy in self._policies for taint in policy.quarantine_taints]
        namespaces = [*self._namespaces(self._pools[name])]
        traits: dict[Trait, None] = {}
        frames = {Class(): None}
        for pool in self._pools[name]:
            others = [each for each in every if each.name == name or each.shared_device(pool)]
            own = dict.fromkeys(traits_of(pool, others, namespaces))
            about = {"selection", "stated"} | ({"namespace"} if pool.allowed_namespaces else set())
            device = next(trait for trait in own if trait.aspect == "device")
            accepted = [trait for trait in reversed(own) if trait.about in about]
            frames |= dict.fromkeys([_with((), device), _with(accepted, device)])
            traits |= own
        groups: dict[object, list[Trait]] = {}
        for trait in dict.fromkeys((*traits, *tolerations(taints), *self._settings)):
            answers = [self.answer(_with(frame, trait)) for frame in frames]
            groups.setdefault((trait.aspect, trait.words, str(answers)), []).append(trait)
        self._alike |= {group[0]: group for group in groups.values()}
        return [*frames], [*groups.values()]

    def combinations(self, name: str, changed: Iterable[str]) -> Iterator[Class]:
        """Yield the classes that show changes of these fields of a pool.

        The Pods of each frame have one trait of these fields and one of all fields.
        """
        about = {aspect for aspect, fields_ in FIELDS.items() if not fields_.isdisjoint(changed)}
        frames, groups = self._groups(name)
        ones = [group[0] for group in groups if group[0].about in about]
        for frame, one, other in product(frames, ones, groups):
            yield _with(frame, one, other[0])

    # The classes that show other changes.

    def _few(self) -> Iterator[str]:
        """Yield the names of few pools that set each field, or leave it out."""
        covered: set[tuple[str, bool]] = set()
        for name, versions in self._pools.items():
            leaves = (leaf for pool in versions for leaf in _leaves(pool))
            shape = {(re.sub(r"\[\d+\]", "", path), bool(value)) for path, value in leaves}
            if not shape <= covered:
                covered |= shape
                yield name

    def samples(self) -> Iterator[Class]:
        """Yield a class for each thing that rules say about Pods with one trait."""
        every: dict[str, Action] = dict.fromkeys((rule.id for rule in RULES), "enforce")
        old, new = (
            replace(each, rules=every, hardening=Hardening(), overrides=(), exceptions=())
            for each in self._policies
        )
        comparer, said = Comparer(old, new, self._today), set[object]()
        for name in self._few():
            # A change of the hardening shows only in pools without their own.
            has_own = any(pool.hardening for pool in self._pools[name])
            for frame, group in product(*comparer._groups(name)):
                own = _with(frame, group[0])
                parts = ((*a.details, *a.outcomes.items()) for a in comparer.answer(own))
                says = {(has_own, part) for each in parts for part in each}
                if not says <= said:
                    said |= says
                    yield own
        self._alike |= comparer._alike

    def _frames(self) -> Iterator[Class]:
        """Yield the traits by which Pods show differences of the policies besides their pools."""
        old, new = self._policies
        for trait in (None, *self._namespaces()):
            own, name = (Class({trait}), trait.namespace) if trait else (Class(), self._home)
            if self._actions(old, name) != self._actions(new, name):
                yield own
            entries = [self._exceptions(each, name) for each in self._policies]
            for entry in set(entries[0]) ^ set(entries[1]):
                yield from (own | each for each in self._excepted(entry))
        exempt = old.exemptions, new.exemptions
        for user in sorted(exempt[0].usernames ^ exempt[1].usernames):
            yield Class({Trait("user", "of user {}", user, request={"username": user})})
        for name in sorted(exempt[0].runtime_classes ^ exempt[1].runtime_classes):
            patch = {"spec": {"runtimeClassName": name}}
            yield Class({Trait("runtimeClass", "have runtime class {}", name, patch)})

    def changed_rules(self) -> set[str]:
        """Return the rules whose action differs, in any namespace."""
        names = [self._home, *(trait.namespace for trait in self._namespaces())]
        actions = [[each.actions_in(n).written.items() for n in names] for each in self._policies]
        return {rule for old, new in zip(*actions, strict=True) for rule, _ in old ^ new}

    def _namespaces(self, pools: Sequence[Pool] = ()) -> Iterator[Trait]:
        """Yield a trait for each group of namespaces that are alike for the policies and pools.

        Those that are like the namespaces without a name have none.
        """
        named = [names for policy in self._policies for names in _names_in(policy)]
        exact = {name for names in named for name in names.exact} - ALWAYS_EXCLUDED
        unnamed = {_unnamed(prefix, exact) for names in named for prefix in names.prefixes}
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for name in (self._home, *sorted(exact | unnamed)):
            allowed = [pool.allowed_namespaces for pool in pools]
            says = [
                *(self._actions(policy, name) for policy in self._policies),
                *(self._exceptions(policy, name) for policy in self._policies),
                *(each is not None and name in each.names for each in allowed),
            ]
            groups[repr(says)].append(name)
        for names in groups.values():
            if self._home not in names:
                patch = {"metadata": {"namespace": names[0]}}
                yield Trait("namespace", "in namespace {}", listing(names, "or"), patch)

    def _actions(self, policy: Policy, namespace: str) -> object:
        if namespace in policy.exemptions.namespaces:
            return "exempt"
        own = policy.actions_in(namespace)
        return own.mode, own.hardening or policy.hardening, sorted(own.written.items())

    def _exceptions(self, policy: Policy, namespace: str) -> list[ExceptionEntry]:
        return [entry for entry in policy.exceptions if namespace in entry.namespaces]

    def _excepted(self, entry: ExceptionEntry) -> Iterator[Class]:
        """Yield the objects on both sides of an exception: kinds, names and days."""
        exact, prefixes = entry.names.exact, entry.names.prefixes
        names = sorted({*exact, *(_unnamed(prefix, exact) for prefix in prefixes)})
        kinds = [kind(each) for each in sorted(entry.kinds & KINDS.keys())]
        named = [Trait("name", "have the name {}", n, {"metadata": {"name": n}}) for n in names]
        days: list[list[Trait]] = [[]]
        if entry.expires is not None and entry.expires > self._today:
            day = Trait("date", "from {} on", str(entry.expires), request={"today": entry.expires})
            days.append([day])
        for each in days:
            yield from (Class([*each, *more]) for more in product(*filter(None, [kinds, named])))

    # Decisions.

    def answer(self, traits: Class) -> tuple[Answer, Answer]:
        """Return what each policy says of the smallest Pod of a class."""
        found = self.answers.get(traits)
        if found is None:
            before, after = map(Answer.of, self._decide(traits, objects_of(traits, self._home)))
            found = self.answers[traits] = before, after
        return found

    def _changes(self, traits: Class) -> frozenset[Change]:
        return changes(*self.answer(traits))

    def _decide(self, traits: Class, objects: Sequence[JSONObject]) -> list[Decision]:
        given = {name: value for trait in traits for name, value in trait.request.items()}
        request = Request(**{"today": self._today} | given)
        manifests = [Manifest(_DOCUMENT, None, (), 0, obj) for obj in objects]
        return [
            [*evaluate(manifests, each, request, self._complete)][-1].decision
            for each in self._policies
        ]

    def _complete(self, _request: Request, facts: Facts, _obj: JSONObject) -> Facts:
        every = [pool.runtime_class for versions in self._pools.values() for pool in versions]
        return structs.replace(facts, runtime_classes=frozenset(filter(None, every)))

    # Differences.

    def differences(self) -> list[Difference]:
        """Return what was found, each as its smallest classes.

        Changes that the same classes show are one difference, and so are several rules whose
        outcomes change alike.
        """
        known: defaultdict[Change, dict[Class, None]] = defaultdict(dict)
        for own in sorted(self.answers, key=_size):
            for change in sorted(self._changes(own)):
                # A class with more traits than a known one shows nothing new.
                if not (any(each <= own for each in known[change]) or self._follows(own, change)):
                    least = self._least(own, change)
                    known[change] |= dict.fromkeys(self._like(least, change))
        found: defaultdict[_Shown, dict[Class, None]] = defaultdict(dict)
        for change, classes in known.items():
            for own in classes:
                found[self._allowed(own), change][own] = None
        for allowed, change in [*found]:
            # A Pod that is denied shows less well what a Pod that is allowed shows as well.
            if sum(allowed) < max(sum(each) for each, other in found if other == change):
                del found[allowed, change]
        alike: defaultdict[object, list[_Shown]] = defaultdict(list)
        for (allowed, change), shown in found.items():
            alike[allowed, frozenset(shown)].append((allowed, change))
        if len(alike) > _MANY:
            alike.clear()
            for allowed, change in found:
                alike[allowed, change.before, change.after].append((allowed, change))
        return [self._difference(each, found) for each in alike.values()]

    def _difference(
        self, shown: Sequence[_Shown], found: Mapping[_Shown, Iterable[Class]]
    ) -> Difference:
        made = [change for _, change in shown]
        classes = dict.fromkeys(own for each in shown for own in found[each])
        ordered = sorted(classes, key=lambda own: (len(self._changes(own) - {*made}), _size(own)))
        objects = objects_of(ordered[0], self._home)
        return Difference(made, ordered, objects, *self._decide(ordered[0], objects))

    def _allowed(self, own: Class) -> tuple[bool, bool]:
        before, after = self.answer(own)
        return before.allowed, after.allowed

    def _follows(self, own: Class, change: Change) -> bool:
        """Return whether a namespace shows what Pods elsewhere show, with its own settings."""
        for trait in own:
            if trait.aspect == "namespace":
                old, new = (self._actions(each, trait.namespace) for each in self._policies)
                elsewhere = self._changes(own - {trait})
                return old == new and any(each.rule == change.rule for each in elsewhere)
        return False

    def _least(self, own: Class, change: Change) -> Class:
        """Return the smallest class below this one that shows the change."""
        for trait in sorted(own, key=str):
            for fewer in (own - {trait}, own - {trait} | {trait.plain or trait}):
                is_denied = any(self._allowed(own)) and not any(self._allowed(fewer))
                if fewer != own and change in self._changes(fewer) and not is_denied:
                    return self._least(fewer, change)
        return own

    def _like(self, own: Class, change: Change) -> Iterator[Class]:
        """Yield the class, and those with another trait that show the same change."""
        yield own
        for trait in own:
            for other in self._alike.get(trait, ()):
                if change in self._changes(like := own - {trait} | {other}):
                    yield like


def _with(traits: Iterable[Trait], *more: Trait) -> Class:
    """Return the class with these traits; the last one of an aspect counts."""
    return Class({trait.aspect: trait for trait in (*traits, *more)}.values())


def _size(own: Class) -> tuple[int, int, str]:
    return len(own), len(str(objects_of(own))), str(sorted(map(str, own)))


def _names_in(policy: Policy) -> Iterator[NameSet]:
    """Yield the names of namespaces in the policy."""
    yield NameSet(policy.exemptions.namespaces)
    yield NameSet(policy.overridden)
    yield from (entry.namespaces for entry in policy.exceptions)
    yield from (pool.allowed_namespaces.names for pool in policy.pools if pool.allowed_namespaces)


def _unnamed(prefix: str, taken: Iterable[str]) -> str:
    """Return a name with the prefix that is not taken."""
    names = (f"{prefix}{n or 'x'}" for n in count())
    return next(name for name in names if name not in taken)
