"""Request for a device that no pool offers, without a number, or in a wrong place.

## What it checks

The resources of containers and init containers:

- A misspelled name: `nvidia.com/gpus` or `nvidia.com/GPU` instead of `nvidia.com/gpu`. Upper and
  lower case, a plural, and the characters `.`, `-` and `_` do not count in the comparison with the
  resources of the pools, and `nvidia/gpu` is like `nvidia.com/gpu`.
- A name without a domain: `gpu: 1`.
- A device in a field that Kubernetes does not have: in `limits` of the container itself, in
  `resources.limit`, or directly in `resources`. The rule reports these in files.
- An accelerator that no pool offers, for example `amd.com/gpu`, `google.com/tpu` or
  `aws.amazon.com/neuron` in a policy with NVIDIA pools only. The rule knows the resources of common
  device plugins. Other resources, such as network devices and FPGAs, are never findings.
- A resource of a pool without a number: `nvidia.com/gpu:`. In a cluster, the API server replaces it
  with 0 before it calls gpufence. The rule reports it in files and custom resources.

## Why

The API server accepts any resource name, and the Pod stays `Pending`: no node offers
`nvidia.com/gpus`. For a device that no pool offers, gpufence adds no toleration and no node
affinity. A resource without a number counts as 0: the Pod runs without a GPU.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpus: 1
```

## Use instead

{GPU_POD}

## Settings

- `pools[].resources`: the resources that the nodes offer. `gpufence policy show --preset NAME`
  prints pools for other vendors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from policies.context import Context
from policies.finding import Edit, Finding
from policies.kubernetes.objects import mapping, mappings
from policies.kubernetes.pod import RESOURCE_SIDES, ContainerKind, DeviceResource, Pod
from policies.policy import Policy, example_of
from policies.wording import uncapitalized

ID = "unknown-device-resource"

ACCELERATORS: Mapping[str, str | None] = {
    "aliyun.com/gpu-": None,
    "amd.com/gpu": "amd",
    "aws.amazon.com/neuron": None,
    "cambricon.com/mlu": None,
    "cloud-tpus.google.com/": None,
    "enflame.com/gcu": None,
    "google.com/tpu": None,
    "gpu.intel.com/i915": "intel",
    "gpu.intel.com/xe": "intel",
    "habana.ai/gaudi": None,
    "hami.io/vgpu": None,
    "huawei.com/Ascend": None,
    "hygon.com/dcu": None,
    "iluvatar.ai/gpu": None,
    "iluvatar.ai/vgpu": None,
    "metax-tech.com/gpu": None,
    "mthreads.com/vgpu": None,
    "nvidia.com/gpu": "",
    "nvidia.com/gpucores": "hami",
    "nvidia.com/gpumem": "hami",
    "nvidia.com/mig-": "",
    "tencent.com/vcuda-": None,
    "volcano.sh/gpu-memory": None,
    "volcano.sh/gpu-number": None,
    "volcano.sh/vgpu-memory": "volcano-vgpu",
    "volcano.sh/vgpu-number": "volcano-vgpu",
}
"""How the resources of accelerators begin, and the preset with a pool for them.

An empty string is the default policy, and ``None`` no preset."""

_AGENTS = "_monitoring"
"""How Intel's resources end that show the devices of a node to an agent, and reserve none."""

_SHORT_NAMES = frozenset({"gpu", "gpus", "nvidia", "nvidia-gpu", "nvidia.gpu", "amd-gpu"})
"""Names of GPUs without a domain, as forms and other systems have them."""

_SIDES = ("limits", "requests", "limit", "request")
_PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb(\.me|\+me)?", re.IGNORECASE)

_PUNCTUATION = str.maketrans("", "", ".-_")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each resource that is misspelled, misplaced, unknown or has no number."""
    if pod.template.raw:
        # What an API server has typed has neither.
        yield from _without_domain(pod, context.policy)
        yield from _misplaced(pod, context)
    for resource in pod.device_resources:
        if context.pools_of_resource(resource.name):
            yield from _without_number(pod, resource)
        elif _is_requested(resource):
            yield from _unknown(pod, resource, context)


def _without_domain(pod: Pod, policy: Policy) -> Iterator[Finding]:
    """Yield a finding for a resource such as ``gpu``, which API servers reject."""
    for container in pod.containers:
        names = {name: side for side in RESOURCE_SIDES for name in container.resources(side)}
        for name, side in names.items():
            if name.lower() not in _SHORT_NAMES:
                continue
            meant = _resource_of(policy)
            yield Finding(
                ID,
                pod.at(f"{container.field}.resources.{side}[{name}]"),
                "a device has a name without a domain",
                f'container "{container.name}" requests {name}, which is no resource of '
                f"Kubernetes: the API server rejects the Pod. A pool offers {meant}",
                f"Rename {name} to {meant}",
            )


def _misplaced(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each device in a field that the API does not have."""
    spec = mapping(pod.template.raw.get("spec"))
    kinds: tuple[ContainerKind, ...] = ("initContainers", "containers")
    for kind in kinds:
        for index, container in mappings(spec.get(kind)):
            at = f"spec.{kind}[{index}]"
            resources = mapping(container.get("resources"))
            places = {f"{at}.{side}": container.get(side) for side in _SIDES}
            places |= {
                f"{at}.resources.{side}": value
                for side, value in resources.items()
                if side in ("limit", "request")
            }
            places[f"{at}.resources"] = {
                name: value for name, value in resources.items() if not isinstance(value, dict)
            }
            for place, quantities in places.items():
                for name in mapping(quantities):
                    if _names_device(name, context):
                        yield Finding(
                            ID,
                            pod.at(f"{place}[{name}]"),
                            "a device is requested in a field that Kubernetes does not have",
                            f'container "{container.get("name")}" has {name} in '
                            f"{place.rpartition('.')[2]}, which the API server rejects or drops: "
                            "the container gets no device",
                            f"Move {name} to resources.limits of the container",
                        )


def _names_device(name: str, context: Context) -> bool:
    return bool(
        name.lower() in _SHORT_NAMES
        or context.pools_of_resource(name)
        or _suggestion(name, context.policy)
        or _accelerators(name)
    )


def _resource_of(policy: Policy) -> str:
    """Return a resource that a pool of the policy offers."""
    resources = next((pool.resources for pool in policy.pools if pool.resources.patterns), None)
    if resources is None:
        return f"the device class {min(policy.pools[0].device_classes)}"
    return min(resources.exact) if resources.exact else example_of(resources.prefixes[0])


def _without_number(pod: Pod, resource: DeviceResource) -> Iterator[Finding]:
    for side, quantity in resource.quantities.items():
        if quantity is None:
            name = resource.name
            yield Finding(
                ID,
                pod.at(resource.field(side)),
                "a device has no number",
                f'container "{resource.container.name}" has no number for {name}, which the API '
                "server reads as 0: the container gets no device",
                f"Set {name}: 1, or remove {name}",
            )
            return


def _unknown(pod: Pod, resource: DeviceResource, context: Context) -> Iterator[Finding]:
    name, policy = resource.name, context.policy
    path = pod.at(resource.field(next(iter(resource.quantities))))
    requests = f'container "{resource.container.name}" requests {name}'
    if suggestion := _suggestion(name, policy):
        yield Finding(
            ID,
            path,
            "a device has a misspelled name",
            f"{requests}, which no pool of the policy offers; a pool offers {suggestion}",
            f"Rename {name} to {suggestion}",
            fix=tuple(
                Edit("rename", pod.at(resource.field(side)), suggestion)
                for side in resource.quantities
                if any(suggestion in pool.resources.exact for pool in policy.pools)
            ),
        )
    elif known := _accelerators(name):
        preset = ACCELERATORS[max(known, key=len)]
        option = f" --preset {preset}" if preset else ""
        example = "" if preset is None else f": gpufence policy show{option} prints one"
        yield Finding(
            ID,
            path,
            "no pool offers a requested device",
            f"{requests}, which no pool of the policy offers, so that gpufence adds no toleration "
            "and no node affinity",
            f"Have the cluster administrator add a pool for it{example}. For a device of pool "
            f"{policy.pools[0].name}, {uncapitalized(policy.pools[0].request)} in place of {name}",
        )


def _is_requested(resource: DeviceResource) -> bool:
    return max(resource.nanos.values()) > 0


def _accelerators(name: str) -> list[str]:
    return [
        prefix for prefix in ACCELERATORS if name.startswith(prefix) and not name.endswith(_AGENTS)
    ]


def _suggestion(name: str, policy: Policy) -> str:
    """Return the resource of a pool that differs from the name in its spelling only, if any."""
    form, (names, prefixes) = _form(name), _forms(policy)
    if form in names:
        return names[form]
    return next(
        (_of_prefix(prefix, name) for prefix, own in prefixes.items() if form.startswith(own)), ""
    )


def _of_prefix(prefix: str, name: str) -> str:
    """Return a name with the prefix: with the MIG profile that the misspelled name contains."""
    profile = _PROFILE.search(name) if prefix.endswith("/mig-") else None
    return f"{prefix}{profile[0].lower()}" if profile else example_of(prefix)


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
    name = name.removeprefix("requests.").removeprefix("limits.")
    return name.lower().translate(_PUNCTUATION).removesuffix("s")
