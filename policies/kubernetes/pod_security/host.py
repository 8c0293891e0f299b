"""What a Pod shares with the node it runs on: namespaces, ports, addresses, volumes."""

from __future__ import annotations

import re
from typing import Any

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod_security.view import PodView
from policies.kubernetes.pod_security.violation import (
    Offenders,
    Violation,
    listing,
    quote,
    subjects,
)

_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_ACTIONS = ("httpGet", "tcpSocket")
_VOLUMES = (
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
_ACCEPTED_VOLUMES = frozenset(_VOLUMES)
_SHARED_MEMORY = (
    "volumes: [{name: shm, emptyDir: {medium: Memory}}] and volumeMounts: "
    "[{name: shm, mountPath: /dev/shm}]"
)
# Where drivers and their tools lie: elsewhere, the vendor's name is that of somebody's data.
_SYSTEM = ("/bin/", "/etc/", "/home/kubernetes/", "/lib", "/opt/", "/run/", "/usr/", "/var/")

_CACHE = re.compile(r"cache|huggingface|models?(/|$)", re.IGNORECASE)

_INSTEAD = {
    "device": "Remove the volume of devices or drivers: a container has those of what it requests",
    "shared memory": f"For shared memory write {_SHARED_MEMORY}",
    "model cache": "For a model cache write persistentVolumeClaim: {claimName: NAME}: a claim with "
    "access mode ReadWriteMany is shared by all replicas",
    "data": "For data write persistentVolumeClaim: {claimName: NAME}, for scratch space "
    "emptyDir: {}",
}


def host_namespaces(pod: PodView) -> Violation | None:
    """The Pod has its own network, processes and shared memory.

    Restricted fields: ``hostNetwork``, ``hostPID`` and ``hostIPC`` of the spec. Source:
    check_hostNamespaces.go.
    """
    spec = pod.spec
    if not (spec.get("hostNetwork") or spec.get("hostPID") or spec.get("hostIPC")):
        return None
    shared = [name for name in _NAMESPACES if spec.get(name)]
    advice = f"Remove {listing(shared)}"
    if "hostIPC" in shared:
        advice += f"; for shared memory write {_SHARED_MEMORY}"
    if "hostNetwork" in shared:
        advice += "; for RDMA ask for a secondary network"
    return Violation(
        "host namespaces",
        f"spec.{shared[0]}",
        f"the Pod sets {listing([f'{name}: true' for name in shared])}",
        "only false",
        advice,
        subjects(("the Pod", name) for name in shared),
    )


def host_path_volumes(pod: PodView) -> Violation | None:
    """No volume is a folder of the node.

    Restricted field: ``volumes[*].hostPath``. Source: check_hostPathVolumes.go.
    """
    return _volumes(
        pod,
        {
            index: "hostPath"
            for index, volume in enumerate(pod.spec.get("volumes") or ())
            if volume.get("hostPath") is not None
        },
        "hostPath volumes",
        "every volume type but hostPath",
    )


def restricted_volumes(pod: PodView) -> Violation | None:
    """Volumes are of the types that the cluster's own storage and objects come in.

    Restricted fields: every source in ``volumes[*]`` but the accepted. Source:
    check_restrictedVolumes.go.
    """
    return _volumes(
        pod,
        {
            index: source
            for index, volume in enumerate(pod.spec.get("volumes") or ())
            if (source := _restricted_source(volume)) is not None
        },
        "restricted volume types",
        f"only {listing(_VOLUMES)}",
    )


def host_ports(pod: PodView) -> Violation | None:
    """No container takes a port of the node.

    Restricted field: ``ports[*].hostPort`` of the containers. Source: check_hostPorts.go.
    """
    containers = [container for container in pod.containers if _takes_port(container.container.raw)]
    if not containers:
        return None
    bad = Offenders(None, containers)
    taken = [
        (container, index, port["hostPort"])
        for container, _ in containers
        for index, port in enumerate(container.raw["ports"])
        if port.get("hostPort")
    ]
    first, position, _ = taken[0]
    numbers = sorted({number for _, _, number in taken})
    ports = "hostPort" if len(numbers) == 1 else "hostPorts"
    advice = "Remove hostPort and reach the containerPort through a Service"
    if pod.spec.get("hostNetwork"):
        # The API server fills it in (core/v1/defaults.go, defaultHostNetworkPorts).
        advice = (
            "Remove hostNetwork, which makes every containerPort a hostPort, and hostPort where it "
            "is written"
        )
    return Violation(
        "hostPort",
        f"{first.field}.ports[{position}].hostPort",
        f"{bad.named} {bad.verb('uses', 'use')} {ports} {listing(map(str, numbers))}",
        "no hostPort",
        advice,
        subjects((container.name, str(number)) for container, _, number in taken),
    )


def host_probes_and_host_lifecycle(pod: PodView) -> Violation | None:
    """Probes and lifecycle hooks call the Pod itself, not an address that its author names.

    Restricted fields: ``host`` of every ``httpGet`` and ``tcpSocket`` in the containers' probes and
    lifecycle. The kubelet makes these calls, from the node. Source:
    check_hostProbesAndhostLifecycle.go.
    """
    containers = [container for container in pod.containers if _hosts(container.container.raw)]
    if not containers:
        return None
    bad = Offenders(None, containers)
    named = [
        (container, field, host)
        for container, _ in containers
        for field, host in _hosts(container.raw)
    ]
    first, place, _ = named[0]
    hosts = sorted({host for _, _, host in named})
    return Violation(
        "probe or lifecycle host",
        f"{first.field}.{place}",
        f"{bad.named} {bad.verb('names', 'name')} the {'host' if len(hosts) == 1 else 'hosts'} "
        f"{quote(hosts)} in probes or lifecycle hooks",
        "no host",
        "Remove host: the Pod itself is called then; the name of a virtual host goes into "
        "httpHeaders: [{name: Host, value: NAME}]",
        subjects((container.name, host) for container, _, host in named),
    )


def _takes_port(container: JSONObject) -> bool:
    for port in container.get("ports") or ():  # noqa: SIM110 - any() costs twice the time
        if port.get("hostPort"):
            return True
    return False


def _hosts(container: JSONObject) -> list[tuple[str, str]]:
    """Return the hosts that a container's probes and hooks name, each with the field's path."""
    found: list[tuple[str, str]] = []
    for field in _PROBES:
        if handler := container.get(field):
            found += _hosts_of(handler, field)
    if lifecycle := container.get("lifecycle"):
        for field in _HOOKS:
            if handler := lifecycle.get(field):
                found += _hosts_of(handler, f"lifecycle.{field}")
    return found


def _hosts_of(handler: JSONObject, field: str) -> list[tuple[str, str]]:
    found = []
    for kind in _ACTIONS:
        action = handler.get(kind)
        if action and action.get("host"):
            found.append((f"{field}.{kind}.host", action["host"]))
    return found


def _restricted_source(volume: JSONObject) -> str | None:
    """Return the source that makes a volume one of a restricted type.

    A volume without any source is none: the library calls it unknown, but the API server has made
    it an emptyDir before any admission (core/v1/defaults.go, SetDefaults_Volume). A source that no
    Kubernetes of today knows is restricted, as the library's own list is of what may pass.
    """
    restricted = None
    for key, source in volume.items():
        if source is not None:
            if key in _ACCEPTED_VOLUMES:
                return None
            if restricted is None and key != "name":
                restricted = key
    return restricted


def _volumes(pod: PodView, sources: dict[int, str], reason: str, accepted: str) -> Violation | None:
    if not sources:
        return None
    volumes: list[JSONObject] = [pod.spec["volumes"][index] for index in sources]
    names = [
        volume.get("name") or f"#{index}" for index, volume in zip(sources, volumes, strict=True)
    ]
    index, source = next(iter(sources.items()))
    one = len(names) == 1
    return Violation(
        reason,
        f"spec.volumes[{index}].{source}",
        f"{'volume' if one else 'volumes'} {quote(names)} {'uses' if one else 'use'} "
        f"{listing(sorted({*sources.values()}))}",
        accepted,
        _volume_advice(volumes),
        subjects(zip(names, sources.values(), strict=True)),
    )


def _volume_advice(volumes: list[JSONObject]) -> str:
    """Return what to use instead: what it is depends on what was wanted of the node."""
    wanted = {_wanted(volume) for volume in volumes}
    return ". ".join(text for purpose, text in _INSTEAD.items() if purpose in wanted)


def _wanted(volume: JSONObject) -> str:
    source: Any = volume.get("hostPath")
    path: str = (source or {}).get("path") or ""
    if path.startswith(("/dev/shm", "/run/shm")):  # noqa: S108 - read from a manifest
        return "shared memory"
    driver = "nvidia" in path and path.startswith(_SYSTEM)
    if driver or f"{path}/".startswith("/dev/"):
        return "device"
    return "model cache" if _CACHE.search(path) else "data"
