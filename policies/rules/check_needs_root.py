"""Container that likely needs root, a home directory, or a privilege that it does not have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache, reduce
from operator import or_

from policies.context import Context
from policies.finding import Finding
from policies.images import Image, known_image
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.pod import (
    Container,
    DeviceResource,
    Pod,
    claimed_volumes,
    locks_memory,
    volumes_of_root,
)
from policies.kubernetes.quantity import is_rdma_resource_name
from policies.wording import uncapitalized

ID = "needs-root"


_ANY_USER = "a non-root user"
"""A user that the image chooses."""

_MOST_TEXT = 8 * 1024
_SYSTEM, _PYTHON = frozenset(("install", "update", "upgrade")), frozenset(("install",))
_INSTALLERS = {
    **dict.fromkeys(("apt-get", "apt", "yum", "dnf", "microdnf"), _SYSTEM),
    **dict.fromkeys(("pip", "pip3", "conda", "mamba"), _PYTHON),
    "apk": frozenset(("add",)),
}
"""By program, the words with which it installs packages."""
_WORDS = re.compile(
    rf"\b(?:{'|'.join(_INSTALLERS)})(?=\s)|\b(?:install|update|upgrade|add)\b|[;&|\n]"
)
_PROGRAMS = (*_INSTALLERS, "sshd", "sudo")
"""What a command is searched for, for a first look that costs little."""
_OF_A_GROUP = re.compile(r"(^|\.)amd\.com|gpu\.intel\.com")
"""The devices whose files belong to a group, by resource or DeviceClass."""
_STRATEGY = ("nvidia.com/gpu.sharing-strategy", "cloud.google.com/gke-gpu-sharing-strategy")
_SSHD = re.compile(r"(?:^|[\s/])sshd\b")
_SUDO = re.compile(r"(?:^|[\s/;&|(])sudo\s")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each sign that a container lacks a privilege."""
    if pod.runs_on_windows:
        yield from _windows(pod)
        return
    if pod.spec.host_users is False:
        yield from _user_namespace(pod, context)
        return
    yield from _memory_lock(pod, context)
    if context.facts.nodes or pod.spec.resource_claims:
        yield from _mps_client(pod, context)
    yield from _without_group(pod, context)
    if pod.security_context.fs_group is None:
        volumes = volumes_of_root(pod)
    else:
        yield from _slow_start(pod, claimed_volumes(pod))
        volumes = frozenset()
    for container in pod.containers:
        spec = container.spec
        known = known_image(spec.image or "")
        below_root = [m for m in container.mounts if (m.mount_path or "").startswith("/root")]
        if not (known or volumes or below_root or spec.command or spec.args):
            continue
        user = _user(container, pod)
        if user is None:
            continue
        who = f'container "{container.name}" runs as {user}'
        if below_root:
            yield from _mounts(container, pod, who)
        if spec.command or spec.args:
            yield from _command(container, pod, who)
        if volumes:
            yield from _unwritable(container, pod, who, volumes)
        if known and _fails(known, user, container, context):
            yield _image(container, pod, who, known)


def _windows(pod: Pod) -> Iterator[Finding]:
    """Yield a finding for each container that the kubelet may not start, as most images are root's.

    Source: ``k8s.io/kubernetes/pkg/kubelet/kuberuntime/security_context_windows.go``.
    """
    common = pod.security_context
    for container in pod.containers:
        own, image = container.security_context, container.spec.image or ""
        non_root = common.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
        options = (own.windows_options, common.windows_options)
        if any(each and each.run_as_user_name for each in options) or "nanoserver" in image:
            continue
        if non_root:
            yield Finding(
                ID,
                pod.at(container.field),
                "a Windows container may run as ContainerAdministrator",
                f'container "{container.name}" names no user, most base images run as '
                "ContainerAdministrator, and with runAsNonRoot: true, the kubelet does not start "
                "such a container",
                "Set windowsOptions: {runAsUserName: ContainerUser} in the securityContext of the "
                "Pod or container",
            )


def _user_namespace(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if the GPU Operator manages the nodes of a pool.

    Sources: NVIDIA/cloud-native-docs, ``gpu-operator/release-notes.rst`` (known issues of 26.3.1);
    NVIDIA/nvidia-container-toolkit, issue 648.
    """
    for pool in context.requested_pools:
        if any(key.startswith("nvidia.com/") for key in pool.selector):
            yield Finding(
                ID,
                pod.at("spec.hostUsers"),
                "a GPU container may not start in a user namespace",
                "the Pod has hostUsers: false, which NVIDIA's GPU Operator does not support on the "
                f"nodes of pool {pool.name}: its hook lacks the privileges to set up the GPUs",
                "Set hostUsers: true",
            )
            return


def _memory_lock(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each container that requests RDMA devices and cannot lock memory.

    Kubernetes sets no memlock limit, and no ambient capabilities.
    """
    first: dict[str, DeviceResource] = {}
    for resource in pod.device_resources:
        if is_rdma_resource_name(resource.name) and any(resource.nanos.values()):
            first.setdefault(resource.container.field, resource)
    for resource in first.values():
        container = resource.container
        user, is_added = _user(container, pod), locks_memory(container.security_context)
        if container.security_context.privileged or (is_added and user is None):
            continue
        why = f"runs as {user}, for which IPC_LOCK has no effect" if user else "adds no IPC_LOCK"
        remediation = (
            "Run ulimit -l in the container. If it does not print unlimited, the cluster "
            "administrator can set LimitMEMLOCK=infinity for the container runtime of GPU nodes"
        )
        if context.hardening.level == "off":
            remediation = (
                "Add capabilities: {add: [IPC_LOCK]} to its securityContext, and run it as root. "
                f"Or {uncapitalized(remediation)}"
            )
        yield Finding(
            ID,
            pod.at(resource.field(next(iter(resource.quantities)))),
            "a container with RDMA devices may be unable to lock its memory",
            f'container "{container.name}" {why}. It can lock only as much memory as the '
            f"container runtime allows, 8 MiB by default, and cannot use {resource.name} if it "
            "needs more: NCCL falls back to TCP",
            remediation,
        )


def _mps_client(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if the Pod is a client of an MPS server, as a user of gpufence's choice.

    A server has clients of one user at a time; the device plugin's runs as root. Source: NVIDIA,
    Multi-Process Service, "Client-Server Connection"; bottlerocket-os/bottlerocket#4673.
    """
    nodes, user = context.facts.nodes or NodeIndex(), context.hardening.run_as_user
    if user is None or pod.security_context.run_as_user != user:
        return
    by_mps = reduce(or_, (nodes.selected_by({key: ("mps",)}) for key in _STRATEGY))
    claims = {named.name: named.claim for named in context.claims(pod)}
    for request in context.device_requests:
        claim = claims.get(request.claim)
        who = f"the nodes of {request.pool_names} share their GPUs"
        if claim and claim.shares_by_mps:
            who = f"resource claim {request.claim} shares its GPU"
        elif not by_mps & nodes.offering(request.resource):
            continue
        yield Finding(
            ID,
            request.path,
            "a client of an MPS server may have another user than the server",
            f"{who} by MPS, whose server accepts clients of one user at a time, and the Pod runs "
            f"as user {user}",
            "Set the same runAsUser in the securityContext of all Pods that share the GPUs",
        )
        return


def _without_group(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if the Pod may be unable to open its devices, whose files have a group.

    Container runtimes keep the owner of a device file, and udev gives ``/dev/kfd`` and
    ``/dev/dri/renderD*`` to root and the group render, with mode 0660. Files of NVIDIA's devices
    have mode 0666. Sources: Kubernetes, "Non-root Containers And Devices" (2021);
    ROCm/k8s-device-plugin#39.
    """
    common = pod.security_context
    if common.supplemental_groups or common.run_as_group is not None:
        return
    for request in context.device_requests:
        if not _have_group(request.devices):
            continue
        users = (_user(c, pod) for c in pod.containers if c.security_context.run_as_group is None)
        if user := next(filter(None, users), None):
            yield Finding(
                ID,
                request.path,
                "a container may be unable to open its devices without their group",
                f"the Pod runs as {user}, and the files of {request.what} may belong to root and "
                "the group render of the node, which the Pod does not have",
                f"Set supplementalGroups in {_security_context(pod)} to the group that ls -ln "
                "/dev/dri prints on the node. Or have the cluster administrator set "
                "device_ownership_from_security_context = true for the container runtime of GPU "
                "nodes",
            )
            return


@lru_cache(maxsize=1024)
def _have_group(devices: tuple[str, ...]) -> bool:
    return any(map(_OF_A_GROUP.search, devices))


def _user(container: Container, pod: Pod) -> str | None:
    """Return who runs the container; None for root, or if only the image says."""
    own, common = container.security_context, pod.security_context
    user = common.run_as_user if own.run_as_user is None else own.run_as_user
    if user is not None:
        return f"user {user}" if user else None
    non_root = common.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
    return _ANY_USER if non_root else None


def _security_context(pod: Pod) -> str:
    """Return how the object calls the Pod's security context: Spark has a name of its own."""
    place = pod.at("spec.securityContext")
    return "the Pod's securityContext" if place.endswith(".securityContext") else place


def _mounts(container: Container, pod: Pod, who: str) -> Iterator[Finding]:
    for index, mount in enumerate(container.mounts):
        path = mount.mount_path or ""
        if path == "/root" or path.startswith("/root/"):
            yield Finding(
                ID,
                pod.at(f"{container.field}.volumeMounts[{index}].mountPath"),
                "a container that does not run as root mounts a volume below /root",
                f"{who}, which cannot reach {path}",
                "Mount the volume at another path, such as /home/user, and set the variable HOME "
                "if the program looks for its files there",
            )


def _command(container: Container, pod: Pod, who: str) -> Iterator[Finding]:
    for field in ("command", "args"):
        words = getattr(container.spec, field) or ()
        text = " ".join(map(str, words))[:_MOST_TEXT]
        if not any(map(text.__contains__, _PROGRAMS)):
            continue
        at = pod.at(f"{container.field}.{field}")
        if found := _installation(text):
            yield _installs(container, at, who, found)
        if _SUDO.search(text):
            yield Finding(
                ID,
                at,
                "a container that does not run as root uses sudo",
                f"{who}, and sudo cannot become root in a container that may not gain privileges",
                "Remove sudo, and do what needs root when you build the image",
            )
        if _SSHD.search(text):
            yield Finding(
                ID,
                at,
                "a container that does not run as root starts sshd",
                f"{who}, and sshd needs host keys that the user can read and a port above 1024",
                "Use an image whose sshd is set up for this user, such as those of the MPI "
                "operator for runAsUser: 1000",
            )


def _installs(container: Container, at: str, who: str, found: str) -> Finding:
    """Return the finding about an installation: pip needs no more than a home directory."""
    in_home = found.startswith("pip") and "HOME" in [each.name for each in container.env]
    where = ": pip writes to $HOME/.local, whose commands are not in PATH, and fails in a venv"
    return Finding(
        ID,
        at,
        f"a container that does not run as root installs packages{' at home' if in_home else ''}",
        f'{who}, and its command has "{found:.60}"{where if in_home else ""}',
        f"{'Run the commands with python -m, or install' if in_home else 'Install'} the packages "
        "when you build the image",
    )


def _installation(text: str) -> str:
    """Return the part of a command that installs packages; empty if none does.

    In one pass over the text, which the author of a Pod chooses.
    """
    program: re.Match[str] | None = None
    for word in _WORDS.finditer(text):
        if word[0] in _INSTALLERS:
            program = word
        elif word[0] in ";&|\n":
            program = None
        elif program and word[0] in _INSTALLERS[program[0]]:
            return text[program.start() : word.end()]
    return ""


def _slow_start(pod: Pod, volumes: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if the kubelet changes the group of every file at each start."""
    written = [m for c in pod.containers for m in c.mounts if m.name in volumes and not m.read_only]
    if written and pod.security_context.fs_group_change_policy is None:
        yield Finding(
            ID,
            pod.at("spec.securityContext.fsGroup"),
            "the start of a Pod may wait for a change of every file of its claims",
            f"the Pod sets fsGroup without fsGroupChangePolicy: at each start, the kubelet changes "
            f"the group of all files in {written[0].name}, which takes minutes for many files",
            f"Set fsGroupChangePolicy: OnRootMismatch in {_security_context(pod)}",
        )


def _unwritable(
    container: Container, pod: Pod, who: str, volumes: Collection[str]
) -> Iterator[Finding]:
    for index, mount in enumerate(container.mounts):
        if mount.name in volumes and not mount.read_only:
            yield Finding(
                ID,
                pod.at(f"{container.field}.volumeMounts[{index}]"),
                "a container that does not run as root mounts a volume for writing without fsGroup",
                f"{who}, and a new volume belongs to root",
                "Set fsGroup to a group ID, and fsGroupChangePolicy: OnRootMismatch, in "
                f"{_security_context(pod)}. Or set readOnly: true for the mount if the container "
                "only reads",
            )


def _fails(known: Image, user: str, container: Container, context: Context) -> bool:
    """Return whether a known image fails as the user of its container.

    The author of a Pod may know better, except where the program looks up the user's name.
    """
    if known.needs == "any" or user in (_ANY_USER, f"user {known.user}"):
        return False
    if known.needs == "home" and {*known.variables} <= {each.name for each in container.env}:
        return False
    is_assigned = user == f"user {context.hardening.run_as_user}"
    return is_assigned or (known.needs == "home" and known.user is not None)


def _image(container: Container, pod: Pod, who: str, known: Image) -> Finding:
    return Finding(
        ID,
        pod.at(f"{container.field}.image"),
        "an image is known to fail as a user that it was not built for",
        f"{who}, and {known.name} was not built for it: {known.why}",
        known.remediation,
    )
