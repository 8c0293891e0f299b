"""The comparison of two policies by the classes of Pods that they can tell apart.

Both policies decide on the smallest Pod of each class. Classes that show the same changes are one
difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import count, product, takewhile
from typing import NamedTuple

import msgspec

from policies.decision import Decision
from policies.engine import decide
from policies.facts import Request
from policies.kubernetes.field_types import NameSet
from policies.policy import ALWAYS_EXCLUDED, ExceptionEntry, Policy, Pool
from policies.registry import RULES
from policies.wording import listing
from webhook.cluster.manifests import facts_among
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.policy_diff.differences import (
    Answer,
    Change,
    Difference,
    answer_of,
    changed_workloads,
    difference_in,
    pods,
)
from webhook.tools.cli.policy_diff.traits import (
    KINDS,
    OTHER,
    Class,
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
from webhook.wording import counted

_NOT_COMPARED = (
    "wording of messages, nodes of a cluster, and Pods with several containers, node selector "
    "terms, tolerations or device requests. Of device variables, mounts, images, security contexts "
    "and Pods that both policies deny, some are compared"
)
_EQUAL = (
    "The policies decide alike on every Pod in these respects: device requests and their numbers, "
    "node selection, tolerations, namespace, user, RuntimeClass, what pools require, and the "
    "hardening level"
)
_DOCUMENT = Document(0, "", 0, path="smallest.yaml")


Settings = frozenset[tuple[str, str]]
"""Settings of a namespace besides pools, each with its value."""


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
    found, workloads = comparer.differences(), changed_workloads(before, after)
    elsewhere = [what for what, part in _elsewhere(old).items() if part != _elsewhere(new)[what]]
    named = {change.rule for each in found for change in each.rules}
    if left := sorted(comparer.changed_rules() - named):
        what = f"Actions of {listing(left)} differ"
        elsewhere.append(f"{what}. Findings depend on more than these Pods")
    compared = f"Compared: {len(comparer.answers):,} classes of Pods"
    if count := sum(each.decision.has_template for each in after):
        verb = "differs" if len(workloads) == 1 else "differ"
        compared += f". {len(workloads)} of {counted(count, 'workload')} {verb}"
    notes = [_EQUAL] * (not found) + [f"{compared}. Not compared: {_NOT_COMPARED}"]
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
    """Decides on classes of Pods with two policies, and keeps what each class shows."""

    def __init__(self, old: Policy, new: Policy, today: date) -> None:
        self._policies, self._today = (old, new), today
        self._pools = [*{_counting(pool): pool for pool in (*old.pools, *new.pools)}.values()]
        self._classes = frozenset(pool.runtime_class or "" for pool in self._pools) - {""}
        self._home, self._namespaces = self._groups_of_namespaces()
        self._settings: dict[Class, tuple[Settings, Settings]] = {}
        self._subjects: defaultdict[str, dict[str, dict[Trait, None]]] = defaultdict(dict)
        self.answers: dict[Class, Answer] = {}
        self._search()

    def _search(self) -> None:
        """Compare Pods about each pool: each frame with each trait, and with two traits.

        Two traits count for pools that differ: one that shows a new change on a frame, and one of
        each group of traits that are alike on all frames.
        """
        contexts = [*self._contexts()]
        alike = set.intersection(*({*map(_counting, each.pools)} for each in self._policies))
        by_name: defaultdict[str, list[Pool]] = defaultdict(list)
        for pool in self._pools:
            by_name[pool.name].append(pool)
        for versions in by_name.values():
            differs = any(_counting(pool) not in alike for pool in versions)
            starts = [Class()] * differs + contexts
            frames = [_with(each, *own) for own in starts for each in self._frames(versions)]
            groups: dict[object, Trait] = {}
            for trait in self._traits(versions) if frames else ():
                said = [self.answer(_with(frame, trait)).effects for frame in frames]
                groups.setdefault((trait.aspect, *said), trait)
            traits = [*groups.values()] if differs else []
            known = set[Change]().union(*(self.changes(frame) for frame in frames if differs))
            for one in traits:
                found = {each for own in frames for each in self.changes(_with(own, one))}
                for frame, other in product(frames, traits) if found - known else ():
                    self.answer(_with(frame, one, other))
                known |= found

    def _frames(self, versions: Iterable[Pool]) -> list[Class]:
        """Return Pods to which traits are added.

        A plain one, and for each version of a pool: with a toleration, and with all that the pool
        accepts.
        """
        frames = [Class()]
        for pool in versions:
            own: dict[str, Trait] = {}
            for trait in traits_of(pool, [pool], self._namespaces):
                own.setdefault(trait.aspect, trait)
            tolerating = Class(filter(None, [own.pop("toleration", None)]))
            frames += [tolerating, Class(own.values())]
        return [*dict.fromkeys(frames)]

    def _traits(self, versions: Iterable[Pool]) -> list[Trait]:
        """Return the traits at which the policies count for Pods about a pool."""
        traits = [*self._namespaces, *settings()]
        for pool in versions:
            others = [each for each in self._pools if each.shared_device(pool)]
            traits += traits_of(pool, others, self._namespaces)
        for policy in self._policies:
            traits += tolerations(policy.quarantine_taints)
        for trait in traits:
            self._subjects[trait.aspect].setdefault(trait.subject or trait.text, {})[trait] = None
        return [*dict.fromkeys(traits)]

    def _contexts(self) -> Iterator[Class]:
        """Yield the traits by which Pods show differences of the policies besides their pools."""
        old, new = self._policies
        for own in (Class(), *(Class({trait}) for trait in self._namespaces)):
            name = next((trait.namespace for trait in own), self._home)
            sides = _settings(old, name), _settings(new, name)
            if sides[0] != sides[1] and sides not in self._settings.values():
                yield own
            self._settings[own] = sides
        entries = _exceptions(old, self._today) ^ _exceptions(new, self._today)
        for entry in sorted(entries, key=str):
            spaces = [each for each in self._namespaces if each.namespace in entry.namespaces]
            kinds = [kind(each) for each in sorted(entry.kinds & KINDS.keys())]
            names = [
                Trait("name", f"have the name {each}", metadata(name=each))
                for each in _examples([entry.names])
            ]
            at_home = self._home in entry.namespaces
            for each in product(*filter(None, [spaces * (not at_home), kinds, names])):
                yield Class(each)
        for user in sorted(old.exemptions.usernames ^ new.exemptions.usernames):
            yield Class({Trait("user", f"of user {user}", username=user)})
        for name in sorted(old.exemptions.runtime_classes ^ new.exemptions.runtime_classes):
            what = f"set runtimeClassName: {name}"
            yield Class({Trait("runtimeClass", what, spec(runtimeClassName=name))})

    def _groups_of_namespaces(self) -> tuple[str, list[Trait]]:
        """Return a namespace that no policy names, and a trait for each group of other ones.

        A group has the namespaces that are in the same lists of both policies.
        """
        named = [names for policy in self._policies for names in _lists(policy)]
        home = OTHER if any("default" in names.exact for names in named) else "default"
        groups: defaultdict[tuple[bool, ...], list[str]] = defaultdict(list)
        for name in (home, *_examples(named)):
            if name not in ALWAYS_EXCLUDED:
                groups[tuple(name in names for names in named)].append(name)
        return home, [
            Trait("namespace", f"in namespace {listing(names, 'or')}", metadata(namespace=names[0]))
            for names in groups.values()
            if home not in names
        ]

    # Decisions.

    def answer(self, own: Class) -> Answer:
        """Return what the policies say of the smallest Pod of a class."""
        if own not in self.answers:
            self.answers[own] = answer_of(*self._decide(own))
        return self.answers[own]

    def changes(self, own: Class) -> frozenset[Change]:
        return self.answer(own).changes

    def _decide(self, own: Class) -> list[Decision]:
        *beside, pod = objects_of(own, self._home)
        manifests = [Manifest(_DOCUMENT, None, (), 0, each) for each in beside]
        namespace = pod["metadata"].get("namespace", "default")
        request = Request(namespace, "".join(each.username for each in own), today=self._today)
        facts = facts_among(manifests, namespace)(namespace)
        facts = msgspec.structs.replace(facts, runtime_classes=self._classes)
        return [
            decide(pod, policy, request, facts, excluded_namespaces=ALWAYS_EXCLUDED).checked()
            for policy in self._policies
        ]

    # Differences.

    def differences(self) -> list[Difference]:
        """Return the smallest classes that differ, those with the same changes together.

        Pods that are denied do not count where Pods that are allowed show the same.
        """
        found: defaultdict[Change, dict[Class, None]] = defaultdict(dict)
        fewest: dict[object, int] = {}
        shown = [(own, change) for own, answer in self.answers.items() for change in answer.changes]
        for own, change in sorted(shown, key=_order):
            outcomes, denied = (change.rule, change.before, change.after), _denied(change)
            if self._follows(own, change) or fewest.setdefault(outcomes, denied) < denied:
                continue
            classes = [own]
            for each in classes:
                if any(smaller <= each for smaller in found[change]):
                    continue
                least = self._least(each, change)
                if not any(smaller <= least for smaller in found[change]):
                    found[change][least] = None
                    classes += self._near(least, change)
        together: defaultdict[tuple[Class, ...], list[Change]] = defaultdict(list)
        for change, kinds in found.items():
            together[tuple(kinds)].append(change)
        differences = [
            difference_in(pods(own), self._decide(own[0]), made, objects_of(own[0], self._home))
            for own, made in together.items()
        ]
        return sorted(differences, key=lambda each: " as before: " in each.sentence)

    def _follows(self, own: Class, change: Change) -> bool:
        """Return whether a namespace shows what Pods elsewhere show, with its own settings."""
        home = self._settings[Class()]
        for trait in own:
            sides = self._settings.get(Class({trait}), home)
            if sides != home and sides[0] ^ sides[1] <= home[0] ^ home[1]:
                return change.rule in {each.rule for each in self.changes(own - {trait})}
        return False

    def _least(self, own: Class, change: Change) -> Class:
        """Return the smallest class below this one that shows the change."""
        for trait in sorted(own, key=str):
            traits = self._subjects[trait.aspect].get(trait.subject, {})
            simpler = takewhile(trait.__ne__, traits)
            for fewer in (own - {trait}, *(own - {trait} | {each} for each in simpler)):
                if change in self.changes(fewer):
                    return self._least(fewer, change)
        return own

    def _near(self, own: Class, change: Change) -> Iterator[Class]:
        """Yield the classes with another subject in one aspect that show the change as well."""
        for trait in sorted(own, key=str):
            for first, *_ in self._subjects[trait.aspect].values():
                if change in self.changes(near := own - {trait} | {first}):
                    yield near

    def changed_rules(self) -> set[str]:
        """Return the rules whose action differs, in any namespace."""
        both = (old ^ new for old, new in self._settings.values() if old and new)
        return {rule.id for rule in RULES} & {name for each in both for name, _ in each}


def _counting(pool: Pool) -> str:
    """Return what counts of a pool."""
    return repr(replace(pool, name="", price_per_device_hour=None))


def _settings(policy: Policy, namespace: str) -> Settings:
    """Return the settings besides pools that count in a namespace: none if it is exempt."""
    if namespace in policy.exemptions.namespaces:
        return frozenset()
    own = policy.actions_in(namespace)
    hardening = own.hardening or [policy.hardening]
    others = {"mode": own.mode, "hardening": hardening, "quarantine": policy.quarantine_taints}
    return frozenset((name, repr(value)) for name, value in {**own.written, **others}.items())


def _exceptions(policy: Policy, today: date) -> set[ExceptionEntry]:
    """Return what counts of the exceptions of a policy."""
    entries = (each for each in policy.exceptions if not each.has_expired(today))
    return {replace(each, reason="", expires=None) for each in entries}


def _lists(policy: Policy) -> Iterator[NameSet]:
    """Yield each list of namespaces in a policy."""
    yield NameSet(policy.exemptions.namespaces)
    yield from (NameSet(override.namespaces) for override in policy.overrides)
    yield from (entry.namespaces for entry in policy.exceptions)
    yield from (pool.allowed_namespaces.names for pool in policy.pools if pool.allowed_namespaces)


def _examples(lists: Iterable[NameSet]) -> list[str]:
    """Return the names in the lists, and another one with each prefix."""
    exact = {name for names in lists for name in names.exact}
    prefixes = {prefix for names in lists for prefix in names.prefixes}
    names = ((f"{prefix}{n or 'x'}" for n in count()) for prefix in prefixes)
    return sorted(exact | {next(each for each in own if each not in exact) for own in names})


def _with(traits: Iterable[Trait], *more: Trait) -> Class:
    """Return the class with these traits; the last one of an aspect counts."""
    return Class({trait.aspect: trait for trait in (*traits, *more)}.values())


def _order(shown: tuple[Class, Change]) -> tuple[object, ...]:
    """Return the order of what classes show: those that are allowed first, the smallest first."""
    own, change = shown
    size = sum(len(str(trait.patch)) for trait in own)
    return _denied(change), len(own), size, sorted(map(str, own)), change


def _denied(change: Change) -> int:
    return change.verdicts.count("denied")
