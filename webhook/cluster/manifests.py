"""What manifests tell of each other: objects among them that are facts for the Pods of others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.objects import JSONObject, MalformedObjectError, ObjectKey, mapping
from policies.kubernetes.paths import Path, descend, field_path, text_at
from policies.kubernetes.selector import NAMESPACE_LABEL
from policies.kubernetes.workload import convert
from webhook.cluster.gangs import read_gangs
from webhook.cluster.limits import defaults_among
from webhook.cluster.readers import readers_among, topologies_among
from webhook.devices.claims import read_claim
from webhook.documents.objects import Manifest

Complete = Callable[[Request, Facts, JSONObject], Facts]
"""Adds facts about the cluster to those about one object."""

_FACTS = re.compile(
    "Namespace|ResourceClaim|DeviceClass|ComputeDomain|RuntimeClass|PodGroup|ResourceQuota|Workload"
    "|LimitRange|CapacityBuffer|ProvisioningRequest|ResourceFlavor"
)
"""The kinds of the objects that are facts for Pods."""

_RESOURCES = "resource.k8s.io"

_CLASS = ("deviceClassName", "resourceClassName")
_ALTERNATIVES = "firstAvailable"
_NOT_OF_CLASSES = {*_CLASS, _ALTERNATIVES, "exactly", "name"}
_FLAT = {"v1alpha3", "v1beta1"}
_REMOVED = {"v1alpha1", "v1alpha2"}
_NOT_OF_REQUESTS = {"config", "metadata", "status"}

_COMPUTE_DOMAINS = "resource.nvidia.com"
_CHANNEL = "compute-domain-default-channel.nvidia.com"


def facts_among(manifests: Iterable[Manifest], namespace: str) -> Callable[[str], Facts]:
    """Return a function from a namespace to the facts there, which objects are for Pods.

    These are claims, claim templates, device classes, namespaces, RuntimeClasses, quotas, what says
    with how many Pods a gang starts, and who reads templates as they are written. Objects without a
    namespace are in ``namespace``.
    """
    values = (manifest.value for manifest in manifests if manifest.value is not None)
    objects = [value for value in values if _FACTS.search(text_at(value, "kind"))]
    placed = [(text_at(obj, "metadata", "namespace") or namespace, obj) for obj in objects]
    claims, templates, classes = read_claims(placed)
    gangs, quotas = read_gangs(placed)
    defaults = defaults_among(placed)
    simulated, topologies = readers_among(placed), topologies_among(placed)
    labels: dict[str, JSONObject] = {}
    for obj in objects:
        if obj.get("kind") == "Namespace" and obj.get("apiVersion") == "v1":
            name = text_at(obj, "metadata", "name")
            written = mapping(descend(obj, ("metadata", "labels")))
            labels[name] = {**written, NAMESPACE_LABEL: name}

    runtimes = [each for each in objects if each.get("kind") == "RuntimeClass"]
    named = [(text_at(each, "metadata", "name"), text_at(each, "handler")) for each in runtimes]
    handlers = {runtime: handler for runtime, handler in named if handler}
    scheduling = dict(_scheduling(runtimes))

    @cache
    def facts_in(name: str) -> Facts:
        return Facts(
            claims=claims,
            claim_templates=templates,
            extended_resource_classes=classes,
            gangs=gangs,
            quotas=quotas,
            defaults=defaults,
            template_readers=simulated,
            topologies=topologies,
            namespace_labels=labels.get(name),
            runtime_classes=handlers,
            runtime_scheduling=scheduling,
        )

    return facts_in


def read_claims(
    objects: Iterable[tuple[str, JSONObject]],
) -> tuple[dict[ObjectKey, Claim], dict[ObjectKey, Claim], dict[str, str]]:
    """Return claims, claim templates and extended resource classes among ``objects``.

    Each object comes with the namespace it is in; the results are the fields ``claims``,
    ``claim_templates`` and ``extended_resource_classes`` of ``Facts``. Other kinds are passed over.
    For a ComputeDomain, NVIDIA's DRA driver makes the ResourceClaimTemplate that it names
    (NVIDIA/k8s-dra-driver-gpu, ``templates/compute-domain-workload-claim-template.tmpl.yaml``).
    """
    claims: dict[ObjectKey, Claim] = {}
    templates: dict[ObjectKey, Claim] = {}
    classes: dict[str, str] = {}
    for namespace, obj in objects:
        group = str(obj.get("apiVersion")).partition("/")[0]
        name, spec = mapping(obj.get("metadata")).get("name"), mapping(obj.get("spec"))
        if group == _COMPUTE_DOMAINS and obj.get("kind") == "ComputeDomain":
            made = mapping(mapping(spec.get("channel")).get("resourceClaimTemplate")).get("name")
            if isinstance(made, str):
                templates[namespace, made] = Claim((frozenset({_CHANNEL}),))
        if group != _RESOURCES:
            continue
        if not isinstance(name, str):
            continue
        match obj.get("kind"):
            case "ResourceClaim":
                claims[namespace, name] = claim_of(obj)
            case "ResourceClaimTemplate":
                templates[namespace, name] = claim_of(obj)
            case "DeviceClass" if isinstance(spec.get("extendedResourceName"), str):
                classes[spec["extendedResourceName"]] = name
    return claims, templates, classes


def claim_of(obj: JSONObject) -> Claim:
    """Return the claim of a manifest, or of a template, as its author means it.

    Where a request stands in a place that its version of the API does not have, the claim says so.
    """
    version, kind = (text_at(obj, key) for key in ("apiVersion", "kind"))
    version = version.partition("/")[2]
    at: Path = ("spec", "spec") if kind.endswith("Template") else ("spec",)
    found = list(_naming_classes(obj, ()))
    holder = r"\.exactly" if version not in _FLAT else ""
    form = rf"{field_path(at)}\.devices\.requests\[\d+\]({holder}|\.{_ALTERNATIVES}\[\d+\])"
    misplaced = [
        path
        for path, named in found
        if _CLASS[0] not in named or not re.fullmatch(form, field_path(path))
    ]
    if not misplaced and version not in _REMOVED:
        return read_claim(descend(obj, at), obj.get("status"))
    title = f"{kind} {text_at(obj, 'metadata', 'name')}"
    requests = list(_meant(obj, found))
    if version in _REMOVED:
        problem = f"{title} uses {_RESOURCES}/{version}, which Kubernetes has removed"
    else:
        problem = (
            f"{title} names a device class in {field_path(misplaced[0])}, a place that "
            f"{_RESOURCES}/{version} does not have: API servers reject the claim, or drop what "
            "they do not know"
        )
    written = f"{field_path((*at, 'devices', 'requests'))}: {json.dumps(requests)}"
    both = f"apiVersion: {_RESOURCES}/v1 and " if version in _FLAT | _REMOVED else ""
    claim = read_claim({"devices": {"requests": requests}})
    return replace(claim, problem=problem, cure=f"Write {both}{written} in {title}")


def _naming_classes(value: Any, path: Path) -> Iterator[tuple[Path, JSONObject]]:
    """Yield the mappings of a claim that name a class, each with its path."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _naming_classes(item, (*path, index))
    elif isinstance(value, dict):
        names_class = any(text_at(value, key) for key in _CLASS)
        if names_class:
            yield path, value
        for key, item in value.items():
            if key not in _NOT_OF_REQUESTS and not (names_class and key == "exactly"):
                yield from _naming_classes(item, (*path, key))


def _meant(obj: JSONObject, found: list[tuple[Path, JSONObject]]) -> Iterator[JSONObject]:
    """Yield the requests of a malformed claim in the form of ``v1``."""

    def named(path: Path, fields: JSONObject) -> JSONObject:
        places = (path[:end] for end in range(len(path), 0, -1))
        names = filter(None, (text_at(obj, *place, "name") for place in places))
        return {"name": next(names, "gpu"), **fields}

    alternatives: dict[Path, list[JSONObject]] = {}
    for path, holder in found:
        name = next(text for key in _CLASS if (text := text_at(holder, key)))
        # The other fields of v1alpha2 have other meanings.
        written = {**holder, **mapping(holder.get("exactly"))} if _CLASS[0] in holder else {}
        others = {key: item for key, item in written.items() if key not in _NOT_OF_CLASSES}
        fields = {"deviceClassName": name, **others}
        if _ALTERNATIVES not in path:
            yield named(path, {"exactly": fields})
            continue
        request = path[: path.index(_ALTERNATIVES)]
        if request not in alternatives:
            alternatives[request] = []
            yield named(request, {_ALTERNATIVES: alternatives[request]})
        alternatives[request].append(named(path, fields))


def _scheduling(runtimes: Iterable[JSONObject]) -> Iterator[tuple[str, PodSpec]]:
    """Yield the RuntimeClasses that add tolerations or a node selector to their Pods."""
    for obj in runtimes:
        with suppress(MalformedObjectError):
            added = convert(mapping(obj.get("scheduling")), PodSpec)
            if added.tolerations or added.node_selector:
                yield text_at(obj, "metadata", "name"), added
