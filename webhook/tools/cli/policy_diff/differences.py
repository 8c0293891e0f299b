"""What differs between two decisions: of kinds of Pods, or of a workload."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from policies.decision import Decision
from policies.kubernetes.objects import JSONObject
from policies.wording import capitalized, listing
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.policy_diff.traits import Class, Trait
from webhook.tools.cli.yaml_writer import Marked, difference, to_yaml
from webhook.wording import counted

_MOST_KINDS, _MOST_VALUES = 3, 4
_CHANGES = "changes"
_OUTCOMES = {
    "enforce": "denied",
    "warn": "warned about",
    "audit": "recorded",
    "would_enforce": "reported for mode enforce",
    "would_warn": "recorded as a warning of mode enforce",
    _CHANGES: "changed",
}
"""What the outcomes of a rule mean for a Pod."""

Effects = frozenset[tuple[str, ...]]
"""The outcomes of a rule, with their paths and reasons, or with what a mutation writes."""

Kind = dict[str, tuple[Trait, ...]]
"""By aspect, traits of Pods: the Pods that have one of each aspect."""

_ALLOWED = dict.fromkeys(("mutated", "skipped"), "allowed")


class Change(msgspec.Struct, frozen=True, order=True):
    """How the decisions on one object differ in what a rule does: outcomes of its findings.

    ``changes`` is the outcome of a mutation. ``verdicts`` are those on the object.
    """

    rule: str
    before: str
    after: str
    verdicts: tuple[str, str]


class Answer(NamedTuple):
    """What two policies decide on one object: how they differ, and the effects of each."""

    changes: frozenset[Change]
    effects: tuple[frozenset[tuple[str, Effects]], ...]


def answer_of(*decisions: Decision) -> Answer:
    """Return how two decisions on the same object differ, except in wording and order."""
    sides = [_effects(each) for each in decisions]
    old, new = (_ALLOWED.get(each.verdict, each.verdict) for each in decisions)
    found = set()
    for rule in {**sides[0], **sides[1]}:
        own = [side.get(rule, frozenset()) for side in sides]
        before, after = (" and ".join(sorted({each[0] for each in side})) for side in own)
        if before != after or any(each[0] == _CHANGES for each in own[0] ^ own[1]):
            found.add(Change(rule, before, after, (old, new)))
    return Answer(frozenset(found), tuple(frozenset(side.items()) for side in sides))


def _effects(decision: Decision) -> dict[str, Effects]:
    """Return a decision without wording and order, by rule."""
    found: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for finding in decision.findings:
        found[finding.rule].add((finding.outcome, finding.path, finding.reason))
    for rule, made in zip(decision.mutations, decision.operations, strict=True):
        place = re.sub(r"/(\d+|-)$", "", made.path)
        values = made.value if isinstance(made.value, list) else [made.value]
        found[rule] |= {(_CHANGES, place, repr(_ordered(each))) for each in values}
    return {rule: frozenset(every) for rule, every in found.items()}


def _ordered(value: Any) -> Any:
    """Return the value with its keys and its lists in one order."""
    if isinstance(value, dict):
        return sorted((key, _ordered(each)) for key, each in value.items())
    return sorted(map(_ordered, value), key=repr) if isinstance(value, list) else value


class Difference(msgspec.Struct, frozen=True):
    """Objects on which the policies decide differently: kinds of Pods, or a workload.

    ``before`` and ``after`` are the verdicts on the smallest Pod, which ``smallest`` has after the
    objects that it needs. ``mutated`` are the lines in which mutations differ.
    """

    sentence: str
    objects: list[str]
    before: str
    after: str
    rules: list[Change]
    causes: list[str]
    mutated: list[Marked]
    smallest: list[JSONObject]

    @property
    def yaml(self) -> str:
        return "---\n".join(map(to_yaml, self.smallest))


def difference_in(
    objects: list[str],
    decisions: Sequence[Decision],
    rules: list[Change],
    smallest: list[JSONObject],
) -> Difference:
    """Return a difference in words: ``Denied before, allowed now: Pods that …``."""
    before, after = decisions
    old, new = (_ALLOWED.get(each.verdict, each.verdict) for each in decisions)
    what = f"{old} as before" if old == new else f"{old} before, {new} now"
    left = len(objects) - _MOST_KINDS
    more = f"; and {counted(left, 'more kind')} of Pods" if left > 0 else ""
    writes = any(_CHANGES in _sides(each) for each in rules)
    return Difference(
        f"{capitalized(what)}: {'; '.join(objects[:_MOST_KINDS])}{more}",
        objects,
        before.verdict,
        after.verdict,
        rules,
        [_cause(*each) for each in groupby(sorted(rules, key=_sides), _sides)],
        difference(before.mutated, after.mutated) if writes else [],
        smallest,
    )


def _sides(change: Change) -> tuple[str, str]:
    return change.before, change.after


def _cause(sides: tuple[str, str], rules: Iterable[Change]) -> str:
    """Return what rules do: ``pool-trespass: denied before, warned about now``."""
    before, after = (
        re.sub(r"\w+", lambda word: _OUTCOMES.get(word[0], word[0]), side) for side in sides
    )
    names = listing(sorted(each.rule for each in rules))
    if before == after:
        return f"{names}: {before} in another way"
    parts = [f"{before} before"] * bool(before) + [f"{after} now"] * bool(after)
    return f"{names}: {', '.join(parts)}"


def pods(classes: Iterable[Class]) -> list[str]:
    """Return the Pods of the classes in words. Those that differ in one trait are joined."""
    kinds: list[Kind] = [{trait.aspect: (trait,) for trait in own} for own in classes]
    for aspect in sorted({aspect for kind in kinds for aspect in kind}):
        joined: dict[object, Kind] = {}
        for kind in kinds:
            rest = frozenset(kind.items() - {(aspect, kind.get(aspect))})
            first = joined.setdefault((rest, aspect in kind), kind)
            if first is not kind:
                first[aspect] += kind[aspect]
        kinds = [*joined.values()]
    return [*map(_in_words, kinds)]


def _in_words(kind: Kind) -> str:
    phrases = [_either(own) for _, own in sorted(kind.items())]
    nouns = [each for each in phrases if each.startswith(("in ", "of "))]
    verbs = [each for each in phrases if each not in nouns]
    text = " ".join(["Pods", *nouns])
    return f"{text} that {' and '.join(verbs)}" if verbs else text if nouns else "every Pod"


def _either(traits: Iterable[Trait]) -> str:
    """Return traits of one aspect in words: ``select a=b or a=c``."""
    by_verb: defaultdict[str, list[str]] = defaultdict(list)
    for verb, _, what in (trait.text.partition(" ") for trait in traits):
        by_verb[verb].append(what)
    parts = []
    for verb, every in by_verb.items():
        more = [f"{len(every) - _MOST_VALUES} more"] if len(every) > _MOST_VALUES + 1 else []
        parts.append(f"{verb} {listing([*every[: _MOST_VALUES if more else None], *more], 'or')}")
    return " or ".join(parts)


def changed_workloads(before: Iterable[Result], after: Iterable[Result]) -> list[Difference]:
    """Return the workloads with another result."""
    known = {_name(each): each.decision for each in before if each.error is None}
    found = []
    for each in after:
        if each.error is None and (old := known.get(_name(each))) is not None:
            made = sorted(answer_of(old, each.decision).changes)
            if made or old.verdict != each.verdict:
                found.append(difference_in([_name(each)], [old, each.decision], made, []))
    return found


def _name(result: Result) -> str:
    path, line = result.manifest.document.path, result.manifest.line
    return f"{result.title} ({path}{f':{line}' if line else ''})"
