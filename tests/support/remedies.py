"""Remediations applied to a manifest as they are written: the edits of a finding, and its text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import yaml

from policies.decision import Decision
from policies.finding import Edit, Finding
from policies.kubernetes.editor import clone
from policies.kubernetes.paths import descend, steps

JSON = dict[str, Any]
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
    named = re.fullmatch(r"(\S+/\S+?)(?:: \d+)?", said[3])
    if named is None:
        return [
            *edits,
            *(said.remove(re.sub(r"(\.volumeMounts\[\d+\]).*", r"\1", said.path)) or ()),
        ]
    sides = (f"{said.container}.resources.{side}[{named[1]}]" for side in ("limits", "requests"))
    return [*edits, *(said.remove(*sides) or ())]


def _request_for_volume(said: Said) -> Edits:
    name = descend(said.obj, steps(re.sub(r"(.*\[\d+\]).*", r"\1", said.path)))["name"]
    return [*(_without_volume(said, name) or ()), *(_request(said) or ())]


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


def _from_list(said: Said) -> Edits:
    names, key = re.findall(r'"([^"]+)"', said[1]), said[2]
    if key == "sysctls":
        lists = {f"{said.pod}.securityContext.sysctls"}
    else:
        lists = {f"{c}.securityContext.capabilities.add" for c in said.containers()}
    paths = [
        f"{path}[{n}]"
        for path in lists
        for n, each in enumerate(said.get(path) or ())
        if (each if isinstance(each, str) else each.get("name")) in names
    ]
    return said.remove(*paths)


def _from_selinux(said: Said) -> Edits:
    return said.remove(*(f"{said.path.rpartition('.')[0]}.{f}" for f in said[1].split(" and ")))


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


def _volume_source(said: Said) -> Edits:
    """Replace the path of the node: the API server accepts only one source."""
    place = said.path.split(".hostPath")[0]
    if place == said.path:
        return None
    source = yaml.safe_load(f"{{{said[1]}: {said[2].replace('NAME', 'data')}}}")
    return [Edit("remove", f"{place}.hostPath"), *_set(place, source)]


def _move(said: Said) -> Edits:
    value = said.get(said.path)
    if value is None or not said.exists:
        return None
    return [
        Edit("set", f"{said.container}.resources.limits[{said[2] or said[1]}]", value),
        Edit("remove", said.path),
    ]


def _node_selector(said: Said) -> Edits:
    edits = _selection(said) if "conflicting" in said[0] else []
    return [*(edits or ()), *_set(f"{said.pod}.nodeSelector", yaml.safe_load(said[1]))]


def _exclusion(said: Said) -> Edits:
    terms = (
        f"{said.pod}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms"
    )
    expressions = [yaml.safe_load(each) for each in re.findall(r"\{[^{}]*\}", said[1])]
    if not (written := said.get(terms)):
        return [Edit("set", terms, [{"matchExpressions": expressions}])]
    return [
        Edit("append", f"{terms}[{n}].matchExpressions", each)
        for n, _ in enumerate(written)
        for each in expressions
    ]


def _annotations(said: Said) -> Edits:
    return [
        Edit("set", f"{said.path}[{key}]", value)
        for key, value in re.findall(r'(\S+): "(\w+)"', said[1])
    ]


def _named_claim(said: Said) -> Edits:
    return [Edit("append", f"{said.pod}.containers[0].resources.claims", {"name": said[1]})]


def _whole_claim(said: Said) -> Edits:
    for container in said.containers():
        for number, entry in enumerate(said.get(f"{container}.resources.claims") or ()):
            if entry.get("name") == said[1]:
                return said.remove(f"{container}.resources.claims[{number}].request")
    return None


def _at(path: str, value: Any) -> Edits:
    return [Edit("set", path, value)]


def _visible(said: Said) -> Edits:
    env = said.get(f"{said.container}.env") or []
    kept = [each for each in env if each.get("name") != said[1]]
    return _at(f"{said.container}.env", [*kept, {"name": said[1], "value": "void"}])


FORMS: dict[str, tuple[str, Callable[[Said], Edits]]] = {
    "request": (r"(?:^|\b[Oo]therwise, |\. For a device of .*?, )[Ss]et (\S+): (\d+) under resources\.limits(?! (?:in place|unless))", _request),
    "request instead": (r"\b[Ss]et (\S+): (\d+) under resources\.limits in place of (?:the )?(\S+(?:: \d+| mount)?)", _request_instead),
    "request for a volume": (r"^Remove the volume, and set (\S+): (\d+) under resources\.limits", _request_for_volume),
    "count": (r"^Set (\S+): (\d+) under limits", _count),
    "number": (r"^Request (\d+) or fewer, or", lambda said: _at(said.path, said[1]) if said.path.endswith("]") and "resources" in said.path else None),
    "quantity": (r"^Set (\S+/\S+): (\d+), or remove \1", lambda said: _at(said.path, said[2])),
    "selection": (r"\b[Rr]emove the (?:conflicting )?node selection\b(?!, or choose)", _selection),
    "removal": (r"\b[Rr]emove (?:the toleration|the value|the annotation\b|nodeName|runtimeClassName|priorityClassName|privileged|procMount|host\b|host(?:Network|PID|IPC|Port|Process)|[A-Z_]+_[A-Z_]+\b)[^.:]*", _removal),
    "list": (r'^Remove ("\S+"(?:(?:, | and )"\S+")*) from (capabilities\.add|sysctls)', _from_list),
    "SELinux": (r"^Remove ([a-z and]+) from seLinuxOptions", _from_selinux),
    "security": (r"^Set securityContext: (\{.*?\}) (in containers? .*?|in the Pod's spec|instead)(,? and remove .*?)?(?:\.|$)", _security),
    "field": (r"^Set (runAsUser|appArmorProfile|hostUsers): (\{[^}]*\}|\w+\b)(?! in| and fsGroup)(?: and remove the annotations)?", _beside),
    "volume source": (r"(?:^|; )[Ff]or (?:data, use|shared memory, set volumes: \[{name: shm,) (persistentVolumeClaim|emptyDir): (\{[^{}]*\})", _volume_source),
    "volume": (r"^Remove the volume of devices", lambda said: _without_volume(said, said.get(said.path.split(".hostPath")[0])["name"])),
    "name": (r"^Rename (\S+) to (\S+)$", lambda said: [Edit("rename", said.path, said[2])]),
    "move": (r"^Move (\S+) to resources\.limits of the container(?: that uses the device)?(?:, and rename it to (\S+))?", _move),
    "toleration": (r"^Add (\{.*?\}) to tolerations of the template", lambda said: [Edit("append", said.path, yaml.safe_load(said[1]))]),
    "pool": (r"(?:^Remove the conflicting node selection, or c|^C)hoose a pool: set nodeSelector: (\{.*?\})", _node_selector),
    "exclusion": (r"\bexclude GPU nodes with (.*) in every term", _exclusion),
    "strategy": (r"^Set (\w+): (\{.*?\}) in (spec\.\S+?)\.(?: |$)", lambda said: [*_set(f"{said[3]}.{said[1]}", yaml.safe_load(said[2]))]),
    "deadline": (r"^Set (it|spec\.\S+) to (\d+) or less", lambda said: _at(said.path if said[1] == "it" else said[1], int(said[2]))),
    "annotations": (r"^Add the annotations (.*)", _annotations),
    "class": (r"^Set priorityClassName to .*, or remove it", lambda said: said.remove(said.path)),
    "claim": (r"^Add name: (\S+) to resources\.claims", _named_claim),
    "request of a claim": (r"^Remove request from the entry name: (\S+) in resources\.claims", _whole_claim),
    "device": (r"^Add (\S+): (\d+) to the limits of the container", _request),
    "variable": (r"^(?:Set|Add) ([A-Z_]+) (?:to|with value) void", _visible),
    "group": (r"^Set fsGroup to a group ID, and fsGroupChangePolicy: OnRootMismatch, in (?:the Pod's securityContext|(\S+?))\. ", lambda said: [*_set(said[1] or f"{said.pod}.securityContext", {"fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch"})]),
    "read-only": (r"\bset readOnly: true for the mount", lambda said: _at(f"{said.path}.readOnly", True)),
    "user": (r"^Set ((?:runAsUser|fsGroup): \d+)(?: and (fsGroup: \d+))? in the Pod's securityContext", lambda said: [e for each in filter(None, said.match.groups()) for e in _set(f"{said.pod}.securityContext", yaml.safe_load(each))]),
}  # fmt: skip
"""By kind, the words of a remedy, and their edits."""


def remedies(obj: JSON, finding: Finding) -> Iterator[tuple[str, JSON]]:
    """Yield each remedy that can be applied without a decision of a person, and the object with it.

    ``edits`` are those of ``gpufence check --fix``. The others follow the words of the remediation.
    """
    if finding.fix:
        yield "edits", _edited(obj, finding.fix)
    for kind, (words, edits_of) in FORMS.items():
        if match := re.search(words, finding.remediation):
            edits = edits_of(Said(obj, finding, match))
            if edits:
                yield kind, _edited(obj, edits)


class Followed(NamedTuple):
    """An object after what its findings say: the kinds of the remedies, and what remains to say."""

    object: JSON
    kinds: list[str]
    left: tuple[Finding, ...]


def follow(obj: JSON, decide: Callable[[JSON], Decision]) -> Iterator[Followed]:
    """Yield the object after each remedy of each finding, and then what the findings about the rest say.

    Raises:
        AssertionError: a remedy leads to what it was about.
    """
    for finding in decide(obj).findings:
        for kind, edited in remedies(obj, finding):
            kinds, left = [kind], decide(edited).findings
            while step := next((r for each in left for r in remedies(edited, each)), None):
                kinds.append(step[0])
                edited, left = step[1], decide(step[1]).findings
                assert len(kinds) < _MOST_STEPS, (kinds, left[0])
            said = {(each.rule, each.path, each.remediation) for each in left}
            assert (finding.rule, finding.path, finding.remediation) not in said, (kind, finding)
            yield Followed(edited, kinds, tuple(left))


def _edited(obj: JSON, edits: Iterable[Edit]) -> JSON:
    """Return a copy with the edits; removals of list entries come last, from the end."""
    copy: JSON = clone(obj)
    removals = []
    for edit in edits:
        if edit.kind == "remove":
            removals.append(edit)
        else:
            _apply(copy, edit)
    for edit in sorted(removals, key=lambda edit: _indexes(edit.path), reverse=True):
        _apply(copy, edit)
    return copy


def _indexes(path: str) -> list[tuple[int, str]]:
    return [(int(step) if step.isdecimal() else -1, step) for step in steps(path)]


def _apply(obj: JSON, edit: Edit) -> None:
    *above, last = steps(edit.path)
    parent = _created(obj, above) if edit.kind in ("set", "append") else descend(obj, above)
    if parent is None:
        return
    key: Any = int(last) if isinstance(parent, list) else last
    match edit.kind:
        case "set":
            parent[key] = edit.value
        case "append":
            parent[key] = [*(parent.get(key) or []), edit.value]
        case "remove" if key in parent if isinstance(parent, dict) else key < len(parent):
            del parent[key]
        case "rename" if key in parent:
            parent[edit.value] = parent.pop(key)


def _created(obj: JSON, path: list[str]) -> Any:
    """Return the value at a path, in which mappings that are absent are created."""
    for index, step in enumerate(path):
        above = descend(obj, path[:index])
        if isinstance(above, dict) and above.get(step) is None:
            above[step] = {}
    return descend(obj, path)
