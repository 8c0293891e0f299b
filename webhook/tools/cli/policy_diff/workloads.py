"""What policies decide on workloads: those in manifests, and those of a cluster or a dump."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

from policies.policy import Policy
from webhook.documents.document import sentence
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.policy_diff.comparison import Effects, effects_of

if TYPE_CHECKING:
    from webhook.cluster.objects import Objects

EffectsByName = dict[str, Effects]
"""By the name of a workload, with its namespace and its file."""


class Skipped:
    """The workloads that are not compared: a sentence for each, and whether a rule failed there."""

    def __init__(self) -> None:
        self.sentences: dict[str, None] = {}
        self.is_malformed = self.is_bug = False

    def add(self, sentence: str, *, is_bug: bool) -> None:
        self.sentences[sentence] = None
        self.is_malformed = self.is_malformed or not is_bug
        self.is_bug = self.is_bug or is_bug


def in_manifests(results: Iterable[Result], skipped: Skipped) -> EffectsByName:
    """Return what a policy decides on the objects of files."""
    results = list(results)
    for each in results:
        if each.error is not None:
            text = sentence(each.manifest.document, each.error)
            skipped.add(text, is_bug=bool(each.judgement.bugs))
    return {
        f"{each.title} ({each.manifest.document.path}:{each.manifest.line})": effects_of(
            each.decision
        )
        for each in results
        if each.error is None and each.decision.has_template
    }


async def in_cluster(
    objects: Objects, policies: Sequence[Policy], today: date, skipped: Skipped
) -> list[EffectsByName]:
    """Return what each policy decides on the workloads of a cluster or a dump."""
    from webhook.cluster.objects import Reader
    from webhook.tools.audit.cluster_audit import judged_workloads

    found: list[EffectsByName] = []
    for policy in policies:
        reader = Reader(objects)
        names = {
            f"{each.kind.kind} {each.owned.full_name}": each
            for each in await judged_workloads(reader, policy, today)
        }
        found.append(
            {
                name: effects_of(each.decision)
                for name, each in names.items()
                if each.decision.has_template
            }
        )
        skipped.sentences |= dict.fromkeys(reader.skipped)
        for title, problem in reader.malformed:
            skipped.add(f"{title}: {problem}", is_bug=False)
        for title, problem in reader.bugs:
            skipped.add(f"{title}: {problem}", is_bug=True)
        for name, each in names.items():
            if each.is_undecided:
                skipped.add(f"{name}: {'; '.join(each.unjudged)}", is_bug=name in reader.failing)
    return found
