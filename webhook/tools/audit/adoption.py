"""What a policy changes for the workloads that exist: each workload is in one list.

The lists arrange what an audit says of a workload and its Pods at their next creation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from webhook.cluster.kinds import POD
from webhook.tools.audit.subjects import Subject
from webhook.wording import counted

ListName = Literal["denied", "anotherUser", "changedOtherwise", "unjudged", "runsOnGPUNodes"]

TITLES: Mapping[ListName, str] = {
    "denied": "Denied at their next creation",
    "anotherUser": "Run as another user from their next creation",
    "changedOtherwise": "Changed otherwise at their next creation",
    "unjudged": "Cannot be judged",
    "runsOnGPUNodes": "Run today on GPU nodes that are not for them",
}
"""The lists, and their headings."""


class Entry(NamedTuple):
    """A workload or a Pod of a list, and why it is there.

    ``alike`` names further Pods without an owner that were made alike.
    """

    subject: Subject
    why: str
    alike: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = f" and {counted(len(self.alike), 'Pod')} like it" if self.alike else ""
        return f"{self.subject.place}{more}: {self.why}"


def lists(subjects: Iterable[Subject], outlooks: Mapping[str, str]) -> dict[ListName, list[Entry]]:
    """Return the lists. ``outlooks`` adds to the reason of a workload, by its place."""
    found: dict[ListName, dict[object, Entry]] = {name: {} for name in get_args(ListName)}
    for subject in subjects:
        name, why = _list_of(subject)
        if name is None:
            continue
        if outlook := outlooks.get(subject.place):
            why = f"{why}; {outlook}"
        owned, entry = subject.owned, Entry(subject, why)
        is_alike = subject.likeness and subject.kind is POD and not owned.owner
        alike = owned.namespace, subject.likeness, *subject.users
        key = alike if is_alike else subject.place
        known = found[name].setdefault(key, entry)
        if known is not entry:
            found[name][key] = known._replace(alike=(*known.alike, owned.name))
    return {name: [*entries.values()] for name, entries in found.items()}


def _list_of(subject: Subject) -> tuple[ListName | None, str]:
    """Return the list of a workload, and why it is there; ``None`` if nothing happens to it."""
    findings = subject.decision.findings
    if not subject.decision.allowed:
        first = next(finding for finding in findings if finding.action == "enforce")
        return "denied", f"{first.rule}: {first.reason}: {first.detail}"
    if subject.unjudged:
        return "unjudged", "; ".join(subject.unjudged)
    if subject.users:
        return "anotherUser", ", ".join(map(str, subject.users))
    if subject.placed:
        return "runsOnGPUNodes", "; ".join(finding.detail for finding in subject.placed)
    if subject.verdict == "mutated":
        return "changedOtherwise", ", ".join(subject.mutations)
    return None, ""
