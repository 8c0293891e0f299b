"""Exceptions for the current findings, so that enforcement can start before they are fixed.

An exception names objects and rules, not findings: until it expires, it covers later findings of
the same rules in the same objects as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

import click

from policies.kubernetes.field_types import NameSet
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import is_subdomain
from policies.wording import counted, printable
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.report.output import STDOUT, unwritable
from webhook.tools.cli.yaml_writer import to_yaml
from webhook.tools.documents.document import InputError

_BETWEEN = {"Deployment": ["ReplicaSet"], "CronJob": ["Job"]}
"""What controllers create for a workload, and what then creates its Pods. The names of all of them
start with the name of the workload and a dash."""

_TEMPLATES = (("", "Pod"), ("", "PodTemplate"))
"""The kinds for which no controller creates anything."""

_LONGEST_PREFIX = 50
"""The part of a longer name that is certain to be in the names of its Pods: 58 characters precede
the random ones (``k8s.io/apiserver/pkg/storage/names``), and the index of an indexed Job takes up
to 8 of them (``k8s.io/kubernetes/pkg/controller/job/indexed_job_utils.go``)."""


class Excepted(NamedTuple):
    """What an exception covers: an object, and the objects that its controller creates for it."""

    namespace: str
    group: str
    kind: str
    name: str
    """The name; for a generated name, the known part with ``*`` at the end."""

    @property
    def kinds(self) -> list[str]:
        """The kinds of the objects; empty for any kind, if only the controller knows them."""
        key = (self.group, self.kind)
        if key in _TEMPLATES:
            return [self.kind]
        is_known = key in CORE_WORKLOADS
        return [self.kind, *_BETWEEN.get(self.kind, ()), "Pod"] if is_known else []

    @property
    def names(self) -> list[str]:
        if self.name.endswith("*") or self.kinds == [self.kind]:
            return [self.name]
        return [self.name, f"{self.name}-"[:_LONGEST_PREFIX] + "*"]

    def covers(self, other: Excepted) -> bool:
        return (
            self.namespace == other.namespace
            and (not self.kinds or other.kind in self.kinds)
            and other.name.removesuffix("*") in NameSet(self.names)
        )


def exceptions_for(
    results: Iterable[Result], today: date, expires: date
) -> tuple[list[JSONObject], list[Result]]:
    """Return one exception for each object with enforced findings, by namespace, kind and name.

    Objects that no exception can name come second.

    An object that is controlled by a workload among the objects counts as that workload, because
    its own name does not last. Findings that the policy already excepts are left out.
    """
    judged = [(_subject(each), each) for each in results if not (each.error or each.note)]
    controllers = {
        subject: controller
        for subject, result in judged
        if (controller := _controller(subject, result.manifest.value or {})) is not None
    }
    rules: dict[Excepted, set[str]] = {}
    left = []
    for subject, result in judged:
        enforced = {f.rule for f in result.findings if f.action == "enforce"}
        if not enforced:
            continue
        if not subject.name or not is_subdomain(subject.namespace):
            left.append(result)
            continue
        rules.setdefault(_root(subject, controllers), set()).update(enforced)
    reason = (
        f"generated on {today} by gpufence check --generate-exceptions; replace this text with the "
        "reason for the exception and its owner"
    )
    entries = [_entry(subject, rules[subject], reason, expires) for subject in sorted(rules)]
    return entries, left


def exceptions_yaml(entries: list[JSONObject], today: date, expires: date) -> str:
    """Return the entries as YAML, with comments for the reader."""
    count = counted(len(entries), "exception")
    comments = [f"{count} for the findings of gpufence check on {today}; expiry date: {expires}."]
    if entries:
        comments.append("Add the list to the policy, and replace each reason.")
    if any(name.endswith("*") for entry in entries for name in entry["names"]):
        comments += [
            "A name with * at the end covers the objects that controllers create for an object.",
            "It also covers every other object whose name starts the same.",
        ]
    return "".join(f"# {line}\n" for line in comments) + to_yaml({"exceptions": entries})


def write_exceptions(path: str, results: Iterable[Result], today: date, expires: date) -> None:
    """Write exceptions for the findings to a new file, or for ``-`` to standard output.

    Raises:
        InputError: the file exists or cannot be written; or, with the others written, an exception
            cannot name an object.
    """
    entries, left = exceptions_for(results, today, expires)
    text = exceptions_yaml(entries, today, expires)
    if path == STDOUT:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
    else:
        _write(Path(path), text)
        count = counted(len(entries), "exception")
        click.echo(f"Wrote {count} to {printable(path)} (expiry date: {expires}).", err=True)
    if left:
        raise InputError(map(_complaint, left))


def _write(path: Path, text: str) -> None:
    try:
        # An existing file may hold reasons, or may be the policy itself.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        cure = "Name a new file, or - for standard output"
        raise InputError([f"{printable(str(path))}: exists already. {cure}."]) from error
    except OSError as error:
        raise unwritable(printable(str(path)), error) from error


def _complaint(result: Result) -> str:
    place = f"{result.manifest.document.path}:{result.manifest.line}"
    if result.name:
        why = f"{result.namespace!r} is not the name of a namespace"
        cure = "Check the rendered manifest"
    else:
        why, cure = "it has no name", "Set metadata.name or metadata.generateName"
    return printable(f"{place}: an exception cannot name this {result.kind}: {why}. {cure}.")


def _entry(subject: Excepted, rules: Iterable[str], reason: str, expires: date) -> JSONObject:
    entry: JSONObject = {"rules": sorted(rules), "namespaces": [subject.namespace]}
    if subject.kinds:
        entry["kinds"] = subject.kinds
    return entry | {"names": subject.names, "reason": reason, "expires": expires.isoformat()}


def _subject(result: Result) -> Excepted:
    return Excepted(result.namespace, _group(result.api_version), result.kind, result.name)


def _controller(subject: Excepted, obj: JSONObject) -> Excepted | None:
    """Return the controller in an object's metadata."""
    for owner in (obj.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller") and owner.get("name"):
            group, kind = _group(owner.get("apiVersion") or ""), owner.get("kind") or ""
            return Excepted(subject.namespace, group, kind, str(owner["name"]))
    return None


def _root(subject: Excepted, controllers: Mapping[Excepted, Excepted]) -> Excepted:
    """Return the topmost controller whose exception covers the object, or the object itself."""
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
