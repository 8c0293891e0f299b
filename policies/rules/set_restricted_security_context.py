"""Security context that the Pod Security profile `restricted` requires.

## What it adds

The fields that the profile requires and the Pod does not set:

- For the Pod: `runAsNonRoot: true`, `seccompProfile: {type: RuntimeDefault}`, and the user, group
  and fsGroup of the policy.
- For each container, init container and ephemeral container: `allowPrivilegeEscalation: false`, and
  `ALL` at the end of `capabilities.drop`.

- For a Pod that sets no user: the annotation `gpufence.dev/run-as-user` with the user ID. `kubectl
  describe` shows it, and the API server returns a warning at the creation of the Pod.
- With `hardening.home`, for each container that gets this user: a directory at `/gpufence-home` and
  the variables `HOME`, `USER` and `LOGNAME`. For a Pod that writes to a claim: an fsGroup.

The rule changes no field that the author set. If such a field violates the profile, the check
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

### A home directory

The user of gpufence has no entry in the `/etc/passwd` of an image, so it has no name, and its home
directory is `/`. With `hardening.home`, gpufence adds to each container and init container that
gets the user from gpufence:

- `HOME: /gpufence-home`. The caches of Hugging Face, PyTorch, Triton, vLLM, Jupyter and pip are
  below it, unless the image sets variables of its own.
- `USER: nonroot` and `LOGNAME: nonroot`, which programs read before they look up the user ID.
- A mount of the volume `gpufence-home`, an emptyDir with the size limit of the policy. Each
  container has its own directory in it. The kubelet evicts a Pod that exceeds the limit, so choose
  one above the size of the models that Pods download.

The volume does not keep cluster-autoscaler from removing a node: the Pod gets the annotation
`cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes`, unless it has one. `kubectl drain`
needs `--delete-emptydir-data`.

A Pod that mounts a claim for writing and sets no fsGroup gets the user ID as fsGroup, with
`fsGroupChangePolicy: OnRootMismatch`. This includes `volumeClaimTemplates` and ephemeral volumes.

A container that sets one of the three variables, mounts `/gpufence-home` or uses `envFrom` gets
none of this, and neither does a Pod with a volume `gpufence-home`. So a sidecar that another
webhook adds after gpufence gets the user, and no home directory. gpufence does not deny a Pod from
which another webhook removes the home directory. An image that keeps programs or settings in
its own home directory may need `HOME` to stay as it is: set `HOME` in its containers.

### Pods that differ

A Windows Pod gets only `runAsNonRoot`: the API server rejects the other fields. A container that
`kubectl debug` adds gets the fields that the Pod does not already set. The rest of the Pod does not
change.

With `hardening.level: baseline` or `off`, gpufence adds nothing: they require no fields. With
`hardening.hostUsers: false`, a Pod without a user gets `hostUsers: false` instead of `runAsNonRoot`
and a user. Its containers keep the users of their images, and root in them has no privileges on the
node. Such Pods need Kubernetes 1.33 or newer, and nodes that support user namespaces.

## Why

Most manifests do not set all of these fields, and a namespace that enforces `restricted` rejects
Pods without them. An image that expects to run as root may need changes to run as another user.
With `hardening.runAsUser: none`, gpufence does not set the user.

## Before

{GPU_POD}

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

- `hardening.level`: `restricted` (the default), or `baseline` or `off`, which add nothing.
- `hardening.runAsUser`: the user ID. `none` keeps the user of the image.
- `hardening.runAsGroup`, `hardening.fsGroup`: the group IDs. The default, `null`, adds none. The
  group is then that of the image, or 0. Group 0 has no privileges, and images for arbitrary user
  IDs rely on it.
- `hardening.hostUsers`: `false` gives Pods without a user a user namespace.
- `hardening.home`: the size limit of the home directories of a Pod, such as `20Gi`. It has no
  effect with `runAsUser: none` or another level: then gpufence gives no user.
- `pools[].hardening`, `overrides[].hardening`: the same settings for one pool or for some
  namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from policies.context import Context
from policies.kubernetes.core_v1 import (
    Capabilities,
    EnvVar,
    SeccompProfile,
    SecurityContext,
    Volume,
    VolumeMount,
    VolumeSource,
)
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import (
    NO_CONTEXT,
    Container,
    Pod,
    claimed_volumes,
    excluding_no_escalation,
    locks_memory,
    new_debug_containers,
)

ID = "restricted-security-context"
SUMMARY = 'the security context that Pod Security "restricted" requires'

USER_ANNOTATION = "gpufence.dev/run-as-user"
"""Annotation of a Pod that sets no user: the user ID that gpufence sets."""

HOME = "gpufence-home"
"""Name of the volume with the home directories, which is mounted at the path of this name."""
HOME_SIZE = "20Gi"
"""The size limit where the policy has none: of fixes, and of overrides that gpufence drafts."""
_VARIABLES = {"HOME": f"/{HOME}", "USER": "nonroot", "LOGNAME": "nonroot"}
"""Python's ``getpass.getuser`` reads the names before it looks up the user ID."""
_EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""Annotation that lists the volumes whose content may be lost when a node is removed.

Source: kubernetes/autoscaler, cluster-autoscaler/utils/drain/drain.go.
"""

# The root user of Windows, in any case (kubelet, security_context_windows.go).
_WINDOWS_ROOT = "containeradministrator"

User = dict[str, Any]
"""The fields of a security context that choose a user, by attribute; None sets nothing."""


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Fill in what the profile requires and the Pod leaves unset."""
    hardening, common, windows = context.hardening, pod.security_context, pod.is_windows
    if hardening.level != "restricted":
        return
    user: User = {"run_as_non_root": True}
    if not windows:
        user["run_as_user"] = hardening.run_as_user
        user["run_as_group"] = hardening.run_as_group
    if context.request.subresource == "ephemeralcontainers":
        if hardening.host_users is False and pod.spec.host_users is False:
            user = {}
        yield from _of_debug_containers(pod, context, user)
        return
    containers = pod.containers
    pod_is_root = _is_root(NO_CONTEXT, common, windows=windows)
    are_root = [
        pod_is_root
        if container.security_context is NO_CONTEXT
        else _is_root(container.security_context, common, windows=windows)
        for container in containers
    ]
    of_each: User = {}
    if hardening.host_users is False and _may_have_user_namespace(pod):
        yield Addition(pod.spec, ("spec", "hostUsers"), value=False)
        user = {}
    elif pod_is_root or True in are_root:
        # Some containers run as root on purpose: the user goes into each of the others.
        of_each, user = _unset(user, common), {}
    assigned = (of_each or user).get("run_as_user")
    given = [
        container
        for container, is_root in zip(containers, are_root, strict=True)
        if not is_root and container.security_context.run_as_user is None
    ]
    if assigned is None or common.run_as_user is not None:
        given = []
    wanted = SecurityContext(**user)
    if not windows:
        group = hardening.fs_group
        if group is None and hardening.home and _writes_claim(pod, given):
            group = assigned
        if group is not None and common.fs_group is None:
            wanted.fs_group = group
            wanted.fs_group_change_policy = "OnRootMismatch"
        wanted.seccomp_profile = _profile(common)
    if wanted != NO_CONTEXT:
        yield Addition(pod.spec, ("spec", "securityContext"), wanted)
    for container, is_root in zip(containers, are_root, strict=True):
        wanted = SecurityContext(**({} if is_root else of_each))
        yield from _fill(container, wanted, windows=windows)
    annotations = {USER_ANNOTATION: str(assigned)} if given else {}
    if hardening.home and (without := homeless(pod, given)):
        yield from homes(pod, without, hardening.home)
        annotations[_EVICTABLE] = HOME
    if annotations and pod.has_metadata:
        yield Addition(pod.metadata, ("metadata", "annotations"), annotations)


def _writes_claim(pod: Pod, containers: Iterable[Container]) -> bool:
    mounts = [m for container in containers for m in container.mounts if not m.read_only]
    return bool(mounts) and not claimed_volumes(pod).isdisjoint(str(m.name) for m in mounts)


def homeless(pod: Pod, containers: Iterable[Container]) -> list[Container]:
    """Return the containers that set nothing of a home directory, and may have a volume.

    The ConfigMaps and Secrets of ``envFrom`` may set its variables.
    """
    if HOME in [volume.get("name") for volume in pod.spec.volumes or ()]:
        return []
    return [
        container
        for container in containers
        if container.kind != "ephemeralContainers"
        and not container.spec.env_from
        and _VARIABLES.keys().isdisjoint(str(variable.name) for variable in container.env)
        and not any((m.mount_path or "").strip("/") == HOME for m in container.mounts)
    ]


def homes(pod: Pod, containers: Iterable[Container], size: str) -> Iterator[Addition]:
    """Give each container a directory of its own on one volume."""
    volume: Volume = {"name": HOME, "emptyDir": VolumeSource(size_limit=size)}
    yield Addition(pod.spec, ("spec", "volumes"), [volume])
    for container in containers:
        spec, path = container.spec, ("spec", container.kind, container.position)
        variables = [EnvVar(name, value) for name, value in _VARIABLES.items()]
        yield Addition(spec, (*path, "env"), variables)
        mount = VolumeMount(HOME, _VARIABLES["HOME"], sub_path=container.name)
        yield Addition(spec, (*path, "volumeMounts"), [mount])


def _may_have_user_namespace(pod: Pod) -> bool:
    """Return whether the API server accepts `hostUsers: false`, and the Pod sets no user.

    Source: k8s.io/kubernetes, pkg/apis/core/validation, validateHostUsers.
    """
    spec, containers = pod.spec, pod.containers
    return (
        spec.host_users is None
        and not (pod.is_windows or spec.host_network or spec.host_pid or spec.host_ipc)
        and not any(container.spec.volume_devices for container in containers)
        and pod.security_context.run_as_user is None
        and all(container.security_context.run_as_user is None for container in containers)
    )


def _of_debug_containers(pod: Pod, context: Context, user: User) -> Iterator[Addition]:
    """Fill in what the Pod does not set: what it sets applies to a new container as well."""
    common, windows = pod.security_context, pod.is_windows
    missing = _unset(user, common)
    for container in new_debug_containers(pod, context.old_spec):
        own = container.security_context
        is_root = _is_root(own, common, windows=windows)
        wanted = SecurityContext(**({} if is_root else missing))
        if not windows and common.seccomp_profile is None:
            wanted.seccomp_profile = _profile(own)
        yield from _fill(container, wanted, windows=windows)


def _fill(container: Container, wanted: SecurityContext, *, windows: bool) -> Iterator[Addition]:
    """Add what is wanted, and the privileges that a container must drop."""
    own = container.security_context
    if not windows:
        if own is NO_CONTEXT or not excluding_no_escalation(own):
            wanted.allow_privilege_escalation = False
        if own.capabilities is None or _keeps_privileges(own.capabilities):
            wanted.capabilities = Capabilities(drop=["ALL"])
    if wanted != NO_CONTEXT:
        path = ("spec", container.kind, container.position, "securityContext")
        yield Addition(container.spec, path, wanted)


def _profile(context: SecurityContext) -> SeccompProfile | None:
    return SeccompProfile("RuntimeDefault") if context.seccomp_profile is None else None


def _is_root(own: SecurityContext, common: SecurityContext, *, windows: bool) -> bool:
    """Return whether a container must run as root, which `runAsNonRoot: true` would stop."""
    non_root = common.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
    if non_root is False:
        return True
    if windows:
        return (_windows_user(own) or _windows_user(common)).lower() == _WINDOWS_ROOT
    user_id = common.run_as_user if own.run_as_user is None else own.run_as_user
    return user_id == 0 or (user_id is None and non_root is None and locks_memory(own))


def _windows_user(context: SecurityContext) -> str:
    return (context.windows_options.run_as_user_name if context.windows_options else None) or ""


def _keeps_privileges(capabilities: Capabilities) -> bool:
    """Return whether a container could drop all capabilities, and does not."""
    added = [name.upper().removeprefix("CAP_") for name in capabilities.add or ()]
    return "ALL" not in (capabilities.drop or ()) and "ALL" not in added


def _unset(values: User, context: SecurityContext) -> User:
    """Return the values of the fields that the context leaves unset."""
    return {
        attribute: value
        for attribute, value in values.items()
        if getattr(context, attribute) is None
    }
