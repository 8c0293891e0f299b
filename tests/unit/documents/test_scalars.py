"""A plain scalar means to us what it means to Kubernetes (``YAMLToJSON`` of sigs.k8s.io/yaml)."""

from __future__ import annotations

import pytest

from webhook.documents.scalars import resolve_plain

PLAIN = {
    # Booleans and null, more of them than YAML 1.2 has.
    **dict.fromkeys(("y", "Y", "yes", "YES", "on", "On", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "off", "OFF", "false", "False"), False),
    **dict.fromkeys(("~", "null", "Null", "NULL", ""), None),
    **{word: word for word in ("yEs", "oN", "nULL", "tRUE", "none", "nil", "Nan", "inf")},
    # Integers: decimal, octal in two ways, hexadecimal, binary.
    **dict(zip(("0", "-0", "+1", "12", "1_000", "1__0"), (0, 0, 1, 12, 1000, 10), strict=True)),
    **dict(zip(("017", "-017", "0o17", "0x1F", "-0x1f"), (15, -15, 15, 31, -31), strict=True)),
    **dict(zip(("0X1F", "0b101", "-0b1", "0b1_0"), (31, 5, -1, 2), strict=True)),
    "9223372036854775807": 2**63 - 1,
    "-9223372036854775808": -(2**63),
    "18446744073709551615": 2**64 - 1,
    # Beyond 64 bits they are floats.
    "18446744073709551616": 2.0**64,
    "-9223372036854775809": -(2.0**63),
    "+9223372036854775808": 2.0**63,
    # Floats, an exponent without a point among them; 08 is no octal number.
    **dict(zip(("1.5", "1.", ".5", "-.5", "08"), (1.5, 1.0, 0.5, -0.5, 8.0), strict=True)),
    **dict(zip(("1e3", "1E-2", "1.5e+3"), (1000.0, 0.01, 1500.0), strict=True)),
    **dict(zip((".5_0", "1_0.5"), (0.5, 10.5), strict=True)),
    # Strings that other readers take for something else.
    **{
        text: text
        for text in (
            *("12:30:00", "1:30", "2026-01-31", "2026-01-31T10:00:00Z", "=", "<<", "1e999", "."),
            *("..", "._5", ".5_", "_1", "0x", "0b", "0b2", "0o8", "1k", "500m", "1Gi", "1.2.3"),
            *("-", "+", "--flag", "-c", "10.0.0.1", ".e3", "0x1p3"),
        )
    },
}


def test_a_plain_scalar_has_the_value_that_kubernetes_reads() -> None:
    read = {text: (type(resolve_plain(text)), resolve_plain(text)) for text in PLAIN}
    assert read == {text: (type(value), value) for text, value in PLAIN.items()}


def test_numbers_of_any_length_are_read(subtests: pytest.Subtests) -> None:
    for text in ("9" * 5000, "0" * 5000, "1" * 300, f"-{'9' * 4400}"):
        with subtests.test(text=text):
            assert isinstance(resolve_plain(text), str | int | float)
