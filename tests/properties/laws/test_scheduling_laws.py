"""Placement is judged as kube-scheduler judges it: its own code says so."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import strategies
from laws.profile import law
from oracle.driver import Oracle
from policies.kubernetes.scheduling import Taint, parse_int64
from specs import JSON
from strategies import as_taint
from typed import matches_node, may_tolerate, tolerates

pytestmark = pytest.mark.timeout(3600)


@law
@given(st.lists(st.tuples(strategies.tolerations(), strategies.taints()), min_size=1, max_size=8))
def test_a_toleration_matches_a_taint_exactly_if_the_scheduler_agrees(
    oracle: Oracle, pairs: list[tuple[JSON, JSON]]
) -> None:
    answers = oracle.tolerates_each(pairs, comparison_operators=False)
    for (toleration, taint), covered in zip(pairs, answers, strict=True):
        event(f"covered: {covered}")
        assert tolerates(toleration, as_taint(taint)) is covered


@law
@given(st.lists(st.tuples(strategies.tolerations(), strategies.taints()), min_size=1, max_size=8))
def test_may_tolerate_covers_the_comparison_operators_of_the_scheduler(
    oracle: Oracle, pairs: list[tuple[JSON, JSON]]
) -> None:
    answers = oracle.tolerates_each(pairs, comparison_operators=True)
    for (toleration, taint), covered in zip(pairs, answers, strict=True):
        may = may_tolerate(toleration, as_taint(taint))
        if covered or not (is_odd_number(toleration) or is_odd_number(taint)):
            assert may is covered
        assert may_tolerate(toleration, Taint(taint["key"], taint["effect"])) or not covered


@law
@given(strategies.node_selections(), strategies.node_sets())
def test_a_node_selection_accepts_a_node_exactly_if_the_scheduler_agrees(
    oracle: Oracle, selection: JSON, nodes: list[JSON]
) -> None:
    for node, verdict in zip(nodes, oracle.feasible({"spec": selection}, nodes), strict=True):
        event(f"accepted: {verdict.affinity}, a term in error: {bool(verdict.affinity_error)}")
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        assert matches_node(selection, name, labels) is verdict.affinity


def is_odd_number(holder: JSON) -> bool:
    """Return whether a value is a number to us and not to the API: a plus sign, a leading zero."""
    value: str = holder.get("value") or ""
    number = parse_int64(value)
    return number is not None and str(number) != value
