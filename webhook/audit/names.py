"""Names of objects, as users type them."""

from __future__ import annotations

from collections.abc import Sequence

from policies.kubernetes.quantity import is_subdomain

_MOST_NAMED = 3


def name_problem(name: str) -> str:
    """Return the problem with the name of an object or a namespace; empty if it is valid.

    A name becomes part of a URL, where a slash or a question mark would change the request. Source:
    ``k8s.io/apimachinery/pkg/util/validation``, IsDNS1123Subdomain.
    """
    if is_subdomain(name):
        return ""
    return (
        f"{name!r} is not a valid name: use up to 253 lower-case letters, digits, '-' and '.', "
        "with a letter or a digit at both ends"
    )


def some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    rest = len(names) - _MOST_NAMED
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {rest:,} more" if rest > 0 else shown
