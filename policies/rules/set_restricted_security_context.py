"""Security context that Pod Security `restricted` asks for.

## What it adds

Whatever the profile wants set and the Pod leaves open, once for the whole Pod where one value
serves:

- for the Pod: `runAsNonRoot: true`, `seccompProfile: {type: RuntimeDefault}`, and the policy's
  user, group and fsGroup;
- for each container, init container (sidecars among them) and ephemeral container:
  `allowPrivilegeEscalation: false`, and `ALL` at the end of `capabilities.drop`.

Nothing that the author wrote is changed. Where it contradicts the profile, the contradiction stays
for the check `unrestricted-gpu-pod` to name:

- A container that is root by its author's word (`runAsUser: 0` or `runAsNonRoot: false`, its own or
  the Pod's) keeps its user; the other containers then get `runAsNonRoot` and a user of their own,
  and the Pod gets none.
- A container that adds `IPC_LOCK` and names no user keeps that of its image. For another user than
  root the capability has no effect: RDMA cannot register memory, and NCCL falls back to TCP without
  a message (NVIDIA/nvidia-container-toolkit#2037). If an exception lets such a Pod through, the
  price is that the container runs as root where its image does.
- A container that is privileged or adds `SYS_ADMIN` gets no `allowPrivilegeEscalation`: the API
  server rejects the pair. One that adds `ALL` is not required to drop it.

A Windows Pod gets `runAsNonRoot` alone, since the API server rejects the rest there. A container
added by `kubectl debug` gets what the Pod does not give it already, and nothing else in the Pod
changes.

With `hardening.level: baseline` nothing is added: that profile wants nothing set.

## Why

Almost no manifest sets all of these, least of all those that come with training frameworks, and
without them a namespace that enforces `restricted` rejects the Pod. What runs as root today may
need an image that works for another user; `hardening.runAsUser: null` leaves the user to the image.

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

- `hardening.level`: `restricted`, or `baseline`, with which nothing is added.
- `hardening.runAsUser`: the user ID; `null` leaves it to the image.
- `hardening.runAsGroup`, `hardening.fsGroup`: group IDs; `null`, the default, adds none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from policies.context import Context
from policies.kubernetes.core_v1 import SecurityContext
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import NO_CONTEXT, Container, Pod, new_debug_containers
from policies.kubernetes.pod_security.privileges import excludes_no_escalation
from policies.policy import Hardening

ID = "restricted-security-context"
SUMMARY = 'the security context that Pod Security "restricted" asks for'

_LOCK_MEMORY = frozenset({"IPC_LOCK", "CAP_IPC_LOCK"})
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
        given = {**identity, **_confinement(pod)}
        for container in new_debug_containers(pod, context.old_spec):
            # What the Pod sets holds for the new container, too.
            wanted = _unset(given, common)
            if _is_root(pod, container.security_context):
                wanted = {key: value for key, value in wanted.items() if key not in identity}
            yield from _fill(pod, container, wanted)
        return
    containers = pod.containers()
    are_root = [_is_root(pod, each.security_context) for each in containers]
    each_container: Fields = {}
    if any(are_root) or _is_root(pod, NO_CONTEXT):
        # Some containers are root by their author's word: the others get a user of their own.
        each_container, identity = _unset(identity, common), {}
    whole = {**identity, **_confinement(pod)}
    if not pod.is_windows:
        whole["fsGroup"] = hardening.fs_group
    if missing := _unset(whole, common):
        yield Addition(("securityContext",), missing)
    for container, is_root in zip(containers, are_root, strict=True):
        yield from _fill(pod, container, {} if is_root else each_container)


def _fill(pod: Pod, container: Container, wanted: Fields) -> Iterator[Addition]:
    """Add what a container lacks of the wanted fields, and of the privileges that it drops."""
    missing = _unset(wanted, container.security_context)
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
        # Without ambient capabilities, which runtimes do not set, only root has what is added.
        added = (own.capabilities.add if own.capabilities else None) or ()
        locks_memory = not _LOCK_MEMORY.isdisjoint(added)
        return user_id == 0 or (locks_memory and non_root is None and user_id is None)
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
