"""The required node affinity that the mutation adds, where the cases leave a corner."""

from __future__ import annotations

from typing import Any

from deciding import pod, policy, required, term
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


def test_a_term_that_matches_no_node_gets_one_completion_unless_it_is_empty() -> None:
    values = [{"key": "x", "operator": "Gt", "values": []}]
    fields = [{"key": "metadata.name", "operator": "In", "values": []}]
    zone = term("zone In a")
    for broken, count in (
        ({"matchExpressions": values}, 3),
        ({"matchFields": fields}, 2),
        ({}, 0),
    ):
        terms = mutated(pod(A, **required(broken, zone)), SEVERAL_LABELS)
        assert [len(each.get("matchExpressions", ())) for each in terms] == [count, 3, 3], broken


def test_terms_that_no_pool_meets_stay() -> None:
    elsewhere = {"matchExpressions": [{"key": "x", "operator": "In", "values": ["3"]}]}
    assert mutated(with_term(A, **elsewhere), SEVERAL_LABELS) == [elsewhere]


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


def test_a_pod_gets_up_to_100_terms() -> None:
    own = pools(*(("a", {"x": str(n), "y": str(n)}) for n in range(MOST_NEW_TERMS)))
    assert len(mutated(pod(A), own)) == MOST_NEW_TERMS
    zones = [term(f"zone In {zone}") for zone in "ab"]
    assert mutated(pod(A, **required(*zones)), own) == zones
