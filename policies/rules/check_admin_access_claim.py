"""Pod with administrative access to the devices of other Pods.

## What it checks

A Pod uses a ResourceClaim or a ResourceClaimTemplate with a request that sets `adminAccess: true`.
The rule reads the claim from the cluster, or from a manifest in the same input.

## Why

Administrative access is for monitoring: the DRA driver gives the Pod devices that are already
allocated to other Pods. A Pod that computes on such a device slows down the Pod that owns it, and
can read its memory. Kubernetes accepts such claims only in namespaces with the label
`resource.kubernetes.io/admin-access: "true"`. This rule reports the Pods that use them there.

## Denied

```yaml
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: all-gpus
spec:
  spec:
    devices:
      requests:
        - name: gpus
          exactly:
            deviceClassName: gpu.nvidia.com
            allocationMode: All
            adminAccess: true
---
apiVersion: v1
kind: Pod
metadata:
  name: monitor
spec:
  resourceClaims:
    - name: gpus
      resourceClaimTemplateName: all-gpus
  containers:
    - name: monitor
      image: monitor
      resources:
        claims:
          - name: gpus
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

ID = "admin-access-claim"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each claim of the Pod with administrative access."""
    for named in context.claims(pod):
        if named.claim is not None and named.claim.admin_access:
            yield Finding(
                ID,
                named.path,
                "the Pod has administrative access to devices of other Pods",
                f"claim {named.claim_name} sets adminAccess: true, so its devices may belong to "
                "other Pods",
                "Remove adminAccess from the claim, unless the Pod monitors devices",
            )
