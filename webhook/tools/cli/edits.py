"""The edits that fix a finding, if one remedy is obvious: ``gpufence check --fix`` makes them.

A rule says what is wrong and where. Which fields of a file change follows from its finding's path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from policies.advice import of_copy, of_others, of_owner
from policies.context import Context
from policies.engine import mutate_pod
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.images import known_image
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import descend, field_path, steps
from policies.kubernetes.pod import DeviceResource, Pod
from policies.kubernetes.quantity import NANOS, is_extended_resource_name, is_whole
from policies.kubernetes.scheduling import is_wildcard
from policies.policy import Policy
from policies.reach import is_daemon_set_pod
from policies.requests import ignored_annotations
from policies.rules.check_missing_shared_memory import SHARED_MEMORY
from policies.rules.check_unequal_device_limits import suggested
from policies.rules.check_unknown_device_resource import suggestion
from policies.rules.set_restricted_security_context import HOME_SIZE, homeless, homes
from policies.vocabulary import TOLERATION, visible_devices_variables
from webhook.tools.custom_resources import workload

EditKind = Literal["set", "append", "remove", "rename"]


class Edit(msgspec.Struct, frozen=True):
    """A change of one field. ``append`` adds to a list, and ``rename`` gives a key another name.

    ``path`` is as in a finding. ``value`` is parsed JSON, or the new name.
    """

    kind: EditKind
    path: str
    value: Any = None

    def __str__(self) -> str:
        match self.kind:
            case "remove":
                return f"remove {self.path}"
            case "rename":
                return f"rename {self.path} to {self.value}"
            case "append":
                return f"add {json.dumps(self.value)} to {self.path}"
        return f"set {self.path} to {json.dumps(self.value)}"


Fixes = Mapping[Finding, tuple[Edit, ...]]


class _Subject(NamedTuple):
    """A Pod as the checks judged it, and the devices as they are written."""

    pod: Pod
    context: Context
    devices: tuple[DeviceResource, ...]


def fixes(
    obj: JSONObject, policy: Policy, request: Request, facts: Facts, findings: Iterable[Finding]
) -> Fixes:
    """Return the edits of the findings on an object that have an obvious remedy."""
    found = [finding for finding in findings if finding.rule in _FIXES]
    made: dict[Finding, tuple[Edit, ...]] = {}
    for pod in workload(obj, policy).pods() if found else ():
        subject = _Subject(pod, Context.of(pod, policy, request, facts), pod.device_resources)
        mutate_pod(pod, subject.context)
        for finding in found:
            # A field that a mutation adds is not in the file.
            edits = tuple(
                edit
                for edit in _FIXES[finding.rule](finding.path, subject)
                if edit.kind in ("set", "append") or descend(obj, steps(edit.path)) is not None
            )
            if edits:
                made.setdefault(finding, edits)
    return made


def _may_mean_a_device(subject: _Subject) -> bool:
    """Return whether the author may have wanted a device, however it is written."""
    pod, context, devices = subject
    annotations = any(ignored_annotations(pod, context.policy))
    return bool(context.device_requests or devices or pod.spec.resource_claims or annotations)


def _variable(path: str, subject: _Subject) -> Iterator[Edit]:
    pod, context, _ = subject
    # A DaemonSet may monitor the GPUs of its nodes: an exemption is a remedy, too.
    is_of_others = is_daemon_set_pod(pod, context) or of_copy(pod, context) or of_owner("", pod)
    if _may_mean_a_device(subject) or is_of_others:
        return
    for container in pod.containers:
        places = [pod.at(f"{container.field}.env[{i}]") for i in range(len(container.env))]
        if path in places:
            name = container.env[places.index(path)].name
            if name in visible_devices_variables(context.policy):
                yield Edit("set", f"{path}.value", "void")
                yield Edit("remove", f"{path}.valueFrom")


def _shared_memory(path: str, subject: _Subject) -> Iterator[Edit]:
    pod = subject.pod
    if path.endswith(".emptyDir"):
        yield Edit("set", f"{path}.medium", "Memory")
    elif path in [pod.at(container.field) for container in pod.containers]:
        name = "shm"
        present = [each for each in pod.spec.volumes or () if each.get("name") == name]
        if not present:
            volume = {"name": name, "emptyDir": {"medium": "Memory"}}
            yield Edit("append", pod.at("spec.volumes"), volume)
        elif [getattr(each.get("emptyDir"), "medium", None) for each in present] != ["Memory"]:
            return
        mount = {"name": name, "mountPath": SHARED_MEMORY}
        yield Edit("append", f"{path}.volumeMounts", mount)


def _user(path: str, subject: _Subject) -> Iterator[Edit]:
    pod = subject.pod
    if path.endswith(".fsGroup"):
        yield Edit("set", f"{path}ChangePolicy", "OnRootMismatch")
    for container in pod.containers:
        if path == pod.at(f"{container.field}.image"):
            known = known_image(container.spec.image or "")
            if known and known.needs == "home" and (without := homeless(pod, [container])):
                for addition in homes(pod, without, HOME_SIZE):
                    for item in addition.value:
                        place = pod.at(field_path(addition.path))
                        yield Edit("append", place, msgspec.to_builtins(item))


def _trespass(path: str, subject: _Subject) -> Iterator[Edit]:
    pod, context, _ = subject
    for resource in pod.device_resources:
        places = [pod.at(resource.field(side)) for side in resource.quantities]
        if path in places:
            yield from (Edit("remove", place) for place in places)
    has_other_remedies = pod.kind == "DaemonSet" or of_others(TOLERATION, pod, context)
    if not (has_other_remedies or _may_mean_a_device(subject)):
        yield from _toleration(path, subject)


def _toleration(path: str, subject: _Subject) -> Iterator[Edit]:
    for index, toleration in enumerate(subject.pod.spec.tolerations or ()):
        if path == subject.pod.at(f"spec.tolerations[{index}]") and not is_wildcard(toleration):
            yield Edit("remove", path)


def _limits(path: str, subject: _Subject) -> Iterator[Edit]:
    pod, context, devices = subject
    for resource in devices:
        name, nanos = resource.name, resource.nanos
        where = pod.at(f"{resource.container.field}.resources")
        place = f"{where}.limits" if "limits" not in nanos else f"{where}.requests[{name}]"
        if path != place or not is_extended_resource_name(name):
            continue
        if all(number >= 0 and is_whole(number) for number in nanos.values()):
            count = suggested(resource, context.policy)
            if nanos.get("limits", 0) != count * NANOS:
                yield Edit("set", f"{where}.limits[{name}]", count)
            yield Edit("remove", f"{where}.requests[{name}]")


def _name(path: str, subject: _Subject) -> Iterator[Edit]:
    pod, context, devices = subject
    for resource in devices:
        places = [pod.at(resource.field(side)) for side in resource.quantities]
        name = suggestion(resource.name, context.policy)
        is_offered = any(name in pool.resources.exact for pool in context.policy.pools)
        if path in places and is_offered and name != resource.name:
            yield from (Edit("rename", place, name) for place in places)


def _rejected(path: str, subject: _Subject) -> Iterator[Edit]:
    """Remove or move what API servers reject."""
    if path.endswith(".tolerationSeconds"):
        yield Edit("remove", path)
    for index, entry in enumerate(subject.pod.spec.resource_claims or ()):
        at = subject.pod.at(f"spec.resourceClaims[{index}]")
        if path == f"{at}.source" and isinstance(entry.source, dict):
            field, name = next(iter(entry.source.items()))
            yield Edit("set", f"{at}.{field}", name)
            yield Edit("remove", path)


_FIXES: Mapping[str, Callable[[str, _Subject], Iterable[Edit]]] = {
    "device-leak": _variable,
    "missing-shared-memory": _shared_memory,
    "needs-root": _user,
    "pool-trespass": _trespass,
    "tolerated-device-taint": _toleration,
    "unequal-device-limits": _limits,
    "unknown-device-resource": _name,
    "unschedulable-gpu-pod": _rejected,
}
"""By rule, the edits for a finding's path; none if there is no obvious remedy."""
