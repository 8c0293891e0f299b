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

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from policies.context import Context
from policies.kubernetes.core_v1 import SecurityContext
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import NO_CONTEXT, Container, Pod, new_debug_containers
from policies.kubernetes.pod_security.privileges import excludes_no_escalation, locks_memory
from policies.policy import Hardening

ID = "restricted-security-context"
SUMMARY = 'the security context that Pod Security "restricted" requires'

# The root user of Windows, in any case (kubelet, security_context_windows.go).
_WINDOWS_ROOT = "containeradministrator"

Fields = dict[str, Any]


def additions(pod: Pod, context: Context) -> Iterator[Addition]:
    """Fill in what the profile requires and the Pod leaves unset."""
    hardening = context.policy.hardening
    if hardening.level == "baseline":
        return
    identity = _identity(hardening, windows=pod.is_windows)
    common = pod.security_context
    if context.request.subresource == "ephemeralcontainers":
        current = {**identity, **_confinement(pod)}
        for container in new_debug_containers(pod, context.old_spec):
            # What the Pod sets applies to the new container as well.
            missing = _unset(current, common)
            if _is_root(pod, container.security_context):
                missing = {key: value for key, value in missing.items() if key not in identity}
            yield from _fill(pod, container, missing)
        return
    containers = pod.containers()
    pod_is_root = _is_root(pod, NO_CONTEXT)
    are_root = [
        pod_is_root if own is NO_CONTEXT else _is_root(pod, own)
        for own in [container.security_context for container in containers]
    ]
    each_container: Fields = {}
    if pod_is_root or any(are_root):
        # Some containers run as root on purpose: the user goes into each of the others.
        each_container, identity = _unset(identity, common), {}
    current = {**identity, **_confinement(pod)}
    if not pod.is_windows:
        current["fsGroup"] = hardening.fs_group
    if missing := _unset(current, common):
        yield Addition(("securityContext",), missing)
    for container, is_root in zip(containers, are_root, strict=True):
        yield from _fill(pod, container, {} if is_root else each_container)


def _fill(pod: Pod, container: Container, fields: Fields) -> Iterator[Addition]:
    """Add what a container lacks of the fields, and of the privileges that it must drop."""
    missing = _unset(fields, container.security_context)
    if not pod.is_windows:
        missing |= _dropped_privileges(container.security_context)
    if missing:
        yield Addition((container.kind, container.position, "securityContext"), missing)


def _identity(hardening: Hardening, *, windows: bool) -> Fields:
    if windows:
        return {"runAsNonRoot": True}
    return {
        "runAsNonRoot": True,
        "runAsUser": hardening.run_as_user,
        "runAsGroup": hardening.run_as_group,
    }


def _confinement(pod: Pod) -> Fields:
    return {} if pod.is_windows else {"seccompProfile": {"type": "RuntimeDefault"}}


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


def _dropped_privileges(context: SecurityContext) -> Fields:
    missing: Fields = {}
    if context.allow_privilege_escalation is None and not excludes_no_escalation(context):
        missing["allowPrivilegeEscalation"] = False
    capabilities = context.capabilities
    dropped = (capabilities.drop if capabilities else None) or ()
    adds = (capabilities.add if capabilities else None) or ()
    added = [name.upper().removeprefix("CAP_") for name in adds]
    if "ALL" not in dropped and "ALL" not in added:
        missing["capabilities"] = {"drop": ["ALL"]}
    return missing


_attribute = operator.attrgetter
_GIVEN: dict[str, Callable[[SecurityContext], Any]] = {
    "runAsNonRoot": _attribute("run_as_non_root"),
    "runAsUser": _attribute("run_as_user"),
    "runAsGroup": _attribute("run_as_group"),
    "fsGroup": _attribute("fs_group"),
    "seccompProfile": _attribute("seccomp_profile"),
}


def _unset(values: Mapping[str, Any], context: SecurityContext) -> Fields:
    """Return the values of fields that the context leaves unset; None sets nothing."""
    if not values:
        return {}
    return {
        field: value
        for field, value in values.items()
        if value is not None and _GIVEN[field](context) is None
    }
