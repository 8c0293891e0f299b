"""Exceptions for what is found today, so that enforcement can start before the cleaning up.

An exception names objects, not findings: what else the same rules find in an object that has one is
tolerated, too, until it expires.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import click

from policies.finding import Finding
from policies.kubernetes.names import NameSet
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import is_subdomain
from webhook.cli.errors import InputError
from webhook.cli.manifests.evaluate import Result
from webhook.cli.manifests.yaml_writer import to_yaml
from webhook.cli.wording import counted, printable

DEFAULT_DAYS = 90
"""How many days exceptions count for where nothing else is asked for."""

STDOUT = "-"

# What the controllers of Kubernetes make of their objects, and in turn of those; all of it is named
# by the object's name and a dash. Other objects are their own controllers' affair.
_MADE_OF: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): (),
    ("", "ReplicationController"): ("Pod",),
    ("apps", "Deployment"): ("ReplicaSet", "Pod"),
    ("apps", "ReplicaSet"): ("Pod",),
    ("apps", "StatefulSet"): ("Pod",),
    ("apps", "DaemonSet"): ("Pod",),
    ("batch", "Job"): ("Pod",),
    ("batch", "CronJob"): ("Job", "Pod"),
}
_ALSO_IN = {"extensions": "apps"}

_LONGEST_PREFIX = 50
"""Of a longer name only this much is sure to stand in the names of its Pods: 58 characters go
before the random ones (``k8s.io/apiserver/pkg/storage/names``), and the index of an indexed Job
takes up to 8 of them (``k8s.io/kubernetes/pkg/controller/job/indexed_job_utils.go``)."""


class Subject(NamedTuple):
    """What an exception is for: an object, and what its controller makes of it."""

    namespace: str
    group: str
    kind: str
    name: str
    """The name; of a generated one the part that is known, with ``*`` at its end."""

    @property
    def kinds(self) -> list[str]:
        """The kinds of the objects; none for any, as only its controller knows what it makes."""
        made = _MADE_OF.get((_ALSO_IN.get(self.group, self.group), self.kind))
        return [] if made is None else [self.kind, *made]

    @property
    def names(self) -> list[str]:
        if self.name.endswith("*") or self.kinds == [self.kind]:
            return [self.name]
        return [self.name, f"{self.name}-"[:_LONGEST_PREFIX] + "*"]

    def covers(self, other: Subject) -> bool:
        return (
            self.namespace == other.namespace
            and (not self.kinds or other.kind in self.kinds)
            and other.name.removesuffix("*") in NameSet.of(self.names)
        )


@dataclass(frozen=True, slots=True)
class Exceptions:
    """The entries of a policy's ``exceptions``, and the objects that no entry can be about."""

    entries: list[JSONObject]
    left: list[Result]


def exceptions_for(results: Iterable[Result], today: date, expires: date) -> Exceptions:
    """Return one exception for each object with enforced findings, by namespace, kind and name.

    A Pod that a workload among the objects controls, or a ReplicaSet that a Deployment does, goes
    by that workload: its own name is gone tomorrow. What the policy excepts already is left out.
    """
    judged = [(_subject(result), result) for result in results if result.decision is not None]
    controllers = {
        subject: controller
        for subject, result in judged
        if (controller := _controller(subject, result.manifest.value or {})) is not None
    }
    rules: dict[Subject, set[str]] = {}
    left = []
    for subject, result in judged:
        found = {f.rule for f in _findings(result) if f.action == "enforce"}
        if not found:
            continue
        if not subject.name or not is_subdomain(subject.namespace):
            left.append(result)
            continue
        rules.setdefault(_root(subject, controllers), set()).update(found)
    reason = (
        f"to be cleaned up; written on {today} by gpufence check --generate-exceptions, "
        "replace this by why it is tolerated and who sees to it"
    )
    entries = [_entry(subject, rules[subject], reason, expires) for subject in sorted(rules)]
    return Exceptions(entries, left)


def exceptions_yaml(entries: list[JSONObject], today: date, expires: date) -> str:
    """Return the entries as YAML, with comments that say what to do with them."""
    count = counted(len(entries), "exception")
    comments = [f"{count} for what gpufence check found on {today}, until {expires}."]
    if entries:
        comments.append("Put them into the policy, and write down why each of them is tolerated.")
    if any(name.endswith("*") for entry in entries for name in entry["names"]):
        comments += [
            "A name with * at its end is for what controllers make of an object. It is also for",
            "every other object whose name begins so.",
        ]
    return "".join(f"# {line}\n" for line in comments) + to_yaml({"exceptions": entries})


def default_expiry(today: date) -> date:
    """Return the first day on which exceptions that are written today no longer count."""
    return today + timedelta(days=DEFAULT_DAYS)


def write_exceptions(path: str, results: Iterable[Result], today: date, expires: date) -> None:
    """Write exceptions for the findings to a new file, or for ``-`` to standard output.

    Raises:
        InputError: the file is there already or cannot be written; or, with the others written, an
            object cannot be named by an exception.
    """
    made = exceptions_for(results, today, expires)
    text = exceptions_yaml(made.entries, today, expires)
    if path == STDOUT:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
    else:
        _write(Path(path), text)
        count = counted(len(made.entries), "exception")
        click.echo(f"Wrote {count} to {printable(path)} (expiry date: {expires}).", err=True)
    if made.left:
        raise InputError(map(_complaint, made.left))


def _write(path: Path, text: str) -> None:
    try:
        # Somebody may have written reasons into an older one, or have meant to name the policy.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        cure = "Name a new file, or - for standard output"
        raise InputError([f"{printable(str(path))}: is there already. {cure}."]) from error
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise InputError([f"{printable(str(path))}: {problem}. Name a file that can."]) from error


def _complaint(result: Result) -> str:
    place = f"{result.manifest.document.path}:{result.manifest.line}"
    if result.name:
        why = f"{result.namespace!r} is not the name of a namespace"
        cure = "Check the manifest as it will be applied"
    else:
        why, cure = "it has no name", "Give it a metadata.name or a generateName"
    return printable(f"{place}: no exception can be about this {result.kind}: {why}. {cure}.")


def _entry(subject: Subject, rules: Iterable[str], reason: str, expires: date) -> JSONObject:
    entry: JSONObject = {"rules": sorted(rules), "namespaces": [subject.namespace]}
    if subject.kinds:
        entry["kinds"] = subject.kinds
    return entry | {"names": subject.names, "reason": reason, "expires": expires.isoformat()}


def _findings(result: Result) -> Iterator[Finding]:
    if result.decision is not None:
        yield from result.decision.findings


def _subject(result: Result) -> Subject:
    return Subject(result.namespace, _group(result.api_version), result.kind, result.name)


def _controller(subject: Subject, obj: JSONObject) -> Subject | None:
    """Return what an object's metadata name as its controller."""
    for owner in (obj.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller") and owner.get("name"):
            group, kind = _group(owner.get("apiVersion") or ""), owner.get("kind") or ""
            return Subject(subject.namespace, group, kind, str(owner["name"]))
    return None


def _root(subject: Subject, controllers: Mapping[Subject, Subject]) -> Subject:
    """Return the topmost controller whose exception is also about the object; at least itself."""
    root, at, seen = subject, subject, {subject}
    while (controller := controllers.get(at)) is not None and controller not in seen:
        seen.add(controller)
        at = controller
        if at.covers(subject):
            root = at
    return root


def _group(api_version: str) -> str:
    group, slash, _ = api_version.partition("/")
    return group if slash else ""
