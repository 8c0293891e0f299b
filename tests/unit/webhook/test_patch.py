"""The patch turns one JSON value into the other, exactly."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.patch import diff

# Few keys, so that two values share some; and those that a JSON pointer must escape.
KEYS = st.sampled_from(["a", "b", "", "~", "/", "~1", "a/b~c", "-", "0", "\u2028"]) | st.text()
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.integers()
    | st.sampled_from([0.0, 1.0, -1.0])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "1"])
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)


@st.composite
def additions(draw: st.DrawFn, value: Any) -> Any:
    """Return a copy of ``value`` with more keys and with more entries at the ends of lists."""
    if isinstance(value, dict):
        grown = {key: draw(additions(item)) for key, item in value.items()}
        return draw(st.dictionaries(KEYS, VALUES, max_size=2)) | grown
    if isinstance(value, list):
        return [*(draw(additions(item)) for item in value), *draw(st.lists(VALUES, max_size=2))]
    return value


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same JSON, whatever Python thinks of 1 and True."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(VALUES, VALUES)
def test_the_patch_turns_any_value_into_any_other(original: Any, mutated: Any) -> None:
    before, after = copy.deepcopy(original), copy.deepcopy(mutated)
    patch = diff(original, mutated)
    assert same(original, before)
    assert same(mutated, after)
    # As JSON, so that the patch and the object share nothing.
    applied = jsonpatch.apply_patch(original, json.loads(json.dumps(patch)))
    assert same(applied, mutated)


@given(VALUES, VALUES)
def test_the_patch_is_empty_exactly_where_nothing_differs(original: Any, mutated: Any) -> None:
    assert (diff(original, mutated) == []) == same(original, mutated)
    assert diff(original, copy.deepcopy(original)) == []


@given(st.data())
def test_what_only_adds_is_patched_by_additions_alone(data: st.DataObject) -> None:
    original = data.draw(VALUES)
    mutated = data.draw(additions(original))
    patch = diff(original, mutated)
    assert {operation["op"] for operation in patch} <= {"add"}
    assert same(jsonpatch.apply_patch(original, patch), mutated)


@given(VALUES, VALUES)
def test_a_prefix_places_the_patch_in_a_larger_document(original: Any, mutated: Any) -> None:
    document = {"spec": [original]}
    patch = diff(original, mutated, "/spec/0")
    assert same(jsonpatch.apply_patch(document, patch), {"spec": [mutated]})


ONE_OF_EACH = {"integer": 1, "fraction": 1.0, "boolean": True, "text": "1", "nothing": None}


@pytest.mark.parametrize("one", ONE_OF_EACH)
@pytest.mark.parametrize("other", ONE_OF_EACH)
def test_values_of_different_types_differ(one: str, other: str) -> None:
    original, mutated = {"a": [ONE_OF_EACH[one]]}, {"a": [ONE_OF_EACH[other]]}
    expected = {"op": "replace", "path": "/a/0", "value": ONE_OF_EACH[other]}
    patch = diff(original, mutated)
    assert len(patch) == (one != other)
    assert all(same(operation, expected) for operation in patch)


def test_lists_grow_and_shrink_at_their_ends() -> None:
    assert diff([1], [1, 2, 3]) == [
        {"op": "add", "path": "/-", "value": 2},
        {"op": "add", "path": "/-", "value": 3},
    ]
    assert diff([1, 2, 3], [1]) == [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]


def test_keys_are_escaped_in_the_order_that_rfc_6901_asks_for() -> None:
    assert diff({}, {"nvidia.com/gpu~1": 1}) == [
        {"op": "add", "path": "/nvidia.com~1gpu~01", "value": 1}
    ]


def test_a_lone_surrogate_is_a_value_like_any_other() -> None:
    assert diff({"a": ["\ud800"]}, {"a": ["".join(["\ud800"])]}) == []
    assert diff({"a": ["\ud800", 1]}, {"a": ["\ud800", 2]}) == [
        {"op": "replace", "path": "/a/1", "value": 2}
    ]
