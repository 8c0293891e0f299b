"""Taints, tolerations and node selection, by example and by laws that need no oracle."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from deciding import term
from policies.kubernetes.scheduling import (
    Alternative,
    Taint,
    accepts,
    parse_int64,
)
from policies.kubernetes.selector import (
    Selector,
    can_match,
    confines,
    includes,
    requires,
    requires_labels,
    selector_of,
    selects,
    surely_accepts,
)
from strategies import JSON, as_taint
from typed import alternatives, matches_node, may_tolerate, tolerates


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


ANY_VALUE = Taint("gpu", "NoSchedule")
TRUE = Taint("gpu", "NoSchedule", "true")
NO_VALUE = Taint("gpu", "NoSchedule", "")


LONGEST = "x" * 63
SPELLINGS_OF_6 = " ".join("6".zfill(width) for width in range(1, 64))
"""Every label value that is the number 6, the shortest first."""


def test_a_taint_is_written_as_kubectl_writes_it() -> None:
    assert str(ANY_VALUE) == "gpu:NoSchedule"
    assert str(TRUE) == "gpu=true:NoSchedule"


class TestTolerations:
    @pytest.mark.parametrize(
        ("toleration", "any_value", "true", "no_value"),
        [
            ({"operator": "Exists"}, True, True, True),
            ({"key": "gpu", "operator": "Exists"}, True, True, True),
            ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True, True, True),
            ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False, False, False),
            ({"key": "cpu", "operator": "Exists"}, False, False, False),
            ({"key": "gpu", "value": "true"}, False, True, False),
            ({"key": "gpu", "operator": "Equal", "value": "true"}, False, True, False),
            ({"key": "gpu"}, False, False, True),
            ({"key": "gpu", "value": None, "operator": None}, False, False, True),
            ({}, False, False, True),
            ({"value": "true"}, False, True, False),
            ({"key": "gpu", "operator": "exists"}, False, False, False),
            ({"key": "gpu", "operator": "Gt", "value": "0"}, False, False, False),
        ],
    )
    def test_tolerates_is_true_only_for_every_possible_taint_value(
        self, toleration: JSON, any_value: bool, true: bool, no_value: bool
    ) -> None:
        covered = [tolerates(toleration, taint) for taint in (ANY_VALUE, TRUE, NO_VALUE)]
        assert covered == [any_value, true, no_value]

    @pytest.mark.parametrize(
        ("toleration", "may"),
        [
            ({"key": "gpu", "value": "anything"}, True),
            ({"key": "gpu"}, True),
            ({"key": "gpu", "operator": "Gt", "value": "0"}, True),
            ({"key": "gpu", "operator": "Lt", "value": "1"}, True),
            ({"key": "gpu", "operator": "Lt", "value": "0"}, False),
            ({"key": "gpu", "operator": "Gt", "value": "-1"}, True),
            ({"key": "gpu", "operator": "Gt", "value": "9223372036854775806"}, True),
            ({"key": "gpu", "operator": "Gt", "value": "9223372036854775807"}, False),
            ({"key": "gpu", "operator": "Lt"}, False),
            ({"key": "gpu", "operator": "Lt", "value": "none"}, False),
            ({"key": "gpu", "operator": "Like", "value": "x"}, False),
            ({"key": "gpu", "effect": "NoExecute"}, False),
        ],
    )
    def test_may_tolerate_is_true_for_some_possible_taint_value(
        self, toleration: JSON, may: bool
    ) -> None:
        assert may_tolerate(toleration, ANY_VALUE) is may

    @pytest.mark.parametrize(("operator", "values"), [("Gt", "6"), ("Lt", "4")])
    def test_may_tolerate_compares_numeric_taint_values(self, operator: str, values: str) -> None:
        toleration = {"key": "gpu", "operator": operator, "value": "5"}
        covered = [v for v in ("4", "5", "6", "x", "") if may_tolerate(toleration, gpu(v))]
        assert covered == [values]

    @given(strategies.tolerations(), strategies.taints())
    def test_tolerates_implies_may_tolerate(self, toleration: JSON, taint: JSON) -> None:
        known = as_taint(taint)
        unknown = Taint(known.key, known.effect)
        if tolerates(toleration, known):
            assert may_tolerate(toleration, known)
        if tolerates(toleration, unknown):
            assert tolerates(toleration, known)
        if may_tolerate(toleration, known):
            assert may_tolerate(toleration, unknown)


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


class TestNodeSelections:
    @pytest.mark.parametrize(
        ("terms", "accepted"),
        [
            pytest.param(None, False, id="null terms"),
            pytest.param([], False, id="no terms"),
            pytest.param([{}], False, id="an empty term"),
            pytest.param([{"matchExpressions": [], "matchFields": None}], False, id="empty lists"),
            pytest.param([{}, "gpu Exists"], True, id="an empty term beside another"),
            pytest.param(["gpu In yes no"], True, id="In"),
            pytest.param(["gpu In no"], False, id="In others"),
            pytest.param(["tpu NotIn yes"], True, id="NotIn without the label"),
            pytest.param(["gpu NotIn yes"], False, id="NotIn"),
            pytest.param(["tpu DoesNotExist"], True, id="DoesNotExist"),
            pytest.param(["count Gt 7"], True, id="Gt"),
            pytest.param(["count Gt 8"], False, id="Gt itself"),
            pytest.param(["count Lt 009"], True, id="Lt with zeros"),
            pytest.param(["gpu Lt 9"], False, id="Lt on a word"),
            pytest.param(["tpu Lt 9"], False, id="Lt without the label"),
            pytest.param(["gpu Like y"], False, id="an unknown operator"),
            pytest.param(["count Like 9"], False, id="an unknown operator with a number"),
            pytest.param([{"matchExpressions": [{"operator": "Exists"}]}], False, id="no key"),
            pytest.param(["gpu In"], False, id="In nothing"),
            pytest.param(["gpu Exists x"], False, id="Exists with a value"),
            pytest.param(["count Gt 1 2"], False, id="Gt two values"),
            pytest.param(["count Gt -5"], False, id="Gt a value that is no label value"),
            pytest.param(["gpu Like y", "gpu Exists"], True, id="a broken term beside another"),
        ],
    )
    def test_node_selector_terms_match_as_in_the_scheduler(
        self, terms: Any, accepted: bool
    ) -> None:
        spec = with_required_terms(terms and [term(t) if isinstance(t, str) else t for t in terms])
        assert matches_node(spec, "n", {"gpu": "yes", "count": "8"}) is accepted

    @pytest.mark.parametrize(
        ("field", "accepted"),
        [
            ({"key": "metadata.name", "operator": "In", "values": ["n"]}, True),
            ({"key": "metadata.name", "operator": "NotIn", "values": ["n"]}, False),
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

    @pytest.mark.parametrize("words", ["not/a/key Exists", "gpu In not_a_value_", "gpu Gt x"])
    def test_a_term_that_does_not_parse_matches_no_node(self, words: str) -> None:
        assert list(alternatives(with_required_terms([term(words)]))) == []

    def test_an_alternative_has_the_path_of_its_term(self) -> None:
        (alternative,) = alternatives(with_required_terms([{}, term("gpu Exists")]))
        assert alternative.path == (
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[1]"
        )


class TestNodeSelectionLabels:
    @given(strategies.node_selections(), strategies.nodes(), st.data())
    def test_can_match_is_true_for_labels_of_an_accepted_node(
        self, selection: JSON, node: JSON, data: st.DataObject
    ) -> None:
        labels = node["metadata"]["labels"]
        some = {key: labels[key] for key in labels if data.draw(st.booleans())}
        for alternative in alternatives(selection):
            if accepts(alternative, node["metadata"]["name"], labels):
                assert can_match(alternative, selector_of(some))

    @given(st.lists(strategies.expressions(), min_size=1, max_size=3))
    def test_can_match_is_true_only_if_some_labels_are_accepted(
        self, expressions: list[JSON]
    ) -> None:
        selection = with_required_terms([{"matchExpressions": expressions}])
        for alternative in alternatives(selection):
            assert can_match(alternative, {}) is any(
                accepts(alternative, "n", labels) for labels in distinguishing_labels(alternative)
            )

    @pytest.mark.parametrize(
        ("words", "possible"),
        [
            (["x Gt 5", "x Lt 7", "x NotIn 6"], True),
            (["x Gt 5", "x Lt 6"], False),
            (["x Gt 3", "x Gt 5", "x Lt 6"], False),
            (["x Gt 5", "x Lt 6", "x Lt 9"], False),
            (["x Lt 0"], False),
            (["x Gt 9223372036854775806", "x NotIn 9223372036854775807"], True),
            (["x Gt 9223372036854775807"], False),
            (["x Exists", "x NotIn other a b"], True),
            (["x Exists", "x DoesNotExist"], False),
            (["x In a b", "x NotIn a", "x In b c"], True),
            (["x In a", "x In b"], False),
            (["x In a 6 08", "x Gt 5", "x Lt 8"], True),
            (["x In a 6 08", "x Gt 6", "x Lt 8"], False),
            (["x In a", "x DoesNotExist"], False),
            (["x NotIn a", "x DoesNotExist"], True),
            (["x Gt 5", "x DoesNotExist"], False),
            (["x Gt 5", "x Gt 3", "x Lt 7", "x Lt 9", f"x NotIn 6 {LONGEST}"], True),
            (["x Gt 5", "x Lt 7", f"x NotIn {SPELLINGS_OF_6}"], False),
            (["x Gt 5", "x Lt 8", f"x NotIn {SPELLINGS_OF_6}"], True),
            (["x Gt 5", "x Lt 7", f"x NotIn {SPELLINGS_OF_6[2:]}"], True),
            (["x Gt 5", "x Lt 7", f"x NotIn {SPELLINGS_OF_6[:-64]}"], True),
        ],
    )
    def test_can_match_is_false_for_contradictory_expressions(
        self, words: list[str], possible: bool
    ) -> None:
        assert can_match(alternative_of(*words), {}) is possible

    @pytest.mark.parametrize(
        ("words", "possible"),
        [
            (["In n"], True),
            (["NotIn other"], True),
            (["NotIn other", "NotIn other-other"], True),
            (["In n", "NotIn m"], True),
            (["In n", "NotIn n"], False),
            (["In n", "In m"], False),
            (["In "], False),
        ],
    )
    def test_can_match_is_false_if_no_node_can_have_the_name(
        self, words: list[str], possible: bool
    ) -> None:
        fields = [
            {"key": "metadata.name", "operator": operator, "values": [name]}
            for operator, _, name in (each.partition(" ") for each in words)
        ]
        (alternative,) = alternatives(with_required_terms([{"matchFields": fields}]))
        assert can_match(alternative, {}) is possible

    @given(strategies.node_selections(), strategies.nodes(), st.lists(selectors(), max_size=3))
    def test_an_accepted_node_is_what_the_selection_says_of_selectors(
        self, selection: JSON, node: JSON, some: list[Selector]
    ) -> None:
        labels = node["metadata"]["labels"]
        for alternative in alternatives(selection):
            accepted = accepts(alternative, node["metadata"]["name"], labels)
            for selector in some:
                selected = selects(selector, labels)
                if accepted and selected:
                    assert can_match(alternative, selector)
                if accepted and all(requires(alternative, *entry) for entry in selector.items()):
                    assert selected
                if accepted and requires_labels(alternative, selector):
                    assert selector.keys() <= labels.keys()
                if selected and surely_accepts(alternative, selector):
                    assert accepted
            if accepted and confines(alternative, some):
                assert any(selects(selector, labels) for selector in some)

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

    @pytest.mark.parametrize(
        ("words", "asks"),
        [
            ("gpu In true", True),
            ("gpu In true false", True),
            ("gpu Exists", True),
            ("gpu NotIn false", False),
            ("gpu In false", False),
            ("gpu DoesNotExist", False),
            ("other Exists", False),
        ],
    )
    def test_requires_labels_is_true_for_expressions_that_need_the_label(
        self, words: str, asks: bool
    ) -> None:
        assert requires_labels(alternative_of(words), {"gpu": ("true",)}) is asks

    @pytest.mark.parametrize(
        ("words", "asks"),
        [
            (["gpu In true"], True),
            (["gpu Exists"], True),
            (["gpu Gt 4"], True),
            (["gpu NotIn false"], False),
            (["gpu Exists", "gpu DoesNotExist"], False),
            (["other Exists"], False),
        ],
    )
    def test_requires_labels_knows_a_label_with_any_value(
        self, words: list[str], asks: bool
    ) -> None:
        assert requires_labels(alternative_of(*words), {"gpu": ()}) is asks

    def test_requires_labels_is_false_for_an_empty_label_set(self) -> None:
        assert not requires_labels(alternative_of("gpu Exists"), {})


def gpu(value: str) -> Taint:
    return Taint("gpu", "NoSchedule", value)


def with_required_terms(terms: Any) -> JSON:
    required = {"nodeSelectorTerms": terms}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"affinity": {"nodeAffinity": affinity}}


def alternative_of(*words: str) -> Alternative:
    expressions = [term(one)["matchExpressions"][0] for one in words]
    (alternative,) = alternatives(with_required_terms([{"matchExpressions": expressions}]))
    return alternative


def distinguishing_labels(alternative: Alternative) -> list[Mapping[str, str]]:
    """Return labels that distinguish the expressions: named values, and those next to numbers."""
    values: dict[str, set[str | None]] = {}
    for expression in alternative.expressions:
        named = expression.values or ()
        numbers = [int(value) for value in named if value.isdigit()]
        near = {f"{zeros}{n + step}" for n in numbers for step in (-1, 1) for zeros in ("", "000")}
        here = values.setdefault(expression.key or "", {None, "unlike-any"})
        here |= {*named, *(value for value in near if "-" not in value)}
    return [
        {key: value for key, value in zip(values, chosen, strict=True) if value is not None}
        for chosen in itertools.product(*values.values())
    ]
