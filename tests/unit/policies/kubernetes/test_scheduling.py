"""What neither the proofs nor the laws of scheduling say of taints, integers and selectors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from deciding import term
from policies.kubernetes.core_v1 import Requirement, Toleration
from policies.kubernetes.scheduling import (
    Alternative,
    Taint,
    parse_int64,
    tolerates,
)
from policies.kubernetes.selector import (
    Selector,
    can_match,
    confines,
    includes,
    selector_of,
    selects,
)
from policies.kubernetes.workload import convert
from strategies import JSON
from typed import alternatives, matches_node, may_tolerate


def selectors() -> st.SearchStrategy[Selector]:
    """Return selectors whose labels have one value, several values or any value."""
    return st.fixed_dictionaries(
        {},
        optional={
            strategies.PRESENT: st.sampled_from([("true",), ()]),
            strategies.MEMORY: st.sampled_from([("5",), ("40", "80"), ("0", "large"), ()]),
            strategies.ZONE: st.sampled_from([("a",), ("a", "b"), ()]),
        },
    )


SPELLINGS_OF_6 = " ".join("6".zfill(width) for width in range(1, 64))
"""Every label value that is the number 6, the shortest first."""


def test_a_taint_is_written_as_kubectl_writes_it() -> None:
    assert str(Taint("gpu", "NoSchedule")) == "gpu:NoSchedule"
    assert str(Taint("gpu", "NoSchedule", "true")) == "gpu=true:NoSchedule"


def test_taints_are_in_the_order_of_their_keys_and_effects() -> None:
    first, second, third = (
        Taint("a", "NoExecute"),
        Taint("a", "NoSchedule"),
        Taint("b", "NoExecute"),
    )
    assert sorted([third, second, first]) == [first, second, third]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-5", -5),
        ("+5", 5),
        ("007", 7),
        ("7".zfill(63), 7),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), None),
        (str(-(2**63)), -(2**63)),
        (str(-(2**63) - 1), None),
        ("", None),
        ("5.0", None),
        ("5 ", None),
        ("1_0", None),
        ("\u0665", None),
        ("9" * 10**6, None),
    ],
)
def test_integers_parse_as_in_go(text: str, value: int | None) -> None:
    assert parse_int64(text) == value


@pytest.mark.parametrize(
    ("operator", "bound", "may"),
    [
        ("Lt", "0", False),
        ("Lt", "1", True),
        ("Gt", "9223372036854775806", True),
        ("Gt", "9223372036854775807", False),
    ],
)
def test_may_tolerate_is_true_for_a_number_that_some_taint_value_can_have(
    operator: str, bound: str, may: bool
) -> None:
    toleration = {"key": "gpu", "operator": operator, "value": bound}
    assert may_tolerate(toleration, Taint("gpu", "NoSchedule")) is may


@pytest.mark.parametrize(
    ("written", "value", "covers", "may"),
    [
        ({}, "", True, True),
        ({"key": "other"}, "", False, False),
        ({"value": "a"}, "a", True, True),
        ({"operator": "Equal", "value": "a"}, "b", False, False),
        ({"operator": "Equal"}, None, False, True),
        ({"operator": "Exists"}, None, True, True),
        ({"operator": "Lt", "value": "2"}, "2", False, False),
        ({"operator": "Lt", "value": "3"}, "2", False, True),
        ({"operator": "Gt", "value": "2"}, "2", False, False),
        ({"operator": "Gt", "value": "1"}, "2", False, True),
        ({"operator": "Lt"}, "2", False, False),
        ({"operator": "Lt", "value": "3"}, "two", False, False),
    ],
)
def test_a_toleration_covers_a_taint_on_every_cluster_or_may_on_some(
    written: JSON, value: str | None, covers: bool, may: bool
) -> None:
    taint = Taint("gpu", "NoSchedule", value)
    assert tolerates(convert(written, Toleration), taint) is covers
    assert may_tolerate(written, taint) is may


class TestNodeSelections:
    @pytest.mark.parametrize(
        ("fields", "possible"),
        [
            (["In n"], True),
            (["In n", "In m"], False),
            (["In n", "NotIn n"], False),
            (["NotIn n", "NotIn other-n"], True),
            (["In"], False),
        ],
    )
    def test_some_node_can_have_a_name_that_meets_the_fields(
        self, fields: list[str], possible: bool
    ) -> None:
        words = [each.partition(" ") for each in fields]
        names = tuple(Requirement("metadata.name", operator, [n]) for operator, _, n in words)
        assert Alternative({}, (), names, "").has_possible_name() is possible

    @pytest.mark.parametrize(
        ("field", "accepted"),
        [
            ({"key": "metadata.name", "operator": "In", "values": ["n"]}, True),
            ({"key": "metadata.name", "operator": "In", "values": ["n", "m"]}, False),
            ({"key": "metadata.name", "operator": "In"}, False),
            ({"key": "metadata.name", "operator": "Exists"}, False),
            ({"key": "metadata.name", "operator": "Exists", "values": ["m"]}, False),
            ({"key": "metadata.uid", "operator": "In", "values": [""]}, True),
            ({"key": "metadata.uid", "operator": "In", "values": ["n"]}, False),
        ],
    )
    def test_match_fields_compare_the_node_name(self, field: JSON, accepted: bool) -> None:
        assert matches_node(with_required_terms([{"matchFields": [field]}]), "n", {}) is accepted

    def test_a_label_that_is_null_has_an_empty_value(self) -> None:
        assert matches_node({"nodeSelector": {"gpu": None}}, "n", {"gpu": ""})
        assert not matches_node({"nodeSelector": {"gpu": None}}, "n", {"gpu": "yes"})

    @pytest.mark.parametrize(
        "words",
        [
            "not/a/key Exists",
            "gpu In not_a_value_",
            "gpu In",
            "gpu Exists x",
            "gpu Gt x",
            "gpu Gt 1 2",
            "gpu Like y",
        ],
    )
    def test_a_term_that_does_not_parse_matches_no_node(self, words: str) -> None:
        assert list(alternatives(with_required_terms([term(words)]))) == []

    def test_an_alternative_has_the_path_of_its_term(self) -> None:
        (alternative,) = alternatives(with_required_terms([{}, term("gpu Exists")]))
        assert alternative.path == (
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[1]"
        )


class TestNodeSelectionLabels:
    @pytest.mark.parametrize(
        ("words", "possible"),
        [
            (["x Gt 3", "x Gt 5", "x Lt 6"], False),
            (["x Gt 5", "x Lt 6", "x Lt 9"], False),
            (["x Gt 9223372036854775806", "x NotIn 9223372036854775807"], True),
            (["x Gt 9223372036854775807"], False),
            (["x Lt 0"], False),
            (["x In a 7", "x Gt 5"], True),
            (["x In a 4", "x Gt 5"], False),
            (["x DoesNotExist", "x NotIn a"], True),
            (["x Gt 5", "x Lt 7", f"x NotIn {SPELLINGS_OF_6}"], False),
            (["x Gt 5", "x Lt 7", f"x NotIn {SPELLINGS_OF_6[2:]}"], True),
            (["x Gt 5", "x Lt 7", f"x NotIn {SPELLINGS_OF_6[:-64]}"], True),
        ],
    )
    def test_can_match_is_false_for_contradictory_expressions(
        self, words: list[str], possible: bool
    ) -> None:
        assert can_match(alternative_of(*words), {}) is possible

    def test_can_match_finds_a_name_that_no_field_excludes(self) -> None:
        fields = [
            {"key": "metadata.name", "operator": "NotIn", "values": [name]}
            for name in ("other", "other-other")
        ]
        (alternative,) = alternatives(with_required_terms([{"matchFields": fields}]))
        assert can_match(alternative, {})

    @given(selectors(), selectors(), strategies.nodes())
    def test_a_selector_includes_another_only_if_it_selects_all_of_its_nodes(
        self, wide: Selector, narrow: Selector, node: JSON
    ) -> None:
        labels = node["metadata"]["labels"]
        if includes(wide, narrow) and selects(narrow, labels):
            assert selects(wide, labels)

    @pytest.mark.parametrize(
        ("words", "confined"),
        [
            (["model In a"], True),
            (["model In a b"], True),
            (["model In a b c"], False),
            (["model In a b c", "model In a b d"], True),
            (["model Exists"], False),
            (["model In c", "size In 80"], False),
            (["model In a b c", "size In 80", "gpu In true"], True),
            (["model In a c", "size In 80 40", "gpu In true"], False),
            (["size In 80", "gpu In true"], True),
            (["size In 80"], False),
            (["model In d", "model In e"], True),
        ],
    )
    def test_confines_is_true_if_every_match_has_one_of_the_label_sets(
        self, words: list[str], confined: bool
    ) -> None:
        some = [{"model": "a"}, {"model": "b"}, {"size": "80", "gpu": "true"}]
        assert confines(alternative_of(*words), [*map(selector_of, some)]) is confined

    @pytest.mark.parametrize(
        ("words", "confined"),
        [
            (["model Exists"], True),
            (["model Gt 5"], True),
            (["model NotIn a"], False),
            (["size In 40 80"], True),
            (["size In 40 80 120"], False),
            (["size In 40 80 120", "model Exists"], True),
            (["size Exists"], False),
        ],
    )
    def test_confines_knows_sets_of_values_and_labels_with_any_value(
        self, words: list[str], confined: bool
    ) -> None:
        some: list[Selector] = [{"model": ()}, {"size": ("40", "80")}]
        assert confines(alternative_of(*words), some) is confined


def with_required_terms(terms: Any) -> JSON:
    required = {"nodeSelectorTerms": terms}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"affinity": {"nodeAffinity": affinity}}


def alternative_of(*words: str) -> Alternative:
    expressions = [term(one)["matchExpressions"][0] for one in words]
    (alternative,) = alternatives(with_required_terms([{"matchExpressions": expressions}]))
    return alternative
