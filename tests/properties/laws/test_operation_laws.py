"""The operations of a decision, held against jsonpatch, the typed Pod and fields of the future."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import strategies
from laws.profile import law
from policies.engine import decide, mutate, validate
from policies.facts import Facts
from policies.kubernetes import core_v1
from policies.kubernetes.editor import PatchOperation, RemoveOperation, clone
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from specs import JSON

pytestmark = pytest.mark.timeout(3600)

objects = st.one_of(strategies.pods(), strategies.gpu_pods(), strategies.workloads())
policies = st.sampled_from(list(strategies.policies().values()))

FREE_KEYS = ("annotations", "labels", "limits", "nodeSelector", "pytorchReplicaSpecs", "requests")
"""Mappings whose keys are not fields."""
FUTURE = "fieldOfTheFuture"
future_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 7, 0.5, "text", [], [{"a": 1}], {}, {"a": {"b": []}}]
)


@law
@given(objects, policies, strategies.facts())
def test_applying_the_operations_yields_the_mutated_object(
    obj: JSON, policy: Policy, facts: Facts
) -> None:
    # Parsed JSON shares nothing; examples may share what they are made of.
    obj = clone(obj)
    decision = decide(obj, policy, facts=facts)
    event(f"operations: {min(len(decision.operations), 5)}")
    assert bool(decision.operations) is (decision.mutated is not obj)
    assert as_text(applied(obj, decision.operations)) == as_text(decision.mutated)


@law
@given(objects, policies, strategies.facts())
def test_typed_pods_equal_the_pods_of_the_patched_object(
    obj: JSON, policy: Policy, facts: Facts
) -> None:
    obj = clone(obj)
    workload = Workload(obj)
    operations = mutate(workload, policy, facts=facts)
    patched = Workload(applied(obj, operations))
    assert specs(workload) == specs(patched)
    assert mutate(patched, policy, facts=facts) == ()


@law
@given(strategies.pods(), policies, strategies.facts())
def test_a_typed_pod_gets_the_same_decision_as_its_json(
    pod: JSON, policy: Policy, facts: Facts
) -> None:
    def decoded() -> core_v1.PodObject:
        return msgspec.json.decode(json.dumps(pod), type=core_v1.PodObject)

    assert mutate(decoded(), policy, facts=facts) == mutate(pod, policy, facts=facts)
    typed, parsed = (validate(each, policy, facts=facts) for each in (decoded(), pod))
    assert (typed.findings, typed.pools) == (parsed.findings, parsed.pools)


@law
@given(objects, policies, strategies.facts(), st.data())
def test_unknown_fields_are_kept_and_change_no_decision(
    obj: JSON, policy: Policy, facts: Facts, data: st.DataObject
) -> None:
    obj = clone(obj)
    with_future = clone(obj)
    for parent in mappings(with_future):
        parent[FUTURE] = data.draw(future_values)
    today, future = (decide(each, policy, facts=facts) for each in (obj, with_future))
    assert future.operations == today.operations
    assert future.findings == today.findings
    removals = tuple(op for op in future.operations if isinstance(op, RemoveOperation))
    kept = applied(with_future, removals)
    patched = future.mutated
    count = sum(FUTURE in parent for parent in mappings(patched))
    assert count == sum(1 for _ in mappings(kept))
    for parent in mappings(patched):
        parent.pop(FUTURE, None)
    assert as_text(patched) == as_text(today.mutated)


def applied(obj: JSON, operations: tuple[PatchOperation, ...]) -> JSON:
    patched: JSON = jsonpatch.apply_patch(obj, msgspec.to_builtins(operations))
    return patched


def specs(workload: Workload) -> list[JSON]:
    return [msgspec.to_builtins(pod.spec) for pod in workload.pods()]


def mappings(value: Any, key: str = "") -> Iterator[JSON]:
    """Yield the mappings of an object whose keys are fields."""
    if isinstance(value, dict):
        if key not in FREE_KEYS:
            yield value
        for name, item in list(value.items()):
            if name != FUTURE:
                yield from mappings(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from mappings(item, key)


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
