"""What a check returns about a Pod."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

Action = Literal["enforce", "warn", "audit", "off"]
"""What a rule's findings cause: a denial, a warning, an entry in the audit log, or nothing."""

ACTIONS: tuple[Action, ...] = ("enforce", "warn", "audit", "off")

Mode = Literal["enforce", "warn", "audit"]
"""The strongest action of any rule."""


def limited(action: Action, mode: Action) -> Action:
    """Return the action of a rule in a mode: the weaker of the two."""
    return max(action, mode, key=ACTIONS.index)


EditKind = Literal["set", "append", "remove", "rename"]


class Edit(msgspec.Struct, frozen=True):
    """A change of one field. ``append`` adds to a list, and ``rename`` gives a key another name.

    ``path`` is as in a finding. ``value`` is parsed JSON, or the new name.
    """

    kind: EditKind
    path: str
    value: Any = None

    def __hash__(self) -> int:
        # The value may be a mapping or a list.
        return hash((self.kind, self.path))

    def __str__(self) -> str:
        match self.kind:
            case "remove":
                return f"remove {self.path}"
            case "rename":
                return f"rename {self.path} to {self.value}"
            case "append":
                return f"add {json.dumps(self.value)} to {self.path}"
        return f"set {self.path} to {json.dumps(self.value)}"


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
    fix: tuple[Edit, ...] = ()
    """The remediation as edits, if it is mechanical. ``gpufence check --fix`` makes them."""

    @property
    def outcome(self) -> str:
        """The action in metrics and audit log: ``would_enforce`` if only the mode prevents it."""
        return f"would_{self.would}" if self.would else self.action

    @property
    def message(self) -> str:
        """Where it is, what was found, and what to do, as one paragraph."""
        text = f"{self.path}: {self.detail}"
        return f"{text}. {self.remediation}" if self.remediation else text
