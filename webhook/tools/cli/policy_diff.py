"""The report of ``gpufence policy diff``: differences as sentences, and workloads that change."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import to_builtins

from policies.decision import Decision
from policies.difference import CHANGES, Change, Comparison, Difference, changes
from policies.traits import Class, Trait
from policies.wording import capitalized, counted, listing
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.yaml_writer import to_yaml

_MOST_KINDS = 3
_ASPECTS = ("namespace", "user", "kind", "date")
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
    for result in after:
        place = (result.manifest.document.path, result.manifest.line, result.title)
        old = pairs.get(place)
        if old is None or None not in (old.error, result.error):
            continue
        compared += result.decision.has_template
        made = changes(old.decision, result.decision)
        if made.rules or made.verdicts[0] != made.verdicts[1]:
            where = f"{place[0]}:{place[1]}" if place[1] else place[0]
            own = sorted(made.rules)
            found.append(WorkloadChange(where, result.title, old.decision, result.decision, own))
    return found, compared


def headline(before: Decision, after: Decision) -> str:
    """Return what happens to an object: ``Denied before, allowed now``."""
    sides = ["allowed" if each.allowed else "denied" for each in (before, after)]
    if sides[0] == sides[1]:
        return f"{capitalized(sides[0])} as before"
    return f"{capitalized(sides[0])} before, {sides[1]} now"


def sentence(difference: Difference) -> str:
    """Return what happens to which Pods."""
    found = kinds(difference)
    left = len(found) - _MOST_KINDS
    more = f"; and {counted(left, 'more kind')} of Pods" if left > 0 else ""
    what = headline(difference.before, difference.after)
    return f"{what}: {'; '.join(found[:_MOST_KINDS])}{more}."


def kinds(difference: Difference) -> list[str]:
    """Return the Pods that a difference is about, in words."""
    return [_pods(each) for each in _alternatives(difference.classes)]


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


def _pods(traits: dict[str, list[Trait]]) -> str:
    """Return the Pods that have one of the traits of each aspect."""
    text = "Pods"
    for aspect in _ASPECTS:
        if aspect in traits:
            text += f" {_either(traits[aspect])}"
    others = [_either(own) for aspect, own in sorted(traits.items()) if aspect not in _ASPECTS]
    if not traits:
        return "every Pod"
    return f"{text} that {' and '.join(others)}" if others else text


def _either(traits: Sequence[Trait]) -> str:
    by_verb: defaultdict[str, list[Trait]] = defaultdict(list)
    for trait in traits:
        by_verb[trait.verb].append(trait)
    return " or ".join(
        f"{verb} {listing(_numbers(own), 'or')}".rstrip() for verb, own in by_verb.items()
    )


def _numbers(traits: Sequence[Trait]) -> Iterator[str]:
    """Yield what traits are about: ``5 to 8 nvidia.com/gpu`` where only the number differs."""
    for name, same in groupby(traits, key=lambda trait: trait.rank and trait.rank[0]):
        own = sorted(same, key=lambda trait: trait.rank or ("", 0))
        if name is None or len(own) == 1:
            yield from (trait.what for trait in own)
        else:
            numbers = [str(trait.rank[1]) for trait in own if trait.rank]
            yield f"{listing(numbers, 'or')} {name}"


def _alternatives(classes: Iterable[Class]) -> list[dict[str, list[Trait]]]:
    """Return the classes, those that differ in one aspect together."""
    found = [{trait.aspect: [trait] for trait in own} for own in classes]
    for aspect in sorted({aspect for own in found for aspect in own}):
        merged: dict[object, dict[str, list[Trait]]] = {}
        for own in found:
            rest = frozenset((key, tuple(each)) for key, each in own.items() if key != aspect)
            same = merged.setdefault(
                (rest, aspect in own), {**own, aspect: []} if aspect in own else own
            )
            if aspect in own:
                same[aspect] += own[aspect]
        found = list(merged.values())
    return found


def written(difference: Difference | WorkloadChange) -> list[str]:
    """Return what mutations write that differs: before with ``-``, now with ``+``."""
    names = {each.rule for each in difference.rules if CHANGES in (each.before, each.after)}
    sides = []
    for mark, decision in (("-", difference.before), ("+", difference.after)):
        made = zip(decision.mutations, decision.operations, strict=True)
        values = [(op.path, to_builtins(op).get("value")) for rule, op in made if rule in names]
        sides.append([f"{mark} {path}: {json.dumps(value)}" for path, value in values])
    return [line for side in sides for line in side]


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
