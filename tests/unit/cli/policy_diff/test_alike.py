"""The law of ``alike``: two policies that are called alike decide alike on every object."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies.facts import Facts
from policies.policy import Policy
from unit.cli.policy_diff.generated import Pods
from unit.cli.policy_diff.pairs import Pairs
from webhook.documents.document import Document
from webhook.documents.objects import Manifest
from webhook.tools.cli.evaluate import evaluate
from webhook.tools.cli.policy_diff.fields import changed_fields

COUNT = int(os.environ.get("GPUFENCE_LAWS", "300"))
BASE = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text())["policy"]


def results(pods: Any, policies: tuple[Policy, Policy], count: int) -> Any:
    """Yield generated objects, each with what both policies make of it."""
    for obj, request, known in (pods.one() for _ in range(count)):
        manifests = [Manifest(Document(0, "", 0, path="pod.yaml"), None, (), 0, obj)]
        sides = []
        for policy in policies:
            [made] = evaluate(manifests, policy, request, facts_in=partial(_same, known))
            found = [(f.rule, f.action, f.would, f.path, f.reason) for f in made.findings]
            sides.append((made.verdict, sorted(map(str, found)), ordered(made.decision.mutated)))
        yield obj, sides


def _same(facts: Facts, _namespace: str) -> Facts:
    return facts


def ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: ordered(each) for key, each in sorted(value.items())}
    return sorted(map(ordered, value), key=repr) if isinstance(value, list) else value


@pytest.mark.slow("decides on objects with pairs of policies")
def test_law_policies_that_are_called_alike_decide_alike() -> None:
    pairs, pods = Pairs(BASE, 1), Pods(2)
    tally = Counter[str]()
    while tally["alike"] < COUNT:
        policies = pairs.one()
        changed = changed_fields(*policies)
        if not all(each.without_effect for each in changed):
            tally["not alike"] += 1
            continue
        tally["alike"] += 1
        tally["equal after normalization"] += not changed
        tally.update(f"without effect: {each.without_effect}" for each in changed)
        for obj, (before, after) in results(pods, policies, 6):
            tally["objects"] += 1
            assert before == after, (list(map(str, changed)), obj, before, after)
    print(f"\n{dict(tally)}")
