"""Quantities and names, by example. tests/properties compares them with Kubernetes' code."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest

from policies.kubernetes.quantity import (
    NANOS,
    InvalidQuantityError,
    is_extended_resource_name,
    is_label_value,
    is_qualified_name,
    is_whole,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (1, 1),
        ("1", 1),
        ("1000m", 1),
        ("1e0", 1),
        ("0.5", Fraction(1, 2)),
        (0.5, Fraction(1, 2)),
        (1e3, 1000),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1E", 10**18),
        ("1e2", 100),
        ("1E2", 100),
        ("1e+2", 100),
        ("1e00000000002", 100),
        ("1e4294967296", 1),
        ("-1", -1),
        ("+1", 1),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        (".", 0),
        ("007", 7),
        (" 2 ", 2),
        (None, 0),
        ("0.1n", Fraction(1, NANOS)),
        ("-0.1n", Fraction(-1, NANOS)),
        ("1.0000000001", 1 + Fraction(1, NANOS)),
        ("8Ei", 2**63 - 1),
        ("-9Ei", 1 - 2**63),
        ("16E", 16 * 10**18),
    ],
)
def test_a_quantity_is_parsed_as_in_kubernetes(written: object, value: Fraction) -> None:
    assert Fraction(parse_quantity(written), NANOS) == value


@pytest.mark.parametrize(
    "written",
    [
        *["", " ", "1K", "1ki", "1KI", "1e", "1i", "0x10", "1_000", "NaN", "inf", "1e3m", "1m5"],
        *["1 m", "1+5", "--1", "1e3.5", "1.2.3", ".Pi", ".Ei", "\u0661", "1e9223372036854775808"],
        *[True, False, [], {}, {"a": 1}, float("nan"), float("inf"), b"1"],
    ],
)
def test_an_invalid_quantity_is_rejected_with_an_example(written: object) -> None:
    with pytest.raises(InvalidQuantityError, match="is not a quantity; write a number") as caught:
        parse_quantity(written)
    assert len(str(caught.value)) < 200


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
    ("written", "whole"),
    [("2", True), ("2.0", True), ("1500m", False), ("1.0001", False), ("1.9999999", True)],
)
def test_is_whole_follows_kubernetes_validation(written: str, whole: bool) -> None:
    assert is_whole(parse_quantity(written)) is whole


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("smarter-devices/fuse", True),
        ("example.com/A_b.c", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/batch", False),
        ("devices.kubernetes.io/x", False),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", False),
        ("requests.nvidia.com/gpu", False),
        ("NVIDIA.com/gpu", False),
        ("nvidia.com/", False),
        ("/gpu", False),
        ("a/b/c", False),
        ("nvidia.com/gpu\n", False),
        ("nvidia.com/" + "g" * 63, True),
        ("nvidia.com/" + "g" * 64, False),
        ("a" * 244 + "/x", True),
        ("a" * 245 + "/x", False),
    ],
)
def test_is_extended_resource_name_follows_the_kubernetes_api(name: str, extended: bool) -> None:
    assert is_extended_resource_name(name) is extended


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
