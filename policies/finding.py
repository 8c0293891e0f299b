"""What a check returns about a Pod."""

from __future__ import annotations

from typing import Literal

import msgspec

Action = Literal["enforce", "warn", "audit", "off"]
"""What a rule's findings cause: a denial, a warning, an entry in the audit log, or nothing."""

ACTIONS: tuple[Action, ...] = ("enforce", "warn", "audit", "off")

Mode = Literal["enforce", "warn", "audit"]
"""The strongest action of any rule."""


def limited(action: Action, mode: Action) -> Action:
    """Return the action of a rule in a mode: the weaker of the two."""
    return max(action, mode, key=ACTIONS.index)


class Finding(msgspec.Struct, frozen=True):
    """One problem of one object.

    ``path`` is a field path as the API server prints it (``spec.containers[0].image``), from the
    root of the object. ``reason`` is one clause. ``detail`` says what was found and what is
    accepted, as a sentence that stands without the reason, and ``remediation`` what to change.
    Write all three for an ML engineer who has never heard of gpufence.
    """

    rule: str
    path: str
    reason: str
    detail: str
    remediation: str = ""
    action: Action = "enforce"
    would: Action | None = None
    """The action without the policy's mode, if the mode weakens it."""
    subjects: frozenset[str] = frozenset()
    """What is at fault, if one finding collects several faults: with fewer, it is not new."""
    rejected: frozenset[tuple[str, str]] = frozenset()
    """Of Pod Security: the controls that reject a value, each with the value. An exception may name
    them."""

    @property
    def outcome(self) -> str:
        """The action in metrics and audit log: ``would_enforce`` if only the mode prevents it."""
        return f"would_{self.would}" if self.would else self.action

    @property
    def message(self) -> str:
        """Where it is, what was found, and what to do, as one paragraph."""
        text = f"{self.path}: {self.detail}"
        return f"{text}. {self.remediation}" if self.remediation else text
