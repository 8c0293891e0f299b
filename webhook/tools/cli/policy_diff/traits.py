"""Traits of Pods: the values at which the fields of a policy count.

A field counts at few values of a Pod: at the names that it lists and one other, and on both sides
of its limit. A trait stands for one of these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import combinations, product
from pathlib import Path
from typing import Any

import yaml

from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.kubernetes.scheduling import REQUIRED, Taint
from policies.policy import AllowedNamespaces, Pool, example_of
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
_CLAIMS: dict[str, JSONObject] = {
    "": {},
    " with adminAccess": {"adminAccess": True},
    " that tolerates every taint": {"tolerations": [{"operator": "Exists"}]},
}


@dataclass(frozen=True)
class Trait:
    """A value of one aspect of Pods. A Pod has at most one trait of an aspect.

    ``text`` follows "Pods" or "Pods that". ``patch`` is merged into the Pod. Of the traits with the
    same ``subject``, such as a resource, the first are the simplest. ``beside`` is an object that
    the Pod needs, ``username`` the user who creates it.
    """

    aspect: str
    text: str
    patch: JSONObject = field(default_factory=dict, compare=False)
    subject: str = ""
    beside: JSONObject = field(default_factory=dict, compare=False)
    username: str = field(default="", compare=False)

    @property
    def namespace(self) -> str:
        return str(self.patch["metadata"]["namespace"])


Class = frozenset[Trait]
"""The Pods with these traits, and otherwise like the plain one."""


def objects_of(own: Class, namespace: str = "default") -> list[JSONObject]:
    """Return the smallest object of a class, after the objects that it needs.

    It is in ``namespace`` unless a trait says otherwise.
    """
    ordered = sorted(own, key=lambda trait: trait.aspect)
    plain = _PLAIN if namespace == "default" else merge(_PLAIN, metadata(namespace=namespace))
    pod = reduce(merge, (trait.patch for trait in ordered), plain)
    where = {name: value for name, value in pod["metadata"].items() if name == "namespace"}
    beside = [merge({"metadata": where}, trait.beside) for trait in ordered if trait.beside]
    if pod["kind"] == "Pod":
        return [*beside, pod]
    # The Pod becomes the template of a workload.
    group, (*path, last) = KINDS[pod["kind"]]
    labels = {"app": "example"} | pod["metadata"].get("labels", {})
    obj: Any = {last: {"metadata": {"labels": labels}, "spec": pod.pop("spec")}}
    if pod["kind"] == "Deployment":
        obj["selector"] = {"matchLabels": {"app": "example"}}
    obj = reduce(lambda inner, step: {step: inner}, reversed(path), obj)
    return [*beside, {**pod, "apiVersion": f"{group}/v1" if group else "v1", **obj}]


def traits_of(pool: Pool, others: Sequence[Pool], namespaces: Iterable[Trait]) -> Iterator[Trait]:
    """Yield the traits at which the fields of the pool count.

    The first one of an aspect is one that the pool accepts, except for tolerations. ``others`` are
    the pools with the same devices: itself, other versions of it, and other pools.
    """
    yield from _devices(pool, [each for each in others if each.name == pool.name])
    yield from tolerations(pool.taints)
    yield from _selections(pool, others)
    yield from _stated(pool)
    if allowed := pool.allowed_namespaces:
        yield from (each for each in namespaces if each.namespace in allowed.names)
        yield from _labeled_namespaces(allowed) if allowed.by_labels else ()


def _devices(pool: Pool, versions: Iterable[Pool]) -> Iterator[Trait]:
    """Yield each way to request devices, with the numbers on both sides of limits."""
    least = max((entry.min_devices or 1 for entry in pool.requires), default=1)
    limits = {each.largest_request or 1 for each in versions}
    limits |= {entry.min_devices or 1 for each in versions for entry in each.requires}
    numbers = {1, 2, *(n + more for n in limits for more in (-1, 0, 1))} - {0}
    counts = sorted(numbers, key=lambda n: (n < least, n))
    names = [*sorted(pool.resources.exact)]
    names += [example_of(prefix).replace("NAME", "x") for prefix in sorted(pool.resources.prefixes)]
    for name in names:
        ways = {f"{n} {name}": _resources(limits={name: n}) for n in counts}
        if name == names[0]:
            side = {**_SIDECAR, "resources": {"limits": {name: 1}}}
            ways |= {
                f"{name} without a limit": _resources(requests={name: 1}),
                f"fewer {name} than the limit": _resources(requests={name: 1}, limits={name: 2}),
                f"{name} in a sidecar only": spec(initContainers=[side]),
                f"{name}x, which no pool offers": _resources(limits={f"{name}x": 1}),
            }
        yield from (Trait("device", f"request {what}", patch, name) for what, patch in ways.items())
    used = spec(resourceClaims=[{"name": "device", "resourceClaimTemplateName": "device"}])
    used = merge(used, _resources(claims=[{"name": "device"}]))
    for name, (how, more) in product(sorted(pool.device_classes), _CLAIMS.items()):
        requests = [{"name": "device", "exactly": {"deviceClassName": name, **more}}]
        template = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            **metadata(name="device"),
            **spec(spec={"devices": {"requests": requests}}),
        }
        yield Trait("device", f"request a claim on {name}{how}", used, name, template)
    for request in pool.annotation_requests:
        first = request.annotations[0]
        counting, naming = request.count_annotation, request.container_annotation
        annotations: list[dict[str, str]] = [{name: "1"} for name in request.annotations]
        annotations += [{first: "1", counting: str(n)} for n in counts] if counting else []
        annotations += [{first: "1", naming: "side"}] if naming else []
        for way in annotations:
            patch = {**spec(schedulerName=request.scheduler_name), **metadata(annotations=way)}
            if naming in way:
                patch["spec"]["initContainers"] = [{**_SIDECAR, "restartPolicy": "Always"}]
            what = " and ".join(f"{name}: {value}" for name, value in way.items())
            yield Trait("device", f"request a device by {what}", patch, next(iter(way)))


def _selections(pool: Pool, others: Iterable[Pool]) -> Iterator[Trait]:
    """Yield selections of a label of the pool: sets of its values, others, and no value."""
    for key, own in pool.selector.items():
        known = [value for other in others for value in other.selector.get(key, ())]
        # The values of all other pools are alike for this one.
        foreign = [value for value in known if value not in own]
        values = [*own, *foreign[:1], OTHER]
        some = sorted(values[: 2 if len(values) > 2 else 1])
        ways = {f"{key}={value}": spec(nodeSelector={key: value}) for value in values}
        pairs = combinations([*some, OTHER], 2)
        lists = dict.fromkeys(((OTHER,), *((value,) for value in some), (*some,)))
        expressions = [*product(("In",), pairs), *product(("NotIn",), lists)]
        for operator, listed in (*expressions, ("Exists", ()), ("DoesNotExist", ())):
            term: JSONObject = {"key": key, "operator": operator}
            term |= {"values": [*listed]} if listed else {}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            ways[f"{key} {operator} {', '.join(listed)}".rstrip()] = spec(
                affinity={"nodeAffinity": {REQUIRED: terms}}
            )
        for what, patch in ways.items():
            yield Trait(f"selection {key}", f"select {what}", patch, key)


def tolerations(taints: Iterable[Taint]) -> Iterator[Trait]:
    """Yield the tolerations that each taint tells apart."""
    for taint in taints:
        effects = dict.fromkeys(("", "NoSchedule", "NoExecute", taint.effect))
        ways = [(taint.key, "", effect) for effect in effects]
        ways += [(taint.key, value, "") for value in (taint.value or "yes", OTHER)]
        ways += [("", "", effect) for effect in effects]
        for key, value, effect in ways:
            operator = "Equal" if value else "Exists"
            given = {"key": key, "operator": operator, "value": value, "effect": effect}
            what = f"{key or 'every taint'}{f'={value}' if value else ''}"
            what += f" with the effect {effect}" if effect else ""
            patch = spec(tolerations=[{name: each for name, each in given.items() if each}])
            yield Trait("toleration", f"tolerate {what}", patch, key or "every taint")


def _labeled_namespaces(allowed: AllowedNamespaces) -> Iterator[Trait]:
    """Yield namespaces with and without each label of the selector; those that meet it first."""
    values = {key: [value] for key, value in allowed.match_labels.items()}
    for each in allowed.match_expressions:
        values.setdefault(each.key, []).extend(each.values)
    ways = product(*((*own, OTHER, None) for own in values.values()))
    sets = [{k: v for k, v in zip(values, way, strict=True) if v} for way in ways]
    for labels in sorted(sets, key=allowed.accepts_labels, reverse=True):
        shown = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        text = (
            f"in a namespace with the labels {shown}" if labels else "in a namespace without labels"
        )
        obj = {"apiVersion": "v1", "kind": "Namespace", **metadata(name=OTHER, labels=labels)}
        yield Trait("namespace", text, metadata(namespace=OTHER), "labels", obj)


def _stated(pool: Pool) -> Iterator[Trait]:
    """Yield what a Pod can state for the requirements of the pool."""
    numbers = sorted({1, *(entry.min_devices or 1 for entry in pool.requires)})
    for entry in pool.requires:
        labels = {key: (*values, OTHER) for key, values in entry.labels.items()}
        labels |= {QUEUE_LABEL: ("queue",)} if entry.queue else {}
        for key, value in ((key, value) for key, values in labels.items() for value in values):
            patch = metadata(labels={key: value})
            yield Trait(f"stated {key}", f"have the label {key}={value}", patch, key)
        limits = {"cpu": entry.max_cpu_per_device, "memory": entry.max_memory_per_device}
        for (name, limit), n, more in product(limits.items(), numbers, (0, NANOS)):
            if limit:
                amount = f"{(parse_quantity(limit) * n + more) // 10**6}m"
                patch = _resources(requests={name: amount})
                yield Trait(f"stated {name}", f"request {amount} {name}", patch, name)
        classes = sorted(entry.priority_classes)
        runtime = entry.max_runtime and seconds(entry.max_runtime)
        fields: dict[str, list[Any]] = {
            "activeDeadlineSeconds": [runtime, runtime + 1] if runtime else [],
            "priorityClassName": [*classes, OTHER] if classes else [],
            "restartPolicy": ["Never"] * entry.do_not_disrupt,
        }
        for name, value in ((name, value) for name, values in fields.items() for value in values):
            yield Trait(f"stated {name}", f"set {name}: {value}", spec(**{name: value}), name)
        if entry.do_not_disrupt:
            text = f"have {' and '.join(ANNOTATIONS)}"
            yield Trait("stated annotations", text, metadata(annotations=dict(ANNOTATIONS)))


def kind(name: str) -> Trait:
    return Trait("kind", f"of a {name}", {"kind": name})


@cache
def settings() -> tuple[Trait, ...]:
    """Return settings by which rules decide, whatever the policy names."""
    text = Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text).items()
    return *(Trait("setting", what, {"spec": own}) for what, own in found), kind("Deployment")


def metadata(**fields: Any) -> JSONObject:
    return {"metadata": fields}


def spec(**fields: Any) -> JSONObject:
    return {"spec": fields}


def _resources(**sides: Any) -> JSONObject:
    return spec(containers=[{"name": "main", "resources": sides}])
