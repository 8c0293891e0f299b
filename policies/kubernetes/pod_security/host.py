"""What a Pod shares with its node: namespaces, ports, addresses, volumes."""

from __future__ import annotations

import re
from posixpath import normpath

from policies.kubernetes.core_v1 import Volume, host_path, volume_name
from policies.kubernetes.pod import Container
from policies.kubernetes.pod_security.view import Fault, PodView, Violation, offenders, violation
from policies.wording import capitalized, listing, quote

_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
_ACCEPTED_VOLUMES = frozenset(VOLUMES)
_USUAL = {"name", *VOLUMES}
_ACCEPTED = f"only {listing(VOLUMES)}"
_SHARED_MEMORY = (
    "volumes: [{name: shm, emptyDir: {medium: Memory}}] and volumeMounts: "
    "[{name: shm, mountPath: /dev/shm}]"
)
# Directories of drivers and their tools: elsewhere, "nvidia" can be in the name of user data.
_SYSTEM = ("/bin/", "/etc/", "/home/kubernetes/", "/lib", "/opt/", "/run/", "/usr/", "/var/")

_GPU_FILES = re.compile(r"/dev/(accel|davinci|dri|dxg|kfd|nvidia|vfio|/*$)")
_NCCL = re.compile(r"/home/kubernetes/bin/gib(/|$)|/var/lib/(tcpx|fastrak|nccl)")
"""Libraries that installers of GPU networking copy to the nodes, as the NCCL plugins of GKE."""
_NODE = re.compile(r"/(sys|proc|(var/)?run)(/|$)")
_LIBRARIES = re.compile(r"/(usr/)?lib(32|64)?(/|$)")
_CACHE = re.compile(r"cache|huggingface|models?(/|$)", re.IGNORECASE)

_INSTEAD = {
    "device": "remove the volume of devices or drivers: a container gets the files of the devices "
    "that it requests",
    "other device": "for other device files, for example of RDMA, request the resource of their "
    "device plugin, or an exception from the cluster administrator",
    "library": "for libraries of the node, as those of the NCCL plugin of GKE, use "
    "an image that has them, or have the cluster administrator add an exception for "
    "unrestricted-gpu-pod",
    "shared memory": f"for shared memory, set {_SHARED_MEMORY}",
    "node": "for the kernel of the node and sockets of its programs (/sys, /proc, /run), request "
    "an exception from the cluster administrator",
    "model cache": "for a model cache, use persistentVolumeClaim: {claimName: NAME} (replicas can "
    "share a claim with access mode ReadWriteMany)",
    "data": "for data, use persistentVolumeClaim: {claimName: NAME}, and for temporary files "
    "emptyDir: {}",
}


def host_namespaces(pod: PodView) -> Violation | None:
    """The Pod does not share the network, process or IPC namespace of the node.

    Restricted fields: ``hostNetwork``, ``hostPID`` and ``hostIPC`` of the spec. Source:
    check_hostNamespaces.go.
    """
    spec = pod.spec
    if not (spec.host_network or spec.host_pid or spec.host_ipc):
        return None
    namespaces = (spec.host_network, spec.host_pid, spec.host_ipc)
    shared = [name for name, is_shared in zip(_NAMESPACES, namespaces, strict=True) if is_shared]
    remediation = f"Remove {listing(shared)}"
    if pod.completed and spec.host_network and _host_ports(pod):
        remediation += ", and hostPort where the manifest sets it"
    if "hostIPC" in shared:
        remediation += f". For shared memory, set {_SHARED_MEMORY}, and for an MPS server of the "
        remediation += "node, request an exception from the cluster administrator"
    if "hostNetwork" in shared:
        remediation += ". For RDMA, use a secondary network, for example with Multus"
    return violation(
        "host namespaces",
        [Fault(None, f"spec.{name}", name) for name in shared],
        f"the Pod sets {listing([f'{name}: true' for name in shared])}",
        "only false",
        remediation,
    )


def host_path_volumes(pod: PodView) -> Violation | None:
    """No volume is a directory of the node.

    Restricted field: ``volumes[*].hostPath``. Source: check_hostPathVolumes.go.
    """
    return _volumes(
        pod,
        {
            index: "hostPath"
            for index, volume in enumerate(pod.spec.volumes or ())
            if volume.get("hostPath") is not None
        },
        "hostPath volumes",
        "every other volume type",
    )


def restricted_volumes(pod: PodView) -> Violation | None:
    """Volumes have only accepted types: storage and objects of the cluster.

    Restricted fields: every source in ``volumes[*]`` except for the accepted ones. Source:
    check_restrictedVolumes.go.
    """
    sources = {
        index: source
        for index, volume in enumerate(pod.spec.volumes or ())
        if not volume.keys() <= _USUAL and (source := _restricted_source(volume)) is not None
    }
    return _volumes(pod, sources, "restricted volume types", _ACCEPTED)


def host_ports(pod: PodView) -> Violation | None:
    """No container uses a port of the node.

    Restricted field: ``ports[*].hostPort`` of the containers. Source: check_hostPorts.go.
    """
    taken = _host_ports(pod)
    if not taken or (pod.completed and pod.spec.host_network):
        return None
    numbers = sorted({int(fault.what) for fault in taken})
    ports = "hostPort" if len(numbers) == 1 else "hostPorts"
    remediation = "Remove hostPort, and expose the containerPort with a Service"
    if pod.spec.host_network:
        remediation = (
            "Remove hostNetwork, which makes every containerPort a hostPort, and remove hostPort"
        )
    return violation(
        "hostPort",
        taken,
        f"{offenders(taken, 'uses', 'use')} {ports} {listing(map(str, numbers))}",
        "no hostPort",
        remediation,
    )


def host_probes_and_host_lifecycle(pod: PodView) -> Violation | None:
    """Probes and lifecycle hooks call the Pod itself, and no other host.

    Restricted fields: ``host`` of every ``httpGet`` and ``tcpSocket`` in the containers' probes and
    lifecycle, since 1.34. The kubelet makes these calls, from the node. Source:
    check_hostProbesAndhostLifecycle.go.
    """
    if pod.versions.newest < 34:
        return None
    named = [
        Fault(container, f"{container.field}.{field}", host)
        for container in pod.containers
        for field, host in _hosts(container)
    ]
    if not named:
        return None
    hosts = sorted({fault.what for fault in named})
    return violation(
        "probe or lifecycle host",
        named,
        f"{offenders(named, 'names', 'name')} the {'host' if len(hosts) == 1 else 'hosts'} "
        f"{quote(hosts)} in probes or lifecycle hooks",
        "no host",
        "Remove host: the kubelet then calls the Pod. For a virtual host, set "
        "httpHeaders: [{name: Host, value: NAME}]",
    )


def _host_ports(pod: PodView) -> list[Fault]:
    """Return the host ports of the containers.

    With ``hostNetwork``, the API server fills them in, and rejects other numbers than those of the
    container's ports (core/v1/defaults.go, defaultHostNetworkPorts; core/validation,
    validateHostNetwork).
    """
    return [
        Fault(container, f"{container.field}.ports[{index}].hostPort", str(port.host_port))
        for container in pod.containers
        for index, port in enumerate(container.spec.ports or ())
        if port.host_port
    ]


def _hosts(container: Container) -> list[tuple[str, str]]:
    """Return the hosts that a container's probes and hooks name, each with the field's path."""
    spec = container.spec
    if not (spec.liveness_probe or spec.readiness_probe or spec.startup_probe or spec.lifecycle):
        return []
    handlers = [
        ("livenessProbe", spec.liveness_probe),
        ("readinessProbe", spec.readiness_probe),
        ("startupProbe", spec.startup_probe),
    ]
    if spec.lifecycle is not None:
        handlers.append(("lifecycle.postStart", spec.lifecycle.post_start))
        handlers.append(("lifecycle.preStop", spec.lifecycle.pre_stop))
    found: list[tuple[str, str]] = []
    for field, handler in handlers:
        if handler is None:
            continue
        for kind, action in (("httpGet", handler.http_get), ("tcpSocket", handler.tcp_socket)):
            if action is not None and action.host:
                found.append((f"{field}.{kind}.host", action.host))
    return found


def _restricted_source(volume: Volume) -> str | None:
    """Return the source that makes a volume one of a restricted type.

    A volume without any source is accepted: the library calls its type unknown, but the API server
    has made it an emptyDir before any admission (core/v1/defaults.go, SetDefaults_Volume). A source
    that is unknown today is restricted, because the library lists what is accepted.
    """
    restricted = None
    for key, source in volume.items():
        if key in _ACCEPTED_VOLUMES:
            if source is not None:
                return None
        elif restricted is None and source is not None and key != "name":
            restricted = key
    return restricted


def _volumes(pod: PodView, sources: dict[int, str], reason: str, accepted: str) -> Violation | None:
    if not sources:
        return None
    given = pod.spec.volumes or []
    names = {index: volume_name(given[index], index) for index in sources}
    faults = [
        Fault(
            None,
            f"spec.volumes[{index}].{source}",
            f"{names[index]} {source}",
            _real(host_path(given[index])),
        )
        for index, source in sources.items()
    ]
    subject, verb = ("volume", "uses") if len(names) == 1 else ("volumes", "use")
    types = listing(sorted({*sources.values()}))
    purposes = {_purpose(given[index]) for index in sources}
    return violation(
        reason,
        faults,
        f"{subject} {quote(names.values())} {verb} {types}",
        accepted,
        capitalized("; ".join(text for purpose, text in _INSTEAD.items() if purpose in purposes)),
    )


def _real(path: str | None) -> str:
    """Return a path of the node without detours; links on the node are unknown."""
    return f"/{normpath(path).lstrip('/')}" if path else ""


def _purpose(volume: Volume) -> str:
    path = host_path(volume) or ""
    if path.startswith(("/dev/shm", "/run/shm")):  # noqa: S108 - read from a manifest
        return "shared memory"
    if _NCCL.match(path):
        return "library"
    driver = "nvidia" in path and path.startswith(_SYSTEM)
    if driver or _GPU_FILES.match(f"{path}/"):
        return "device"
    if path.startswith("/dev/"):
        return "other device"
    if _LIBRARIES.match(path):
        return "library"
    if _NODE.match(path):
        return "node"
    return "model cache" if _CACHE.search(path) else "data"
