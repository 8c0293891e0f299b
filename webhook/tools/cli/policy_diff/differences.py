"""What differs between two decisions: of kinds of Pods, or of a workload."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from policies.decision import Decision
from policies.kubernetes.objects import JSONObject
from policies.wording import capitalized, listing
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.policy_diff.traits import NEXT_TO_NOUN, Trait
from webhook.tools.cli.yaml_writer import Marked, difference, to_yaml
from webhook.wording import counted

Kind = dict[str, list[Trait]]
"""By aspect, traits of Pods: the Pods that have one of each aspect."""

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

_ALLOWED = dict.fromkeys(("mutated", "skipped"), "allowed")


class Change(msgspec.Struct, frozen=True, order=True):
    """How the decisions on one object differ in what a rule does: outcomes of its findings.

    ``changes`` is the outcome of a mutation.
    """

    rule: str
    before: str
    after: str


Effects = dict[str, set[tuple[str, ...]]]
"""A decision without wording and order: by rule, its outcomes with their paths and reasons, or with
what a mutation writes."""


def effects_of(decision: Decision) -> Effects:
    found: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for finding in decision.findings:
        found[finding.rule].add((finding.outcome, finding.path, finding.reason))
    for rule, made in zip(decision.mutations, decision.operations, strict=True):
        place = re.sub(r"/(\d+|-)$", "", made.path)
        values = made.value if isinstance(made.value, list) else [made.value]
        found[rule] |= {(_CHANGES, place, repr(_ordered(each))) for each in values}
    return dict(found)


def _ordered(value: Any) -> Any:
    """Return the value with its keys and its lists in one order."""
    if isinstance(value, dict):
        return sorted((key, _ordered(each)) for key, each in value.items())
    return sorted(map(_ordered, value), key=repr) if isinstance(value, list) else value


def changes(before: Effects, after: Effects) -> set[Change]:
    """Return how two decisions on the same object differ."""
    found = set()
    for rule in {**before, **after}:
        own, new = before.get(rule, set()), after.get(rule, set())
        sides = (" and ".join(sorted({each[0] for each in side})) for side in (own, new))
        change = Change(rule, *sides)
        # The wording of findings does not count.
        if change.before != change.after or any(each[0] == _CHANGES for each in own ^ new):
            found.add(change)
    return found


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
    before: Decision,
    after: Decision,
    rules: list[Change],
    smallest: list[JSONObject],
) -> Difference:
    """Return a difference in words: ``Denied before, allowed now: Pods that …``."""
    old, new = (_ALLOWED.get(each.verdict, each.verdict) for each in (before, after))
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


def pods(kind: Kind) -> str:
    """Return the Pods that have one of the traits of each aspect, in words."""
    nouns = [_either(kind[aspect]) for aspect in NEXT_TO_NOUN if aspect in kind]
    verbs = [_either(own) for aspect, own in sorted(kind.items()) if aspect not in NEXT_TO_NOUN]
    text = " ".join(["Pods", *nouns])
    return f"{text} that {' and '.join(verbs)}" if verbs else text if nouns else "every Pod"


def _either(traits: Sequence[Trait]) -> str:
    by_words: defaultdict[str, list[str]] = defaultdict(list)
    for trait in traits:
        by_words[trait.words].append(trait.value)
    parts = []
    for words, values in by_words.items():
        left = len(values) - _MOST_VALUES
        shown = values if left < 2 else [*values[:_MOST_VALUES], f"{left} more"]
        parts.append(f"{words} {listing(shown, 'or')}".lstrip())
    return " or ".join(parts)


def changed_workloads(before: Iterable[Result], after: Iterable[Result]) -> list[Difference]:
    """Return the workloads with another result."""
    known = {_name(each): each.decision for each in before if each.error is None}
    found = []
    for each in after:
        if each.error is None and (old := known.get(_name(each))) is not None:
            made = sorted(changes(effects_of(old), effects_of(each.decision)))
            if made or old.verdict != each.verdict:
                found.append(difference_in([_name(each)], old, each.decision, made, []))
    return found


def _name(result: Result) -> str:
    path, line = result.manifest.document.path, result.manifest.line
    return f"{result.title} ({path}{f':{line}' if line else ''})"
