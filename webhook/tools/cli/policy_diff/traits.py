"""Traits of Pods: the values at which the fields of a policy count.

A field counts at few values of a Pod: at the names that it lists and one other, and on both sides
of its limit. A trait stands for one of these values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.kubernetes.scheduling import REQUIRED, Taint
from policies.policy import AllowedNamespaces, AnnotationRequest, Pool, example_of
from policies.rules.check_pool_requirements import ANNOTATIONS, QUEUE_LABEL, seconds
from webhook.tools.custom_resources.merging import merge

OTHER = "other"
"""A value that no policy names."""

KINDS = {
    kind: (group, path) for (group, kind), path in CORE_WORKLOADS.items() if group != "extensions"
}

_EFFECTS = (None, "NoSchedule", "NoExecute", "PreferNoSchedule")


@dataclass(frozen=True)
class Trait:
    """A value of one aspect of Pods. A Pod has at most one trait of an aspect.

    The ``words`` have ``{}`` in place of the value. ``patch`` is merged into the Pod. ``beside``
    is an object that the Pod needs. ``request`` are fields of the request that creates it.
    ``plain`` is a more usual trait of the aspect.
    """

    aspect: str
    words: str
    value: str = ""
    patch: JSONObject = field(default_factory=dict, compare=False)
    beside: JSONObject | None = field(default=None, compare=False)
    request: Mapping[str, Any] = field(default_factory=dict, compare=False)
    plain: Trait | None = field(default=None, compare=False)

    @property
    def about(self) -> str:
        """The aspect without a name: ``selection`` for the selection of a label."""
        return self.aspect.partition(" ")[0]

    @property
    def namespace(self) -> str:
        return str(self.patch["metadata"]["namespace"])


def objects_of(traits: Iterable[Trait], namespace: str = "default") -> list[JSONObject]:
    """Return the smallest object with the traits, after the objects that it needs.

    It is in ``namespace`` unless a trait says otherwise.
    """
    ordered = sorted(traits, key=lambda trait: trait.aspect)
    plain = _PLAIN if namespace == "default" else merge(_PLAIN, _metadata(namespace=namespace))
    pod = reduce(merge, (trait.patch for trait in ordered), plain)
    where = {name: value for name, value in pod["metadata"].items() if name == "namespace"}
    beside = [merge({"metadata": where}, trait.beside) for trait in ordered if trait.beside]
    return [*beside, pod if pod["kind"] == "Pod" else _workload(pod)]


_PLAIN: JSONObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "example"},
    "spec": {"containers": [{"name": "main", "image": "registry.example/app"}]},
}


def _workload(pod: JSONObject) -> JSONObject:
    """Return the workload of the Pod's kind with the Pod as its template."""
    group, path = KINDS[pod["kind"]]
    labels = {"app": "example"} | pod["metadata"].get("labels", {})
    obj: Any = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    for step in reversed(path[1:]):
        obj = {step: obj}
    if pod["kind"] == "Deployment":
        obj["selector"] = {"matchLabels": {"app": "example"}}
    version = f"{group}/v1" if group else "v1"
    return {**pod, "apiVersion": version, path[0]: obj}


FIELDS = {
    "device": {
        *("resources", "sharedResources", "fractionalResources", "annotationRequests"),
        *("deviceClasses", "largestRequest"),
    },
    "toleration": {"taints", "quarantineTaints"},
    "selection": {"nodeSelector", "matchExpressions"},
    "namespace": {"allowedNamespaces"},
    "stated": {"requires"},
    "setting": {"hardening"},
}
"""By aspect: the fields whose changes show in the traits of this aspect."""


def traits_of(pool: Pool, others: Sequence[Pool], namespaces: Sequence[Trait]) -> Iterator[Trait]:
    """Yield the traits at which the fields of the pool count; the accepted ones come first.

    ``others`` are the pools with the same devices, and other versions of the pool.
    """
    yield from _devices(pool)
    yield from tolerations(pool.taints)
    yield from _selections(pool, others)
    if allowed := pool.allowed_namespaces:
        yield from (trait for trait in namespaces if trait.namespace in allowed.names)
        yield from _labeled_namespaces(allowed) if allowed.by_labels else ()
    yield from namespaces
    yield from _stated(pool)


def _devices(pool: Pool) -> Iterator[Trait]:
    """Yield each way to request devices, with the numbers on both sides of the pool's limits."""
    limits = [pool.largest_request or 1, *(entry.min_devices or 1 for entry in pool.requires)]
    least = max((entry.min_devices or 1 for entry in pool.requires), default=1)
    numbers = {1, 2, *(n + more for n in limits for more in (-1, 0, 1))} - {0}
    counts = sorted(numbers, key=lambda n: (n < least, n))
    names = [*sorted(pool.resources.exact)]
    names += [example_of(prefix).replace("NAME", "x") for prefix in sorted(pool.resources.prefixes)]
    for name in names:
        one = Trait("device", "request {}", f"1 {name}", _resources(limits={name: 1}))
        for n in counts:
            yield replace(one, value=f"{n} {name}", patch=_resources(limits={name: n}), plain=one)
        if name != names[0]:
            continue
        side = {"name": "side", "image": "registry.example/side"}
        for what, patch in {
            f"{name} without a limit": _resources(requests={name: 1}),
            f"fewer {name} than the limit": _resources(requests={name: 1}, limits={name: 2}),
            f"{name} in a sidecar only": _spec(
                initContainers=[{**side, "resources": {"limits": {name: 1}}}]
            ),
            f"{name}x, which no pool offers": _resources(limits={f"{name}x": 1}),
        }.items():
            yield Trait("device", "request {}", what, patch, plain=one)
    for name in sorted(pool.device_classes):
        yield (plain := _claim(name))
        yield _claim(name, " with adminAccess", plain, adminAccess=True)
        every = [{"operator": "Exists"}]
        yield _claim(name, " that tolerates every taint", plain, tolerations=every)
    for request in pool.annotation_requests:
        yield from _annotated(request, counts)


def _claim(name: str, how: str = "", plain: Trait | None = None, **more: Any) -> Trait:
    requests = [{"name": "device", "exactly": {"deviceClassName": name, **more}}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "device"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    used = [{"name": "device", "resourceClaimTemplateName": "device"}]
    patch = merge(_resources(claims=[{"name": "device"}]), _spec(resourceClaims=used))
    return Trait("device", "request {}", f"a claim on {name}{how}", patch, template, plain=plain)


def _annotated(request: AnnotationRequest, counts: Iterable[int]) -> Iterator[Trait]:
    side = {"name": "side", "image": "registry.example/side", "restartPolicy": "Always"}
    first = {request.annotations[0]: "1"}
    ways = [{name: "1"} for name in request.annotations]
    if request.count_annotation:
        ways += [{**first, request.count_annotation: str(n)} for n in counts]
    if request.container_annotation:
        ways.append({**first, request.container_annotation: "side"})
    plain = None
    for way in ways:
        spec: JSONObject = {"schedulerName": request.scheduler_name}
        spec |= {"initContainers": [side]} if "side" in way.values() else {}
        what = " and ".join(f"{name}: {value}" for name, value in way.items())
        patch = {"metadata": {"annotations": way}, "spec": spec}
        trait = Trait("device", "request {}", f"a device by {what}", patch, plain=plain)
        plain = plain or trait
        yield trait


def _selections(pool: Pool, others: Iterable[Pool]) -> Iterator[Trait]:
    """Yield the selections of one label: each operator, with own and other values."""
    for key, own in pool.selector.items():
        aspect = f"selection {key}"
        known = [(each.name, each.selector.get(key, ())) for each in others]
        versions = [value for name, values in known if name == pool.name for value in values]
        # The values of all other pools are alike for this one.
        foreign = [value for _, values in known for value in values if value not in versions]
        values = list(dict.fromkeys([*own, *versions, *foreign[:1], OTHER]))
        for value in values:
            patch = _spec(nodeSelector={key: value})
            yield Trait(aspect, "select {}", f"{key}={value}", patch)
        some = {values[0], values[1 if len(values) > 2 else 0], OTHER}
        lists = itertools.chain(*(itertools.combinations(sorted(some), n) for n in (1, 2, 3)))
        expressions = [
            *itertools.product(("In", "NotIn"), lists),
            ("Exists", ()),
            ("DoesNotExist", ()),
        ]
        for operator, listed in expressions:
            expression = {"key": key, "operator": operator} | (
                {"values": [*listed]} if listed else {}
            )
            required = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
            what = f"{key} {operator} {', '.join(listed)}".rstrip()
            patch = _spec(affinity={"nodeAffinity": required})
            yield Trait(aspect, "select {}", what, patch)


def tolerations(taints: Iterable[Taint]) -> Iterator[Trait]:
    """Yield the tolerations that each taint tells apart."""
    for taint in taints:
        for key, value, effect in itertools.product(
            (taint.key, None), (None, taint.value or "yes", OTHER), _EFFECTS
        ):
            if key or not value:
                operator = "Equal" if value else "Exists"
                given = {"key": key, "operator": operator, "value": value, "effect": effect}
                given = {name: each for name, each in given.items() if each}
                what = f"{key or 'every taint'}{f'={value}' if value else ''}"
                what += f" with the effect {effect}" if effect else ""
                patch = _spec(tolerations=[given])
                yield Trait("toleration", "tolerate {}", what, patch)


def _labeled_namespaces(allowed: AllowedNamespaces) -> Iterator[Trait]:
    """Yield namespaces that meet the label selector, or fail to meet it in one label."""
    values = {key: [value] for key, value in allowed.match_labels.items()}
    meeting = dict(allowed.match_labels)
    for each in allowed.match_expressions:
        values.setdefault(each.key, []).extend(each.values)
        if each.operator in ("In", "Exists"):
            meeting[each.key] = (*each.values, OTHER)[0]
    sets = [meeting, {}]
    for key, own in values.items():
        sets += [{**meeting, key: value} for value in (*own, OTHER)]
        sets.append({name: value for name, value in meeting.items() if name != key})
    for labels in sets:
        shown = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        what = f"with the labels {shown}" if labels else "without labels"
        metadata = {"name": OTHER, "labels": labels}
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        yield Trait("namespace", "in a namespace {}", what, _metadata(namespace=OTHER), obj)


def _stated(pool: Pool) -> Iterator[Trait]:
    """Yield what a Pod can state for the requirements of the pool."""
    numbers = sorted({1, *(entry.min_devices or 1 for entry in pool.requires)})
    for entry in pool.requires:
        labels = {key: (*values, OTHER) for key, values in entry.labels.items()}
        if entry.queue:
            labels[QUEUE_LABEL] = ("queue",)
        for key, values in labels.items():
            for value in values:
                patch = _metadata(labels={key: value})
                yield Trait(f"stated {key}", "have the label {}", f"{key}={value}", patch)
        for n in (0, 1) if entry.max_runtime else ():
            n += seconds(entry.max_runtime or "")
            patch = _spec(activeDeadlineSeconds=n)
            yield Trait("stated deadline", "run for {} s", str(n), patch)
        limits = {"cpu": entry.max_cpu_per_device, "memory": entry.max_memory_per_device}
        for (name, limit), n, more in itertools.product(limits.items(), numbers, (0, NANOS)):
            if limit:
                amount = f"{(parse_quantity(limit) * n + more) // 10**6}m"
                patch = _resources(requests={name: amount})
                yield Trait(f"stated {name}", "request {}", f"{amount} {name}", patch)
        for name in (*sorted(entry.priority_classes), OTHER) if entry.priority_classes else ():
            yield _priority(name)
        if entry.do_not_disrupt:
            what = " and ".join(ANNOTATIONS)
            patch = _metadata(annotations=dict(ANNOTATIONS))
            yield Trait("stated annotations", "have {}", what, patch)
            yield Trait("stated restart", "never restart", "", _spec(restartPolicy="Never"))


def _priority(name: str) -> Trait:
    patch = _spec(priorityClassName=name)
    return Trait("stated priority", "have the priority class {}", name, patch)


def kind(name: str) -> Trait:
    return Trait("kind", "of a {}", name, {"kind": name})


def _metadata(**fields: Any) -> JSONObject:
    return {"metadata": fields}


def _spec(**fields: Any) -> JSONObject:
    return {"spec": fields}


def _container(**fields: Any) -> JSONObject:
    return _spec(containers=[{"name": "main", **fields}])


def _resources(**sides: Any) -> JSONObject:
    return _container(resources=sides)


def settings() -> list[Trait]:
    """Return settings by which rules decide, whatever the policy names."""
    text = Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8")
    known = yaml.safe_load(text)
    found = [Trait("setting", "{}", what, {"spec": spec}) for what, spec in known.items()]
    return [*found, kind("Deployment"), _priority("system-node-critical")]
