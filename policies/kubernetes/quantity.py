"""Resource quantities and resource names, as the Kubernetes API reads them.

Source: ``k8s.io/apimachinery/pkg/api/resource/quantity.go`` (``ParseQuantity``) and
``k8s.io/kubernetes/pkg/apis/core/v1/helper/helpers.go`` (``IsExtendedResourceName``).
"""

from __future__ import annotations

import re
from functools import lru_cache

NANOS = 10**9
"""A quantity is kept as a whole number of nanos: the API keeps nothing finer (it rounds up)."""

_NANOS_PER_MILLI = 10**6
_MAX_BINARY = (2**63 - 1) * NANOS
# Beyond this, quantities are all absurdly large, or round up to one nano: the bound keeps
# `1e999999999` from costing a gigabyte of digits.
_MAX_EXPONENT = 1000
# No quantity that means anything is longer; matching and remembering must stay cheap for any text.
_MAX_LENGTH = 128
# The API cuts white space off the JSON text, in which tabs and newlines stand escaped, and escapes
# it does not undo.
_SPACE = " \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>(?:[eEinumkKMGTP]+(?:[+-]?[0-9]+)?)?)",
    re.ASCII,
)
_EXPONENT = re.compile(r"[eE](?P<exponent>[+-]?[0-9]+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# ParseQuantity treats these two differently, and only there rejects a missing number.
_BINARY_NEEDING_DIGITS = frozenset({"Pi", "Ei"})

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)

_MAX_QUALIFIED_NAME = 253 + 1 + 63


class InvalidQuantityError(ValueError):
    """The value is not a quantity of the API."""

    def __init__(self, value: object) -> None:
        shown = "so large a number" if type(value) is int else repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        super().__init__(
            f"{shown} is not a quantity; write a number with an optional suffix, "
            'for example 1, "500m" or "16Gi"'
        )
        self.value = value


def parse_quantity(value: object) -> int:
    """Return the quantity in nanos, rounded up (away from zero) as the API does.

    ``value`` is what JSON or YAML gave: a string, a number, or ``None`` (which the API reads as 0).

    Raises:
        InvalidQuantityError: the value is not a quantity of the API.
    """
    if type(value) is str and len(value) <= _MAX_LENGTH:
        return _parse(value)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidQuantityError(value)
    if isinstance(value, int) and value.bit_length() > _MAX_LENGTH:
        raise InvalidQuantityError(value)
    text = value.strip(_SPACE) if isinstance(value, str) else repr(value)
    if len(text) > _MAX_LENGTH:
        raise InvalidQuantityError(value)
    return _parse(text)


def is_whole(nanos: int) -> bool:
    """Return whether validation takes the quantity as an integer.

    The API rounds up to thousandths first (``Quantity.MilliValue() % 1000``), and so does this.
    """
    return -(-nanos // _NANOS_PER_MILLI) % 1000 == 0


@lru_cache(maxsize=4096)
def _parse(text: str) -> int:
    text = text.strip(_SPACE)
    match = _QUANTITY.fullmatch(text)
    if not text or match is None:
        raise InvalidQuantityError(text)
    whole, fraction, suffix = match["whole"], match["fraction"] or "", match["suffix"]
    digits = int(whole + fraction or "0")
    if suffix in _BINARY:
        exponent, nanos = 0, _scale(digits << _BINARY[suffix], -len(fraction))
        nanos = min(nanos, _MAX_BINARY)
    else:
        exponent = _decimal_exponent(text, suffix)
        nanos = _scale(digits, exponent - len(fraction))
    needs_digits = suffix in _BINARY_NEEDING_DIGITS or exponent < _DECIMAL["n"]
    if needs_digits and not whole + fraction:
        raise InvalidQuantityError(text)
    return -nanos if match["sign"] == "-" else nanos


def _decimal_exponent(text: str, suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    match = _EXPONENT.fullmatch(suffix)
    exponent = int(match["exponent"]) if match else 2**63
    if not -(2**63) <= exponent < 2**63:
        raise InvalidQuantityError(text)
    # The API casts to 32 bits.
    exponent = (exponent + 2**31) % 2**32 - 2**31
    return max(-_MAX_EXPONENT, min(_MAX_EXPONENT, exponent))


def _scale(digits: int, exponent: int) -> int:
    """Return ``digits * 10**exponent`` in nanos, rounded up."""
    shift = exponent + 9
    power: int = 10 ** abs(shift)
    return digits * power if shift >= 0 else -(-digits // power)


def is_rdma_resource_name(name: str) -> bool:
    """Return whether ``name`` is a resource of RDMA devices: ``rdma/hca``, ``nvidia.com/rdma_a``.

    No convention covers them all: some device plugins let administrators choose the name.
    """
    return "/" in name and "rdma" in name


def is_extended_resource_name(name: str) -> bool:
    """Return whether the API takes ``name`` as an extended resource (a device plugin's, mostly).

    Outside of ``kubernetes.io``, not quota's ``requests.`` form, and a qualified name.
    """
    return len(name) <= _MAX_QUALIFIED_NAME and _is_extended_resource_name(name)


@lru_cache(maxsize=4096)
def _is_extended_resource_name(name: str) -> bool:
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return is_qualified_name(f"requests.{name}")


def is_qualified_name(name: str) -> bool:
    """Return whether ``name`` is up to 63 characters, after an optional subdomain and slash.

    Source: ``IsQualifiedName`` in ``k8s.io/apimachinery/pkg/util/validation``; label keys, taint
    keys and resource names are qualified names.
    """
    return len(name) <= _MAX_QUALIFIED_NAME and _is_qualified_name(name)


@lru_cache(maxsize=4096)
def _is_qualified_name(name: str) -> bool:
    prefix, slash, rest = name.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return 0 < len(rest) <= 63 and _NAME.fullmatch(rest) is not None


def is_subdomain(name: str) -> bool:
    """Return whether ``name`` is a DNS subdomain (RFC 1123), as most objects' names are."""
    return 0 < len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Return whether ``value`` may be a label's value: empty, or a name of up to 63 characters."""
    return not value or (len(value) <= 63 and _is_name(value))


@lru_cache(maxsize=4096)
def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None
