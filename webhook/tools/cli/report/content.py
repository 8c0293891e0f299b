"""What reports are made of: a type for each command that reports, and the sentences they share."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from policies.decision import Decision
from policies.finding import ACTIONS, Finding
from policies.kubernetes.objects import JSONObject
from policies.registry import RULES, Rule
from webhook.documents.document import Document, DocumentError
from webhook.documents.objects import Manifest, locate
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.yaml_writer import Marked
from webhook.wording import counted, some

# What audits find: a check needs none of it.
if TYPE_CHECKING:
    from webhook.tools.audit.cluster_audit import Audit
    from webhook.tools.audit.pools import PoolState
    from webhook.tools.audit.subjects import Subject
    from webhook.tools.audit.waste import Kind, Row

_RULE_PAGES = "https://gpufence.dev/rules"
_PAGES = Path(__file__).parents[1] / "rules"
_RULE_IDS = frozenset(rule.id for rule in RULES)


class CheckReport(msgspec.Struct, frozen=True):
    """A run of ``gpufence check``.

    The rest is about the format ``text``. A ``quiet`` report has only findings and errors, and a
    ``verbose`` one every object.
    """

    policy: str
    created: datetime
    results: Sequence[Result]
    help: str = ""
    """The help of the policy, for people whose objects are denied."""
    quiet: bool = False
    verbose: bool = False


class AuditReport(CheckReport, frozen=True, kw_only=True):
    """A run of ``gpufence audit``, with a result for each workload, and the audit itself."""

    audit: Audit
    cluster: str
    waste: Sequence[Row] = ()
    hours: float = 0.0
    """The length of the window of the waste."""
    command: str = "audit"
    lists: Sequence[tuple[str, Sequence[str]]] = ()
    """Further lists for a person: title and lines."""

    @property
    def remarks(self) -> Iterator[str]:
        """Sentences about the GPU stack, Pods without mutations, and exceptions."""
        yield from map(str, self.audit.stack)
        if pods := self.audit.unmutated:
            yield (
                f"{counted(len(pods), 'running Pod')} without the mutations of the policy: "
                f"{some(pods)}. They were created before gpufence, or while it did not answer, and "
                "get the mutations when they are created again. An image may fail as the new user: "
                "see what changes first"
            )
        yield from self.audit.exceptions


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

    @property
    def state(self) -> State:
        return "error" if self.error else "failed" if self.failures else "passed"


class SuitesReport(msgspec.Struct, frozen=True):
    """The outcomes of ``gpufence test``."""

    suites: int
    outcomes: Sequence[Outcome]


# Findings as sentences.


def message(finding: Finding) -> str:
    """Return what is wrong, as a sentence."""
    return f"{finding.reason}: {finding.detail}."


def remediation(finding: Finding) -> str:
    """Return what to do, as a sentence; empty where the finding does not say."""
    return f"{finding.remediation}." if finding.remediation else ""


def paragraph(finding: Finding) -> str:
    """Return what is wrong and what to do."""
    return f"{message(finding)} {remediation(finding)}".rstrip()


def rule_page(rule: str) -> str:
    """Return the address of a rule's page; empty for what an audit alone finds."""
    return f"{_RULE_PAGES}/{rule}.html" if rule in _RULE_IDS else ""


def page_of(rule: Rule) -> str:
    """Return the page of a rule: its title, and the file with its name."""
    return f"{rule.title}\n\n{(_PAGES / f'{rule.id}.md').read_text('utf-8')}"


def reasons(rule: Rule) -> list[str]:
    """Return the paragraphs under the heading Why of a rule's page, each on one line."""
    _, _, section = page_of(rule).partition("## Why\n\n")
    paragraphs = section.partition("\n\n## ")[0].split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs]


# How severe results are.


def by_severity(result: Result) -> int:
    """Return a key that sorts broken objects first, then denied ones, then by the findings."""
    if result.error is not None:
        return -2
    if result.verdict == "denied":
        return -1
    return min((ACTIONS.index(finding.action) for finding in result.findings), default=len(ACTIONS))


def summary(total: str, counts: Iterable[str]) -> str:
    """Return a total and its parts: ``3 objects: 1 denied, 2 allowed``."""
    return ": ".join(filter(None, (total, ", ".join(counts))))


# Where findings and objects are.


class Place(NamedTuple):
    """A place in a file. Numbers count from 1; 0 if unknown.

    ``end`` is the column after the field, on the same line.
    """

    path: str
    line: int = 0
    column: int = 0
    end: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


def finding_place(result: Result, finding: Finding) -> Place:
    """Return the place of the finding's field, or of its nearest parent."""
    manifest = result.manifest
    position = locate(manifest.document, manifest.path, finding.path)
    if position is None:
        return object_place(result)
    return Place(manifest.document.path, *position)


def object_place(result: Result) -> Place:
    """Return the place of an object, or of its error."""
    document = result.manifest.document
    if result.error is not None and result.error.line:
        return Place(document.path, result.error.line, result.error.column)
    return Place(document.path, result.manifest.line if document.text else 0)


def repository_path(path: str) -> str | None:
    """Return a file's path as code hosts know it: relative to the working directory.

    A run in CI starts in the repository's root. A file outside of it keeps its absolute path.
    ``None`` for standard input (``<stdin>``), which is no file.
    """
    if path.startswith("<") and path.endswith(">"):
        return None
    relative = os.path.relpath(path)
    inside = relative.partition("/")[0] != os.pardir
    return relative if inside else str(Path(path).absolute())


def object_name(result: Result) -> str:
    """Return namespace, kind and name, as far as they are known."""
    return "/".join(filter(None, (result.namespace, result.kind, result.name)))


def fingerprint(result: Result, finding: Finding, occurrences: Counter[str]) -> str:
    """Return an identity of the finding that does not depend on its line.

    Findings with the same identity are numbered in order.
    """
    from hashlib import sha256

    path = repository_path(result.manifest.document.path) or ""
    # The index of a list entry changes when entries are added above it.
    field = re.sub(r"\[\d+\]", "[]", finding.path)
    identity = (path, object_name(result), finding.rule, field, finding.reason)
    digest = sha256("\0".join(identity).encode(errors="backslashreplace")).hexdigest()
    occurrences[digest] += 1
    return f"{digest}:{occurrences[digest]}"


# What an audit finds.


def results_of(audit: Audit) -> Iterator[Result]:
    """Yield a result for each node that has findings, and for each topmost owner.

    An object in a cluster has no file: its place is its name for kubectl, below its namespace.
    """
    for node in audit.nodes:
        obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}
        decision = Decision(obj, findings=node.findings)
        yield Result(_manifest(f"nodes/{node.name}", obj), "allowed", decision)
    for subject in audit.subjects:
        yield _of_subject(subject)


def pool_summary(state: PoolState) -> str:
    """Return the numbers of a pool as one clause."""
    return (
        f"{counted(len(state.nodes), 'node')}, devices: {by_name(state.offered)}; "
        f"requested: {by_name(state.requested)}; "
        f"waiting: {by_name(state.waiting)}; free: {by_name(state.free)}"
    )


def usages(rows: Iterable[Row], pool: str) -> list[Row]:
    """Return who holds devices of a pool and waits for them now, by name and namespace."""
    now = [each for each in rows if each.kind in ("held", "pending") and each.devices]
    own = [each for each in now if each.pool == pool]
    return sorted(own, key=lambda row: (row.resource, row.namespace, row.kind))


def by_name(counts: Mapping[str, int]) -> str:
    """Return devices by name: ``nvidia.com/gpu 64, nvidia.com/mig-1g.10gb 28``."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"


_HELD = "held by Pods that"
_WASTE: Mapping[Kind, tuple[str, str]] = {
    "notReady": (f"{_HELD} are not Ready", "Fix or delete them: kubectl describe pod -n {} {}"),
    "idle": (f"{_HELD} do not use them", "Stop {}/{}, or request fewer devices"),
    "hung": (f"{_HELD} hang: they are busy and read no memory", "Look at the processes of {}/{}"),
    "stranded": (
        "free, but others take the CPU, memory or IMEX channel of their nodes",
        "Lower the requests of {}/{}, or move it to other nodes",
    ),
}


def waste_sentences(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a sentence for the waste of each namespace: how much, why, and what to do."""
    for row in rows:
        if meaning := _WASTE.get(row.kind):
            what, cure = meaning
            where = f" ({some(row.nodes)})" if row.kind == "stranded" else ""
            yield (
                f"{_amount(row)}: "
                f"{row.devices:,} {row.resource} {what}{where}. "
                f"{cure.format(row.namespace, row.pods[0])}."
            )


def overtime_sentences(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a sentence for the hours of each namespace beyond the longest run time."""
    for row in rows:
        if row.kind == "overtime":
            now = f"; {row.devices:,} {row.resource} are held now" if row.devices else ""
            yield f"{_amount(row)}, by {some(row.pods)}{now}"


def _amount(row: Row) -> str:
    cost = "" if row.cost is None else f" (cost {row.cost:,.2f})"
    return f"{row.hours:,.1f} device-hours{cost}, pool {row.pool}, namespace {row.namespace}"


def _of_subject(subject: Subject) -> Result:
    kind, owned = subject.kind, subject.owned
    decision = replace(subject.decision, findings=subject.findings)
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": owned.name}}
    manifest = _manifest(subject.place, obj)
    if subject.is_undecided:
        error = DocumentError("; ".join(subject.unjudged))
        return Result(manifest, "invalid", namespace=owned.namespace, error=error)
    return Result(manifest, subject.verdict, decision, owned.namespace)


def _manifest(path: str, obj: JSONObject) -> Manifest:
    return Manifest(Document(0, "", 0, path=path), None, (), 0, obj)
