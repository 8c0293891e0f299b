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
  server refuses the pair. One that adds `ALL` is not told to drop it.

A Windows Pod gets `runAsNonRoot` alone, since the API server refuses the rest there. A container
added by `kubectl debug` gets what the Pod does not give it already, and nothing else in the Pod
changes.

With `hardening.level: baseline` nothing is added: that profile wants nothing set.

## Why

Almost no manifest sets all of these, least of all those that come with training frameworks, and
without them a namespace that enforces `restricted` refuses the Pod. What runs as root today may
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

from collections.abc import Iterable, Mapping
from typing import Any

from policies.context import Context
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Container, Pod, new_debug_containers
from policies.kubernetes.pod_security.privileges import excludes_no_escalation
from policies.policy import Hardening

ID = "restricted-security-context"
SUMMARY = 'the security context that Pod Security "restricted" asks for'

_LOCK_MEMORY = frozenset({"IPC_LOCK", "CAP_IPC_LOCK"})
# What the kubelet takes for root on Windows, in any case (security_context_windows.go).
_WINDOWS_ROOT = "containeradministrator"


def apply(pod: Pod, context: Context) -> None:
    """Fill in what the profile wants set and the Pod leaves unset."""
    if context.policy.hardening.level == "baseline":
        return
    windows = pod.is_windows
    identity = _identity(context.policy.hardening, windows=windows)
    if context.request.subresource == "ephemeralcontainers":
        _fill_debug_containers(pod, identity, context.request.old)
        return
    containers, common = pod.containers(), _context(pod.spec)
    contexts = [{}, *[_context(container.raw) for container in containers]]
    if any(_is_root(own, common, windows=windows) for own in contexts):
        _identify_each(pod, containers, identity)
        identity = {}
    if windows:
        _fill(pod.spec, identity)
        return
    _fill(pod.spec, {**identity, **_confinement(), "fsGroup": context.policy.hardening.fs_group})
    for container in containers:
        _drop_privileges(container.raw)


def _fill_debug_containers(pod: Pod, identity: Mapping[str, Any], old: JSONObject | None) -> None:
    """Fill the ephemeral containers that this request adds."""
    added = new_debug_containers(pod, old)
    _identify_each(pod, added, identity)
    if not pod.is_windows:
        for container in added:
            _fill(container.raw, _unless_given(_confinement(), _context(pod.spec)))
            _drop_privileges(container.raw)


def _identity(hardening: Hardening, *, windows: bool) -> dict[str, Any]:
    if windows:
        return {"runAsNonRoot": True}
    return {
        "runAsNonRoot": True,
        "runAsUser": hardening.run_as_user,
        "runAsGroup": hardening.run_as_group,
    }


def _confinement() -> dict[str, Any]:
    return {"seccompProfile": {"type": "RuntimeDefault"}}


def _identify_each(pod: Pod, containers: Iterable[Container], identity: Mapping[str, Any]) -> None:
    """Fill in the identity, container by container, where nobody says root."""
    common, windows = _context(pod.spec), pod.is_windows
    missing = _unless_given(identity, common)
    for container in containers:
        if not _is_root(_context(container.raw), common, windows=windows):
            _fill(container.raw, missing)


def _is_root(own: JSONObject, common: JSONObject, *, windows: bool) -> bool:
    """Return whether a container is to be root, which `runAsNonRoot: true` would stop.

    ``own`` is the container's security context, ``common`` the Pod's.
    """
    non_root = _effective("runAsNonRoot", own, common)
    user_id = _effective("runAsUser", own, common)
    if non_root is False:
        return True
    if not windows:
        # Without ambient capabilities, which runtimes do not set, only root has what is added.
        locks_memory = not _LOCK_MEMORY.isdisjoint((own.get("capabilities") or {}).get("add") or ())
        return bool(user_id == 0) or (locks_memory and non_root is None and user_id is None)
    user = _windows_user(own) or _windows_user(common)
    return user.lower() == _WINDOWS_ROOT


def _effective(field: str, own: JSONObject, common: JSONObject) -> Any:
    value = own.get(field)
    return common.get(field) if value is None else value


def _windows_user(context: JSONObject) -> str:
    return str((context.get("windowsOptions") or {}).get("runAsUserName") or "")


def _drop_privileges(container: JSONObject) -> None:
    context = _context(container)
    missing: dict[str, Any] = {}
    if context.get("allowPrivilegeEscalation") is None and not excludes_no_escalation(context):
        missing["allowPrivilegeEscalation"] = False
    capabilities = context.get("capabilities") or {}
    dropped = capabilities.get("drop") or []
    added = [name.upper().removeprefix("CAP_") for name in capabilities.get("add") or ()]
    if "ALL" not in dropped and "ALL" not in added:
        missing["capabilities"] = {**capabilities, "drop": [*dropped, "ALL"]}
    if missing:
        container["securityContext"] = {**context, **missing}


def _context(owner: JSONObject) -> JSONObject:
    return owner.get("securityContext") or {}


def _unless_given(values: Mapping[str, Any], context: JSONObject) -> dict[str, Any]:
    return {field: value for field, value in values.items() if context.get(field) is None}


def _fill(owner: JSONObject, values: Mapping[str, Any]) -> None:
    """Set the fields of a security context that are unset; None sets nothing."""
    context = _context(owner)
    missing = {
        field: value
        for field, value in values.items()
        if value is not None and context.get(field) is None
    }
    if missing:
        owner["securityContext"] = {**context, **missing}
