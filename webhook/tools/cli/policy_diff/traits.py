"""Traits of Pods: the values at which the fields of a policy count.

A field counts at few values of a Pod: at the names that it lists and one other, and on both sides
of its limit. A trait stands for one of these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, combinations, product
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
_PLAIN: JSONObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "example"},
    "spec": {"containers": [{"name": "main", "image": "registry.example/app"}]},
}
_SIDECAR = {"name": "side", "image": "registry.example/side"}

NEXT_TO_NOUN = ("namespace", "user", "kind")
"""The aspects whose words follow "Pods"; those of the others follow "Pods that"."""


@dataclass(frozen=True)
class Trait:
    """A value of one aspect of Pods. A Pod has at most one trait of an aspect.

    ``words`` and ``value`` are its text. ``patch`` is merged into the Pod. ``beside`` is an object
    that the Pod needs. ``username`` is the user who creates it. ``plain`` is a more usual trait of
    the aspect.
    """

    aspect: str
    words: str
    value: str = ""
    patch: JSONObject = field(default_factory=dict, compare=False)
    beside: JSONObject | None = field(default=None, compare=False)
    username: str = field(default="", compare=False)
    plain: Trait | None = field(default=None, compare=False)

    @property
    def namespace(self) -> str:
        return str(self.patch["metadata"]["namespace"])


def objects_of(traits: Iterable[Trait], namespace: str = "default") -> list[JSONObject]:
    """Return the smallest object with the traits, after the objects that it needs.

    It is in ``namespace`` unless a trait says otherwise.
    """
    ordered = sorted(traits, key=lambda trait: trait.aspect)
    plain = _PLAIN if namespace == "default" else merge(_PLAIN, metadata(namespace=namespace))
    pod = reduce(merge, (trait.patch for trait in ordered), plain)
    where = {name: value for name, value in pod["metadata"].items() if name == "namespace"}
    beside = [merge({"metadata": where}, trait.beside) for trait in ordered if trait.beside]
    return [*beside, pod if pod["kind"] == "Pod" else _workload(pod)]


def _workload(pod: JSONObject) -> JSONObject:
    """Return the workload of the Pod's kind with the Pod as its template."""
    group, path = KINDS[pod["kind"]]
    labels = {"app": "example"} | pod["metadata"].get("labels", {})
    obj: Any = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    for step in reversed(path[1:]):
        obj = {step: obj}
    if pod["kind"] == "Deployment":
        obj["selector"] = {"matchLabels": {"app": "example"}}
    return {**pod, "apiVersion": f"{group}/v1" if group else "v1", path[0]: obj}


def traits_of(pool: Pool, others: Sequence[Pool], namespaces: Sequence[Trait]) -> Iterator[Trait]:
    """Yield the traits at which the fields of the pool count.

    The first one of an aspect is one that the pool accepts, except for tolerations. ``others`` are
    the pools with the same devices, and other versions of the pool.
    """
    yield from _devices(pool)
    yield from tolerations(pool.taints)
    yield from _selections(pool, others)
    yield from _stated(pool)
    if allowed := pool.allowed_namespaces:
        yield from (trait for trait in namespaces if trait.namespace in allowed.names)
        yield from _labeled_namespaces(allowed) if allowed.by_labels else ()


def _devices(pool: Pool) -> Iterator[Trait]:
    """Yield each way to request devices, with the numbers on both sides of the pool's limits."""
    least = max((entry.min_devices or 1 for entry in pool.requires), default=1)
    limits = [pool.largest_request or 1, *(entry.min_devices or 1 for entry in pool.requires)]
    numbers = {1, 2, *(n + more for n in limits for more in (-1, 0, 1))} - {0}
    counts = sorted(numbers, key=lambda n: (n < least, n))
    names = [*sorted(pool.resources.exact)]
    names += [example_of(prefix).replace("NAME", "x") for prefix in sorted(pool.resources.prefixes)]
    for name in names:
        one = _device(f"1 {name}", _resources(limits={name: 1}))
        for n in counts:
            yield _device(f"{n} {name}", _resources(limits={name: n}), one)
    for name in names[:1]:
        one = _device(f"1 {name}", _resources(limits={name: 1}))
        yield _device(f"{name} without a limit", _resources(requests={name: 1}), one)
        both = _resources(requests={name: 1}, limits={name: 2})
        yield _device(f"fewer {name} than the limit", both, one)
        side = spec(initContainers=[{**_SIDECAR, "resources": {"limits": {name: 1}}}])
        yield _device(f"{name} in a sidecar only", side, one)
        yield _device(f"{name}x, which no pool offers", _resources(limits={f"{name}x": 1}), one)
    for name in sorted(pool.device_classes):
        yield (plain := _claim(name))
        yield _claim(name, " with adminAccess", plain, adminAccess=True)
        every = [{"operator": "Exists"}]
        yield _claim(name, " that tolerates every taint", plain, tolerations=every)
    for request in pool.annotation_requests:
        yield from _annotated(request, counts)


def _device(what: str, patch: JSONObject, plain: Trait | None = None) -> Trait:
    return Trait("device", "request", what, patch, plain=plain)


def _claim(name: str, how: str = "", plain: Trait | None = None, **more: Any) -> Trait:
    requests = [{"name": "device", "exactly": {"deviceClassName": name, **more}}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "device"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    used = [{"name": "device", "resourceClaimTemplateName": "device"}]
    patch = merge(_resources(claims=[{"name": "device"}]), spec(resourceClaims=used))
    return replace(_device(f"a claim on {name}{how}", patch, plain), beside=template)


def _annotated(request: AnnotationRequest, counts: Iterable[int]) -> Iterator[Trait]:
    first = {request.annotations[0]: "1"}
    ways = [{name: "1"} for name in request.annotations]
    if request.count_annotation:
        ways += [{**first, request.count_annotation: str(n)} for n in counts]
    if request.container_annotation:
        ways.append({**first, request.container_annotation: "side"})
    plain = None
    for way in ways:
        side = {"initContainers": [{**_SIDECAR, "restartPolicy": "Always"}]}
        more = side if "side" in way.values() else {}
        patch = spec(schedulerName=request.scheduler_name, **more)
        what = " and ".join(f"{name}: {value}" for name, value in way.items())
        trait = _device(f"a device by {what}", {**patch, **metadata(annotations=way)}, plain)
        plain = plain or trait
        yield trait


def _selections(pool: Pool, others: Iterable[Pool]) -> Iterator[Trait]:
    """Yield the selections of one label: each operator, with own and other values."""
    for key, own in pool.selector.items():
        known = [(each.name, each.selector.get(key, ())) for each in others]
        versions = [value for name, values in known if name == pool.name for value in values]
        # The values of all other pools are alike for this one.
        foreign = [value for _, values in known for value in values if value not in versions]
        values = list(dict.fromkeys([*own, *versions, *foreign[:1], OTHER]))
        some = sorted({values[0], values[1 if len(values) > 2 else 0], OTHER})
        lists = [*chain(*(combinations(some, n) for n in (1, 2, 3)))]
        ways = {f"{key}={value}": spec(nodeSelector={key: value}) for value in values}
        for operator, listed in (
            *product(("In", "NotIn"), lists),
            ("Exists", ()),
            ("DoesNotExist", ()),
        ):
            expression: JSONObject = {"key": key, "operator": operator}
            expression |= {"values": [*listed]} if listed else {}
            term = {"matchExpressions": [expression]}
            required = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
            ways[f"{key} {operator} {', '.join(listed)}".rstrip()] = spec(affinity=required)
        yield from (Trait(f"selection {key}", "select", *way) for way in ways.items())


def tolerations(taints: Iterable[Taint]) -> Iterator[Trait]:
    """Yield the tolerations that each taint tells apart."""
    effects = (None, "NoSchedule", "NoExecute", "PreferNoSchedule")
    for taint in taints:
        values = None, taint.value or "yes", OTHER
        for key, value, effect in product((taint.key, None), values, effects):
            if key or not value:
                operator = "Equal" if value else "Exists"
                given = {"key": key, "operator": operator, "value": value, "effect": effect}
                what = f"{key or 'every taint'}{f'={value}' if value else ''}"
                what += f" with the effect {effect}" if effect else ""
                patch = spec(tolerations=[{name: each for name, each in given.items() if each}])
                yield Trait("toleration", "tolerate", what, patch)


def _labeled_namespaces(allowed: AllowedNamespaces) -> Iterator[Trait]:
    """Yield namespaces with and without each label of the selector; those that meet it first."""
    values = {key: [value] for key, value in allowed.match_labels.items()}
    for each in allowed.match_expressions:
        values.setdefault(each.key, []).extend(each.values)
    ways = product(*((*own, OTHER, None) for own in values.values()))
    sets = [{k: v for k, v in zip(values, way, strict=True) if v} for way in ways]
    for labels in sorted(sets, key=allowed.accepts_labels, reverse=True):
        shown = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        what = f"with the labels {shown}" if labels else "without labels"
        obj = {"apiVersion": "v1", "kind": "Namespace", **metadata(name=OTHER, labels=labels)}
        yield Trait("namespace", "in a namespace", what, metadata(namespace=OTHER), obj)


def _stated(pool: Pool) -> Iterator[Trait]:
    """Yield what a Pod can state for the requirements of the pool."""
    numbers = sorted({1, *(entry.min_devices or 1 for entry in pool.requires)})
    for entry in pool.requires:
        labels = {key: (*values, OTHER) for key, values in entry.labels.items()}
        labels |= {QUEUE_LABEL: ("queue",)} if entry.queue else {}
        for key, value in ((key, value) for key, values in labels.items() for value in values):
            yield _state(f"{key}={value}", metadata(labels={key: value}), "have the label", key)
        for more in (0, 1) if entry.max_runtime else ():
            n = seconds(entry.max_runtime or "") + more
            yield _state(f"activeDeadlineSeconds: {n}", spec(activeDeadlineSeconds=n))
        limits = {"cpu": entry.max_cpu_per_device, "memory": entry.max_memory_per_device}
        for (name, limit), n, more in product(limits.items(), numbers, (0, NANOS)):
            if limit:
                amount = f"{(parse_quantity(limit) * n + more) // 10**6}m"
                patch = _resources(requests={name: amount})
                yield _state(f"{amount} {name}", patch, "request", name)
        for name in (*sorted(entry.priority_classes), OTHER) if entry.priority_classes else ():
            yield _state(f"priorityClassName: {name}", spec(priorityClassName=name))
        if entry.do_not_disrupt:
            annotations = metadata(annotations=dict(ANNOTATIONS))
            yield _state(" and ".join(ANNOTATIONS), annotations, "have", "annotations")
            yield _state("restartPolicy: Never", spec(restartPolicy="Never"))


def _state(what: str, patch: JSONObject, words: str = "set", field_name: str = "") -> Trait:
    return Trait(f"stated {field_name or what.partition(':')[0]}", words, what, patch)


def kind(name: str) -> Trait:
    return Trait("kind", "of a", name, {"kind": name})


def settings() -> list[Trait]:
    """Return settings by which rules decide, whatever the policy names."""
    text = Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8")
    found = [
        Trait("setting", "", what, {"spec": own}) for what, own in yaml.safe_load(text).items()
    ]
    return [*found, kind("Deployment")]


def metadata(**fields: Any) -> JSONObject:
    return {"metadata": fields}


def spec(**fields: Any) -> JSONObject:
    return {"spec": fields}


def _resources(**sides: Any) -> JSONObject:
    return spec(containers=[{"name": "main", "resources": sides}])
