"""Quantities and resource names are read as the API server reads them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

import strategies
from laws.profile import law
from oracle.driver import Oracle
from policies.kubernetes.claims import IMPLICIT_RESOURCE_PREFIX
from policies.kubernetes.quantity import (
    NANOS,
    InvalidQuantityError,
    is_extended_resource_name,
    is_whole,
    parse_quantity,
)

pytestmark = pytest.mark.timeout(3600)

values = st.one_of(
    strategies.quantities(),
    strategies.quantity_texts(),
    st.integers(-(2**64), 2**64),
    st.floats(-1e18, 1e18, allow_nan=False),
    st.sampled_from([True, False, [], {}, "", "1e", "1 m", "0x1", "1_000", "NaN"]),
)
CORNERS = [
    *("1000m", "1e0", "1k", "1Ki", "1E", "1E2", "1e+2", "1e00000000002", "1e4294967296", "1e3m"),
    *("+1", "1.", ".5", ".", "007", " 2 ", "0.1n", "-0.1n", "1.0000000001", "8Ei", "-9Ei", "16E"),
    *("1K", "1ki", "1i", "1m5", "1+5", "--1", "1e3.5", "1.2.3", ".Pi", ".Ei", "\u0661", "1500m"),
    *("1e9223372036854775808", "1.0001", "1.9999999"),
]
NAMES = [
    *("cpu", "hugepages-2Mi", "kubernetes.io/batch", "devices.kubernetes.io/x", "/gpu", "a/b/c"),
    *("requests.nvidia.com/gpu", "NVIDIA.com/gpu", "nvidia.com/", "nvidia.com/gpu\n"),
    *(f"nvidia.com/{'g' * 63}", f"nvidia.com/{'g' * 64}", f"{'a' * 244}/x", f"{'a' * 245}/x"),
]


@law
@given(st.lists(values, min_size=1, max_size=8))
@example(CORNERS)
def test_a_quantity_has_the_value_that_the_api_reads(oracle: Oracle, written: list[object]) -> None:
    for value, verdict in zip(written, oracle.quantities(written), strict=True):
        event(f"a quantity: {verdict.ok}")
        if not verdict.ok:
            with pytest.raises(InvalidQuantityError):
                parse_quantity(value)
            continue
        nanos = parse_quantity(value)
        assert Fraction(nanos, NANOS) == verdict.value
        # The API rejects negative counts first; beyond 2**63 milli its arithmetic overflows.
        if 0 <= nanos < 2**63 * 10**6:
            assert is_whole(nanos) is verdict.is_integer


@law
@given(st.lists(st.tuples(values, values), min_size=1, max_size=8))
def test_two_quantities_compare_like_in_the_api(
    oracle: Oracle, pairs: list[tuple[object, object]]
) -> None:
    good = [pair for pair in pairs if all(map(is_quantity, pair))]
    for (a, b), answer in zip(good, oracle.compare_each(good), strict=True):
        event(f"compared: {answer}")
        left, right = parse_quantity(a), parse_quantity(b)
        assert (left > right) - (left < right) == answer


@law
@given(st.lists(strategies.resource_names(), min_size=1, max_size=8))
@example(NAMES)
def test_extended_resource_names_agree_with_the_api(oracle: Oracle, names: list[str]) -> None:
    for name, verdict in zip(names, oracle.resource_names(names), strict=True):
        event(f"extended: {verdict.extended}")
        assert is_extended_resource_name(name) is verdict.extended
        if verdict.device_class:
            assert name.removeprefix(IMPLICIT_RESOURCE_PREFIX) == verdict.device_class


def is_quantity(value: object) -> bool:
    try:
        parse_quantity(value)
    except InvalidQuantityError:
        return False
    return True
