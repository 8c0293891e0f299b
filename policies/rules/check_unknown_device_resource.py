"""Request for a device that no pool offers, or without a number.

## What it checks

The resources of containers and init containers:

- A misspelled name: `nvidia.com/gpus` or `nvidia.com/GPU` instead of `nvidia.com/gpu`. Upper and
  lower case, a plural, and the characters `.`, `-` and `_` do not count in the comparison with the
  resources of the pools.
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

from collections.abc import Iterator, Mapping
from functools import lru_cache

from policies.context import Context
from policies.finding import Edit, Finding
from policies.kubernetes.pod import DeviceResource, Pod
from policies.policy import Policy
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

_PUNCTUATION = str.maketrans("", "", ".-_")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each resource that is misspelled, unknown or without a number."""
    for resource in pod.device_resources:
        if context.pools_of_resource(resource.name):
            yield from _without_number(pod, resource)
        elif _is_requested(resource):
            yield from _unknown(pod, resource, context)


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
            fix=()
            if suggestion.endswith("*")
            else tuple(
                Edit("rename", pod.at(resource.field(side)), suggestion)
                for side in resource.quantities
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
            f"{policy.pools[0].name}, {uncapitalized(policy.pools[0].request)}",
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
    return next((f"{prefix}*" for prefix, own in prefixes.items() if form.startswith(own)), "")


@lru_cache(maxsize=16)
def _forms(policy: Policy) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of the pools' resources by form, and the form of each prefix."""
    resources = [pool.resources for pool in policy.pools]
    return (
        {_form(name): name for each in resources for name in sorted(each.exact)},
        {prefix: _form(prefix) for each in resources for prefix in each.prefixes},
    )


def _form(name: str) -> str:
    """Return what remains of a name without what is often misspelled."""
    return name.lower().translate(_PUNCTUATION).removesuffix("s")
