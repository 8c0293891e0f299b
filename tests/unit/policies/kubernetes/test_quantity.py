"""Quantities and names, by example. tests/properties compares them with Kubernetes' code."""

from __future__ import annotations

import time

import pytest

from policies.kubernetes.quantity import (
    InvalidQuantityError,
    is_label_value,
    is_qualified_name,
    parse_quantity,
)


@pytest.mark.parametrize(
    "written",
    ["0" * 10**6 + "x", "1" * 10**6, "." + "0" * 10**6 + "1", "1e" + "9" * 10**6, 10**10**5],
    ids=["zeros", "digits", "a fraction", "an exponent", "a number"],
)
def test_a_quantity_of_a_million_characters_is_rejected_quickly(written: object) -> None:
    before = time.process_time()
    with pytest.raises(InvalidQuantityError):
        parse_quantity(written)
    assert time.process_time() - before < 0.5


@pytest.mark.parametrize("written", ["1e999999999", "1e-999999999", "-1e999999999"])
def test_an_extreme_exponent_is_parsed_to_a_bounded_number(written: str) -> None:
    assert parse_quantity(written).bit_length() < 5000


@pytest.mark.parametrize(
    ("name", "qualified"),
    [
        ("gpu", True),
        ("nvidia.com/gpu.present", True),
        ("a-b_c.D", True),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a b", False),
        ("UPPER.example/x", False),
        ("x" * 63, True),
        ("x" * 64, False),
        ("a" * 253 + "/x", True),
        ("a" * 254 + "/x", False),
    ],
)
def test_a_qualified_name_is_a_name_after_an_optional_subdomain(name: str, qualified: bool) -> None:
    assert is_qualified_name(name) is qualified


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("", True),
        ("true", True),
        ("A.b_c-1", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ("-5", False),
        ("a b", False),
        ("\u00e9", False),
        ("true\n", False),
    ],
)
def test_a_label_value_is_empty_or_a_name(value: str, valid: bool) -> None:
    assert is_label_value(value) is valid
