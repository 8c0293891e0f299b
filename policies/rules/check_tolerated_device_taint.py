"""GPU Pod that tolerates the taints of broken devices or of nodes in quarantine.

## What it checks

A Pod uses a ResourceClaim or a ResourceClaimTemplate with `tolerations` in a request, or in an
alternative of `firstAvailable`. The rule reads the claim from the cluster, or from a manifest in
the same input.

A Pod that requests devices has a toleration for one of the `quarantineTaints` of the policy, or
for every taint (`operator: Exists` without a key).

## Why

DRA drivers and cluster administrators taint a device (`DeviceTaintRule`) that is broken, that is
about to be repaired, or that is reserved. The scheduler then allocates it to claims that tolerate
the taint only. A Pod with such a claim may get a GPU with errors, or block a repair. Tests of
devices need these claims, training does not.

Nodes have such taints as well: until their driver runs, or while a controller repairs them.
`gpufence policy discover` adds those that it finds to `quarantineTaints`, and never to a pool.

## Denied

```yaml
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: any-gpu
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.nvidia.com
            tolerations:
              - operator: Exists
---
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  resourceClaims:
    - name: gpu
      resourceClaimTemplateName: any-gpu
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        claims:
          - name: gpu
```

## Use instead

```yaml
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: one-gpu
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.nvidia.com
---
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  resourceClaims:
    - name: gpu
      resourceClaimTemplateName: one-gpu
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        claims:
          - name: gpu
```

## Settings

- `quarantineTaints`: the taints of nodes that start or are under repair, each with `key`, `effect`
  and optionally `value`.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Edit, Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import is_wildcard, reached_taint

ID = "tolerated-device-taint"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each claim or toleration of the Pod that covers such a taint."""
    for named in context.claims(pod):
        if named.claim is not None and named.claim.tolerates_taints:
            yield Finding(
                ID,
                named.path,
                "the Pod may get a device that is tainted",
                f"claim {named.claim_name} sets tolerations, so its device may be broken or "
                "reserved",
                "Remove tolerations from the claim, unless the Pod tests devices",
            )
    quarantine = context.policy.quarantine_taints
    for index, toleration in enumerate((quarantine and pod.spec.tolerations) or ()):
        taint = reached_taint(toleration, quarantine)
        if taint is None:
            continue
        path = pod.at(f"spec.tolerations[{index}]")
        of_all = is_wildcard(toleration)
        what = "every taint" if of_all else "the taint"
        others = ", or name the taints that the Pod needs to tolerate" if of_all else ""
        yield Finding(
            ID,
            path,
            "the Pod may run on a node in quarantine",
            f"the toleration covers {what}{' and so' if of_all else ''} {taint}, which nodes have "
            "while they start or are under repair",
            f"Remove the toleration{others}",
            fix=() if of_all else (Edit("remove", path),),
        )
