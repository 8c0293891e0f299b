"""The required node affinity that the mutation adds, where the cases leave a corner."""

from __future__ import annotations

from typing import Any

import pytest

from deciding import pod, policy, required
from policies.engine import decide
from policies.kubernetes.scheduling import REQUIRED
from policies.policy import Policy
from policies.rules.set_pool_node_affinity import MOST_NEW_TERMS
from strategies import JSON

A = {"resources": {"limits": {"example.com/a": 1}}}
B = {"resources": {"limits": {"example.com/b": 1}}}


def pools(*pools: tuple[str, JSON]) -> Policy:
    """Return a policy with a pool for each device and its labels."""
    return policy(
        pools=[
            {"name": f"p{n}", "resources": [f"example.com/{device}"], "nodeSelector": labels}
            for n, (device, labels) in enumerate(pools)
        ]
    )


SEVERAL_LABELS = pools(("a", {"x": "1", "y": "1"}), ("a", {"x": "2", "z": "2"}))


def mutated(obj: JSON, own: Policy) -> list[JSON]:
    """Return the required terms of the Pod after all mutations."""
    affinity = decide(obj, own).mutated["spec"].get("affinity") or {}
    terms: list[JSON] = affinity.get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms")
    return terms or []


def with_term(container: JSON, *containers: JSON, **term: Any) -> JSON:
    return pod(container, *containers, **required(term))


def required_labels(term: JSON) -> list[tuple[str, list[str]]]:
    return sorted((each["key"], each["values"]) for each in term["matchExpressions"])


def test_a_term_with_fields_alone_is_copied_for_each_pool() -> None:
    name = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    first, second = mutated(with_term(A, matchFields=name), SEVERAL_LABELS)
    assert first["matchFields"] == second["matchFields"] == name
    assert required_labels(first) == [("x", ["1"]), ("y", ["1"])]
    assert required_labels(second) == [("x", ["2"]), ("z", ["2"])]


@pytest.mark.parametrize("key", ["size", "x"], ids=["another label", "a label of the pools"])
def test_a_term_that_does_not_parse_gets_one_completion(key: str) -> None:
    invalid = [{"key": key, "operator": "Gt", "values": []}]
    assert len(mutated(with_term(A, matchExpressions=invalid), SEVERAL_LABELS)) == 1


def test_a_term_that_no_pool_meets_gets_one_completion() -> None:
    elsewhere = [{"key": "x", "operator": "In", "values": ["3"]}]
    assert len(mutated(with_term(A, matchExpressions=elsewhere), SEVERAL_LABELS)) == 1


def test_the_devices_of_two_pools_require_the_labels_of_both() -> None:
    own = pools(("a", {"x": "1"}), ("b", {"y": "1"}))
    (term,) = mutated(pod(A, B), own)
    assert required_labels(term) == [("x", ["1"]), ("y", ["1"])]


def test_a_pool_whose_labels_another_request_requires_is_completed_like_the_others() -> None:
    own = pools(("a", {"x": "1", "y": "1"}), ("b", {"x": "1"}), ("b", {"x": "2"}))
    terms = mutated(pod(A, B), own)
    assert [required_labels(term) for term in terms] == [
        [("x", ["1"]), ("y", ["1"])],
        [("x", ["1"]), ("x", ["2"]), ("y", ["1"])],
    ]


def test_a_null_in_the_node_selector_is_an_empty_value() -> None:
    own = pools(("a", {"x": ""}))
    assert mutated(pod(A, nodeSelector={"x": None}), own) == []


@pytest.mark.parametrize(("count", "terms"), [(MOST_NEW_TERMS, MOST_NEW_TERMS), (101, 0)])
def test_a_pod_without_terms_gets_up_to_100(count: int, terms: int) -> None:
    own = pools(*(("a", {"x": str(n), "y": str(n)}) for n in range(count)))
    assert len(mutated(pod(A), own)) == terms
