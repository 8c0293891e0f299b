"""Security context that the Pod Security profile `restricted` requires.

## What it adds

The fields that the profile requires and the Pod does not set:

- For the Pod: `runAsNonRoot: true`, `seccompProfile: {type: RuntimeDefault}`, and the user, group
  and fsGroup of the policy.
- For each container, init container and ephemeral container: `allowPrivilegeEscalation: false`, and
  `ALL` at the end of `capabilities.drop`.

gpufence never changes a field that the author set. If such a field violates the profile, the check
`unrestricted-gpu-pod` reports it:

- A container that runs as root on purpose (`runAsUser: 0` or `runAsNonRoot: false`, in the
  container or in the Pod) keeps its user. gpufence then sets `runAsNonRoot` and the user in each of
  the other containers instead of in the Pod.
- A container that adds `IPC_LOCK` and sets no user keeps the user of its image. The capability has
  an effect only for root. For any other user, RDMA cannot register memory, and NCCL falls back to
  TCP without a message (NVIDIA/nvidia-container-toolkit#2037). If an exception allows such a Pod
  and its image runs as root, the container runs as root.
- A container that is privileged or adds `SYS_ADMIN` gets no `allowPrivilegeEscalation: false`,
  because the API server rejects this combination. A container that adds `ALL` gets no `drop:
  [ALL]`.

A Windows Pod gets only `runAsNonRoot`: the API server rejects the other fields. A container that
`kubectl debug` adds gets the fields that the Pod does not already set. The rest of the Pod does not
change.

With `hardening.level: baseline`, gpufence adds nothing: that profile requires no fields.

## Why

Most manifests do not set all of these fields, and a namespace that enforces `restricted` rejects
Pods without them. An image that expects to run as root may need changes to run as another user.
With `hardening.runAsUser: null`, gpufence does not set the user.

## Before

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
          nvidia.com/gpu: 1
```

## After

```yaml
spec:
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: train
      securityContext:
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
```

## Settings

- `hardening.level`: `restricted` (the default), or `baseline`, which adds nothing.
- `hardening.runAsUser`: the user ID. `null` keeps the user of the image.
- `hardening.runAsGroup`, `hardening.fsGroup`: the group IDs. The default, `null`, adds none. The
  group is then that of the image, or 0. Group 0 has no privileges, and images for arbitrary user
  IDs rely on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.context import Context
from policies.kubernetes.core_v1 import Capabilities, SeccompProfile, SecurityContext
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import NO_CONTEXT, Container, Pod, new_debug_containers
from policies.kubernetes.pod_security.privileges import excludes_no_escalation, locks_memory

ID = "restricted-security-context"
SUMMARY = 'the security context that Pod Security "restricted" requires'

# The root user of Windows, in any case (kubelet, security_context_windows.go).
_WINDOWS_ROOT = "containeradministrator"

Fields = dict[str, Any]
"""Values of a security context by attribute; None sets nothing."""


def additions(pod: Pod, context: Context) -> Iterator[Addition]:
    """Fill in what the profile requires and the Pod leaves unset."""
    hardening, common = context.policy.hardening, pod.security_context
    if hardening.level == "baseline":
        return
    user: Fields = {"run_as_non_root": True}
    confinement: Fields = {}
    if not pod.is_windows:
        user["run_as_user"] = hardening.run_as_user
        user["run_as_group"] = hardening.run_as_group
        confinement["seccomp_profile"] = SeccompProfile("RuntimeDefault")
    if context.request.subresource == "ephemeralcontainers":
        # What the Pod sets applies to the new container as well.
        user, confinement = _unset(user, common), _unset(confinement, common)
        for container in new_debug_containers(pod, context.old_spec):
            is_root = _is_root(pod, container.security_context)
            yield from _fill(pod, container, confinement if is_root else {**user, **confinement})
        return
    containers = pod.containers()
    pod_is_root = _is_root(pod, NO_CONTEXT)
    are_root = [
        pod_is_root if own is NO_CONTEXT else _is_root(pod, own)
        for own in [container.security_context for container in containers]
    ]
    of_each: Fields = {}
    if pod_is_root or True in are_root:
        # Some containers run as root on purpose: the user goes into each of the others.
        of_each, user = _unset(user, common), {}
    if not pod.is_windows:
        confinement["fs_group"] = hardening.fs_group
    if missing := _unset({**user, **confinement}, common):
        yield Addition(("securityContext",), SecurityContext(**missing))
    for container, is_root in zip(containers, are_root, strict=True):
        yield from _fill(pod, container, {} if is_root else of_each)


def _fill(pod: Pod, container: Container, fields: Fields) -> Iterator[Addition]:
    """Add what a container lacks of the fields, and of the privileges that it must drop."""
    own = container.security_context
    missing = _unset(fields, own) if fields else {}
    if not pod.is_windows:
        if own.allow_privilege_escalation is None and not excludes_no_escalation(own):
            missing["allow_privilege_escalation"] = False
        if own.capabilities is None or _keeps_privileges(own.capabilities):
            missing["capabilities"] = Capabilities(drop=["ALL"])
    if missing:
        path = (container.kind, container.position, "securityContext")
        yield Addition(path, SecurityContext(**missing))


def _is_root(pod: Pod, own: SecurityContext) -> bool:
    """Return whether a container must run as root, which `runAsNonRoot: true` would stop."""
    common = pod.security_context
    non_root = common.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
    user_id = common.run_as_user if own.run_as_user is None else own.run_as_user
    if non_root is False:
        return True
    if not pod.is_windows:
        return user_id == 0 or (locks_memory(own) and non_root is None and user_id is None)
    user = _windows_user(own) or _windows_user(common)
    return user.lower() == _WINDOWS_ROOT


def _windows_user(context: SecurityContext) -> str:
    return (context.windows_options.run_as_user_name if context.windows_options else None) or ""


def _keeps_privileges(capabilities: Capabilities) -> bool:
    """Return whether a container could drop all capabilities, and does not."""
    added = [name.upper().removeprefix("CAP_") for name in capabilities.add or ()]
    return "ALL" not in (capabilities.drop or ()) and "ALL" not in added


def _unset(values: Fields, context: SecurityContext) -> Fields:
    """Return the values of the fields that the context leaves unset."""
    return {
        attribute: value
        for attribute, value in values.items()
        if value is not None and getattr(context, attribute) is None
    }
