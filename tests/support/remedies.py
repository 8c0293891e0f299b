"""Remediations applied to a manifest as they are written: the edits of a finding, and its text."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from cases.loading import Case
from policies.finding import Finding
from policies.kubernetes.paths import descend, steps
from specs import JSON
from webhook.tools.cli.edits import Edit
from webhook.tools.cli.text_edits import CannotEditError, TextEdit, edited

Edits = list[Edit] | None
"""``None`` where the manifest has nothing that the text can be applied to."""

_MOST_STEPS = 40

_CONTAINER = re.compile(r"(.*?\.(?:initC|ephemeralC|c)ontainers\[\d+\])(?:\..*)?")
_POD = re.compile(
    r"(.*?)\.(?:tolerations|nodeSelector|affinity|nodeName|volumes|host\w+|securityContext|"
    r"resourceClaims|runtimeClassName|schedulerName|(?:initC|ephemeralC|c)ontainers)\b.*"
)
_LISTS = ("initContainers", "containers", "ephemeralContainers")


class Said:
    """A remediation: what it is about, and the object to change."""

    def __init__(self, obj: JSON, finding: Finding, match: re.Match[str]) -> None:
        self.obj, self.path, self.match = obj, finding.path, match
        container, pod = _CONTAINER.fullmatch(self.path), _POD.fullmatch(self.path)
        self.pod = pod[1] if pod else self._pod_spec()
        self.container = container[1] if container else f"{self.pod}.containers[0]"
        self.exists = descend(obj, steps(self.container)) is not None

    def __getitem__(self, group: int) -> str:
        return self.match[group]

    def _pod_spec(self) -> str:
        paths = ("spec.jobTemplate.spec.template.spec", "spec.template.spec", "spec")
        return next((p for p in paths if isinstance(self.get(f"{p}.containers"), list)), "spec")

    def get(self, path: str) -> Any:
        return descend(self.obj, steps(path))

    def containers(self, names: Iterable[str] | None = None) -> list[str]:
        """Return the paths of the Pod's containers, or of those with the names."""
        every = [
            (f"{self.pod}.{key}[{number}]", each)
            for key in _LISTS
            for number, each in enumerate(self.get(f"{self.pod}.{key}") or ())
        ]
        return [p for p, c in every if names is None or c.get("name", "") in names]

    def remove(self, *paths: str) -> Edits:
        edits = [Edit("remove", path) for path in paths if self.get(path) is not None]
        return edits or None


def _request(said: Said) -> Edits:
    if not said.exists:
        return None
    return [Edit("set", f"{said.container}.resources.limits[{said[1]}]", int(said[2]))]


def _request_instead(said: Said) -> Edits:
    if (edits := _request(said)) is None:
        return None
    if said[3] == "volume":
        volume = said.get(re.sub(r"(.*\[\d+\]).*", r"\1", said.path))
        return [*edits, *(_without_volume(said, volume["name"]) or ())]
    named = re.fullmatch(r"(\S+/\S+?)(?:: \d+)?", said[3])
    if named is None:
        return [
            *edits,
            *(said.remove(re.sub(r"(\.volumeMounts\[\d+\]).*", r"\1", said.path)) or ()),
        ]
    sides = (f"{said.container}.resources.{side}[{named[1]}]" for side in ("limits", "requests"))
    return [*edits, *(said.remove(*sides) or ())]


def _without_volume(said: Said, name: str) -> Edits:
    volumes = said.get(f"{said.pod}.volumes") or ()
    paths = [f"{said.pod}.volumes[{n}]" for n, v in enumerate(volumes) if v.get("name") == name]
    for container in said.containers():
        mounts = said.get(f"{container}.volumeMounts") or ()
        paths += [
            f"{container}.volumeMounts[{n}]" for n, m in enumerate(mounts) if m.get("name") == name
        ]
    return said.remove(*paths)


def _count(said: Said) -> Edits:
    resources = f"{said.container}.resources"
    return [
        Edit("set", f"{resources}.limits[{said[1]}]", int(said[2])),
        Edit("remove", f"{resources}.requests[{said[1]}]"),
    ]


def _selection(said: Said) -> Edits:
    return said.remove(f"{said.pod}.nodeSelector", f"{said.pod}.affinity")


def _removal(said: Said) -> Edits:
    """Remove the field of the finding, and the fields of the Pod that the text names."""
    paths = [said.path] if _removable(said.path) else []
    text = said[0]
    paths += [f"{said.pod}.{f}" for f in re.findall(r"\bhost(?:Network|PID|IPC)\b", text)]
    if "hostPort" in text:
        ports = (
            (c, n) for c in said.containers() for n, _ in enumerate(said.get(f"{c}.ports") or ())
        )
        paths += [f"{c}.ports[{n}].hostPort" for c, n in ports]
    if any("capabilities" in path or "seLinux" in path for path in paths):
        return None
    return said.remove(*dict.fromkeys(paths))


def _removable(path: str) -> bool:
    return not re.search(r"(containers|volumes)\[\d+\]$|^spec$|\.hostPath(\.path)?$", path)


def _security(said: Said) -> Edits:
    fields, where = yaml.safe_load(said[1]), said[2]
    if where.startswith("in container"):
        places = said.containers(re.findall(r'"([^"]+)"', where))
    elif "Pod" in where:
        places = [said.pod]
    else:
        places = [said.container if _CONTAINER.fullmatch(said.path) else said.pod]
    edits = [e for place in places for e in _set(f"{place}.securityContext", fields)]
    if removed := re.match(r",? and remove ([^.]+?)(?: from.*)?$", said[3] or ""):
        names = removed[1].replace('"', "").split(" and ")
        for place, name in itertools.product(places, names):
            context = f"{place}.securityContext"
            added = said.get(f"{context}.capabilities.add") or ()
            paths = [f"{context}.capabilities.add[{n}]" for n, a in enumerate(added) if a == name]
            edits += said.remove(f"{context}.{name}", *paths) or ()
    return edits or None


def _set(place: str, value: Any) -> Iterator[Edit]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _set(f"{place}[{key}]", each)
    else:
        yield Edit("set", place, value)


def _beside(said: Said) -> Edits:
    """Set the field next to that of the finding, or below its path."""
    field, value = said[1], yaml.safe_load(said[2])
    base = re.sub(rf"\.?{field}(\..*)?$", "", said.path)
    if base == said.path:
        base = f"{said.container}.securityContext"
    edits = [*_set(f"{base}.{field}", value)]
    if said[0].endswith("annotations"):
        of_pod = said.get("metadata.annotations") or {}
        names = [name for name in of_pod if "apparmor" in name]
        edits += said.remove(*(f"metadata.annotations[{name}]" for name in names)) or ()
    return edits


def _void(said: Said) -> Edits:
    """Set a variable to void: that of the finding, or a new one of the containers it names."""
    if re.search(r"\.env\[\d+\]$", said.path):
        return [Edit("set", f"{said.path}.value", "void"), Edit("remove", f"{said.path}.valueFrom")]
    containers = said.containers(re.findall(r'"([^"]+)"', said[2] or ""))
    entry = {"name": said[1], "value": "void"}
    return [Edit("append", f"{each}.env", entry) for each in containers] or None


def _move(said: Said) -> Edits:
    value = said.get(said.path)
    if value is None or not said.exists:
        return None
    return [
        Edit("set", f"{said.container}.resources.limits[{said[2] or said[1]}]", value),
        Edit("remove", said.path),
    ]


def _at(path: str, value: Any) -> Edits:
    return [Edit("set", path, value)]


FORMS: dict[str, tuple[str, Callable[[Said], Edits]]] = {
    "request": (r"(?:^|\b[Oo]therwise, |\. For a device of .*?, )[Ss]et (\S+): (\d+) under resources\.limits(?! in place)", _request),
    "request instead": (r"\b[Ss]et (\S+): (\d+) under resources\.limits in place of (?:the )?(\S+(?:: \d+| mount)?)", _request_instead),
    "count": (r"^Set (\S+): (\d+) under limits", _count),
    "selection": (r"\b[Rr]emove the (?:conflicting )?node selection\b(?!, or choose)", _selection),
    "removal": (r"\b[Rr]emove (?:the toleration|the value|the annotation\b|nodeName|runtimeClassName|priorityClassName|privileged|procMount|host\b|host(?:Network|PID|IPC|Port|Process)|[A-Z_]+_[A-Z_]+\b)[^.:]*", _removal),
    "security": (r"^Set securityContext: (\{.*?\}) (in containers? .*?|in the Pod's spec|instead)(,? and remove .*?)?(?:\.|$)", _security),
    "field": (r"^Set (runAsUser|appArmorProfile|hostUsers): (\{[^}]*\}|\w+\b)(?! in| and fsGroup)(?: and remove the annotations)?", _beside),
    "name": (r"^Rename (\S+) to (\S+)$", lambda said: [Edit("rename", said.path, said[2])]),
    "move": (r"^Move (\S+) to resources\.limits of the container(?: that uses the device)?(?:, and rename it to (\S+))?", _move),
    "void": (r"\b[Ss]et ([A-Z_]+_VISIBLE_DEVICES) to void\b(?!, or)(?: in (containers? .*))?", _void),
    "strategy": (r"^Set (\w+): (\{.*?\}) in (spec\.\S+?)\.(?: |$)", lambda said: [*_set(f"{said[3]}.{said[1]}", yaml.safe_load(said[2]))]),
    "deadline": (r"^Set (it|spec\.\S+) to (\d+) or less", lambda said: _at(said.path if said[1] == "it" else said[1], int(said[2]))),
}  # fmt: skip
"""By kind, the words of a remedy, and their edits. Those of fewer than a dozen cases are left out."""


def remedies(obj: JSON, finding: Finding, fix: Sequence[Edit]) -> Iterator[tuple[str, JSON]]:
    """Yield each remedy that can be applied without a decision of a person, and the object with it.

    ``edits`` are those of ``gpufence check --fix``. The others follow the words of the remediation.
    """
    found = {"edits": [*fix]} | {
        kind: edits_of(Said(obj, finding, match))
        for kind, (words, edits_of) in FORMS.items()
        if (match := re.search(words, finding.remediation))
    }
    for kind, edits in found.items():
        if edits and (changed := _edited(obj, edits)):
            yield kind, changed


class Followed(NamedTuple):
    """An object after what its findings say: the kinds of the remedies, and what remains to say."""

    object: JSON
    kinds: list[str]
    left: tuple[Finding, ...]


def follow(case: Case) -> Iterator[Followed]:
    """Yield the object after each remedy of each finding, and then what the findings about the rest say.

    Raises:
        AssertionError: a remedy leads to what it was about.
    """
    for finding, first in _remedies(case, case.object):
        for kind, changed in first:
            kinds, left = [kind], _remedies(case, changed)
            while step := next((step for _, steps in left for step in steps), None):
                kinds.append(step[0])
                changed, left = step[1], _remedies(case, step[1])
                assert len(kinds) < _MOST_STEPS, (kinds, left[0][0])
            said = {(each.rule, each.path, each.remediation) for each, _ in left}
            assert (finding.rule, finding.path, finding.remediation) not in said, (kind, finding)
            yield Followed(changed, kinds, tuple(each for each, _ in left))


def _remedies(case: Case, obj: JSON) -> list[tuple[Finding, Iterator[tuple[str, JSON]]]]:
    """Return the findings of a case on an object, and the remedies of each."""
    findings = case.decide(obj).findings
    fixes = case.fixes(obj, findings)
    return [(each, remedies(obj, each, fixes.get(each, ()))) for each in findings]


def _edited(obj: JSON, edits: Iterable[Edit]) -> JSON | None:
    """Return a copy with the edits as ``gpufence check --fix`` makes them; None if it makes none."""
    changes = [TextEdit(edit.kind, steps(edit.path), edit.value) for edit in edits]
    try:
        text, _ = edited(json.dumps(obj, default=str), changes)
    except CannotEditError:
        return None
    copy: JSON = json.loads(text)
    return copy
