"""What reports are made of: one type of content for each command that reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.audit.cluster_audit import Audit
    from webhook.cli.manifests.evaluate import Result
    from webhook.cli.report.difference import Marked
    from webhook.doctor.line import Line as DoctorLine

API_VERSION = "gpufence.dev/v1alpha1"


class CheckReport(msgspec.Struct, frozen=True):
    """The results of ``gpufence check``, in order.

    A quiet report leaves out what needs no attention. Only the format ``text`` can be quiet.
    """

    results: Iterable[Result]
    policy: str
    created: datetime
    quiet: bool = False


class AuditReport(CheckReport, frozen=True, kw_only=True):
    """The results of ``gpufence audit``, one for each workload, and the audit itself."""

    audit: Audit
    cluster: str


class DoctorReport(msgspec.Struct, frozen=True):
    """The lines of ``gpufence doctor``."""

    lines: Sequence[DoctorLine]


State = Literal["passed", "failed", "error"]


class Failure(msgspec.Struct, frozen=True):
    """One expectation that a case does not meet: a clause, and the lines that show it."""

    message: str
    lines: tuple[Marked | str, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one test case. ``error`` says why it cannot run."""

    path: str
    line: int
    name: str
    failures: tuple[Failure, ...] = ()
    error: str = ""
    exercised: frozenset[str] = frozenset()
    """The rules that do something in this case: mutations that add, checks that find."""

    @property
    def state(self) -> State:
        return "error" if self.error else "failed" if self.failures else "passed"


class SuitesReport(msgspec.Struct, frozen=True):
    """The outcomes of ``gpufence test``, and the enabled rules that no case exercises."""

    suites: int
    outcomes: Sequence[Outcome]
    unexercised: Sequence[str]


Content = CheckReport | AuditReport | DoctorReport | SuitesReport


def json_document(kind: str, **fields: Any) -> str:
    """Return a report of some kind as JSON, indented, with a line feed at its end."""
    document = {"apiVersion": API_VERSION, "kind": kind, **fields}
    return f"{msgspec.json.format(msgspec.json.encode(document), indent=2).decode()}\n"
