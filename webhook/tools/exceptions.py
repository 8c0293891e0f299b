"""Exceptions of a policy that cover nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from policies.policy import Actions, ExceptionEntry, Policy


def useless_exceptions(policy: Policy, today: date | None) -> Iterator[tuple[int, str]]:
    """Yield the index of each exception that can cover no finding, and why."""
    for index, entry in enumerate(policy.exceptions):
        if entry.has_expired(today):
            yield index, f"expired on {entry.expires}"
        elif not (entry.namespaces.prefixes or entry.namespace_selector) and (
            entry.namespaces.exact <= policy.exemptions.namespaces
        ):
            yield index, "covers nothing: its namespaces are exempt"
        elif entry.rules and all(
            actions[rule] == "off" for actions in _actions(entry, policy) for rule in entry.rules
        ):
            yield index, "covers nothing: its rules are off in its namespaces"


def _actions(entry: ExceptionEntry, policy: Policy) -> Iterable[Actions]:
    if entry.namespaces.prefixes or entry.namespace_selector or policy.overrides_by_label:
        return policy.action_sets
    return [policy.actions_in(namespace, None) for namespace in entry.namespaces.exact]
