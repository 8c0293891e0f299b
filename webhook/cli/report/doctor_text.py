"""What the doctor says, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from webhook.cli.printable import printable
from webhook.cli.report.lines import Line, Role
from webhook.doctor.line import STATUSES, Status
from webhook.doctor.line import Line as Looked

_ROLES: dict[Status, Role] = {
    "ok": "allowed",
    "warn": "warn",
    "fail": "denied",
    "skip": "skipped",
}
_WORDS: dict[Status, str] = {
    "ok": "fine",
    "warn": "to look at",
    "fail": "broken",
    "skip": "not checked",
}


def as_text(lines: Iterable[Looked]) -> Iterator[Line]:
    """Yield a line for each thing that was looked at, with what to do below it, and a summary."""
    kept = list(lines)
    width = max((len(line.check) for line in kept), default=0)
    for line in kept:
        yield Line(
            (
                (line.status.ljust(4), _ROLES[line.status]),
                ("  ", ""),
                (line.check.ljust(width), "object"),
                ("  ", ""),
                (printable(line.found), ""),
            )
        )
        if line.cure:
            yield Line((("→ ", "advice"), (printable(f"{line.cure}."), "")), indent=8 + width)
    counts = Counter(line.status for line in kept)
    parts = [f"{counts[status]} {_WORDS[status]}" for status in STATUSES if counts[status]]
    yield Line()
    yield Line(((", ".join(parts), "total"),))


def as_json(lines: Iterable[Looked]) -> str:
    """Return a DoctorReport."""
    import msgspec

    from webhook.cli.report.json import API_VERSION

    kept = list(lines)
    counts = Counter(line.status for line in kept)
    document = {
        "apiVersion": API_VERSION,
        "kind": "DoctorReport",
        "summary": {status: counts[status] for status in STATUSES},
        "lines": [
            {"status": each.status, "check": each.check, "found": each.found, "cure": each.cure}
            for each in kept
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
