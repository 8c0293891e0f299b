"""The Pods on which two policies are compared: examples of what their fields are about.

A Pod is a plain one with a few traits. A trait is a value at which a field of a policy counts: a
name that the field lists, another name, a number at a limit, or one above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from policies.kubernetes.field_types import NameSet
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.kubernetes.scheduling import REQUIRED, Taint
from policies.kubernetes.selector import NAMESPACE_LABEL
from policies.policy import (
    ALWAYS_EXCLUDED,
    ExceptionEntry,
    NamespaceSelector,
    Override,
    Policy,
    Pool,
    PoolRequirement,
    example_of,
)
from policies.rules.check_pool_requirements import ANNOTATIONS, seconds
from policies.vocabulary import QUEUE_LABEL
from webhook.tools.custom_resources.composed import merge

_OTHER, _LETTERS = "other", "xyzabcdefghijklmnopqrstuvw0123456789"
_MOST_SPACES = 60
_KINDS = {
    kind: (group, path) for (group, kind), path in CORE_WORKLOADS.items() if group != "extensions"
}
_PLAIN: JSONObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "example"},
    "spec": {"containers": [{"name": "main", "image": "registry.example/app"}]},
}


@dataclass(frozen=True)
class Trait:
    """A value of an aspect of Pods. A Pod has at most one trait of an aspect.

    ``text`` follows "Pods that", or "Pods" if it starts with "of" or "in". ``patch`` is merged into
    the Pod. ``beside`` is an object that the Pod needs, ``username`` the user who creates it.
    """

    aspect: str
    text: str
    patch: JSONObject = field(default_factory=dict, compare=False)
    beside: JSONObject | None = field(default=None, compare=False)
    username: str = field(default="", compare=False)


Class = frozenset[Trait]
"""The Pods with these traits, and otherwise like the plain one."""


class Space(NamedTuple):
    """A namespace, and the name or pattern in policies for which it stands; empty for home."""

    name: str
    pattern: str = ""


def in_words(own: Class) -> str:
    """Return the Pods of a class in words: ``Pods of a Job that request 1 nvidia.com/gpu``."""
    texts = [each.text for each in _ordered(own)]
    nouns = [each for each in texts if each.startswith(("in ", "of "))]
    verbs = [each for each in texts if each not in nouns]
    text = " ".join(["Pods", *nouns])
    return f"{text} that {' and '.join(verbs)}" if verbs else text if nouns else "every Pod"


def objects_of(own: Class, namespace: str) -> list[JSONObject]:
    """Return the object of a class in a namespace, after the objects that it needs."""
    home = {} if namespace == "default" else metadata(namespace=namespace)
    pod = reduce(merge, (trait.patch for trait in _ordered(own)), merge(_PLAIN, home))
    beside = [
        merge(trait.beside, metadata(name=namespace) if trait.aspect == "labels" else home)
        for trait in _ordered(own)
        if trait.beside
    ]
    if pod["kind"] == "Pod":
        return [*beside, pod]
    # The Pod becomes the template of a workload.
    group, (*path, last) = _KINDS[pod["kind"]]
    labels = {"app": "example"} | pod["metadata"].get("labels", {})
    obj: Any = {last: {"metadata": {"labels": labels}, "spec": pod.pop("spec")}}
    if group == "apps":
        obj["selector"] = {"matchLabels": {"app": "example"}}
    obj = reduce(lambda inner, step: {step: inner}, reversed(path), obj)
    return [*beside, {**pod, "apiVersion": f"{group}/v1" if group else "v1", **obj}]


def _ordered(own: Class) -> list[Trait]:
    return sorted(own, key=lambda trait: (trait.aspect, trait.text))


def classes(old: Policy, new: Policy) -> Iterator[Class]:
    """Yield classes of Pods, those about pools that differ first. A class may come twice.

    Of each pool, these are Pods that use it in a few ways: alone, with one more trait, and with
    what tells the exceptions and exemptions of the policies apart.
    """
    every = (*old.pools, *new.pools)
    names = dict.fromkeys(pool.name for pool in every)
    versions = {name: [pool for pool in every if pool.name == name] for name in names}
    contexts = [Class(), *_contexts(old, new)]
    more = [*settings(), *tolerations((*old.quarantine_taints, *new.quarantine_taints))]
    for pools in sorted(versions.values(), key=lambda pools: len({*map(str, pools)}) < len(pools)):
        shared = [pool for pool in every if pool.shared_device(pools[0])]
        own = [[*_traits(pool, pools, shared)] for pool in pools]
        traits = [*dict.fromkeys(chain(*own, more))]
        frames = [Class()]
        for each in own:
            first = {trait.aspect: trait for trait in reversed(each)}
            tolerating = [first.pop("toleration")] if "toleration" in first else []
            frames += [Class(tolerating), Class(first.values())]
        for context, frame in product(contexts, frames):
            yield _with(frame, *context)
            yield from (_with(frame, *context, trait) for trait in traits)


def _with(own: Class, *traits: Trait) -> Class:
    """Return the class with these traits; the last one of an aspect counts."""
    return Class({trait.aspect: trait for trait in (*own, *traits)}.values())


def spaces(old: Policy, new: Policy) -> list[Space]:
    """Return a namespace that no pattern matches, and one for each pattern of the policies.

    Those in lists that changed come first, and there is a limit. Namespaces that both policies
    exempt are left out.
    """
    lists = [dict(_lists(policy)) for policy in (old, new)]
    patterns = {pattern for names in chain(*lists) for pattern in names.patterns} - {"*"}
    changed = {p for names, _ in lists[0].items() ^ lists[1].items() for p in names.patterns}
    exempt = old.exemptions.namespaces & new.exemptions.namespaces | {*ALWAYS_EXCLUDED}
    wider = [each for each in patterns if each.endswith("*")]

    def first(names: Iterable[str], pattern: str = "") -> str:
        """Return the first name for which the pattern counts, and no longer one; or nothing."""
        for name in names:
            matching = [each for each in wider if name.startswith(each[:-1])]
            longest = name if name in patterns else max(matching, key=len, default="")
            if longest == pattern:
                return name
        return ""

    names = ("default", _OTHER, *(f"{each}-{_OTHER}" for each in _LETTERS))
    found = [Space(first(names) or _OTHER)]
    for pattern in sorted(patterns, key=lambda each: (each not in changed, each)):
        ends = _LETTERS if pattern.endswith("*") else [""]
        name = first((f"{pattern.removesuffix('*')}{end}" for end in ends), pattern)
        if name and name not in exempt and len(found) < _MOST_SPACES:
            found.append(Space(name, pattern))
    return found


def _lists(policy: Policy) -> Iterator[tuple[NameSet, str]]:
    """Yield each list of namespaces in a policy, and the part that has it."""
    yield NameSet(policy.exemptions.namespaces), ""
    yield from ((NameSet(each.namespaces), str(each)) for each in policy.overrides)
    yield from ((each.namespaces, str(each)) for each in policy.exceptions)
    selectors = [(each, str(each)) for each in policy.selectors]
    for pool in policy.pools:
        if pool.allowed_namespaces:
            yield pool.allowed_namespaces.names, pool.name
            selectors.append((pool.allowed_namespaces, pool.name))
    for selector, part in selectors:
        named = (r.values or () for r in selector.requirements if r.key == NAMESPACE_LABEL)
        yield NameSet(chain(*named)), f"{part} by label"


def _contexts(old: Policy, new: Policy) -> Iterator[Class]:
    """Yield what tells the exceptions, the overrides by label and the exempt users apart."""
    for entry in (*old.exceptions, *new.exceptions):
        if (entry in old.exceptions) != (entry in new.exceptions):
            names = [*sorted(entry.names.exact), *(f"{each}x" for each in entry.names.prefixes)]
            kinds = sorted(entry.kinds & {"Pod", *_KINDS})
            named = [Trait("name", f"have the name {n}", metadata(name=n)) for n in names]
            for own in product(*filter(None, ([*map(kind, kinds)], named))):
                if own:
                    yield Class(own)
    for user in sorted(old.exemptions.usernames ^ new.exemptions.usernames):
        yield Class({Trait("user", f"of user {user}", username=user)})
    entries: list[list[Override | ExceptionEntry]] = [
        [*policy.overrides, *policy.exceptions] for policy in (old, new)
    ]
    for item in chain(*entries):
        selector = item.namespace_selector
        if selector and (item in entries[0]) != (item in entries[1]):
            yield from (Class({each}) for each in islice(_labels(selector), 1))


def _traits(pool: Pool, versions: Sequence[Pool], shared: Sequence[Pool]) -> Iterator[Trait]:
    """Yield the traits for a pool: the first one of an aspect is one that the pool accepts.

    ``versions`` are the pool before and after, ``shared`` the pools with a device of it.
    """
    yield from _devices(pool, versions)
    yield from tolerations((*pool.taints, *pool.tolerate))
    left_out = ((each.key, each.values) for each in pool.match_expressions if each.is_negative)
    for key, own in (*pool.selector.items(), *left_out):
        known = [*own, *(value for other in shared for value in other.selector.get(key, ()))]
        for value in [*[*dict.fromkeys(known)][:4], _OTHER]:
            yield Trait(f"select {key}", f"select {key}={value}", spec(nodeSelector={key: value}))
        for operator, values in ("In", [*own[:1], _OTHER]), ("NotIn", [*own[:1], "x"]):
            term = {"key": key, "operator": operator, "values": values}
            terms = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
            what = f"select {key} {operator} {', '.join(values)}"
            yield Trait(f"select {key}", what, spec(affinity={"nodeAffinity": terms}))
    if pool.allowed_namespaces:
        yield from _labels(pool.allowed_namespaces)
    numbers = sorted({1, *(entry.min_devices or 1 for entry in pool.requires)})
    for entry in pool.requires:
        yield from _stated(entry, numbers)


def _labels(selector: NamespaceSelector) -> Iterator[Trait]:
    """Yield labels that tell namespaces apart: first those that meet the selector."""
    wanted = {each.key or "": (*(each.values or ()), _OTHER) for each in selector.requirements}
    wanted.pop(NAMESPACE_LABEL, None)
    ways = [dict(zip(wanted, way, strict=True)) for way in product(*wanted.values())]
    meeting = [labels for labels in ways if selector.selects(_OTHER, labels)]
    for labels in (*meeting, *(each for each in ways if each not in meeting)) if wanted else ():
        obj = {"apiVersion": "v1", "kind": "Namespace", **metadata(labels=labels)}
        shown = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        yield Trait("labels", f"in a namespace with the labels {shown}", beside=obj)


def _devices(pool: Pool, versions: Iterable[Pool]) -> Iterator[Trait]:
    """Yield each way to request devices, with the numbers on both sides of limits."""
    least = max((entry.min_devices or 1 for entry in pool.requires), default=1)
    limits = {each.largest_request or 1 for each in versions}
    limits |= {entry.min_devices or 1 for each in versions for entry in each.requires}
    numbers = {1, 2, *(n + more for n in limits for more in (-1, 0, 1))} - {0}
    counts = sorted(numbers, key=lambda n: (n < least, n))
    prefixes = [example_of(each).replace("NAME", "x") for each in sorted(pool.resources.prefixes)]
    for name, n in product([*sorted(pool.resources.exact), *prefixes], counts):
        yield Trait("device", f"request {n} {name}", _resources(limits={name: n}))
    for name in [pool.example] if pool.resources.exact else []:
        patch = _resources(requests={name: 1}, limits={name: 2})
        yield Trait("device", f"request fewer {name} than the limit", patch)
        what = f"request {name}x, which no pool offers"
        yield Trait("device", what, _resources(limits={f"{name}x": 1}))
    ways: dict[str, JSONObject] = {
        "": {},
        " with adminAccess": {"adminAccess": True},
        " with tolerations": {"tolerations": [{"operator": "Exists"}]},
        " with allocationMode All": {"allocationMode": "All"},
    }
    ways |= {f" with count {n}": {"count": n} for n in counts if n > 1}
    for name, (how, more) in product(sorted(pool.device_classes), ways.items()):
        claims = [{"name": "device", "resourceClaimTemplateName": "device"}]
        patch = merge(spec(resourceClaims=claims), _resources(claims=[{"name": "device"}]))
        requests = [{"name": "device", "exactly": {"deviceClassName": name, **more}}]
        template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
        template |= metadata(name="device") | spec(spec={"devices": {"requests": requests}})
        yield Trait("device", f"request a claim on {name}{how}", patch, template)
    for request in pool.annotation_requests:
        given = [{name: "1"} for name in request.annotations]
        given += [given[0] | {request.count_annotation or "": str(n)} for n in counts]
        given += [given[0] | {request.container_annotation or "": "side"}]
        side = {"name": "side", "image": "registry.example/side", "restartPolicy": "Always"}
        patch = spec(schedulerName=request.scheduler_name, initContainers=[side])
        for way in (each for each in given if "" not in each):
            what = " and ".join(f"{name}: {value}" for name, value in way.items())
            yield Trait("device", f"request a device by {what}", patch | metadata(annotations=way))


def tolerations(taints: Iterable[Taint]) -> Iterator[Trait]:
    """Yield the tolerations that each taint tells apart."""
    for taint in taints:
        named, value = {"key": taint.key, "operator": "Exists"}, taint.value or "yes"
        ways = {taint.key: named, "every taint": {"operator": "Exists"}}
        for each in (value, _OTHER):
            way = {"key": taint.key, "operator": "Equal", "value": each}
            ways[f"{taint.key}={each}"] = way
        for effect in dict.fromkeys((taint.effect, "NoExecute")):
            ways[f"{taint.key} with the effect {effect}"] = {**named, "effect": effect}
        for what, way in ways.items():
            yield Trait("toleration", f"tolerate {what}", spec(tolerations=[way]))


def _stated(entry: PoolRequirement, numbers: Iterable[int]) -> Iterator[Trait]:
    """Yield what a Pod with a number of devices can state for the requirements of a pool."""
    labels = {key: (*values, _OTHER) for key, values in entry.labels.items()}
    labels |= {QUEUE_LABEL: ("queue",)} if entry.queue else {}
    for key, value in ((key, value) for key, values in labels.items() for value in values):
        yield Trait(f"label {key}", f"have the label {key}={value}", metadata(labels={key: value}))
    limits = {"cpu": entry.max_cpu_per_device, "memory": entry.max_memory_per_device}
    for (name, limit), n, more in product(limits.items(), numbers, (0, NANOS)):
        if limit:
            amount = f"{(parse_quantity(limit) * n + more) // 10**6}m"
            yield Trait(name, f"request {amount} {name}", _resources(requests={name: amount}))
    runtime = seconds(entry.max_runtime) if entry.max_runtime else 0
    classes = sorted(entry.priority_classes)
    fields: dict[str, list[Any]] = {
        "activeDeadlineSeconds": [runtime, runtime + 1] * bool(runtime),
        "priorityClassName": [*classes, _OTHER] * bool(classes),
        "restartPolicy": ["Never"] * entry.do_not_disrupt,
    }
    for name, value in ((name, value) for name, own in fields.items() for value in own):
        yield Trait(name, f"set {name}: {value}", spec(**{name: value}))
    if entry.do_not_disrupt:
        what = f"have {' and '.join(ANNOTATIONS)}"
        yield Trait("annotations", what, metadata(annotations=dict(ANNOTATIONS)))


def kind(name: str) -> Trait:
    what = "belong to no workload" if name == "Pod" else f"of a {name}"
    return Trait("kind", what, {"kind": name})


@cache
def settings() -> tuple[Trait, ...]:
    """Return settings by which rules decide, whatever the policy names."""
    text = Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text).items()
    return *(Trait("setting", what, spec(**own)) for what, own in found), kind("Deployment")


def metadata(**fields: Any) -> JSONObject:
    return {"metadata": fields}


def spec(**fields: Any) -> JSONObject:
    return {"spec": fields}


def _resources(**sides: Any) -> JSONObject:
    return spec(containers=[{"name": "main", "resources": sides}])
