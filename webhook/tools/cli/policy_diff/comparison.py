"""The comparison of two policies: the fields that changed, and what follows from them.

Examples show what follows: Pods about the fields of both policies, and workloads. Where no example
differs, the comparison claims nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice, zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from policies.decision import Decision
from policies.facts import Facts, Request
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import below, field_path, steps
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from policies.wording import capitalized, listing
from webhook.cluster.judge import judge
from webhook.cluster.manifests import facts_among
from webhook.documents.document import Document
from webhook.documents.objects import Manifest
from webhook.tools.cli.policy_diff.fields import ChangedField, changed_fields, flow, with_old_value
from webhook.tools.cli.policy_diff.pods import Class, Space, classes, in_words, objects_of, spaces
from webhook.tools.cli.yaml_writer import to_yaml
from webhook.wording import counted, some

_MOST_CLASSES, _MOST_PODS, _MOST_JUDGED, _MOST_FIELDS = 800, 2400, 20_000, 50
_MOST_NAMED, _MOST_SHOWN = 6, 3
_MOST_EXAMPLES = 20
"""The Pods that a comparison keeps of a consequence; it keeps all workloads."""

_READ_ELSEWHERE = {
    "failurePolicy": "API servers read it while no replica answers",
    "help": "denials end with it",
    "customWorkloads": "API servers send these custom resources, and audits list them",
}
_ALLOWED = dict.fromkeys(("mutated", "skipped"), "allowed")
_WRITES = "changed"
_OUTCOMES = {
    "enforce": "denied",
    "warn": "warned about",
    "audit": "recorded",
    "would_enforce": "reported for mode enforce",
    "would_warn": "recorded as a warning of mode enforce",
}
"""What the outcomes of a rule mean for a Pod."""

_NO_SPACE = Space("")
_DOCUMENT = Document(0, "", 0, path="example.yaml")


class Effect(NamedTuple):
    """An effect of a rule on an object: a finding with its reason, or a value that it writes."""

    rule: str
    outcome: str
    path: str
    text: str


class Effects(NamedTuple):
    """What a policy decides on an object, without the wording of messages."""

    verdict: str
    effects: frozenset[Effect] = frozenset()

    @property
    def writes(self) -> set[Effect]:
        return {each for each in self.effects if each.outcome == _WRITES}


class Example(msgspec.Struct, frozen=True):
    """A Pod or a workload with another result.

    ``changes`` are the fields that rules write and the findings of one policy only. ``objects`` are
    a Pod, after the objects that it needs: none of a workload.
    """

    name: str
    before: str
    after: str
    changes: list[str]
    objects: list[JSONObject]

    def __str__(self) -> str:
        if self.before == self.after:
            return f"{self.name}: {self.after} as before"
        return f"{self.name}: {self.before} before, {self.after} now"

    @property
    def yaml(self) -> str:
        return "---\n".join(map(to_yaml, self.objects))


class Consequence(msgspec.Struct, frozen=True):
    """A difference of results: for whom and where, by which rules, with the smallest examples."""

    what: str
    classes: int
    where: str
    workloads: list[str]
    rules: list[str]
    examples: list[Example]

    def __str__(self) -> str:
        who = []
        if self.workloads:
            who.append(f"{counted(len(self.workloads), 'workload')} ({some(self.workloads)})")
        if self.classes:
            noun = "class" if self.classes == 1 else "classes"
            smallest = f"such as {self.examples[0].name}"
            who.append(f"{self.classes:,} {noun} of Pods{self.where}, {smallest}")
        return f"{capitalized(self.what)}: {'; '.join(who)}. {'; '.join(self.rules)}"


class Comparison(NamedTuple):
    """The comparison of two policies. ``notes`` say what was compared, and with which result."""

    is_alike: bool
    fields: list[ChangedField]
    consequences: list[Consequence]
    notes: list[str]
    is_verbose: bool = False

    @property
    def examples(self) -> list[Example]:
        """The smallest Pod of each consequence, then a workload of each, then the next ones."""
        own = [each.examples for each in self.consequences]
        return [each for some in zip_longest(*own) for each in some if each is not None]

    @property
    def shown_examples(self) -> list[Example]:
        return self.examples[: None if self.is_verbose else _MOST_SHOWN]


@dataclass(frozen=True, slots=True)
class _Case:
    """An object with what both policies decide: a Pod of a class, or a workload."""

    name: str
    before: Effects
    after: Effects
    own: Class = frozenset()
    space: Space = _NO_SPACE

    @property
    def is_pod(self) -> bool:
        return bool(self.space.name)

    @property
    def what(self) -> str:
        """The difference in words; empty without one."""
        old, new = (_ALLOWED.get(each.verdict, each.verdict) for each in (self.before, self.after))
        if old != new:
            return f"{old} before, {new} now"
        written, now = self.before.writes, self.after.writes
        if old != "denied" and written != now:
            if written and now:
                return f"{old} as before, changed in another way"
            return f"{old} as before, {'changed now' if now else 'no longer changed'}"
        found = self.before.effects - written != self.after.effects - now
        return f"{old} as before, with other findings" if found else ""

    @property
    def size(self) -> tuple[object, ...]:
        return len(self.own) + bool(self.space.pattern), len(self.name), self.name


def compare(
    old: Policy,
    new: Policy,
    today: date,
    before: Mapping[str, Effects] = MappingProxyType({}),
    after: Mapping[str, Effects] = MappingProxyType({}),
) -> Comparison:
    """Compare two policies, without known nodes, and what they decide on workloads by name."""
    changed = changed_fields(old, new)
    pods = _Pods(old, new, today)
    cases = pods.cases() if changed else []
    workloads = [_Case(name, before[name], after[name]) for name in after if name in before]
    consequences = _consequences(cases, workloads)
    is_alike = not (changed or consequences)
    # Of several fields, each counts alone.
    shown = changed if consequences else []
    if 1 < len(shown) <= _MOST_FIELDS:
        tried = sorted(cases, key=lambda case: not case.what)[: _MOST_JUDGED // len(shown)]
        shown = [each for each in changed if pods.shows(each, tried)]
    fields = [each if each in shown else _unseen(each) for each in changed]
    places = counted(len({case.space for case in cases}), "namespace")
    compared = [f"{len({case.own for case in cases}):,} classes of Pods in {places}"] * bool(cases)
    compared += [counted(len(workloads), "workload")] * bool(workloads)
    notes = [f"Compared: {listing(compared)}"] if compared else []
    if is_alike:
        notes.append("The policies decide alike: they are equal, with defaults")
    elif len(shown) > _MOST_FIELDS:
        notes.append("Too many fields change to say which of them these Pods show")
    elif not consequences:
        notes.append("Nothing that is compared shows a difference: that proves nothing")
    return Comparison(is_alike, fields, consequences, notes)


def _unseen(field: ChangedField) -> ChangedField:
    elsewhere = [text for path, text in _READ_ELSEWHERE.items() if field.path.startswith(path)]
    return field._replace(remark="; ".join(["no compared Pod shows a difference", *elsewhere]))


# What policies decide.


def decided(obj: JSONObject, policy: Policy, request: Request, facts: Facts) -> Effects:
    """Return what a policy decides on an object."""
    judgement = judge(lambda: Workload(obj), policy, request, facts)
    if judgement.is_decided:
        return effects_of(judgement.decision)
    problem = str(judgement.error or "; ".join(judgement.bugs))
    return Effects("failed", frozenset({Effect("gpufence", "failed", "", problem)}))


def effects_of(decision: Decision) -> Effects:
    found = {Effect(each.rule, each.outcome, each.path, each.reason) for each in decision.findings}
    for rule, made in zip(decision.mutations, decision.operations, strict=True):
        path = steps(re.sub(r"/(\d+|-)$", "", made.path))
        place = field_path(int(step) if step.isdecimal() else step for step in path)
        value = msgspec.to_builtins(made).get("value", "removed")
        found |= {Effect(rule, _WRITES, *leaf) for leaf in _leaves(place, value)}
    return Effects(decision.verdict, frozenset(found))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(below(path, key), each)
    else:
        yield from ((path, flow(each)) for each in (value if isinstance(value, list) else [value]))


class _Pods:
    """Decides with both policies on Pods about their fields."""

    def __init__(self, old: Policy, new: Policy, today: date) -> None:
        self._old, self._new, self._today = old, new, today
        names = {pool.runtime_class for pool in (*old.pools, *new.pools)}
        self._runtime_classes = {name: name for name in names if name}

    def cases(self) -> list[_Case]:
        """Compare all classes of Pods in some namespaces, and in others those that differ."""
        every = [*dict.fromkeys(islice(classes(self._old, self._new), _MOST_CLASSES))]
        places = spaces(self._old, self._new)
        few = max(2, _MOST_PODS // len(every))
        cases = [self._case(own, space) for space in places[:few] for own in every]
        differing = [*dict.fromkeys(case.own for case in cases if case.what)]
        for space in places[few:]:
            cases += [self._case(own, space) for own in differing[: _MOST_PODS // len(places)]]
        return cases

    def shows(self, field: ChangedField, cases: Iterable[_Case]) -> bool:
        """Return whether a Pod shows the change of a field alone; false if it cannot be alone."""
        policy = with_old_value(field, self._new)
        return policy is not None and any(
            _Case("", self._judge(case.own, case.space, policy), case.after).what for case in cases
        )

    def _case(self, own: Class, space: Space) -> _Case:
        before, after = (self._judge(own, space, each) for each in (self._old, self._new))
        where = f" in namespace {space.name}" if space.pattern else ""
        return _Case(f"{in_words(own)}{where}", before, after, own, space)

    def _judge(self, own: Class, space: Space, policy: Policy) -> Effects:
        *beside, pod = objects_of(own, space.name)
        manifests = [Manifest(_DOCUMENT, None, (), 0, each) for each in beside]
        facts = facts_among(manifests, space.name)(space.name)
        facts = replace(facts, runtime_classes=self._runtime_classes)
        user = "".join(trait.username for trait in own)
        return decided(pod, policy, Request(space.name, user, today=self._today), facts)


# What follows.


def _consequences(cases: Sequence[_Case], workloads: Sequence[_Case]) -> list[Consequence]:
    """Return the consequences: those that change verdicts first."""
    found: defaultdict[str, list[_Case]] = defaultdict(list)
    for case in (*cases, *workloads):
        if case.what:
            found[case.what].append(case)
    consequences = []
    for what, own in found.items():
        own.sort(key=lambda case: case.size)
        of_pods, others = ([c for c in own if c.is_pod is is_pod] for is_pod in (True, False))
        kinds = {case.own for case in of_pods}
        shown = [*of_pods[:1], *others, *of_pods[1:_MOST_EXAMPLES]]
        consequences.append(
            Consequence(
                what,
                len(kinds),
                _where(of_pods, {case.space for case in cases if case.own in kinds}),
                [case.name for case in others],
                _rules(own),
                [*map(_example, shown)],
            )
        )
    return sorted(consequences, key=lambda each: (" as before" in each.what, each.what))


def _where(cases: Iterable[_Case], tried: Collection[Space]) -> str:
    """Return in which of the tried namespaces Pods differ: `` outside of namespace ml``."""
    inside = {case.space for case in cases}
    outside = [space for space in tried if space not in inside]
    is_general = any(not space.pattern for space in inside)
    named = outside if is_general else inside
    patterns = sorted(filter(None, (space.pattern for space in named)))
    if not outside or not patterns:
        return ""
    noun = "namespace" if len(patterns) == 1 else "namespaces"
    return f" {'outside of' if is_general else 'in'} {noun} {_listing(patterns)}"


def _rules(cases: Iterable[_Case]) -> list[str]:
    """Return what rules do, the most frequent first: ``pool-trespass: denied before``."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        sides = case.before, case.after
        decides = (sides[0].verdict == "denied") != (sides[1].verdict == "denied")
        for rule in sorted({each.rule for each in sides[0].effects ^ sides[1].effects}):
            before, after = ({e.outcome for e in side.effects if e.rule == rule} for side in sides)
            if not decides or ("enforce" in before) != ("enforce" in after):
                found[_transition(before, after)][rule] += 1
    ordered = sorted(found.items(), key=lambda item: -item[1].total())
    return [
        f"{_listing([name for name, _ in rules.most_common()])}: {how}" for how, rules in ordered
    ]


def _transition(*sides: set[str]) -> str:
    before, after = (
        " and ".join(sorted(_OUTCOMES.get(each, each) for each in side)) for side in sides
    )
    if before == after:
        return f"{before} in another way"
    return ", ".join([f"{before} before"] * bool(before) + [f"{after} now"] * bool(after))


def _example(case: _Case) -> Example:
    found: defaultdict[tuple[str, str, str], tuple[set[str], set[str]]] = defaultdict(
        lambda: (set(), set())
    )
    for side, own in enumerate((case.before, case.after)):
        for each in own.effects:
            if each.outcome != _WRITES:
                found[each.path, each.text, each.rule][side].add(each.outcome)
    changes = [
        f"{path}: {text} ({rule}: {_transition(*sides)})"
        for (path, text, rule), sides in sorted(found.items())
        if sides[0] != sides[1]
    ]
    old, new = case.before.writes, case.after.writes
    for mark, written in ("-", old - new), ("+", new - old):
        changes += [f"{mark} {each.path}: {each.text} ({each.rule})" for each in sorted(written)]
    objects = objects_of(case.own, case.space.name) if case.is_pod else []
    return Example(case.name, case.before.verdict, case.after.verdict, changes, objects)


def _listing(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return listing([*names[:_MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])])
