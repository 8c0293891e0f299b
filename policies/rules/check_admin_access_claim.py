"""Pod with administrative access to devices that others use.

## What it checks

A Pod uses a ResourceClaim, or a template of one, with a request that sets `adminAccess: true`. The
rule needs the claim: as a manifest in the same input, or from the cluster.

## Why

Administrative access is for monitoring: the driver gives the Pod devices that are allocated to
other Pods, and ignores who uses them. A Pod that works on them disturbs its neighbors, and can read
what they compute. Kubernetes admits such claims only in namespaces with the label
`resource.kubernetes.io/admin-access: "true"`. This rule shows who uses them there.

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

## Settings

None beyond the rule's action.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod

ID = "admin-access-claim"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each claim of the Pod with administrative access."""
    for path, name, claim in context.claims(pod):
        if claim is not None and claim.admin_access:
            yield Finding(
                ID,
                path,
                "a Pod has administrative access to devices that others use",
                f"claim {name} sets adminAccess: true: its devices may be allocated to other Pods",
                "Remove adminAccess from the claim, unless the Pod monitors devices",
            )
