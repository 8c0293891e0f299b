"""Variables have the values that the kubelet gives them."""

from __future__ import annotations

import time

import pytest

from policies.kubernetes.core_v1 import EnvVar
from policies.kubernetes.environment import MAX_LENGTH, expanded, values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(E)", "all"),
        ("a$(E)b$(E)", "aallball"),
        ("$$(E)", "$(E)"),
        ("$$$(E)", "$all"),
        ("$(E", "$(E"),
        ("$E", "$E"),
        ("100$", "100$"),
        ("$(UNKNOWN)", None),
        ("$(ELSEWHERE)", None),
        ("$()", None),
    ],
)
def test_references_have_the_value_of_an_earlier_variable(text: str, value: str | None) -> None:
    assert expanded(text, {"E": "all", "UNKNOWN": None}) == value


def test_the_last_variable_of_a_name_counts_and_later_ones_are_unknown() -> None:
    optional = {"configMapKeyRef": {"name": "m", "key": "k", "optional": True}}
    env = [
        EnvVar("FIRST", "$(E)"),
        EnvVar("E", "1"),
        EnvVar("SECOND", "$(E)"),
        EnvVar("E", "2"),
        EnvVar("SELF", "a"),
        EnvVar("SELF", "$(SELF)b"),
        EnvVar("KEY", "a"),
        EnvVar("KEY", value_from=optional),
        EnvVar("NONE"),
    ]
    assert values(env) == {
        "FIRST": None,
        "E": "2",
        "SECOND": "1",
        "SELF": "ab",
        "KEY": None,
        "NONE": "",
    }


def test_references_that_double_a_value_take_no_memory() -> None:
    env = [EnvVar("V0", "x"), *(EnvVar(f"V{i + 1}", f"$(V{i})$(V{i})") for i in range(1000))]
    started = time.process_time()
    found = values(env)
    assert time.process_time() - started < 1
    assert found["V3"] == "x" * 8
    assert found["V1000"] is None
    assert all(len(value or "") <= MAX_LENGTH for value in found.values())
