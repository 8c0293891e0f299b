"""Reads ResourceClaims and ResourceClaimTemplates.

Source: ``resource.k8s.io/v1`` (``devices.requests[].exactly`` and ``.firstAvailable[]``); in
``v1beta1`` and ``v1alpha3``, a request names its ``deviceClassName`` itself.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from policies.kubernetes.claims import Ask, Claim
from policies.kubernetes.core_v1 import Affinity, NodeAffinity, NodeSelector, PodSpec
from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.kubernetes.paths import Path, descend, field_path, text_at
from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity

GROUP = "resource.k8s.io"

_CLASS = ("deviceClassName", "resourceClassName")
_ALTERNATIVES = "firstAvailable"
_NOT_OF_CLASSES = {*_CLASS, _ALTERNATIVES, "exactly", "name"}
_FLAT = {"v1alpha3", "v1beta1"}
_REMOVED = {"v1alpha1", "v1alpha2"}
_NOT_OF_REQUESTS = {"config", "metadata", "status"}


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
        problem = f"{title} uses {GROUP}/{version}, which Kubernetes has removed"
    else:
        problem = (
            f"{title} names a device class in {field_path(misplaced[0])}, a place that {GROUP}/"
            f"{version} does not have: API servers reject the claim, or drop what they do not know"
        )
    written = f"{field_path((*at, 'devices', 'requests'))}: {json.dumps(requests)}"
    both = f"apiVersion: {GROUP}/v1 and " if version in _FLAT | _REMOVED else ""
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


def read_claim(spec: Any, status: Any = None) -> Claim:
    """Return what a ResourceClaim requests and has; entries that are no requests are left out."""
    allocation = mapping(status).get("allocation")
    results = _list(mapping(mapping(allocation).get("devices")).get("results"))
    allocated = Counter(str(result.get("request")) for result in results)
    requests, names, asks, tolerates = [], [], [], False
    for request in _list(mapping(mapping(spec).get("devices")).get("requests")):
        name, subrequests = str(request.get("name") or ""), _list(request.get("firstAvailable"))
        alternatives = subrequests or [mapping(request.get("exactly")) or request]
        classes = {a.get("deviceClassName") for a in alternatives}
        requests.append(frozenset(each for each in classes if isinstance(each, str)))
        names.append(name)
        tolerates |= any(a.get("tolerations") for a in alternatives)
        own = [*map(_ask, alternatives)]
        if results:
            paths = [f"{name}/{a.get('name')}" if subrequests else name for a in alternatives]
            counts = map(allocated.__getitem__, paths)
            own = [
                ask._replace(number=count, is_all=False)
                for ask, count in zip(own, counts, strict=True)
                if count
            ]
        asks.append(tuple(own))
    configs = _list(mapping(mapping(spec).get("devices")).get("config"))
    return Claim(
        tuple(requests),
        tolerates,
        any(map(_is_mps, configs)),
        tuple(names),
        tuple(asks),
        _nodes(allocation),
    )


def _nodes(allocation: Any) -> PodSpec | None:
    """Return the selection of the nodes on which an allocation can be used: without one, of all."""
    if not isinstance(allocation, dict):
        return None
    if allocation.get("nodeSelector") is None:
        return PodSpec()
    try:
        selector = msgspec.convert(allocation["nodeSelector"], NodeSelector)
    except msgspec.ValidationError:
        return None
    return PodSpec(affinity=Affinity(NodeAffinity(selector)))


def _ask(request: JSONObject) -> Ask:
    count, asked = request.get("count"), mapping(mapping(request.get("capacity")).get("requests"))
    capacity = []
    for name, amount in asked.items():
        with suppress(InvalidQuantityError):
            capacity.append((name, parse_quantity(amount)))
    return Ask(
        str(request.get("deviceClassName")),
        count if isinstance(count, int) else 1,
        tuple(capacity),
        request.get("allocationMode") == "All",
        request.get("adminAccess") is True,
    )


def _is_mps(config: JSONObject) -> bool:
    """Source: kubernetes-sigs/dra-driver-nvidia-gpu, ``api/nvidia.com/resource/v1beta1``."""
    parameters = mapping(mapping(config.get("opaque")).get("parameters"))
    return mapping(parameters.get("sharing")).get("strategy") == "MPS"


def _list(value: Any) -> list[JSONObject]:
    return [item for _, item in mappings(value)]
