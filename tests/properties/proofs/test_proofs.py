"""A part of `make prove` on every run: few of the cases, and the judge against kube-scheduler."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from msgspec import to_builtins

from deciding import required
from each import each
from oracle.driver import Oracle
from policies.kubernetes.core_v1 import PodSpec, Requirement
from proofs import judge, quotient
from proofs.judge import Nodes, NodeTaint
from proofs.statements import EFFECTS, STATEMENTS, Statement, selections
from proofs.variants import VARIANTS


@pytest.mark.slow("evaluates every statement")
def test_a_statement_holds_for_a_part_of_the_cases() -> None:
    def holds(statement: Statement) -> None:
        assert sum(statement.check(True)) > 100

    each(STATEMENTS, holds)


def test_each_variant_edits_the_sources() -> None:
    for variant in VARIANTS:
        compile(variant.source, variant.file, "exec")


def test_the_judge_agrees_with_the_scheduler_on_requirements(oracle: Oracle) -> None:
    every = itertools.chain(
        *(constraint.expressions for constraint in quotient.constraints("a", small=False)),
        *quotient.number_requirements("a"),
        [Requirement("a", operator, values) for operator in ("In", "Gt", "Like") for values in ODD],
        [Requirement("a", "Exists", ["5"])],
    )
    distinct = {(each.operator, tuple(each.values or ())) for each in every}
    values = dict.fromkeys([*quotient.NODE_VALUES, *quotient.values_of_numbers()])
    nodes = Nodes(("n", {} if value is None else {"a": value}) for value in values)
    for operator, listed in sorted(distinct, key=str):
        expression = {"key": "a", "operator": operator, "values": list(listed)}
        agree(oracle, required({"matchExpressions": [expression]}), nodes)


def test_the_judge_agrees_with_the_scheduler_on_selections(oracle: Oracle) -> None:
    values = itertools.product((None, "5", "x", "05"), (None, "1", "2"), (None, "z"), ("n1", "n2"))
    nodes = Nodes(
        (name, {k: v for k, v in zip("abc", labels, strict=True) if v is not None})
        for *labels, name in values
    )
    for spec in selections(small=True, fields=True):
        agree(oracle, to_builtins(spec), nodes)
    for count in range(3):
        agree(oracle, required(*[{"matchFields": []}] * count), nodes)


def test_the_judge_agrees_with_the_scheduler_on_tolerations(oracle: Oracle) -> None:
    taints = [
        NodeTaint(*each) for each in itertools.product(("gpu", "x"), quotient.TAINT_VALUES, EFFECTS)
    ]
    every = itertools.product(quotient.tolerations(), taints)
    # Five does not divide the number of taints, so that the questions cover each taint.
    pairs = list(itertools.islice(every, 0, None, 5))
    assert len(taints) % 5
    for numeric in (False, True):
        asked = ((to_builtins(toleration), taint._asdict()) for toleration, taint in pairs)
        answers = oracle.tolerates_each(asked, comparison_operators=numeric)
        for (toleration, taint), covered in zip(pairs, answers, strict=True):
            assert judge.tolerates(toleration, taint, numeric=numeric) is covered


ODD: tuple[list[str], ...] = ([], ["5", "7"], ["a b"], ["-5"], ["x" * 64])
"""Values that a requirement may not have, with some operator."""


def agree(oracle: Oracle, spec: dict[str, object], nodes: Nodes) -> None:
    """Assert that the judge and the scheduler select the same of the nodes."""
    listed = [
        {"metadata": {"name": name, "labels": labels}, "spec": {"taints": []}}
        for name, labels in nodes.nodes
    ]
    verdicts = oracle.feasible({"spec": spec}, listed)
    found = nodes.selected_by(msgspec.convert(spec, PodSpec))
    assert [bool(found >> number & 1) for number in range(len(listed))] == [
        verdict.affinity for verdict in verdicts
    ], spec
