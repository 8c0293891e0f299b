"""The required node affinity that the mutation adds, where the cases leave a corner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deciding import pod, policy, required, term
from policies.engine import NO_FACTS, decide
from policies.facts import Facts
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex
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


def mutated(obj: JSON, own: Policy, facts: Facts = NO_FACTS) -> list[JSON]:
    """Return the required terms of the Pod after all mutations."""
    affinity = decide(obj, own, facts=facts).mutated["spec"].get("affinity") or {}
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


def test_a_term_that_matches_no_node_stays() -> None:
    own = [
        {"name": name, "resources": ["example.com/a"], "nodeSelector": {"model": name}}
        | {"matchExpressions": [{"key": "paused", "operator": "DoesNotExist"}]}
        for name in ("h100", "h200")
    ]
    within: JSON = {"key": "model", "operator": "In", "values": ["h100"]}
    elsewhere: list[JSON] = [
        {"matchExpressions": [within, {"key": "x", "operator": "Gt", "values": ["three"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": []}]},
        {},
    ]
    for made in (SEVERAL_LABELS, policy(pools=own), policy(pools=own[:1])):
        assert mutated(pod(A, **required(*elsewhere, "zone In a")), made)[:3] == elsewhere


OFFERING: JSON = {"resources": ["example.com/a"]}
OF_LAB: JSON = OFFERING | {"allowedNamespaces": {"names": ["lab"]}}
RESERVED = policy(
    pools=[
        {"name": "open", "nodeSelector": {"gpu": "a"}, **OFFERING},
        {"name": "without-nodes", "nodeSelector": {"gpu": "b"}, **OFFERING},
        {"name": "lab", "nodeSelector": {"lab": "1"}, **OF_LAB},
        {"name": "other", "nodeSelector": {"lab": "2"}, **OF_LAB},
    ]
)


@pytest.mark.parametrize(
    ("terms", "template", "excludes"),
    [
        (["zone In a"], {}, True),
        (["zone In b"], {}, False),
        (["zone In b", "zone In d"], {}, False),
        (["zone In d"], {}, True),
        (["zone In b", "zone Exists"], {}, True),
        (["zone In b"], {"gpu": "a", "zone": "b"}, True),
        (["zone In b", "zone In d"], {"gpu": "a", "zone": "b"}, True),
        (["zone In b"], {"gpu": "a", "zone": "c"}, False),
        (["zone In b"], {"gpu": "a", "zone": "b", "lab": "1"}, False),
    ],
)
def test_reserved_nodes_are_left_out_unless_the_pod_chooses_no_others(
    terms: list[str], template: dict[str, str], excludes: bool
) -> None:
    gpu: JSON = {"gpu": "a", "zone": "a"}
    labels = [gpu, gpu | {"lab": "1"}] if terms == ["zone In a"] else []
    labels += [gpu | {"lab": "1", "zone": "b"}, {"zone": "d"}]
    nodes = NodeIndex(Node(f"n{n}", each, (), {}) for n, each in enumerate(labels))
    templates = (NodeTemplate("t", template),) if template else ()
    facts = Facts(nodes=nodes, templates=templates)
    found = mutated(pod(A, **required(*terms)), RESERVED, facts)
    assert ("lab" in str(found)) is excludes


def test_a_candidate_pool_and_one_that_is_open_to_the_pod_close_no_nodes() -> None:
    pools: list[JSON] = [
        {"name": "open", "nodeSelector": {"gpu": "a"}, **OFFERING},
        {"name": "queued", "nodeSelector": {"lab": "1"}, **OFFERING},
        {"name": "own", "nodeSelector": {"lab": "2"}, "resources": ["example.com/b"]},
    ]
    pools[1]["requires"] = [{"queue": True, "action": "enforce"}]
    pools[2]["allowedNamespaces"] = {"names": ["default"]}
    assert "NotIn" not in str(mutated(pod(A), policy(pools=pools)))


def test_reserved_nodes_are_left_out_of_each_term_unless_no_node_is_left() -> None:
    def words(terms: list[JSON]) -> list[list[str]]:
        listed = [each["matchExpressions"] for each in terms]
        return [
            [" ".join((e["key"], e["operator"], *e["values"])) for e in each] for each in listed
        ]

    found = mutated(pod(A, **required("lab In 1")), RESERVED)
    assert words(found) == [["lab In 1", "gpu In a b"]]
    found = mutated(pod(A, **required("lab In 1", "zone In a")), RESERVED)
    assert words(found) == [
        ["lab In 1", "gpu In a", "lab NotIn 1", "lab NotIn 2"],
        ["zone In a", "gpu In a", "lab NotIn 1 2"],
        ["zone In a", "gpu In b", "lab NotIn 1 2"],
    ]
    assert mutated(pod(A, **required(*found)), RESERVED) == found
    either = term("gpu In a b")
    first, second = mutated(pod(A, **required(either)), RESERVED)
    assert words([first, second]) == [
        ["gpu In a b", f"gpu In {own}", "lab NotIn 1 2"] for own in "ab"
    ]
    either["matchExpressions"].append(first["matchExpressions"][-1])
    assert mutated(pod(A, **required(either)), RESERVED) == [either]
    either["matchExpressions"][-1:] = term("lab NotIn 1")["matchExpressions"]
    assert mutated(pod(A, **required(either)), RESERVED) != [either]


def test_reserved_nodes_are_not_left_out_where_all_are_reserved() -> None:
    labs = [
        {"name": "in-lab", **term("lab Exists")},
        {"name": "outside", "nodeSelector": {"gpu": "a"}, **term("lab DoesNotExist")},
    ]
    labs = [OF_LAB | {"resources": [f"example.com/{n}"]} | lab for n, lab in enumerate(labs)]
    own = {"name": "open", "nodeSelector": {"gpu": "a"}, **OFFERING}
    assert mutated(pod(A), policy(pools=[own, *labs])) == [term("gpu In a")]
    [one] = mutated(pod(A), policy(pools=[own, labs[0]]))
    assert one["matchExpressions"][1] == {"key": "lab", "operator": "DoesNotExist"}


def test_many_ways_to_leave_out_reserved_nodes_are_not_all_tried() -> None:
    """Five pools of two labels have 32 ways."""
    labs = [
        {"name": f"lab{n}", "nodeSelector": {"x": f"{n}", "y": f"{n}"}, **OF_LAB} for n in range(5)
    ]
    own = policy(pools=[{"name": "open", "nodeSelector": {"gpu": "a"}, **OFFERING}, *labs])
    assert len(mutated(pod(A), own)) == 16


def test_a_term_for_one_of_several_pools_leaves_out_what_the_pool_leaves_out() -> None:
    paused = {"key": "paused", "operator": "DoesNotExist"}
    h100, h200 = (
        {"name": name, "resources": ["example.com/a"], "nodeSelector": {"model": name}}
        for name in ("h100", "h200")
    )
    own = policy(pools=[h100 | {"matchExpressions": [paused]}, h200])
    first, second = (each["matchExpressions"] for each in mutated(pod(A), own))
    assert (first[1:], second[1:]) == ([paused], [])


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
    lab = policy(pools=[{"name": "lab", "nodeSelector": {"lab": "1"}, **OF_LAB}])
    for several in (own, replace(own, pools=(*own.pools, *lab.pools))):
        assert mutated(pod(A, **required(*zones)), several) == zones
