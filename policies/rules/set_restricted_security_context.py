"""Security context that the Pod Security profile `restricted` requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from posixpath import normpath
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
from policies.kubernetes.editor import Addition, Change, Removal
from policies.kubernetes.pod import (
    NO_CONTEXT,
    Container,
    Pod,
    claimed_volumes,
    excluding_no_escalation,
    locks_memory,
    new_debug_containers,
    volumes_of_root,
)

ID = "restricted-security-context"
SUMMARY = 'the security context that Pod Security "restricted" requires'

USER_ANNOTATION = "gpufence.dev/run-as-user"
"""Annotation of a Pod that sets no user: the user ID that gpufence sets."""

HOME = "gpufence-home"
"""Name of the volume with the home directories, which is mounted at the path of this name."""
HOME_SIZE = "20Gi"
"""The size limit where the policy has none: of fixes, and of overrides that gpufence drafts."""
_VARIABLES = ("HOME", "USER", "LOGNAME")
"""Python's ``getpass.getuser`` reads the last two before it looks up the user ID."""
_EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""Annotation that lists the volumes whose content may be lost when a node is removed.

Commas separate them, and spaces count. Source: kubernetes/autoscaler,
cluster-autoscaler/utils/drain/drain.go, getNonBlockingVolumes.
"""
_MOST_ANNOTATIONS = 256 * 1024
"""The most bytes of all annotations (k8s.io/apimachinery, ValidateAnnotationsSize)."""

# The root user of Windows, in any case (kubelet, security_context_windows.go).
_WINDOWS_ROOT = "containeradministrator"

User = dict[str, Any]
"""The fields of a security context that choose a user, by attribute; None sets nothing."""


def changes(pod: Pod, context: Context) -> Iterator[Change]:
    """Fill in what the profile requires and the Pod leaves unset."""
    hardening, common, windows = context.hardening, pod.security_context, pod.is_windows
    is_debugged = context.request.subresource == "ephemeralcontainers"
    if hardening.level != "restricted":
        yield from () if is_debugged else _annotate(pod, {})
        return
    user: User = {"run_as_non_root": True}
    if not pod.runs_on_windows:
        user["run_as_user"] = hardening.run_as_user
        user["run_as_group"] = hardening.run_as_group
    if is_debugged:
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
        if group is None and hardening.home and _writes_volume(pod, given):
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
        listed = pod.annotations.get(_EVICTABLE)
        known = listed.split(",") if listed else []
        annotations[_EVICTABLE] = ",".join(known if HOME in known else [*known, HOME])
    yield from _annotate(pod, annotations)


def _annotate(pod: Pod, wanted: dict[str, str]) -> Iterator[Change]:
    """Set annotations if there is room for them, or remove a user ID that no container has."""
    if not pod.has_metadata:
        return
    path = ("metadata", "annotations")
    # The wanted ones alone have room. For speed: most Pods have no others.
    if wanted and not (pod.annotations and _exceed_limit({**pod.annotations, **wanted})):
        yield Addition(pod.metadata, path, wanted, replaces=True)
    elif (written := pod.annotations.get(USER_ANNOTATION)) is not None:
        common = pod.security_context.run_as_user
        own = [container.security_context.run_as_user for container in pod.containers]
        if written not in [str(common if user is None else user) for user in own]:
            yield Removal(pod.metadata, path, USER_ANNOTATION)


def _exceed_limit(annotations: Mapping[str, str | None]) -> bool:
    texts = chain(annotations, filter(None, annotations.values()))
    return len("".join(texts).encode()) > _MOST_ANNOTATIONS


def _writes_volume(pod: Pod, containers: Iterable[Container]) -> bool:
    mounts = [m for container in containers for m in container.mounts if not m.read_only]
    return not volumes_of_root(pod).isdisjoint(str(m.name) for m in mounts)


def homeless(pod: Pod, containers: Iterable[Container]) -> list[Container]:
    """Return the containers that set nothing of a home directory, and may have a volume.

    The ConfigMaps and Secrets of ``envFrom`` may set its variables.
    """
    volumes = [volume.get("name") for volume in pod.spec.volumes or ()]
    if HOME in volumes or HOME in claimed_volumes(pod):
        return []
    return [
        container
        for container in containers
        if container.kind != "ephemeralContainers"
        and not container.spec.env_from
        and not any(variable.name in _VARIABLES for variable in container.env)
    ]


def homes(pod: Pod, containers: Iterable[Container], size: str) -> Iterator[Addition]:
    """Give each container a directory of its own on one volume."""
    volume: Volume = {"name": HOME, "emptyDir": VolumeSource(size_limit=size)}
    yield Addition(pod.spec, ("spec", "volumes"), [volume])
    for container in containers:
        spec, path = container.spec, ("spec", container.kind, container.position)
        home = _free_path(container)
        values = (home, "nonroot", "nonroot")
        variables = [EnvVar(*each) for each in zip(_VARIABLES, values, strict=True)]
        yield Addition(spec, (*path, "env"), variables)
        mount = VolumeMount(HOME, home, sub_path=container.name)
        yield Addition(spec, (*path, "volumeMounts"), [mount])


def _free_path(container: Container) -> str:
    """Return a path for a home directory at which the container has nothing else."""
    devices = container.spec.volume_devices or ()
    paths = [*(m.mount_path for m in container.mounts), *(d.device_path for d in devices)]
    taken, home = {normpath(f"/./{path}") for path in paths}, f"/{HOME}"
    while home in taken:
        home += "-2"
    return home


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
