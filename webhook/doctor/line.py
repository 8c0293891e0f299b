"""What the doctor says: one line for each thing that it has looked at."""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "fail", "skip"]
"""As it should be; not quite, or soon no more; broken; could not be checked from here."""

STATUSES: tuple[Status, ...] = ("ok", "warn", "fail", "skip")


class Line(NamedTuple):
    """One thing that was looked at: what it is, what was found, and what to do about it."""

    status: Status
    check: str
    found: str
    cure: str = ""


def ok(check: str, found: str) -> Line:
    return Line("ok", check, found)


def warn(check: str, found: str, cure: str) -> Line:
    return Line("warn", check, found, cure)


def fail(check: str, found: str, cure: str) -> Line:
    return Line("fail", check, found, cure)


def skip(check: str, why: str, cure: str = "") -> Line:
    return Line("skip", check, why, cure)
