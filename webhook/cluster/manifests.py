"""What manifests tell of each other: objects among them that are facts for the Pods of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache

from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.objects import JSONObject, MalformedObjectError, ObjectKey, mapping
from policies.kubernetes.paths import descend, text_at
from policies.kubernetes.selector import NAMESPACE_LABEL
from policies.kubernetes.workload import convert
from webhook.cluster.gangs import read_gangs
from webhook.cluster.limits import defaults_among
from webhook.cluster.readers import readers_among, topologies_among
from webhook.devices.claims import GROUP, claim_of
from webhook.documents.objects import Manifest

Complete = Callable[[Request, Facts, JSONObject], Facts]
"""Adds facts about the cluster to those about one object."""

_FACTS = re.compile(
    "Namespace|ResourceClaim|DeviceClass|ComputeDomain|RuntimeClass|PodGroup|ResourceQuota|Workload"
    "|LimitRange|CapacityBuffer|ProvisioningRequest|ResourceFlavor"
)
"""The kinds of the objects that are facts for Pods."""

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

    scheduling, handlers = dict(_scheduling(objects)), dict(_handlers(objects))

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
        if group != GROUP:
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


def _scheduling(objects: Iterable[JSONObject]) -> Iterator[tuple[str, PodSpec]]:
    """Yield the RuntimeClasses that add tolerations or a node selector to their Pods."""
    for obj in objects:
        if obj.get("kind") == "RuntimeClass":
            with suppress(MalformedObjectError):
                added = convert(mapping(obj.get("scheduling")), PodSpec)
                if added.tolerations or added.node_selector:
                    yield text_at(obj, "metadata", "name"), added


def _handlers(objects: Iterable[JSONObject]) -> Iterator[tuple[str, str]]:
    """Yield the RuntimeClasses, each with its handler."""
    for obj in objects:
        if obj.get("kind") == "RuntimeClass" and (handler := text_at(obj, "handler")):
            yield text_at(obj, "metadata", "name"), handler
