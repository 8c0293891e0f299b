"""What policies decide on workloads: those in manifests, and those of a cluster or a dump."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

from policies.policy import Policy
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.policy_diff.comparison import Effects, effects_of

if TYPE_CHECKING:
    from webhook.cluster.objects import Objects

EffectsByName = dict[str, Effects]
"""By the name of a workload, with its namespace and its file."""


def in_manifests(results: Iterable[Result]) -> EffectsByName:
    return {
        f"{each.title} ({each.manifest.document.path}:{each.manifest.line})": effects_of(
            each.decision
        )
        for each in results
        if each.error is None and each.decision.has_template
    }


async def in_cluster(
    objects: Objects, policies: Sequence[Policy], today: date
) -> tuple[list[EffectsByName], list[str]]:
    """Return what each policy decides on the workloads, and sentences about what is not judged."""
    from webhook.cluster.objects import Reader
    from webhook.tools.audit.cluster_audit import judged_workloads

    found: list[EffectsByName] = []
    skipped: dict[str, None] = {}
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
        skipped |= dict.fromkeys(reader.skipped)
        for name, each in names.items():
            if each.is_undecided:
                skipped[f"{name}: {'; '.join(each.unjudged)}"] = None
    return found, [*skipped]
