"""The difference that the report for people shows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.tools.cli import yaml_writer as module
from webhook.tools.cli.yaml_writer import difference, to_yaml

KEYS = st.sampled_from(["a", "b", "c", "d"])
SCALARS: st.SearchStrategy[Any] = st.sampled_from([None, 0, 1, "x", "two\nlines\n", True, {}, []])
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=10,
)


def grown(value: Any) -> st.SearchStrategy[Any]:
    """Values with all that ``value`` has and more at the ends, as mutations leave objects."""
    if isinstance(value, dict) and value:
        kept = st.fixed_dictionaries({key: grown(item) for key, item in value.items()})
        new = st.dictionaries(st.sampled_from(["x", "y"]), VALUES, max_size=2)
        return st.tuples(kept, new).map(lambda p: {key: p[0][key] for key in value} | p[1])
    if isinstance(value, list) and value:
        kept_items = st.tuples(*map(grown, value)).map(list)
        return st.tuples(kept_items, st.lists(VALUES, max_size=2)).map(lambda p: p[0] + p[1])
    return st.just(value)


@pytest.fixture(autouse=True)
def _whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show all lines, unless a test says otherwise."""
    monkeypatch.setattr(module, "CONTEXT", 10_000)


def shown(before: Any, after: Any) -> list[str]:
    return [f"{mark}{text}" for mark, text in difference(before, after)]


def test_an_added_list_entry_is_shown_as_contiguous_lines() -> None:
    """Line by line, the end of the entry above would do for the end of the new one."""
    before = {"tolerations": [{"key": "a", "effect": "NoSchedule"}], "z": 1}
    after = {
        "tolerations": [*before["tolerations"], {"key": "b", "effect": "NoSchedule"}],  # type: ignore[misc]
        "z": 1,
    }
    assert shown(before, after) == [
        " tolerations:",
        " - key: a",
        "   effect: NoSchedule",
        "+- key: b",
        "+  effect: NoSchedule",
        " z: 1",
    ]


def test_only_lines_near_a_difference_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONTEXT", 1)
    before = dict.fromkeys("abcdefghij", 1)
    after = {**before, "c": 2, "k": 3}
    assert shown(before, after) == ["@", " b: 1", "-c: 1", "+c: 2", " d: 1", "@", " j: 1", "+k: 3"]


@given(st.tuples(VALUES, VALUES))
def test_unchanged_and_added_lines_form_the_new_object(pair: tuple[Any, Any]) -> None:
    before, after = pair
    marked = list(difference(before, after))
    if marked:
        assert [line.text for line in marked if line.mark in "+ "] == to_yaml(after).splitlines()


@given(VALUES.flatmap(lambda value: st.tuples(st.just(value), grown(value))))
def test_unchanged_and_removed_lines_form_the_old_object(pair: tuple[Any, Any]) -> None:
    before, after = pair
    marked = list(difference(before, after))
    if marked:
        assert [line.text for line in marked if line.mark in "- "] == to_yaml(before).splitlines()


def test_objects_with_10_000_list_items_are_compared_quickly() -> None:
    """Ten thousand environment variables took a line-by-line comparison a minute."""
    env = [{"name": f"A{number}", "value": "x"} for number in range(10_000)]
    added = shown({"env": env}, {"env": env, "z": 1})
    assert added[-1] == "+z: 1"
