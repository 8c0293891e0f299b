"""The report of ``gpufence policy diff``: differences as sentences, and workloads that change."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import to_builtins

from policies.decision import Decision
from policies.wording import capitalized, counted, listing
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.policy_diff.comparison import (
    CHANGES,
    Answer,
    Change,
    Class,
    Comparison,
    Difference,
    changes,
)
from webhook.tools.cli.policy_diff.traits import Trait
from webhook.tools.cli.yaml_writer import to_yaml

_MOST_KINDS, _MOST_VALUES = 3, 4
_NEXT_TO_NOUN = ("namespace", "user", "kind", "date")
"""The aspects whose words follow the noun; those of the others follow "that"."""

_OUTCOMES = {
    "enforce": "denied",
    "warn": "warned about",
    "audit": "recorded",
    "would_enforce": "reported for mode enforce",
    "would_warn": "recorded as a warning of mode enforce",
    CHANGES: "changed",
}
"""What the outcomes of a rule mean for a Pod."""

NOT_COMPARED = (
    "wording of messages, nodes of a cluster, and Pods with several containers, terms or requests. "
    "Of device variables, mounts, images and security contexts, some are compared"
)


class WorkloadChange(NamedTuple):
    """A workload on which the policies decide differently, with its place and its kind."""

    place: str
    title: str
    before: Decision
    after: Decision
    rules: Sequence[Change]


class DiffReport(NamedTuple):
    """A run of ``gpufence policy diff``. Without workloads to compare, ``compared`` is 0."""

    old: str
    new: str
    comparison: Comparison
    workloads: Sequence[WorkloadChange] = ()
    compared: int = 0

    @property
    def is_equal(self) -> bool:
        return self.comparison.is_equal and not self.workloads


def changed_workloads(
    before: Iterable[Result], after: Iterable[Result]
) -> tuple[list[WorkloadChange], int]:
    """Return the workloads with another result, and the number of those with a result in both."""
    pairs = {(each.manifest.document.path, each.manifest.line, each.title): each for each in before}
    found, compared = [], 0
    for new in after:
        path, line, title = new.manifest.document.path, new.manifest.line, new.title
        old = pairs.get((path, line, title))
        if old is not None and new.error is None:
            compared += new.decision.has_template
            made = sorted(changes(Answer.of(old.decision), Answer.of(new.decision)))
            if made or old.verdict != new.verdict:
                place = f"{path}:{line}" if line else path
                found.append(WorkloadChange(place, title, old.decision, new.decision, made))
    return found, compared


def sentence(difference: Difference) -> str:
    """Return what happens to which Pods: ``Denied before, allowed now: Pods that …``."""
    before, after = (
        "allowed" if each.allowed else "denied" for each in (difference.before, difference.after)
    )
    sides = f"{before} as before" if before == after else f"{before} before, {after} now"
    found = kinds(difference)
    left = len(found) - _MOST_KINDS
    more = f"; and {counted(left, 'more kind')} of Pods" if left > 0 else ""
    return f"{capitalized(sides)}: {'; '.join(found[:_MOST_KINDS])}{more}."


def kinds(difference: Difference) -> list[str]:
    """Return the Pods that a difference is about, in words."""
    return [_pods(each) for each in _merged(difference.classes)]


def causes(rules: Iterable[Change]) -> Iterator[str]:
    """Yield a clause for each way in which rules change."""
    ordered = sorted(rules, key=lambda each: (each.before, each.after, each.rule))
    for sides, made in groupby(ordered, key=lambda each: (each.before, each.after)):
        before, after = (
            listing(_OUTCOMES[each] for each in side.split(" and ")) if side else ""
            for side in sides
        )
        what = f"no longer {before}{f', and now {after}' if after else ''}"
        if before == after:
            what = f"{after} in another way"
        elif not before:
            what = f"{after} now"
        yield f"{what} by {listing(each.rule for each in made)}"


def _merged(classes: Iterable[Class]) -> list[dict[str, tuple[Trait, ...]]]:
    """Return the classes as traits by aspect, those that differ in one aspect together."""
    found: list[dict[str, tuple[Trait, ...]]]
    found = [{trait.aspect: (trait,) for trait in own} for own in classes]
    for aspect in sorted({aspect for own in found for aspect in own}):
        merged: dict[object, dict[str, tuple[Trait, ...]]] = {}
        for own in found:
            rest = frozenset((key, each) for key, each in own.items() if key != aspect)
            same = merged.setdefault((rest, aspect in own), {**own, aspect: ()})
            same[aspect] += own.get(aspect, ())
        found = [{key: each for key, each in own.items() if each} for own in merged.values()]
    return found


def _pods(traits: dict[str, tuple[Trait, ...]]) -> str:
    """Return the Pods that have one of the traits of each aspect."""
    nouns = [_either(traits[aspect]) for aspect in _NEXT_TO_NOUN if aspect in traits]
    verbs = [_either(own) for aspect, own in sorted(traits.items()) if aspect not in _NEXT_TO_NOUN]
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
        parts.append(words.replace("{}", listing(shown, "or")))
    return " or ".join(parts)


def written(difference: Difference | WorkloadChange) -> list[str]:
    """Return what mutations write that differs: before with ``-``, now with ``+``."""
    names = {each.rule for each in difference.rules if CHANGES in (each.before, each.after)}
    return [
        f"{mark} {made.path}: {json.dumps(to_builtins(made).get('value'))}"
        for mark, decision in (("-", difference.before), ("+", difference.after))
        for rule, made in zip(decision.mutations, decision.operations, strict=True)
        if rule in names
    ]


def closing(report: DiffReport) -> Iterator[str]:
    """Yield what is equal, and what was compared and what was not."""
    comparison = report.comparison
    if not comparison.differences:
        yield (
            f"{report.old} and {report.new} decide alike on every Pod in these respects: device "
            "requests and their numbers, node selection, tolerations, namespace, user, "
            "RuntimeClass, what pools require, and the hardening level"
        )
    for path, what in comparison.elsewhere.items():
        yield f"{path} differs. No Pod shows it: {what}"
    if changed := [path for path in comparison.changed if path not in comparison.elsewhere]:
        yield f"Changed: {', '.join(changed)}"
    yield f"Compared: {comparison.classes:,} classes of Pods. Not compared: {NOT_COMPARED}"
    if report.compared:
        count = f"{len(report.workloads)} of {counted(report.compared, 'workload')}"
        yield f"The result differs for {count}"


def smallest(difference: Difference) -> str:
    """Return the smallest Pod, after the objects that it needs, as YAML."""
    return "---\n".join(map(to_yaml, difference.objects))
