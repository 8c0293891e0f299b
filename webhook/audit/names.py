"""Names of objects, as users type them."""

from __future__ import annotations

from policies.kubernetes.quantity import is_subdomain


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
