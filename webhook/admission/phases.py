"""What of a policy the mutating webhook needs.

An API server asks twice about a Pod, and the second time, when nothing changes any more, is when it
is judged: the checks need not run at the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from policies.finding import Action
from policies.policy import Policy
from policies.registry import SETTERS

_SETTERS = frozenset(setter.id for setter in SETTERS)


def setters_only(policy: Policy) -> Policy:
    """Return the policy that changes what ``policy`` changes, and finds nothing."""
    return replace(
        policy,
        actions=_setting(policy.actions),
        overrides={name: _setting(actions) for name, actions in policy.overrides.items()},
    )


def _setting(actions: Mapping[str, Action]) -> dict[str, Action]:
    return {
        rule: "enforce" if action == "enforce" and rule in _SETTERS else "off"
        for rule, action in actions.items()
    }
