"""The result of the doctor: one line for each check."""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "fail", "skip"]
"""Works; works, but with a risk; broken; could not be checked."""

STATUSES: tuple[Status, ...] = ("ok", "warn", "fail", "skip")


class DoctorLine(NamedTuple):
    """One check: its name, the result in words, and what to do."""

    status: Status
    check: str
    detail: str
    remediation: str = ""


def ok(check: str, detail: str) -> DoctorLine:
    return DoctorLine("ok", check, detail)


def warn(check: str, detail: str, remediation: str) -> DoctorLine:
    return DoctorLine("warn", check, detail, remediation)


def fail(check: str, detail: str, remediation: str) -> DoctorLine:
    return DoctorLine("fail", check, detail, remediation)


def skip(check: str, why: str, remediation: str = "") -> DoctorLine:
    return DoctorLine("skip", check, why, remediation)
