"""The fields of core/v1 Pods that rules read, as msgspec structs.

A Pod is decoded straight into these structs. Unknown fields are skipped: nothing is ever written
back from a struct, so they are never lost. ``None`` stands for an absent field and for null, which
the API treats alike. Source: ``k8s.io/api/core/v1/types.go``.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Type(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A type of the API: every field is optional."""


class Capabilities(Type):
    add: list[str] | None = None
    drop: list[str] | None = None


class SeccompProfile(Type):
    type: str | None = None


class AppArmorProfile(Type):
    type: str | None = None


class SELinuxOptions(Type):
    user: str | None = None
    role: str | None = None
    type: str | None = None


class WindowsOptions(Type):
    host_process: bool | None = None
    run_as_user_name: str | None = None


class Sysctl(Type):
    name: str | None = None


class SecurityContext(Type):
    """The security context of a container or of a Pod, which share most of their fields."""

    privileged: bool | None = None
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    proc_mount: str | None = None
    run_as_non_root: bool | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: list[int] | None = None
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsOptions | None = None
    sysctls: list[Sysctl] | None = None


class HostAction(Type):
    """An ``httpGet`` or ``tcpSocket`` action."""

    host: str | None = None


class Handler(Type):
    """A probe or a lifecycle hook."""

    http_get: HostAction | None = None
    tcp_socket: HostAction | None = None


class Lifecycle(Type):
    post_start: Handler | None = None
    pre_stop: Handler | None = None


class ContainerPort(Type):
    host_port: int | None = None


class VolumeMount(Type):
    name: str | None = None
    mount_path: str | None = None
    read_only: bool | None = None
    sub_path: str | None = None
    sub_path_expr: str | None = None


class VolumeDevice(Type):
    device_path: str | None = None


class EnvVar(Type):
    name: str | None = None
    value: str | None = None
    value_from: dict[str, Any] | None = None


class ResourceClaimUse(Type):
    """A container's use of a claim of its Pod (``ResourceClaim`` in core/v1)."""

    name: str | None = None
    request: str | None = None
    """The request of the claim whose devices the container gets; by default, it gets all."""


class ResourceRequirements(Type):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None
    claims: list[ResourceClaimUse] | None = None


class ContainerSpec(Type):
    """A container, init container or ephemeral container."""

    name: str | None = None
    image: str | None = None
    command: list[Any] | None = None
    args: list[Any] | None = None
    ports: list[ContainerPort] | None = None
    env: list[EnvVar] | None = None
    env_from: list[Any] | None = None
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    volume_mounts: list[VolumeMount] | None = None
    volume_devices: list[VolumeDevice] | None = None
    liveness_probe: Handler | None = None
    readiness_probe: Handler | None = None
    startup_probe: Handler | None = None
    lifecycle: Lifecycle | None = None
    security_context: SecurityContext | None = None


class VolumeSource(Type):
    """A volume source of any type.

    Of a ``hostPath``, ``path`` is the path on the node. Of an ``emptyDir``, ``medium`` is Memory or
    empty. Of ``csi``, ``volume_attributes`` is a mapping.
    """

    path: Any = None
    medium: Any = None
    size_limit: Any = None
    read_only: Any = None
    volume_attributes: Any = None


Volume = dict[str, VolumeSource | list[Any] | str | bool | int | float | None]
"""A volume: its name, and its source by type. Sources that are unknown today stay visible."""


def volume_name(volume: Volume, index: int) -> str:
    """Return the volume's name, or its index."""
    return str(volume.get("name") or f"#{index}")


def host_path(volume: Volume) -> str | None:
    """Return the path on the node of a ``hostPath`` volume."""
    source = volume.get("hostPath")
    path = source.path if isinstance(source, VolumeSource) else None
    return path if isinstance(path, str) else None


def is_on_disk(volume: Volume) -> bool:
    """Return whether the volume is an ``emptyDir`` on the disk of the node."""
    source = volume.get("emptyDir")
    return isinstance(source, VolumeSource) and source.medium != "Memory"


class Toleration(Type):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class Requirement(Type):
    """A requirement of a node selector term, or of a label selector."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class NodeSelectorTerm(Type):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Type):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(Type):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Type):
    node_affinity: NodeAffinity | None = None


class PodResourceClaim(Type):
    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    source: Any = None
    """The form before Kubernetes 1.31, which API servers ignore today."""


class PodSchedulingGroup(Type):
    pod_group_name: str | None = None


class PodOS(Type):
    name: str | None = None


class PodSpec(Type):
    volumes: list[Volume] | None = None
    init_containers: list[ContainerSpec] | None = None
    containers: list[ContainerSpec] | None = None
    ephemeral_containers: list[ContainerSpec] | None = None
    node_selector: dict[str, str | None] | None = None
    node_name: str | None = None
    host_network: bool | None = None
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    security_context: SecurityContext | None = None
    affinity: Affinity | None = None
    scheduler_name: str | None = None
    tolerations: list[Toleration] | None = None
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    os: PodOS | None = None
    host_users: bool | None = None
    scheduling_gates: list[Any] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduling_group: PodSchedulingGroup | None = None
    resources: ResourceRequirements | None = None
    overhead: dict[str, Any] | None = None
    restart_policy: str | None = None
    active_deadline_seconds: int | None = None


class OwnerReference(Type):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    controller: bool | None = None


class ObjectMeta(Type):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None
    owner_references: list[OwnerReference] | None = None


class PodTemplate(Type):
    """The metadata and spec of a Pod."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None


class PodResourceClaimStatus(Type):
    name: str | None = None
    resource_claim_name: str | None = None


class PodStatus(Type):
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None


class PodObject(PodTemplate):
    api_version: str | None = None
    kind: str | None = None
    status: PodStatus | None = None
