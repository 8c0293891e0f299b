"""The result of the doctor: one line for each check."""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "fail", "skip"]
"""Works; works, but with a risk; broken; could not be checked."""

STATUSES: tuple[Status, ...] = ("ok", "warn", "fail", "skip")


class Line(NamedTuple):
    """One check: its name, the result in words, and what to do."""

    status: Status
    check: str
    detail: str
    remediation: str = ""


def ok(check: str, detail: str) -> Line:
    return Line("ok", check, detail)


def warn(check: str, detail: str, remediation: str) -> Line:
    return Line("warn", check, detail, remediation)


def fail(check: str, detail: str, remediation: str) -> Line:
    return Line("fail", check, detail, remediation)


def skip(check: str, why: str, remediation: str = "") -> Line:
    return Line("skip", check, why, remediation)
