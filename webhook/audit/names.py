"""Names of objects, as users type them."""

from __future__ import annotations

from collections.abc import Sequence

from policies.kubernetes.quantity import is_subdomain

_MOST_NAMED = 3


def name_problem(name: str) -> str:
    """Return what is wrong with the name of an object or a namespace; empty where nothing is.

    A name becomes part of a URL's path: with a slash or a question mark in it, something else would
    be requested. Source: ``k8s.io/apimachinery/pkg/util/validation``, IsDNS1123Subdomain.
    """
    if is_subdomain(name):
        return ""
    return (
        f"{name!r} is no name: write lower-case letters, digits, '-' and '.', at most 253 of them, "
        "with a letter or a digit at either end"
    )


def some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    rest = len(names) - _MOST_NAMED
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {rest:,} more" if rest > 0 else shown
