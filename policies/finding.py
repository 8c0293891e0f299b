"""What a check says of a Pod."""

from __future__ import annotations

from typing import Literal

import msgspec

Action = Literal["enforce", "warn", "audit", "off"]
"""What becomes of a rule's findings: refuse, tell the user, write to the audit log, or nothing."""

ACTIONS: tuple[Action, ...] = ("enforce", "warn", "audit", "off")


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong with one object.

    ``path`` is a field path as the API server prints them (``spec.containers[0].image``), from the
    root of the object. ``reason`` says in one clause what is wrong, ``detail`` what was found and
    what is accepted, ``advice`` what to change; all three are written for somebody who has never
    heard of gpufence.
    """

    rule: str
    path: str
    reason: str
    detail: str
    advice: str = ""
    action: Action = "enforce"
    subjects: frozenset[str] = frozenset()
    """What is at fault, where one finding gathers several: with fewer, it is not a new one."""

    @property
    def message(self) -> str:
        """Reason, detail, place and advice as one paragraph."""
        text = f"{self.reason}: {self.detail} (at {self.path})"
        return f"{text}. {self.advice}" if self.advice else text
