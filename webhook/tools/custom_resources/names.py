"""Whether a part of an object is of interest to a policy, although its Pods cannot be judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from policies.policy import Policy
from policies.vocabulary import visible_devices_variables

_WILDCARD_LINE = re.compile(r"^\s*-\s*operator:\s*[\"']?Exists[\"']?\s*$(?!\s*key:)", re.MULTILINE)
"""A toleration of every taint, in YAML."""


@lru_cache(maxsize=16)
def concerns(policy: Policy) -> Callable[[Any], bool]:
    """Return whether a value names a device, label or taint of a pool, or tolerates every taint."""
    names = set[str]()
    for pool in policy.pools:
        exact = (*pool.selector, *(taint.key for taint in pool.taints), *pool.resources.exact)
        names.update(map(re.escape, exact))
        names.update(rf"{re.escape(prefix)}[\w.-]+" for prefix in pool.resources.prefixes)
    names.update(visible_devices_variables(policy))
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(sorted(names))})(?![\w/-])")
    return partial(_is_named, pattern)


def _is_named(names: re.Pattern[str], value: Any) -> bool:
    if isinstance(value, dict):
        return _has_wildcard(value) or any(
            _is_named(names, key) or _is_named(names, item) for key, item in value.items()
        )
    if isinstance(value, list):
        return any(_is_named(names, item) for item in value)
    return isinstance(value, str) and bool(names.search(value) or _WILDCARD_LINE.search(value))


def _has_wildcard(value: Mapping[str, Any]) -> bool:
    tolerations = value.get("tolerations")
    return isinstance(tolerations, list) and any(
        isinstance(each, dict) and not each.get("key") and each.get("operator") == "Exists"
        for each in tolerations
    )
