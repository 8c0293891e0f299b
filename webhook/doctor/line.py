"""The result of the doctor: one line for each check."""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "fail", "skip"]
"""Works; works, but with a risk; broken; could not be checked."""

STATUSES: tuple[Status, ...] = ("ok", "warn", "fail", "skip")


class Line(NamedTuple):
    """One check: its name, what it found, and what to do."""

    status: Status
    check: str
    found: str
    remediation: str = ""


def ok(check: str, found: str) -> Line:
    return Line("ok", check, found)


def warn(check: str, found: str, remediation: str) -> Line:
    return Line("warn", check, found, remediation)


def fail(check: str, found: str, remediation: str) -> Line:
    return Line("fail", check, found, remediation)


def skip(check: str, why: str, remediation: str = "") -> Line:
    return Line("skip", check, why, remediation)
