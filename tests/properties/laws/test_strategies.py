"""A law is worth what its examples reach: of each outcome there are enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import strategies
from policies.engine import decide
from policies.facts import Facts
from policies.policy import Policy
from specs import JSON
from typed import alternatives, is_wildcard, required_terms

EXAMPLES = 300
POLICIES = strategies.policies()


def count(
    strategy: st.SearchStrategy[Any], classify: Callable[[Any], Iterable[str]]
) -> Counter[str]:
    """Return how many examples show each thing that ``classify`` names."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def look(example: Any) -> None:
        seen.update(set(classify(example)))

    look()
    return seen


def test_examples_reach_every_kind_of_decision() -> None:
    triples = st.tuples(
        st.one_of(strategies.pods(), strategies.workloads()),
        st.sampled_from(list(POLICIES.values())),
        strategies.facts(),
    )

    def classify(triple: tuple[JSON, Policy, Facts]) -> Iterable[str]:
        obj, policy, facts = triple
        decision = decide(obj, policy, facts=facts)
        yield decision.verdict
        yield "changed" if decision.mutated is not obj else "unchanged"
        yield from (finding.rule for finding in decision.findings)
        yield from (f"of pool {pool}" for pool in decision.pools)

    seen = count(triples, classify)
    for outcome in ("allowed", "denied", "changed", "unchanged", "of pool nvidia"):
        assert seen[outcome] >= EXAMPLES // 20, seen
    for outcome in (
        "of pool amd",
        "unequal-device-limits",
        "unschedulable-gpu-pod",
        "unrestricted-gpu-pod",
        "pool-trespass",
        "device-leak",
    ):
        assert seen[outcome] >= EXAMPLES // 100, seen


def test_examples_reach_every_kind_of_node_selection() -> None:
    def classify(spec: JSON) -> Iterable[str]:
        terms, ways = required_terms(spec), list(alternatives(spec))
        yield f"terms: {None if terms is None else min(len(terms), 2)}"
        if terms and len(ways) < len(terms):
            yield "a term that matches nothing"
        yield from ("fields" for way in ways if way.fields)
        yield from (str(e.operator) for way in ways for e in way.expressions)
        if spec.get("nodeSelector"):
            yield "a node selector"

    seen = count(strategies.node_selections(), classify)
    for outcome in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "fields", "terms: None"):
        assert seen[outcome] >= EXAMPLES // 100, seen
    for outcome in ("terms: 1", "terms: 2", "a term that matches nothing", "a node selector"):
        assert seen[outcome] >= EXAMPLES // 20, seen


def test_examples_reach_every_kind_of_toleration() -> None:
    def classify(toleration: JSON) -> Iterable[str]:
        yield str(toleration.get("operator"))
        yield f"effect {toleration.get('effect')}"
        if is_wildcard(toleration):
            yield "a wildcard"

    seen = count(strategies.tolerations(), classify)
    for outcome in (
        "None",
        "Exists",
        "Equal",
        "",
        "Lt",
        "Gt",
        "exists",
        "a wildcard",
        "effect None",
    ):
        assert seen[outcome] >= EXAMPLES // 100, seen
