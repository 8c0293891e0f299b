"""Container that uses devices without requesting them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import shorten

from msgspec.structs import replace

from policies.advice import is_base, of_copy, of_owner
from policies.context import Context
from policies.device_injection import (
    CUDA_VERSION,
    NO_DEVICES,
    VISIBLE_DEVICES,
    Values,
    devices_without_gpus,
    expanded,
    is_device_file,
    is_device_mount,
    is_legacy,
    names_cdi_device,
    names_device_file,
    normal,
    shows_gpus,
    values,
)
from policies.finding import Finding
from policies.kubernetes.core_v1 import EnvVar, VolumeMount, host_path, volume_name
from policies.kubernetes.pod import Container, Pod
from policies.policy import Policy
from policies.reach import is_daemon_set_pod
from policies.vocabulary import (
    ANNOTATIONS,
    CDI_ANNOTATIONS,
    GKE_DEVICES,
    IN_PLACE,
    ONLY_CLAIMS,
    SHOWS_GPUS,
    agent_remediation,
    device_files,
    scheduler_advice,
    variable_remediation,
    visible_devices_variables,
    volume_remediations,
)
from policies.wording import capitalized

ID = "device-leak"

_SHOWS = "a container without a device request makes GPUs visible"
_MOUNTS_FILES = "a volume mounts device files of the node"

_HAS_DEVICES = re.compile(
    r"/|/(var/)?run(/nvidia(/driver)?)?|/proc(/.*)?|(/.*)?/dev(/.*)?", re.DOTALL
)
"""Directories of the node below which an unknown path may be a device file."""


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each variable, volume and annotation that opens devices."""
    requests = context.device_requests
    host_paths = [
        (index, volume_name(volume, index), path)
        for index, volume in enumerate(pod.spec.volumes or ())
        if "hostPath" in volume and (path := host_path(volume))
    ]
    paths: dict[str | None, str] = {name: path for _, name, path in host_paths}
    by_scheduler = {
        request.container: request.scheduler_name for request in requests if request.scheduler_name
    }
    for container in pod.containers:
        place = container.kind, container.position
        if place not in context.requesting:
            if container.spec.env:
                yield from _by_variable(pod, container, context)
        elif scheduler := by_scheduler.get(place):
            yield from _with_scheduler(pod, container, scheduler, context.policy)
        if paths:
            known = values(container.env)
            for index, mount in enumerate(container.mounts):
                if path := paths.get(mount.name):
                    at = pod.at(f"{container.field}.volumeMounts[{index}]")
                    yield from _by_mount(pod, container, mount, at, path, known, context)
    for index, name, path in host_paths:
        if _is_device_file(path, context.policy):
            mounting = [c for c in pod.containers if name in [mount.name for mount in c.mounts]]
            yield Finding(
                ID,
                pod.at(f"spec.volumes[{index}].hostPath.path"),
                _MOUNTS_FILES,
                f'volume "{name}" mounts {path}, {IN_PLACE}',
                _volume_remediation(path, pod, mounting, context),
            )
    if pod.metadata.annotations:
        yield from _by_annotation(pod, context)


def _by_variable(pod: Pod, container: Container, context: Context) -> Iterator[Finding]:
    env, resources = container.env, container.spec.resources
    visible_devices = visible_devices_variables(context.policy)
    # With void, which gpufence itself sets, a container gets no device, whatever else it says.
    if not [
        variable
        for variable in env
        if variable.name == CUDA_VERSION
        or (variable.name in visible_devices and variable.value != "void")
    ]:
        return
    known = values(env)
    has_claims = resources and resources.claims
    for name in visible_devices:
        if name in known and shows_devices(name, known[name]):
            yield _variable(
                pod,
                container,
                name,
                ONLY_CLAIMS if has_claims else SHOWS_GPUS,
                f"Set {name} to void"
                if has_claims
                else _remediation(pod, container, name, context),
            )
    if is_legacy(known):
        consequence = f"for which it gets every GPU without {VISIBLE_DEVICES}"
        remediation = f"Add {VISIBLE_DEVICES} with value void, or remove {CUDA_VERSION}"
        yield _variable(pod, container, CUDA_VERSION, consequence, remediation)
    if not shows_gpus(known.get(VISIBLE_DEVICES, "")):
        for name, devices in sorted(devices_without_gpus(known).items()):
            consequence = f"for which it gets {devices} with {VISIBLE_DEVICES} none"
            remediation = f"Set {VISIBLE_DEVICES} to void, or remove {name}"
            yield _variable(pod, container, name, consequence, remediation)


def _variable(
    pod: Pod, container: Container, name: str, consequence: str, remediation: str
) -> Finding:
    index, variable = _last(container, name)
    shown = "a value from valueFrom" if variable.value_from else f'"{variable.value}"'
    return Finding(
        ID,
        pod.at(f"{container.field}.env[{index}]"),
        _SHOWS,
        f'container "{container.name}" sets {name} to {shown}, {consequence}',
        remediation,
    )


def _with_scheduler(
    pod: Pod, container: Container, scheduler: str, policy: Policy
) -> Iterator[Finding]:
    """Yield a finding for each variable by which a container chooses other devices than it gets."""
    known = values(container.env)
    for name in visible_devices_variables(policy):
        if name not in known or not shows_devices(name, known[name]):
            continue
        if not _last(container, name)[1].value_from:
            consequence = f"but the scheduler {scheduler} chooses the GPU and sets the variable"
            finding = _variable(pod, container, name, consequence, f"Remove {name}")
            reason = "a container with a part of a GPU makes other GPUs visible"
            yield replace(finding, reason=reason)


def _last(container: Container, name: str) -> tuple[int, EnvVar]:
    """Return index and variable of the last entry with the name, which counts."""
    env = container.env
    index = max(index for index, variable in enumerate(env) if variable.name == name)
    return index, env[index]


def shows_devices(name: str, value: str | None) -> bool:
    """Return whether a variable of a vendor shows devices; ``None`` is an unknown value."""
    return shows_gpus(value) if name == VISIBLE_DEVICES else value not in NO_DEVICES


def _by_mount(
    pod: Pod,
    container: Container,
    mount: VolumeMount,
    at: str,
    path: str,
    known: Values,
    context: Context,
) -> Iterator[Finding]:
    """Yield the findings about a mount of a hostPath volume with this path."""
    mount_path, policy = mount.mount_path or "", context.policy
    if is_device_mount(mount_path):
        yield Finding(
            ID,
            f"{at}.mountPath",
            "a volume mount selects GPUs of the node",
            f'container "{container.name}" mounts a volume at {mount_path}, with which '
            "the NVIDIA runtime selects GPUs",
            _removal("the volume mount", pod, [container], context)
            or f"{_any_request(policy)} in place of the volume mount",
        )
    field, below = "subPath", mount.sub_path
    opens = below and _is_device_file(f"{path}/{below}", policy)
    if mount.sub_path_expr:
        field, below = "subPathExpr", mount.sub_path_expr
        sub_path = expanded(below, known)
        if sub_path is None:
            opens = bool(_HAS_DEVICES.fullmatch(normal(path)))
        else:
            opens = _is_device_file(f"{path}/{sub_path}", policy)
    if opens:
        yield Finding(
            ID,
            f"{at}.{field}",
            _MOUNTS_FILES,
            f'container "{container.name}" mounts {below} below {path}, {IN_PLACE}',
            _volume_remediation(f"{path}/{below}", pod, [container], context),
        )


def _by_annotation(pod: Pod, context: Context) -> Iterator[Finding]:
    for key, value in pod.annotations.items():
        family = key.partition("/")[0]
        if family not in ANNOTATIONS:
            continue
        text = value or ""
        if family in CDI_ANNOTATIONS:
            opens = names_cdi_device(text, context.policy.vendors)
        else:
            opens = names_device_file(text, device_files(context.policy))
        if opens:
            yield Finding(
                ID,
                pod.at(f"metadata.annotations[{key}]"),
                "an annotation adds devices of the node",
                f'with {key}: "{shorten(text, 60, placeholder=" …")}", the container '
                f"runtime adds devices, {IN_PLACE}",
                _annotation_remediation(family, pod, context),
                subjects=frozenset({f"{key}: {text}"}),
            )


def _annotation_remediation(family: str, pod: Pod, context: Context) -> str:
    if family == GKE_DEVICES and context.device_requests:
        return (
            "For GPUDirect-TCPX or TCPXO, or a share of a GPU, request an exception from the "
            "cluster administrator. Otherwise remove the annotation"
        )
    requesting = [c for c in pod.containers if (c.kind, c.position) in context.requesting]
    return (
        _removal("the annotation", pod, requesting, context)
        or f"{_any_request(context.policy)} in place of the annotation"
    )


def _remediation(pod: Pod, container: Container, name: str, context: Context) -> str:
    """Return the likeliest fix: agents and Pods of other schedulers rarely want a GPU."""
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    if _last(container, name)[1].value_from and scheduler != "default-scheduler":
        return scheduler_advice(scheduler, f"set {name} to void")
    return _other_remediation(
        name, f"set {name} to void", pod, [container], context
    ) or variable_remediation(name, context.policy)


def _volume_remediation(
    path: str, pod: Pod, mounting: Sequence[Container], context: Context
) -> str:
    below = f"{normal(path)}/"
    advice = volume_remediations(context.policy)
    of_file = next((text for file, text in advice.items() if file in below), "Remove the volume")
    return _removal("the volume", pod, mounting, context) or of_file


def _removal(what: str, pod: Pod, containers: Sequence[Container], context: Context) -> str:
    return _other_remediation(what, f"remove {what}", pod, containers, context)


def _other_remediation(
    what: str, fix: str, pod: Pod, containers: Sequence[Container], context: Context
) -> str:
    """Return what to do where a request of these containers does not help; empty if it does."""
    fix_first = capitalized(fix)
    if containers and all(each.kind == "ephemeralContainers" for each in containers):
        return f"{fix_first}: an ephemeral container cannot request a device"
    if is_daemon_set_pod(pod, context):
        return agent_remediation(fix)
    if said := of_copy(pod, context) or of_owner(fix, pod):
        return said
    if containers and all((each.kind, each.position) in context.requesting for each in containers):
        return f"{fix_first}: the container gets the devices that it requests without it"
    if context.device_requests:
        return (
            f"Remove {what}. To see the GPU of another container, let both containers use one "
            "resource claim, or run the monitor as an agent of the node: a request would give "
            "this container another GPU"
        )
    return fix_first if is_base(pod) else ""


def _any_request(policy: Policy) -> str:
    return policy.pools[0].request


def _is_device_file(path: str, policy: Policy) -> bool:
    return is_device_file(path, device_files(policy))
