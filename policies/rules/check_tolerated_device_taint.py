"""Pod with a claim that tolerates the taints of devices.

## What it checks

A Pod uses a ResourceClaim or a ResourceClaimTemplate with `tolerations` in a request, or in an
alternative of `firstAvailable`. The rule reads the claim from the cluster, or from a manifest in
the same input.

## Why

DRA drivers and cluster administrators taint a device (`DeviceTaintRule`) that is broken, that is
about to be repaired, or that is reserved. The scheduler then allocates it to claims that tolerate
the taint only. A Pod with such a claim may get a GPU with errors, or block a repair. Tests of
devices need these claims, training does not.

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
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod

ID = "tolerated-device-taint"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each claim of the Pod that tolerates taints of devices."""
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
