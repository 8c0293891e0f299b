"""Request for a device that no pool offers, without a number, or in a wrong place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.objects import mapping
from policies.kubernetes.paths import field_path
from policies.kubernetes.pod import RESOURCE_SIDES, DeviceResource, Pod
from policies.kubernetes.templates import group_kind
from policies.policy import Policy, example_of
from policies.requests import offered_by
from policies.vendors import vendor_of
from policies.wording import listing, uncapitalized

ID = "unknown-device-resource"

_WITHOUT_DOMAIN = frozenset(
    ("gpu", "nvidia", "nvidiacom", "nvidiagpu", "nvidiacomgpu", "gpunvidiacom", "amdgpu")
)
"""Names of GPUs without a domain, as other systems have them, by what remains of their spelling."""

_RESOURCES = frozenset(("limit", "limits", "request", "requests", "resource", "resources"))
"""Fields that hold resources, as authors spell them."""
_PLACES = re.compile(r"(\.\w+\[[0-9]+\])?\.resources\.(limits|requests)")
_CONTAINERS = ("initContainers", "containers")
_OTHERS = frozenset(
    ("affinity", "metadata", "nodeSelector", "selector", "status", "topologySpreadConstraints")
)
"""Fields with labels, which may have the names of resources, and with what the cluster writes."""
_PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb(\.me|\+me)?", re.IGNORECASE)

_SIMILAR = 0.8
"""How much of two domains must be equal: nvida.com and nvidia.com, but not amd.com."""

_PUNCTUATION = str.maketrans("", "", ".-_")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each resource that is misspelled, misplaced, unknown or has no number."""
    if pod.template.raw:
        # What an API server has typed has neither.
        yield from _without_domain(pod, context.policy)
        yield from _misplaced(pod, context)
    for resource in pod.device_resources:
        if context.pools_of_resource(resource.name):
            if None in resource.quantities.values():
                yield _without_number(pod, resource)
        elif _is_requested(resource):
            yield from _unknown(pod, resource, context)


def _without_domain(pod: Pod, policy: Policy) -> Iterator[Finding]:
    """Yield a finding for a resource such as ``gpu``, which API servers reject."""
    for container in pod.containers:
        names = {name: side for side in RESOURCE_SIDES for name in container.resources(side)}
        for name, side in names.items():
            if _form(name) not in _WITHOUT_DOMAIN:
                continue
            meant = _resource_of(policy)
            yield Finding(
                ID,
                pod.at(f"{container.field}.resources.{side}[{name}]"),
                "a device has a name without a domain",
                f'container "{container.name}" requests {name}, which is no resource of '
                "Kubernetes: the API server rejects the Pod",
                f"Rename {name} to {meant}" if meant else _by_claim(name, policy),
            )


def _misplaced(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each device in a field that the API does not have.

    An API server drops such fields of core workloads before it calls a webhook. Custom resources
    have fields of their own outside of containers.
    """
    root, spec = pod.template.root, pod.template.raw.get("spec")
    kind_of_root = group_kind(root)
    is_core = kind_of_root == ("", "Pod") or kind_of_root in CORE_WORKLOADS
    if is_core and context.request.fail_closed:
        return
    start = field_path(pod.template.spec_path) if is_core else "spec"
    parts = root if is_core else {"spec": {kind: mapping(spec).get(kind) for kind in _CONTAINERS}}
    for place, name in _scalars(parts, ""):
        meant = _meant(name, context)
        if meant is not None and not _PLACES.fullmatch(place.removeprefix(start)):
            place = place if is_core else pod.at(place)
            renamed = "" if name == meant else f", and rename it to {meant}"
            yield Finding(
                ID,
                f"{place}[{name}]",
                "a device is requested in a field that Kubernetes does not have",
                f"the API server rejects or drops {name} in {place}: no container gets a device",
                f"Move {name} to resources.limits of the container{renamed}"
                if meant
                else _by_claim(name, context.policy),
            )


def _scalars(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield place and name of the fields that may be resources and are no mapping and no list."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _scalars(each, f"{place}[{index}]")
    elif isinstance(value, dict):
        of_resources = place.rpartition(".")[2].lower() in _RESOURCES
        for key, each in value.items():
            if not isinstance(each, (dict, list)):
                if of_resources or "/" in key:
                    yield place, key
            elif key not in _OTHERS:
                yield from _scalars(each, f"{place}.{key}" if place else key)


def _meant(name: str, context: Context) -> str | None:
    """Return the resource that a name of a field stands for, as `_resource_of`; None: no device."""
    if "/" not in name:
        return _resource_of(context.policy) if _form(name) in _WITHOUT_DOMAIN else None
    if context.pools_of_resource(name) or vendor_of(name):
        return name
    return suggestion(name, context.policy) or None


def _resource_of(policy: Policy) -> str:
    """Return a resource that a pool of the policy offers; empty if all offer device classes."""
    return next(filter(None, (pool.example for pool in policy.pools)), "")


def _by_claim(name: str, policy: Policy) -> str:
    """Return what to do with a name where all pools offer device classes."""
    return f"{policy.pools[0].request} in place of {name}"


def _without_number(pod: Pod, resource: DeviceResource) -> Finding:
    name = resource.name
    side = next(side for side, quantity in resource.quantities.items() if quantity is None)
    return Finding(
        ID,
        pod.at(resource.field(side)),
        "a device has no number",
        f'container "{resource.container.name}" has no number for {name}, which the API '
        "server reads as 0: the container gets no device",
        f"Set {name}: 1, or remove {name}",
    )


def _unknown(pod: Pod, resource: DeviceResource, context: Context) -> Iterator[Finding]:
    name, policy = resource.name, context.policy
    path = pod.at(resource.field(next(iter(resource.quantities))))
    requests = f'container "{resource.container.name}" requests {name}'
    if similar := suggestion(name, policy):
        yield Finding(
            ID,
            path,
            "a device has a misspelled name",
            f"{requests}, which no pool of the policy offers; a pool offers {similar}",
            f"Rename {name} to {similar}",
        )
    elif vendor := vendor_of(name):
        of_vendor = [pool for pool in policy.pools if vendor.domain in pool.vendors]
        names = dict.fromkeys(each for pool in of_vendor for each in offered_by(pool, context))
        option = f" --preset {vendor.preset}" if vendor.preset else ""
        example = "" if vendor.preset is None else f": gpufence policy show{option} prints one"
        yield Finding(
            ID,
            path,
            "no pool offers a requested device",
            f"{requests}, which no pool of the policy offers, so that gpufence adds no toleration "
            "and no node affinity",
            f"Request {listing(names, 'or')} in place of {name}, or have the cluster administrator "
            f"add a pool for it{example}"
            if names
            else f"Have the cluster administrator add a pool for it{example}. For a device of pool "
            f"{policy.pools[0].name}, {uncapitalized(policy.pools[0].request)} in place of {name}",
        )


def _is_requested(resource: DeviceResource) -> bool:
    return max(resource.nanos.values()) > 0


def suggestion(name: str, policy: Policy) -> str:
    """Return the resource of a pool that differs from the name in its spelling only, if any."""
    form, (names, prefixes) = _form(name), _forms(policy)
    if form in names:
        return names[form]
    for prefix, own in prefixes.items():
        if form.startswith(own):
            return _of_prefix(prefix, name)
    domain, _, rest = form.partition("/")
    similar = {each.partition("/")[0]: each for each in names if each.endswith(f"/{rest}")}
    found = get_close_matches(domain, similar, cutoff=_SIMILAR)
    return names[similar[found[0]]] if found else ""


def _of_prefix(prefix: str, name: str) -> str:
    """Return a name with the prefix: with the MIG profile that the misspelled name contains."""
    profile = _PROFILE.search(name) if prefix.endswith("/mig-") else None
    return f"{prefix}{profile[0].lower().replace('+', '.')}" if profile else example_of(prefix)


@lru_cache(maxsize=16)
def _forms(policy: Policy) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of the pools' resources by form, and the form of each prefix."""
    resources = [pool.resources for pool in policy.pools]
    exact = [name for each in resources for name in sorted(each.exact)]
    return (
        {_form(_without_suffix(name)): name for name in exact}
        | {_form(name): name for name in exact},
        {prefix: _form(prefix) for each in resources for prefix in each.prefixes},
    )


def _without_suffix(name: str) -> str:
    """Return the name with the first label of its domain only: nvidia/gpu."""
    domain, _, rest = name.partition("/")
    return f"{domain.partition('.')[0]}/{rest}"


def _form(name: str) -> str:
    """Return what remains of a name without what is often misspelled."""
    name = name.strip().removeprefix("requests.").removeprefix("limits.")
    return name.lower().translate(_PUNCTUATION).removesuffix("s")
