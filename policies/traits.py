"""Traits of Pods that follow from the fields of policies, and the objects that have them.

``IN_PODS`` has an entry for each field of a policy whose change can show in Pods, and ``ELSEWHERE``
the others. A test compares both with the type of the policy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import reduce
from typing import Any

from policies.classes import (
    NAMED,
    POOL_VALUES,
    Constraint,
    selections,
    toleration_classes,
)
from policies.facts import NAMESPACE_LABEL, Facts, Request
from policies.kubernetes.claims import read_claims
from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.kubernetes.scheduling import REQUIRED, Taint
from policies.kubernetes.selector import describe
from policies.policy import ExceptionEntry, Policy, Pool, example_of
from policies.rules import check_missing_device
from policies.rules.check_pool_requirements import ANNOTATIONS, QUEUE_LABEL, seconds

_PLACED = "device, simple selection, choice"
IN_PODS: Mapping[str, str] = {
    "pools": f"{_PLACED}, simple toleration",
    "pools.resources": f"{_PLACED}, simple toleration, namespace, setting, kind, stated",
    "pools.sharedResources": _PLACED,
    "pools.fractionalResources": _PLACED,
    "pools.annotationRequests": f"{_PLACED}, simple toleration, setting, kind, stated",
    "pools.deviceClasses": f"{_PLACED}, simple toleration, namespace, setting, kind, stated",
    "pools.taints": f"{_PLACED}, toleration, setting, kind",
    "pools.nodeSelector": "device, selection, choice, simple toleration",
    "pools.matchExpressions": "device, selection, choice, simple toleration",
    "pools.runtimeClass": _PLACED,
    "pools.allowedNamespaces": f"{_PLACED}, simple toleration, namespace",
    "pools.hardening": "device, setting, kind",
    "pools.largestRequest": f"{_PLACED}, namespace",
    "pools.requires": "device, stated, namespace",
    "quarantineTaints": "device, toleration",
    "mode": "namespace",
    "hardening": "device, setting, kind, namespace",
    "rules": "namespace",
    "exemptions": "namespace, user, runtimeClass",
    "overrides": "namespace, setting, kind",
    "exceptions": "namespace, kind, name, date",
}
"""By field: the traits whose combinations show a change of it."""

ELSEWHERE: Mapping[str, str] = {
    "failurePolicy": "what API servers do while no replica answers",
    "customWorkloads": "for which custom resources API servers call gpufence, and what audits list",
    "pools.name": "names of pools in messages, metrics and reports",
    "pools.pricePerDeviceHour": "costs in audits",
    "exceptions.reason": "text of reports",
}
"""By field: what follows from it besides the decisions on Pods."""

BY_NODES = (check_missing_device.ID,)
"""The rules whose denials depend on known nodes."""

OTHER = "other"
"""A value that no policy names."""


@dataclass(frozen=True)
class Trait:
    """One answer about a Pod, and the fields that give it.

    A Pod has at most one trait of an ``aspect``. The words of a trait are ``verb`` and ``what``.
    ``patch`` is merged into the Pod. ``objects`` accompany it. ``plain`` is a simpler trait of the
    aspect. ``rank`` orders traits that differ in a number.
    """

    aspect: str
    verb: str
    what: str
    patch: JSONObject = field(default_factory=dict, compare=False)
    objects: tuple[JSONObject, ...] = field(default=(), compare=False)
    plain: Trait | None = field(default=None, compare=False)
    rank: tuple[str, int] | None = field(default=None, compare=False)
    is_simple: bool = field(default=True, compare=False)
    """Whether the trait stands for its aspect where aspects are combined."""
    user: str = ""
    day: date | None = None

    @property
    def group(self) -> str:
        """The aspect without what it is about: ``selection`` of a label."""
        return self.aspect.partition(" ")[0]


Class = frozenset[Trait]
"""The Pods with these traits, and otherwise like the plain one."""

_PLAIN: JSONObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "example"},
    "spec": {"containers": [{"name": "main", "image": "registry.example/app"}]},
}
_BY_INDEX = ("containers", "nodeSelectorTerms")


def objects_of(traits: Iterable[Trait]) -> list[JSONObject]:
    """Return the smallest object with the traits, after the objects that it needs."""
    ordered = sorted(traits, key=lambda trait: (trait.aspect == "kind", trait.aspect))
    obj = reduce(_merged, (trait.patch for trait in ordered if trait.aspect != "kind"), _PLAIN)
    namespace = obj["metadata"].get("namespace")
    beside = [other for trait in ordered for other in trait.objects]
    if namespace:
        own = {"metadata": {"namespace": namespace}}
        beside = [o if o["kind"] == "Namespace" else _merged(o, own) for o in beside]
    for kind in (trait for trait in ordered if trait.aspect == "kind"):
        obj = _in_workload(obj, kind.what)
    return [*beside, obj]


def scope_of(
    traits: Iterable[Trait], objects: list[JSONObject], runtime_classes: frozenset[str], today: date
) -> tuple[Request, Facts]:
    """Return the request that creates the last of the objects, and what the others tell."""
    namespace = objects[-1]["metadata"].get("namespace", "default")
    user = next((trait.user for trait in traits if trait.user), "")
    day = next((trait.day for trait in traits if trait.day), today)
    claims, templates, classes = read_claims((namespace, each) for each in objects[:-1])
    labels = [each["metadata"]["labels"] for each in objects[:-1] if each["kind"] == "Namespace"]
    facts = Facts(
        claims,
        templates,
        classes,
        namespace_labels={**labels[0], NAMESPACE_LABEL: namespace} if labels else None,
        runtime_classes=runtime_classes,
    )
    return Request(namespace, user, today=day), facts


def _merged(base: Any, patch: Any, key: str = "") -> Any:
    if isinstance(patch, dict):
        own = base if isinstance(base, dict) else {}
        return own | {name: _merged(own.get(name), each, name) for name, each in patch.items()}
    if isinstance(patch, list) and isinstance(base, list):
        if key in _BY_INDEX:
            return [_merged(one, other) for one, other in zip(base, patch, strict=True)]
        return [*base, *patch]
    return patch


def _in_workload(pod: JSONObject, name: str) -> JSONObject:
    """Return a workload of a built-in kind, with the Pod as its template."""
    group, path = _KINDS[name]
    labels = {"app": "example"} | pod["metadata"].get("labels", {})
    obj: Any = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    for step in reversed(path[1:]):
        obj = {step: obj}
    if name == "Deployment":
        obj["selector"] = {"matchLabels": {"app": "example"}}
    version = {"": "v1"}.get(group, f"{group}/v1")
    return {"apiVersion": version, "kind": name, "metadata": pod["metadata"], path[0]: obj}


_KINDS = {
    kind: (group, path) for (group, kind), path in CORE_WORKLOADS.items() if group != "extensions"
}

# The fields of pools.


def traits_of_pool(pool: Pool, others: Iterable[Pool] = ()) -> list[Trait]:
    """Return the traits that the fields of a pool tell apart.

    ``others`` are pools with the same devices, and other versions of the pool.
    """
    others = [other for other in others if other is not pool]
    namespaces = _namespaces_of(pool)
    return [
        *devices(pool),
        *_selections(pool, others),
        *_tolerations(pool.taints),
        *namespaces,
        *_stated(pool),
    ]


def accepted(pool: Pool) -> dict[str, Trait]:
    """Return traits, by their aspects, with which a Pod can use the pool and no other one."""
    found = {}
    if pool.selector:
        labels = {key: (*values, OTHER)[0] for key, values in pool.selector.items()}
        what = describe({key: (value,) for key, value in labels.items()})
        found["selection"] = Trait("selection", "select", what, _spec(nodeSelector=labels))
    for trait in (*_namespaces_of(pool), *_stated(pool)):
        found.setdefault(trait.aspect, trait)
    return found


def _limits(pool: Pool) -> list[int]:
    """Return the numbers of devices on both sides of the limits of the pool."""
    largest = [pool.largest_request] if pool.largest_request else []
    smallest = [entry.min_devices - 1 for entry in pool.requires if entry.min_devices]
    return sorted({2, *(n + more for n in (*largest, *smallest) for more in (0, 1))} - {0, 1})


def devices(pool: Pool) -> Iterator[Trait]:
    """Yield each way to request devices of the pool, by one and by the numbers at its limits."""
    for name in (*sorted(pool.resources.exact), *map(_example, sorted(pool.resources.prefixes))):
        patches = {n: _requesting(limits={name: n}) for n in (1, *_limits(pool))}
        yield from _numbered(name, patches)
    yield from map(_claim, sorted(pool.device_classes))
    for each in pool.annotation_requests:
        for name, count in itertools.product(each.annotations, (None, each.count_annotation)):
            for n in _limits(pool) if count else (1,):
                annotations = {name: "1"} | ({count: str(n)} if count else {})
                what = f"{name}: 1" + (f" and {count}: {n}" if count else "")
                patch = _annotated(annotations) | _spec(schedulerName=each.scheduler_name)
                yield Trait("device", "request by annotation", what, patch)
        if each.container_annotation:
            annotations = {each.annotations[0]: "1", each.container_annotation: "side"}
            side = {"name": "side", "image": "registry.example/side", "restartPolicy": "Always"}
            spec = _spec(schedulerName=each.scheduler_name, initContainers=[side])
            patch = _annotated(annotations) | spec
            what = f"{each.annotations[0]}: 1 and name a container in {each.container_annotation}"
            yield Trait("device", "request by annotation", what, patch)


def _numbered(name: str, patches: Mapping[int, JSONObject]) -> Iterator[Trait]:
    one = Trait("device", "request", f"1 {name}", patches[1], rank=(name, 1))
    yield one
    for n, patch in patches.items():
        if n != 1:
            yield Trait("device", "request", f"{n} {name}", patch, plain=one, rank=(name, n))


def _example(prefix: str) -> str:
    return example_of(prefix).replace("NAME", "x")


def _selections(pool: Pool, others: list[Pool]) -> Iterator[Trait]:
    """Yield selections of each class for each label, and of the nodes of other pools as well."""
    for key, own in pool.selector.items():
        found = {value for each in others for value in each.selector.get(key, ()) if each.selector}
        first = next((value for value in own if value not in found), own[0] if own else "a")
        second = [value for value in (*own, *sorted(found)) if value != first] or ["b"]
        names = dict(zip(POOL_VALUES, (first, second[0]), strict=True)) | {"x": OTHER}
        for constraint in selections():
            text = []
            patch: JSONObject = {}
            if constraint.label is not None:
                value = names[constraint.label]
                text.append(f"{key}={value}")
                patch = _spec(nodeSelector={key: value})
            is_simple = constraint in _SIMPLE
            expressions = []
            for each in constraint.expressions:
                values = [names[value] for value in each.values or ()]
                text.append(f"{key} {each.operator} {', '.join(values)}".rstrip())
                expressions.append({"key": key, "operator": each.operator, "values": values})
            if expressions:
                patch = _merged(patch, _affinity(expressions))
            if text:
                what = " and ".join(text)
                yield Trait(f"selection {key}", "select", what, patch, is_simple=is_simple)
        for value in {*own} - {first, second[0]}:
            patch = _spec(nodeSelector={key: value})
            yield Trait(f"selection {key}", "select", f"{key}={value}", patch)
    for other in others:
        keys = [key for key in pool.selector if pool.selector[key] != other.selector.get(key)]
        for key in keys[:1]:
            if both := sorted({*pool.selector[key], *other.selector.get(key, ())}):
                expression = {"key": key, "operator": "In", "values": both}
                what = f"{key} In {', '.join(both)}"
                patch = _affinity([expression])
                yield Trait("choice", "select", what, patch, is_simple=False)


_SIMPLE = [
    *(Constraint(value, ()) for value in NAMED),
    Constraint(None, (Requirement("key", "DoesNotExist"),)),
]


def _affinity(expressions: list[JSONObject]) -> JSONObject:
    given = [{k: v for k, v in each.items() if v} for each in expressions]
    required = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": given}]}}
    return _spec(affinity={"nodeAffinity": required})


def _tolerations(taints: Iterable[Taint]) -> Iterator[Trait]:
    for taint in taints:
        names = {"yes": taint.value or "yes", "no": OTHER}
        for each in toleration_classes():
            given = {
                "key": taint.key if each.key else None,
                "operator": each.operator,
                "value": names.get(each.value or ""),
                "effect": each.effect,
            }
            given = {name: value for name, value in given.items() if value}
            value = f"={given['value']}" if "value" in given else ""
            effect = f" with the effect {given['effect']}" if "effect" in given else ""
            what = f"{given.get('key', 'every taint')}{value}{effect}"
            is_simple = each.operator == "Exists" and not each.effect
            patch = _spec(tolerations=[given])
            yield Trait("toleration", "tolerate", what, patch, is_simple=is_simple)


def _namespaces_of(pool: Pool) -> Iterator[Trait]:
    allowed = pool.allowed_namespaces
    if allowed is None:
        return
    yield from namespaces(allowed.names)
    if not allowed.by_labels:
        return
    meeting = dict(allowed.match_labels)
    keys = {*meeting, *(each.key for each in allowed.match_expressions)}
    for each in allowed.match_expressions:
        if each.operator in ("In", "Exists"):
            meeting[each.key] = (*each.values, OTHER)[0]
    sets = [meeting, {}, *({**meeting, key: OTHER} for key in sorted(keys))]
    sets += [{k: v for k, v in meeting.items() if k != key} for key in sorted(keys)]
    sets += [
        {**meeting, each.key: value} for each in allowed.match_expressions for value in each.values
    ]
    for labels in sets:
        shown = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        obj = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": OTHER, "labels": labels},
        }
        what = f"with the labels {shown}" if labels else "without labels"
        patch = {"metadata": {"namespace": OTHER}}
        yield Trait("namespace", "in a namespace", what, patch, (obj,))


def _stated(pool: Pool) -> Iterator[Trait]:
    """Yield what a Pod states on both sides of the requirements of the pool."""
    numbers = {1, *(entry.min_devices for entry in pool.requires if entry.min_devices)}
    for entry in pool.requires:
        for key, values in entry.labels.items():
            for value in (*values, OTHER):
                yield _labeled(key, value)
        if entry.queue:
            yield _labeled(QUEUE_LABEL, "queue")
        for n in (0, 1) if entry.max_runtime else ():
            n += seconds(entry.max_runtime or "")
            patch = _spec(activeDeadlineSeconds=n)
            yield Trait("stated deadline", "run for", f"{n} s", patch, rank=("s", n))
        limits = {"cpu": entry.max_cpu_per_device, "memory": entry.max_memory_per_device}
        for (name, limit), n in itertools.product(limits.items(), sorted(numbers)):
            if limit:
                most = parse_quantity(limit) * n
                for nanos in (most, most + NANOS):
                    patch = _requesting(requests={name: f"{nanos // 10**6}m"})
                    what = f"{nanos // 10**6}m {name}"
                    yield Trait(f"stated {name}", "request", what, patch)
        for name in (*sorted(entry.priority_classes), OTHER) if entry.priority_classes else ():
            patch = _spec(priorityClassName=name)
            yield Trait("stated priority", "have the priority class", name, patch)
        if entry.do_not_disrupt:
            patch = _annotated(dict(ANNOTATIONS))
            yield Trait("stated annotations", "have", " and ".join(ANNOTATIONS), patch)
            yield Trait("stated restart", "never restart", "", _spec(restartPolicy="Never"))


def _labeled(key: str, value: str) -> Trait:
    patch = {"metadata": {"labels": {key: value}}}
    return Trait(f"stated {key}", "have the label", f"{key}={value}", patch)


# Settings that rules are about.


def settings(policy: Policy) -> Iterator[Trait]:
    """Yield settings of Pods by which rules decide, and unusual requests for a first device."""
    yield from _tolerations(policy.quarantine_taints)
    critical = "system-node-critical"
    patch = _spec(priorityClassName=critical)
    yield Trait("stated priority", "have the priority class", critical, patch)
    yield Trait("kind", "of a", "Deployment")
    for text, patch in _SETTINGS.items():
        yield Trait("setting", text, "", patch, is_simple=False)
    pool = policy.pools[0]
    one = next(devices(pool))
    if name := one.rank[0] if one.rank else "":
        sidecar = {"name": "side", "image": "registry.example/side"}
        for what, patch in {
            f"{name} without a limit": _requesting(requests={name: 1}),
            f"fewer {name} than the limit": _requesting(requests={name: 1}, limits={name: 2}),
            f"{name} in a sidecar only": _spec(
                initContainers=[{**sidecar, "resources": {"limits": {name: 1}}}]
            ),
            f"{name}x, which no pool offers": _requesting(limits={f"{name}x": 1}),
        }.items():
            yield Trait("device", "request", what, patch, plain=one)
    for device_class in sorted(pool.device_classes)[:1]:
        yield _claim(device_class, " with adminAccess", adminAccess=True)
        every = [{"operator": "Exists"}]
        yield _claim(device_class, " that tolerates every taint", tolerations=every)


def _claim(name: str, how: str = "", **more: Any) -> Trait:
    """Return the trait of a claim on a device class; one that differs from the plain one."""
    requests = [{"name": "device", "exactly": {"deviceClassName": name, **more}}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "device"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    used = {"name": "device", "resourceClaimTemplateName": "device"}
    patch = _merged(_requesting(claims=[{"name": "device"}]), _spec(resourceClaims=[used]))
    plain = _claim(name) if how else None
    return Trait("device", "request", f"a claim on {name}{how}", patch, (template,), plain)


# Namespaces, users and other names.


def namespaces(names: NameSet, taken: Iterable[str] = ()) -> Iterator[Trait]:
    """Yield each named namespace, and for each prefix one that is not named."""
    for name in sorted(names.exact):
        yield namespace(name)
    for prefix in names.prefixes:
        yield namespace(unnamed(prefix, {*names.exact, *taken}))


def namespace(name: str) -> Trait:
    return Trait("namespace", "in namespace", name, {"metadata": {"namespace": name}})


def unnamed(prefix: str, taken: Iterable[str]) -> str:
    """Return a name with the prefix that is not taken."""
    names = (f"{prefix}{n}" for n in ("x", *range(len({*taken}) + 1)))
    return next(name for name in names if name not in taken)


def user(name: str) -> Trait:
    return Trait("user", "of user", name, user=name)


def runtime_class(name: str) -> Trait:
    return Trait("runtimeClass", "have runtime class", name, _spec(runtimeClassName=name))


def excepted(entry: ExceptionEntry, today: date, taken: Iterable[str]) -> Iterator[Class]:
    """Yield the objects on both sides of an exception: kinds, names and days."""
    names = {*entry.names.exact, *(unnamed(p, entry.names.exact) for p in entry.names.prefixes)}
    for where, kind, name, is_late in itertools.product(
        namespaces(entry.namespaces, taken),
        sorted(entry.kinds & _KINDS.keys()) or (None,),
        sorted(names) or (None,),
        (False, True) if entry.expires and entry.expires > today else (False,),
    ):
        found = {where}
        if kind:
            found.add(Trait("kind", "of a", kind))
        if name:
            found.add(Trait("name", "have the name", name, {"metadata": {"name": name}}))
        if is_late:
            found.add(Trait("date", "from", f"{entry.expires} on", day=entry.expires))
        yield frozenset(found)


def _spec(**fields: Any) -> JSONObject:
    return {"spec": fields}


def _container(**fields: Any) -> JSONObject:
    return {"spec": {"containers": [fields]}}


def _requesting(**sides: Any) -> JSONObject:
    return _container(resources=sides)


def _annotated(annotations: Mapping[str, str]) -> JSONObject:
    return {"metadata": {"annotations": dict(annotations)}}


_SETTINGS: Mapping[str, JSONObject] = {
    "run privileged": _container(securityContext={"privileged": True}),
    "run as root": _spec(securityContext={"runAsUser": 0}),
    "run as user 1000": _spec(securityContext={"runAsUser": 1000, "runAsNonRoot": True}),
    "use the host's network": _spec(hostNetwork=True),
    "add SYS_ADMIN": _container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    "allow privilege escalation": _container(securityContext={"allowPrivilegeEscalation": True}),
    "set hostUsers: true": _spec(hostUsers=True),
    "mount /dev of the node": _merged(
        _spec(volumes=[{"name": "dev", "hostPath": {"path": "/dev"}}]),
        _container(volumeMounts=[{"name": "dev", "mountPath": "/dev"}]),
    ),
    "run an image that needs root": _container(image="ollama/ollama"),
    "run an image that needs shared memory": _container(image="nvcr.io/nvidia/pytorch:26.01"),
} | {
    f"set {name}: all": _container(env=[{"name": name, "value": "all"}])
    for name in ("NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES")
}
