"""Selectors of devices in CEL: values, errors, and what is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.devices.cel import ERROR, UNKNOWN, Attributes, Expression, Quantity, Version

DRIVER = "gpu.nvidia.com"
OWN = f"device.attributes['{DRIVER}']"
DEVICE = {
    "driver": DRIVER,
    "allowMultipleAllocations": False,
    "attributes": Attributes(
        {
            DRIVER: {
                "type": "gpu",
                "productName": "NVIDIA A100-SXM4-80GB",
                "index": 3,
                "isWhole": True,
                "driverVersion": Version("580.1.0"),
            },
            "resource.kubernetes.io": {"pcieRoot": "pci0000:00"},
        }
    ),
    "capacity": Attributes({DRIVER: {"memory": Quantity(80 * 2**30 * 10**9)}}),
}


def evaluate(text: str) -> Any:
    return Expression(text).evaluate({"device": DEVICE})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"device.driver == '{DRIVER}' && {OWN}.type == 'gpu'", True),
        (f'device.driver == "{DRIVER}" && {OWN}.type != "gpu"', False),
        (f"{OWN}['type'] in ['gpu', 'mig']", True),
        (f"!({OWN}.type == 'mig') || false", True),
        (f"{OWN}.index >= 3 && {OWN}.index < 4", True),
        (f"{OWN}.index == -3", False),
        (f"!({OWN}.driverVersion == '580.1.0')", ERROR),
        (f"'580.1.0' == {OWN}.driverVersion", False),
        (f"{OWN}.isWhole", True),
        (f"{OWN}.isWhole == 1", False),
        (f"{OWN}.isWhole ? {OWN}.type == 'gpu' : false", True),
        (f"{OWN}.productName.lowerAscii().matches('^.*a100.*$')", True),
        (f"{OWN}.productName.startsWith('NVIDIA') && {OWN}.productName.contains('SXM4')", True),
        (f"{OWN}.productName.endsWith('40GB')", False),
        (f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0", True),
        (f"device.capacity['{DRIVER}'].memory.isLessThan(quantity('81920Mi'))", False),
        (f"has({OWN}.type) && !has({OWN}.missing)", True),
        ("has(device.attributes['example.com'].type)", False),
        (f"'{DRIVER}' in device.attributes && !('example.com' in device.attributes)", True),
        (f"cel.bind(own, {OWN}, own.type == 'gpu' && own.index == 3)", True),
        (f"{OWN}.?type.orValue('mig') == 'gpu' && {OWN}.?none.orValue('x') == 'x'", True),
        ("device.attributes['resource.kubernetes.io'].pcieRoot == r'pci0000:00'", True),
        (f"{OWN}.type == 'a\\'b'", False),
        (f"{'(' * 60}true{')' * 60}", True),
        (f"{OWN}.isWhole ? false : {OWN}.isWhole ? false : true", False),
        (f"({OWN}.isWhole ? [1, 2] : [3]) == [1, 2] && !{OWN}.isWhole == false", True),
    ],
)
def test_an_expression_has_a_value(text: str, value: bool) -> None:
    assert evaluate(text) is value


@pytest.mark.parametrize(
    "text",
    [
        f"{OWN}.missing == 'gpu'",
        "device.attributes['example.com'].type == 'gpu'",
        f"{OWN}.index < 'a'",
        f"{OWN}.missing == 'gpu' && true",
        f"has({OWN}.type.name)",
        f"!{OWN}.type",
    ],
)
def test_what_kubernetes_fails_on_is_an_error(text: str) -> None:
    assert evaluate(text) is ERROR


@pytest.mark.parametrize(
    "text",
    [
        f"{OWN}.driverVersion.isGreaterThan(semver('580.0.0'))",
        f"{OWN}.driverVersion in ['580.1.0']",
        f"{OWN}.index + 1 == 4",
        f"{OWN} == device.attributes['example.com']",
        f"{OWN}.productName.matches('(A100)+')",
        f"{OWN}.exists(k, k == 'type')",
        "device.driver ==",
        "device.driver == '''gpu'''",
        "device.driver == b'gpu'",
        "1u == 1u",
        f"{'(' * 250}true{')' * 250}",
        f"{'!' * 500}true",
        f"device{'.a' * 5000}",
        "",
    ],
)
def test_what_is_not_supported_is_unknown(text: str) -> None:
    assert evaluate(text) is UNKNOWN


@pytest.mark.parametrize("other", [f"{OWN}.missing == 'x'", "semver('1')"])
def test_a_side_that_decides_wins_over_errors_and_unknowns_on_either_side(other: str) -> None:
    for text in (f"{other} || true", f"true || {other}"):
        assert evaluate(text) is True
    for text in (f"{other} && false", f"false && {other}"):
        assert evaluate(text) is False


def test_an_error_beside_an_unknown_is_unknown() -> None:
    assert evaluate(f"{OWN}.missing == 'x' && semver('1')") is UNKNOWN


def test_the_names_that_an_expression_may_read_are_known_unless_one_is_computed() -> None:
    names = Expression(f"{OWN}.type == 'gpu' && {OWN}['model'] == 'a'").names
    assert names is not None
    assert {"type", "model"} <= names
    assert "uuid" not in names
    assert Expression(f"{OWN}[{OWN}.type] == 'gpu'").names is None
