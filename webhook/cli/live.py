"""``--cluster``: what a live cluster knows, asked once, and for each claim that is named."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from policies.compiled import Policy
from policies.facts import Facts, JSONObject
from webhook.cli.errors import InputError
from webhook.cluster.access import Load
from webhook.cluster.claims import LookupResult, LookupTiming
from webhook.cluster.connection import Connection
from webhook.cluster.errors import ClusterError
from webhook.cluster.facts import ClusterFacts

if TYPE_CHECKING:
    from webhook.cli.surroundings import Complete

# Nobody else waits, so a claim may be waited for.
_PATIENT = LookupTiming(keep=3600.0, keep_failure=3600.0, wait=10.0, request=10.0)
_SECONDS = 2 * _PATIENT.wait


class _Lookups:
    """Counts what became of the lookups."""

    def __init__(self) -> None:
        self.results: Counter[LookupResult] = Counter()

    def watch_restarted(self, resource: str) -> None:
        pass

    def claim_looked_up(self, result: LookupResult) -> None:
        self.results[result] += 1


@contextmanager
def asked(load: Load, policy: Policy) -> Iterator[Complete]:
    """Provide what adds a cluster's facts to those of an object; what the object brings counts.

    Raises:
        InputError: the cluster cannot be asked.
    """
    lookups = _Lookups()
    # What the server would log is said below.
    logging.getLogger("gpufence").addHandler(logging.NullHandler())
    with asyncio.Runner() as runner:
        cluster = ClusterFacts(Connection(load), policy, observer=lookups, lookup_timing=_PATIENT)

        def complete(facts: Facts, obj: JSONObject) -> Facts:
            return _merged(facts, runner.run(cluster.facts_for(facts, obj, _SECONDS)))

        try:
            runner.run(cluster.load())
            yield complete
        except ClusterError as error:
            raise InputError([str(error)]) from error
        finally:
            runner.run(cluster.stop())
    if unanswered := lookups.results["failed"] + lookups.results["late"]:
        claims = "1 claim" if unanswered == 1 else f"{unanswered} claims"
        problem = cluster.claim_problem() or "the answers did not come in time"
        click.echo(f"Warning: {claims} could not be looked up: {problem}", err=True)


def _merged(own: Facts, known: Facts) -> Facts:
    """Return what is known of the cluster, as it will be once the manifests are applied."""
    classes = {**known.extended_resource_classes, **own.extended_resource_classes}
    labels = known.namespace_labels if own.namespace_labels is None else own.namespace_labels
    return replace(
        known,
        claims={**known.claims, **own.claims},
        claim_templates={**known.claim_templates, **own.claim_templates},
        extended_resource_classes=classes,
        namespace_labels=labels,
    )
