"""GPU Pod that Pod Security's profile `restricted` rejects.

## What it checks

Every control of the profile, in its latest version and with its official outcome, on every
container, init container (sidecars among them) and ephemeral container of a Pod that requests a
device:

- no sharing with the node: `hostNetwork`, `hostPID`, `hostIPC`, `hostPort`, `hostPath` volumes, and
  hosts named in probes and lifecycle hooks;
- no privileges: `privileged`, `allowPrivilegeEscalation`, added capabilities other than
  `NET_BIND_SERVICE`, an unmasked `procMount`, Windows `hostProcess`;
- not root: `runAsNonRoot: true`, and no `runAsUser: 0`;
- confined: a seccomp profile, and no weakening of AppArmor, SELinux or sysctls;
- volumes only of the types configMap, csi, downwardAPI, emptyDir, ephemeral, image,
  persistentVolumeClaim, projected and secret.

The mutation `restricted-security-context` fills in what the Pod's author left open, so what is
found here is what the author set. `hostUsers: false` and `os.name: windows` relax the
controls that they relax in Kubernetes, and no others.

## Why

A GPU node is the most expensive machine of the cluster and is shared. A container that escapes on
it reaches the devices, the data and the service accounts of every team that trains there. Nothing
in the list is needed to use a GPU: the device plugin or DRA driver hands the requested devices to
the container.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  hostIPC: true
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      securityContext:
        privileged: true
      resources:
        limits:
          nvidia.com/gpu: 1
```

## Use instead

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      securityContext:
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
      resources:
        limits:
          nvidia.com/gpu: 1
      volumeMounts:
        - name: shm
          mountPath: /dev/shm
  volumes:
    - name: shm
      emptyDir:
        medium: Memory
```

The security contexts are written out here; left out, they are filled in.

## Settings

- `hardening.level`: `restricted`, or `baseline` for the smaller profile.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.pod_security import violations

ID = "unrestricted-gpu-pod"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each control of the profile that the Pod fails."""
    level = context.policy.hardening.level
    for violation in violations(pod, level):
        yield Finding(
            ID,
            pod.at(violation.path),
            violation.reason,
            f'{violation.found}; Pod Security "{level}" accepts {violation.accepted}',
            violation.remediation,
            subjects=violation.subjects,
        )
