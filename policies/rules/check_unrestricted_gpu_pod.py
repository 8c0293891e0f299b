"""GPU Pod that violates the Pod Security profile `restricted`.

## What it checks

Every control of the profile in its latest version, with the same result as Kubernetes' own Pod
Security admission. The rule checks all containers, init containers and ephemeral containers of a
Pod that requests a device:

- Nothing shared with the node: no `hostNetwork`, `hostPID`, `hostIPC`, `hostPort` or `hostPath`
  volume, and no host in probes and lifecycle hooks.
- No privileges: no `privileged`, no `allowPrivilegeEscalation`, no added capabilities other than
  `NET_BIND_SERVICE`, no unmasked `procMount`, no Windows `hostProcess`.
- Not root: `runAsNonRoot: true`, and no `runAsUser: 0`.
- Confined: a seccomp profile, and only the accepted AppArmor profiles, SELinux options and sysctls.
- Volumes only of the types configMap, csi, downwardAPI, emptyDir, ephemeral, image,
  persistentVolumeClaim, projected and secret.

The mutation `restricted-security-context` adds the fields that the Pod does not set, so findings
are about fields that the author set. It leaves `runAsNonRoot` out for a container with
`runAsUser: 0`, and `allowPrivilegeEscalation` for a privileged one: the finding is about the field
that must change, and not about the one that gpufence then adds. `hostUsers: false` and `os.name:
windows` relax the same controls as in Kubernetes.

## Why

GPU nodes are shared between teams. A process that escapes from its container on such a node can
reach the devices, data and credentials of every Pod there. No control in the list prevents the use
of a GPU: the device plugin or the DRA driver gives the container the requested devices.

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

You can leave out the security contexts: gpufence adds them.

## Settings

- `hardening.level`: `restricted` (the default), or the less strict profile `baseline`.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.pod_security import violations
from policies.rules import set_restricted_security_context

ID = "unrestricted-gpu-pod"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each control of the profile that the Pod fails."""
    level = context.hardening.level
    if level == "off":
        return
    actions = context.policy.actions_in(context.request.namespace).written
    completed = actions.get(set_restricted_security_context.ID) == "enforce"
    for violation in violations(pod, level, completed=completed):
        yield Finding(
            ID,
            pod.at(violation.path),
            violation.reason,
            f'{violation.found}; Pod Security "{level}" accepts {violation.accepted}',
            violation.remediation,
            subjects=violation.subjects,
        )
