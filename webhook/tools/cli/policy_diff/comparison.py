"""The comparison of two policies by the classes of Pods that they can tell apart.

Both policies decide on the smallest Pod of each class. Classes that differ in the same way are one
difference.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import count, product
from typing import NamedTuple

import msgspec

from policies.decision import Decision
from policies.engine import decide
from policies.facts import Request
from policies.kubernetes.field_types import NameSet
from policies.policy import ExceptionEntry, Policy, Pool
from policies.registry import RULES
from policies.wording import listing
from webhook.controller.text.objects import ALWAYS_EXCLUDED
from webhook.tools.cli.evaluate import Result, facts_among
from webhook.tools.cli.policy_diff.differences import (
    Change,
    Difference,
    Effects,
    Kind,
    changed_workloads,
    changes,
    difference_in,
    effects_of,
    pods,
)
from webhook.tools.cli.policy_diff.traits import (
    KINDS,
    OTHER,
    Trait,
    kind,
    metadata,
    objects_of,
    settings,
    spec,
    tolerations,
    traits_of,
)
from webhook.tools.documents.document import Document
from webhook.tools.documents.objects import Manifest
from webhook.wording import counted, some

Class = frozenset[Trait]
"""The Pods with these traits, and otherwise like the plain one."""

NOT_COMPARED = (
    "wording of messages, nodes of a cluster, and Pods with several containers, node selector "
    "terms, tolerations or device requests. Of device variables, mounts, images and security "
    "contexts, some are compared"
)
_DOCUMENT = Document(0, "", 0, path="smallest.yaml")
_WORD = re.compile(r"'([^']*)'")


class Comparison(NamedTuple):
    """The comparison of two policies.

    ``elsewhere`` says what else the policies change. ``notes`` say what was compared.
    """

    differences: list[Difference]
    workloads: list[Difference]
    elsewhere: list[str]
    notes: list[str]

    @property
    def is_equal(self) -> bool:
        return not (self.differences or self.workloads or self.elsewhere)


def compare(
    old: Policy,
    new: Policy,
    today: date,
    before: Sequence[Result] = (),
    after: Sequence[Result] = (),
) -> Comparison:
    """Compare two policies, without known nodes, and their results for what runs."""
    comparer = Comparer(old, new, today)
    comparer.run()
    found, workloads = comparer.differences(), changed_workloads(before, after)
    sides = _elsewhere(old), _elsewhere(new)
    elsewhere = [what for what, part in sides[0].items() if part != sides[1][what]]
    shown = {change.rule for each in found for change in each.rules}
    if left := sorted(comparer.changed_rules() - shown):
        elsewhere.append(
            f"Actions of {listing(left)} differ. Findings depend on more than these Pods"
        )
    notes = [
        f"The same holds for {some(others)} as for pool {name}: they differ only in names"
        for name, others in comparer.alike.items()
        if others and found
    ]
    if not found:
        notes.append(
            "The policies decide alike on every Pod in these respects: device requests and their "
            "numbers, node selection, tolerations, namespace, user, RuntimeClass, what pools "
            "require, and the hardening level"
        )
    compared = f"Compared: {len(comparer.answers):,} classes of Pods"
    if count := sum(each.decision.has_template for each in after):
        compared += f". {len(workloads)} of {counted(count, 'workload')} differ"
    notes.append(f"{compared}. Not compared: {NOT_COMPARED}")
    return Comparison(found, workloads, elsewhere, notes)


def _elsewhere(policy: Policy) -> dict[str, object]:
    """Return what no Pod shows."""
    return {
        "failurePolicy differs, which decides while no replica answers": policy.failure_policy,
        "customWorkloads differ: custom resources that API servers send": policy.custom_workloads,
        "Names or prices of pools differ, which reports show": {
            (pool.name, pool.price_per_device_hour) for pool in policy.pools
        },
        "Reasons or last days of exceptions differ": {
            (entry.reason, entry.expires) for entry in policy.exceptions
        },
    }


class Comparer:
    """Decides on classes of Pods with two policies."""

    def __init__(self, old: Policy, new: Policy, today: date) -> None:
        self._policies = old, new
        self._today = today
        named = {name for names in self._named() for name in names.exact}
        self._home = OTHER if "default" in named else "default"
        self._pools: defaultdict[str, list[Pool]] = defaultdict(list)
        for pool in (*old.pools, *new.pools):
            self._pools[pool.name].append(pool)
        every_class = (pool.runtime_class for pool in (*old.pools, *new.pools))
        self._runtime_classes = frozenset(filter(None, every_class))
        self._groups: dict[Trait, list[Trait]] = {}
        self.alike = self._alike_pools()
        self.answers: dict[Class, tuple[Effects, Effects]] = {}

    def run(self) -> None:
        """Compare the classes that show how the policies differ."""
        contexts = [*self._contexts()]
        for name in self.alike:
            versions = self._pools[name]
            if len(versions) < 2 or repr(versions[0]) != repr(versions[1]):
                for pair in self.pairs(name):
                    self.answer(pair)
            elif contexts:
                self._traits(name, contexts)

    def pairs(self, name: str) -> Iterator[Class]:
        """Yield the classes of Pods about a pool: each frame with two traits.

        One of them adds a difference to a frame, unless no trait does so alone.
        """
        frames, traits = self._frames(name), self._traits(name, [*self._contexts()])
        known = {frame: self._changes(frame) for frame in frames}
        adding = [
            trait
            for trait in traits
            if any(self._changes(_with(frame, trait)) - known[frame] for frame in frames)
        ]
        for frame, one, other in product(frames, adding or traits, traits):
            yield _with(frame, one, other)

    def _alike_pools(self) -> dict[str, list[str]]:
        """Return the pools, without those that differ from one only in names of their own.

        These are names of pools, labels and taints, except for those with a domain: rules know
        vendors.
        """
        texts = {name: repr(versions) for name, versions in self._pools.items()}
        rest = repr([replace(each, pools=()) for each in self._policies])
        uses = Counter(word for text in (*texts.values(), rest) for word in {*_WORD.findall(text)})
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name, versions in self._pools.items():
            text, names = texts[name], [name]
            for pool in versions:
                names += (word for key, own in pool.selector.items() for word in (key, *own))
                names += (word for each in pool.taints for word in (each.key, each.value or ""))
            for number, word in enumerate(dict.fromkeys(names)):
                if uses[word] == 1 and not re.search("[./]", word):
                    text = text.replace(f"'{word}'", f"name {number}")
            found[text].append(name)
        return {first: others for first, *others in found.values()}

    # The classes.

    def _frames(self, name: str) -> list[Class]:
        """Return Pods to which traits are added.

        A plain one, and for each version of the pool: with a toleration, with a device, and with
        all that the pool accepts.
        """
        frames = [Class()]
        for pool in self._pools[name]:
            own: dict[str, Trait] = {}
            for trait in traits_of(pool, [pool], [*self._namespaces([pool])]):
                own.setdefault(trait.aspect, trait)
            tolerating = Class(trait for aspect, trait in own.items() if aspect == "toleration")
            frames += [tolerating, Class({own["device"]}), Class(own.values()) - tolerating]
        return [*dict.fromkeys(frames)]

    def _traits(self, name: str, contexts: Iterable[Class]) -> list[Trait]:
        """Compare each frame of a pool with each trait, and return one of those that are alike.

        Traits are alike if both policies say the same of each frame with them, in each context.
        """
        versions, namespaces = self._pools[name], [*self._namespaces(self._pools[name])]
        traits: list[Trait] = []
        for pool in versions:
            every = (each for pools in self._pools.values() for each in pools)
            others = [each for each in every if each.name == name or each.shared_device(pool)]
            traits += traits_of(pool, others, namespaces)
        for policy in self._policies:
            traits += tolerations(policy.quarantine_taints)
        groups: dict[object, list[Trait]] = {}
        frames = [*product(self._frames(name), {Class(): None, **dict.fromkeys(contexts)})]
        for trait in dict.fromkeys((*traits, *namespaces, *settings())):
            said = [self.answer(_with(frame, trait, *context)) for frame, context in frames]
            groups.setdefault((trait.aspect, trait.words, str(said)), []).append(trait)
        self._groups |= {group[0]: group for group in groups.values()}
        return [group[0] for group in groups.values()]

    def _contexts(self) -> Iterator[Class]:
        """Yield the traits by which Pods show differences of the policies besides their pools."""
        old, new = self._policies
        for own in (Class(), *(Class({trait}) for trait in self._namespaces())):
            name = next((trait.namespace for trait in own), self._home)
            if self._changed_in(name):
                yield own
            for entry in {*self._exceptions(old, name)} ^ {*self._exceptions(new, name)}:
                names = entry.names.exact | {*_examples(entry.names.prefixes, entry.names.exact)}
                named = [Trait("name", "have the name", x, metadata(name=x)) for x in sorted(names)]
                kinds = [kind(each) for each in sorted(entry.kinds & KINDS.keys())]
                for more in product(*filter(None, [kinds, named])):
                    yield own.union(more)
        exempt = old.exemptions, new.exemptions
        for user in sorted(exempt[0].usernames ^ exempt[1].usernames):
            yield Class({Trait("user", "of user", user, username=user)})
        for name in sorted(exempt[0].runtime_classes ^ exempt[1].runtime_classes):
            what = f"runtimeClassName: {name}"
            yield Class({Trait("runtimeClass", "set", what, spec(runtimeClassName=name))})

    def _namespaces(self, pools: Sequence[Pool] = ()) -> Iterator[Trait]:
        """Yield a trait for each group of namespaces that are alike for the policies and pools.

        Those that are like the namespaces without a name have none.
        """
        exact = {name for names in self._named() for name in names.exact} - ALWAYS_EXCLUDED
        examples = {name for names in self._named() for name in _examples(names.prefixes, exact)}
        allowed = [pool.allowed_namespaces.names for pool in pools if pool.allowed_namespaces]
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for name in (self._home, *sorted(exact | examples)):
            says = [
                (sorted(self._actions(each, name)), self._exceptions(each, name))
                for each in self._policies
            ]
            groups[repr((says, [name in names for names in allowed]))].append(name)
        for names in groups.values():
            if self._home not in names:
                where = metadata(namespace=names[0])
                yield Trait("namespace", "in namespace", listing(names, "or"), where)

    def _named(self) -> Iterator[NameSet]:
        """Yield the names of namespaces in the policies."""
        for policy in self._policies:
            yield NameSet([*policy.exemptions.namespaces, *policy.overridden])
            yield from (entry.namespaces for entry in policy.exceptions)
            allowed = filter(None, (pool.allowed_namespaces for pool in policy.pools))
            yield from (each.names for each in allowed)

    def _actions(self, policy: Policy, namespace: str) -> set[tuple[str, object]]:
        if namespace in policy.exemptions.namespaces:
            return {("exempt", True)}
        own = policy.actions_in(namespace)
        hardening = "hardening", repr(own.hardening or policy.hardening)
        quarantine = "quarantine", repr(policy.quarantine_taints)
        return {("mode", own.mode), hardening, quarantine, *own.written.items()}

    def _changed_in(self, namespace: str) -> set[tuple[str, object]]:
        """Return the settings of a namespace that differ, before and after."""
        old, new = self._policies
        return self._actions(old, namespace) ^ self._actions(new, namespace)

    def _exceptions(self, policy: Policy, namespace: str) -> list[ExceptionEntry]:
        return [entry for entry in policy.exceptions if namespace in entry.namespaces]

    def changed_rules(self) -> set[str]:
        """Return the rules whose action differs, in any namespace."""
        names = [self._home, *(trait.namespace for trait in self._namespaces())]
        both = Counter(name for each in names for name, _ in self._changed_in(each))
        return {rule.id for rule in RULES if both[rule.id] > 1}

    # Decisions.

    def answer(self, traits: Class) -> tuple[Effects, Effects]:
        """Return what each policy says of the smallest Pod of a class."""
        if traits not in self.answers:
            before, after = map(effects_of, self._decide(traits))
            self.answers[traits] = before, after
        return self.answers[traits]

    def _decide(self, traits: Class) -> list[Decision]:
        objects = objects_of(traits, self._home)
        namespace = objects[-1]["metadata"].get("namespace", "default")
        username = "".join(trait.username for trait in traits)
        request = Request(namespace=namespace, username=username, today=self._today)
        manifests = [Manifest(_DOCUMENT, None, (), 0, each) for each in objects]
        known = facts_among(manifests, namespace)(namespace)
        facts = msgspec.structs.replace(known, runtime_classes=self._runtime_classes)
        return [
            decide(objects[-1], each, request, facts, excluded_namespaces=ALWAYS_EXCLUDED)
            for each in self._policies
        ]

    def _changes(self, traits: Class) -> set[Change]:
        return changes(*self.answer(traits))

    def _allowed(self, own: Class) -> tuple[bool, ...]:
        return tuple(
            all(effect[0] != "enforce" for effects in side.values() for effect in effects)
            for side in self.answer(own)
        )

    # Differences.

    def differences(self) -> list[Difference]:
        """Return the smallest classes that differ. Those with the same outcomes are together.

        A Pod that is denied shows less well what a Pod that is allowed shows as well.
        """
        found: defaultdict[Change, list[Kind]] = defaultdict(list)
        for own in sorted(self.answers, key=_size):
            for change in sorted(self._changes(own)):
                known = any(_covers(each, own) for each in found[change])
                if not (known or self._follows(own, change)):
                    _add(found[change], self._widest(self._least(own, change), change))
        alike: defaultdict[object, dict[Change, list[Kind]]] = defaultdict(dict)
        for change, kinds in found.items():
            best = max((sum(self._allowed(_first(each))) for each in kinds), default=0)
            for each in kinds:
                allowed = self._allowed(_first(each))
                if sum(allowed) == best:
                    together = alike[allowed, change.before, change.after]
                    together.setdefault(change, []).append(each)
        return [self._difference(each) for each in alike.values()]

    def _difference(self, shown: dict[Change, list[Kind]]) -> Difference:
        kinds: list[Kind] = []
        every = [each for own in shown.values() for each in own]
        for each in sorted(every, key=lambda each: _size(_first(each))):
            _add(kinds, each)
        first = min(map(_first, kinds), key=lambda own: len(self._changes(own) - shown.keys()))
        objects = objects_of(first, self._home)
        before, after = self._decide(first)
        return difference_in([*map(pods, kinds)], before, after, [*shown], objects)

    def _follows(self, own: Class, change: Change) -> bool:
        """Return whether a namespace shows what Pods elsewhere show, with its own settings."""
        for trait in own:
            if trait.aspect == "namespace":
                elsewhere = {each.rule for each in self._changes(own - {trait})}
                settings = self._changed_in(trait.namespace) - self._changed_in(self._home)
                return change.rule in elsewhere and not settings
        return False

    def _least(self, own: Class, change: Change) -> Class:
        """Return the smallest class below this one that shows the change."""
        for trait in sorted(own, key=str):
            for fewer in (own - {trait}, own - {trait} | {trait.plain or trait}):
                is_denied = any(self._allowed(own)) and not any(self._allowed(fewer))
                if fewer != own and change in self._changes(fewer) and not is_denied:
                    return self._least(fewer, change)
        return own

    def _widest(self, own: Class, change: Change) -> Kind:
        """Return the class with the traits that are alike, each of which shows the same change."""
        found: Kind = {trait.aspect: [trait] for trait in own}
        for trait in own:
            for other in self._groups.get(trait, [])[1:]:
                others = product([other], *(found[x] for x in found if x != trait.aspect))
                if all(change in self._changes(Class(each)) for each in others):
                    found[trait.aspect].append(other)
        return found


def _with(traits: Iterable[Trait], *more: Trait) -> Class:
    """Return the class with these traits; the last one of an aspect counts."""
    return Class({trait.aspect: trait for trait in (*traits, *more)}.values())


def _size(own: Class) -> tuple[int, int, str]:
    return len(own), sum(len(str(trait.patch)) for trait in own), str(sorted(map(str, own)))


def _first(kind: Kind) -> Class:
    return Class(traits[0] for traits in kind.values())


def _covers(kind: Kind, own: Class) -> bool:
    return all(not own.isdisjoint(traits) for traits in kind.values())


def _add(kinds: list[Kind], new: Kind) -> None:
    """Add Pods to those that show a change: to others that differ in one aspect, if there are."""
    for each in kinds:
        other = [aspect for aspect in new if each.get(aspect) != new[aspect]]
        if each.keys() == new.keys() and len(other) < 2:
            for aspect in other:
                each[aspect] = [*dict.fromkeys((*each[aspect], *new[aspect]))]
            return
    kinds.append(dict(new))


def _examples(prefixes: Iterable[str], taken: Iterable[str]) -> Iterator[str]:
    """Yield a name with each prefix that is not taken."""
    for prefix in prefixes:
        names = (f"{prefix}{n or 'x'}" for n in count())
        yield next(name for name in names if name not in taken)
