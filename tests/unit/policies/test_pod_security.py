"""The check `unrestricted-gpu-pod`: each control's words, and the official library's outcome."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.driver import Oracle
from oracle.pod_security_fixtures import fixtures
from pod_security_strategies import pods
from policies.context import Context
from policies.facts import Facts, Request
from policies.kubernetes.pod_security import CONTROLS, Level
from policies.kubernetes.pod_security.view import HARDENED
from policies.kubernetes.template import Template
from policies.policy import Hardening, Policy
from policies.rules.check_unrestricted_gpu_pod import ID, check
from typed import pod_of

if TYPE_CHECKING:
    from policies.finding import Finding

JSON = dict[str, Any]

LEVELS = get_args(Level)
SHM = "/dev/shm"  # noqa: S108 - what manifests write
SHARED_MEMORY = (
    "volumes: [{name: shm, emptyDir: {medium: Memory}}] and volumeMounts: "
    "[{name: shm, mountPath: /dev/shm}]"
)
VOLUME_TYPES = (
    "only configMap, csi, downwardAPI, emptyDir, ephemeral, image, persistentVolumeClaim, "
    "projected and secret"
)
INSTEAD_OF_DATA = (
    "For data, use persistentVolumeClaim: {claimName: NAME}, and for temporary files emptyDir: {}"
)
NON_ROOT = "securityContext: {runAsNonRoot: true, runAsUser: 65532}"
SECCOMP = "securityContext: {seccompProfile: {type: RuntimeDefault}}"
DEFAULT_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
    *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
DEBUG = "Start the debug container with kubectl debug --profile=restricted"


def container(name: str = "train", **context: Any) -> JSON:
    """Return a container that `restricted` allows, but for these fields of its context."""
    return {
        "name": name,
        "image": "registry.example/app",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            **context,
        },
    }


def pod(context: JSON | None = None, **spec: Any) -> JSON:
    """Return a Pod that `restricted` allows, but for these fields; None removes one."""
    whole = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **(context or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod"},
        "spec": {
            "securityContext": {key: value for key, value in whole.items() if value is not None},
            "containers": [container()],
            **spec,
        },
    }


def annotated(value: str, **annotations: str) -> JSON:
    return pod() | {
        "metadata": {
            "name": "pod",
            "annotations": {f"{APP_ARMOR}{key}": text for key, text in annotations.items()}
            | {f"{APP_ARMOR}train": value},
        }
    }


def findings(raw: JSON, level: Level = "restricted") -> list[Finding]:
    policy = Policy(pools=(), hardening=Hardening(level))
    return list(check(pod_of(raw), Context(policy, Request(), Facts())))


def reasons(raw: JSON, level: Level = "restricted") -> tuple[str, ...]:
    return tuple(finding.reason for finding in findings(raw, level))


ACCEPTED: dict[str, JSON] = {
    "the smallest Pod": pod(),
    "a container's own values where the Pod has none": pod(
        {"runAsNonRoot": None, "seccompProfile": None},
        containers=[container(runAsNonRoot=True, seccompProfile={"type": "Localhost"})],
    ),
    "a Pod's value where a container writes null": pod(
        containers=[container(runAsNonRoot=None, seccompProfile=None, procMount=None)]
    ),
    "users that are not root": pod({"runAsUser": 1}, containers=[container(runAsUser=65532)]),
    "AppArmor profiles of the runtime or the node": pod(
        {"appArmorProfile": {"type": "RuntimeDefault"}},
        containers=[container(appArmorProfile={"type": "Localhost", "localhostProfile": "x"})],
    ),
    "AppArmor annotations of the runtime": annotated("runtime/default", a="localhost/x", b=""),
    "annotations of something else": pod()
    | {"metadata": {"annotations": {"example.com/apparmor": "unconfined", "x": None}}},
    "the allowed capability": pod(
        containers=[
            container(capabilities={"drop": ["NET_RAW", "ALL"], "add": ["NET_BIND_SERVICE"]})
        ]
    ),
    "container ports": pod(
        containers=[container() | {"ports": [{"containerPort": 80, "hostPort": 0}, {"name": "x"}]}]
    ),
    "probes of the Pod itself": pod(
        containers=[
            container()
            | {
                "livenessProbe": {"httpGet": {"port": 80, "host": ""}, "tcpSocket": None},
                "readinessProbe": {"grpc": {"port": 80}},
                "startupProbe": None,
                "lifecycle": {"postStart": {"exec": {}}, "preStop": {"httpGet": {"port": 80}}},
            }
        ]
    ),
    "no host namespaces": pod(hostNetwork=False, hostPID=False, hostIPC=None),
    "SELinux container types": pod(
        {"seLinuxOptions": {"type": "container_engine_t", "level": "s0:c1"}},
        containers=[container(seLinuxOptions={"type": "", "user": "", "role": None})],
    ),
    "safe sysctls": pod({"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}),
    "every unrestricted volume type": pod(
        volumes=[
            {"name": name.lower(), name: {}}
            for name in (
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
        ]
    ),
    "a volume without a source, which becomes an emptyDir": pod(
        volumes=[{"name": "scratch"}, {"name": "shm", "hostPath": None}]
    ),
    "explicit false": pod(
        {"windowsOptions": {"hostProcess": False}},
        containers=[container(privileged=False, windowsOptions={"hostProcess": False})],
    ),
    "the default /proc": pod(containers=[container(procMount="Default")]),
    "root inside a user namespace": pod(
        {"runAsNonRoot": False, "runAsUser": 0},
        hostUsers=False,
        containers=[container(runAsNonRoot=False, runAsUser=0)],
    ),
    "a Windows Pod without Linux fields": pod(
        {"seccompProfile": None},
        os={"name": "windows"},
        containers=[{"name": "train", "image": "registry.example/app"}],
    ),
    "a good debug container": pod(ephemeralContainers=[container("debug")]),
}


class Rejection(NamedTuple):
    """A Pod, and the one finding that it gets."""

    pod: JSON
    reason: str
    path: str
    found: str
    accepted: str
    remediation: str


REJECTED = {
    "an unconfined AppArmor profile": Rejection(
        pod({"appArmorProfile": {"type": "Unconfined"}}),
        "forbidden AppArmor profile",
        "spec.securityContext.appArmorProfile.type",
        'the Pod sets securityContext.appArmorProfile.type to "Unconfined"',
        '"RuntimeDefault", "Localhost" or no profile',
        "Set appArmorProfile: {type: RuntimeDefault}",
    ),
    "an AppArmor profile without a type": Rejection(
        pod(initContainers=[container("setup", appArmorProfile={})]),
        "forbidden AppArmor profile",
        "spec.initContainers[0].securityContext.appArmorProfile.type",
        'container "setup" sets securityContext.appArmorProfile.type to ""',
        '"RuntimeDefault", "Localhost" or no profile',
        "Set appArmorProfile: {type: RuntimeDefault}",
    ),
    "an AppArmor annotation": Rejection(
        annotated("unconfined"),
        "forbidden AppArmor profile",
        f"metadata.annotations[{APP_ARMOR}train]",
        f'annotation {APP_ARMOR}train is "unconfined"',
        '"RuntimeDefault", "Localhost" or no profile',
        "Remove the annotation",
    ),
    "AppArmor rejected in three places": Rejection(
        annotated("unconfined", gone="x")
        | {
            "spec": pod({"appArmorProfile": {"type": "Unconfined"}})["spec"]
            | {"containers": [container(appArmorProfile={"type": "Unconfined"})]}
        },
        "forbidden AppArmor profiles",
        "spec.securityContext.appArmorProfile.type",
        'the Pod and container "train" set securityContext.appArmorProfile.type to "Unconfined", '
        f'annotation {APP_ARMOR}gone is "x", annotation {APP_ARMOR}train is "unconfined"',
        '"RuntimeDefault", "Localhost" or no profile',
        "Set appArmorProfile: {type: RuntimeDefault} and remove the annotations",
    ),
    "the node's shared memory": Rejection(
        pod(hostIPC=True),
        "host namespaces",
        "spec.hostIPC",
        "the Pod sets hostIPC: true",
        "only false",
        f"Remove hostIPC. For shared memory, set {SHARED_MEMORY}",
    ),
    "every host namespace": Rejection(
        pod(hostIPC=True, hostPID=True, hostNetwork=True),
        "host namespaces",
        "spec.hostNetwork",
        "the Pod sets hostNetwork: true, hostPID: true and hostIPC: true",
        "only false",
        f"Remove hostNetwork, hostPID and hostIPC. For shared memory, set {SHARED_MEMORY}. For "
        "RDMA, use a secondary network, for example with Multus",
    ),
    "host ports": Rejection(
        pod(
            initContainers=[
                container("proxy") | {"ports": [{"containerPort": 1}, {"hostPort": 90}]}
            ],
            containers=[container() | {"ports": [{"hostPort": 9090}, {"hostPort": 90}]}],
        ),
        "hostPort",
        "spec.initContainers[0].ports[1].hostPort",
        'containers "proxy" and "train" use hostPorts 90 and 9090',
        "no hostPort",
        "Remove hostPort, and expose the containerPort with a Service",
    ),
    "a probe of another address": Rejection(
        pod(containers=[container() | {"readinessProbe": {"tcpSocket": {"host": "127.0.0.1"}}}]),
        "probe or lifecycle host",
        "spec.containers[0].readinessProbe.tcpSocket.host",
        'container "train" names the host "127.0.0.1" in probes or lifecycle hooks',
        "no host",
        "Remove host: the kubelet then calls the Pod. For a virtual host, set httpHeaders: [{name: "
        "Host, value: NAME}]",
    ),
    "hooks that call other addresses": Rejection(
        pod(
            containers=[
                container(name)
                | {"lifecycle": {"preStop": {"httpGet": {"host": host}}, "postStart": None}}
                for name, host in (("b", "z.example"), ("a", "a.example"))
            ]
        ),
        "probe or lifecycle host",
        "spec.containers[0].lifecycle.preStop.httpGet.host",
        'containers "b" and "a" name the hosts "a.example" and "z.example" in probes or lifecycle '
        "hooks",
        "no host",
        "Remove host: the kubelet then calls the Pod. For a virtual host, set httpHeaders: [{name: "
        "Host, value: NAME}]",
    ),
    "a privileged container": Rejection(
        pod(containers=[container("web"), container(privileged=True)]),
        "privileged",
        "spec.containers[1].securityContext.privileged",
        'container "train" sets securityContext.privileged: true',
        "only false",
        "Remove privileged: a container can use the GPU that it requests without it",
    ),
    "a privileged debug container": Rejection(
        pod(ephemeralContainers=[container("debugger", privileged=True)]),
        "privileged",
        "spec.ephemeralContainers[0].securityContext.privileged",
        'container "debugger" sets securityContext.privileged: true',
        "only false",
        DEBUG,
    ),
    "an SELinux type": Rejection(
        pod({"seLinuxOptions": {"type": "spc_t"}}),
        "seLinuxOptions",
        "spec.securityContext.seLinuxOptions.type",
        'the Pod sets type "spc_t" in securityContext.seLinuxOptions',
        "no user, no role, and only the types container_t, container_init_t, container_kvm_t and "
        "container_engine_t",
        "Remove type from seLinuxOptions",
    ),
    "an SELinux user and role": Rejection(
        pod(
            containers=[
                container("a", seLinuxOptions={"role": "r"}),
                container("b", seLinuxOptions={"user": "u", "type": "container_t"}),
            ]
        ),
        "seLinuxOptions",
        "spec.containers[0].securityContext.seLinuxOptions.role",
        'containers "a" and "b" set user "u" and role "r" in securityContext.seLinuxOptions',
        "no user, no role, and only the types container_t, container_init_t, container_kvm_t and "
        "container_engine_t",
        "Remove user and role from seLinuxOptions",
    ),
    "unsafe sysctls": Rejection(
        pod(
            {
                "sysctls": [
                    {"name": "kernel.shm_rmid_forced", "value": "1"},
                    {"name": "kernel.shmmax", "value": "1"},
                    {"name": "net/ipv4/tcp_rmem", "value": "1"},
                    {"name": "kernel.shmmax", "value": "2"},
                ]
            }
        ),
        "forbidden sysctls",
        "spec.securityContext.sysctls[1].name",
        'the Pod sets "kernel.shmmax" and "net/ipv4/tcp_rmem" in securityContext.sysctls',
        "only kernel.shm_rmid_forced, net.ipv4.ip_local_port_range, "
        "net.ipv4.ip_local_reserved_ports, net.ipv4.ip_unprivileged_port_start, "
        "net.ipv4.ping_group_range, net.ipv4.tcp_fin_timeout, net.ipv4.tcp_keepalive_intvl, "
        "net.ipv4.tcp_keepalive_probes, net.ipv4.tcp_keepalive_time, net.ipv4.tcp_rmem, "
        "net.ipv4.tcp_syncookies and net.ipv4.tcp_wmem",
        'Remove "kernel.shmmax" and "net/ipv4/tcp_rmem" from sysctls. If the workload needs the '
        "setting, contact the cluster administrator, who can set it on the nodes",
    ),
    "hostProcess on Windows": Rejection(
        pod(
            {"windowsOptions": {"hostProcess": True}},
            os={"name": "windows"},
            containers=[container(windowsOptions={"hostProcess": True})],
        ),
        "hostProcess",
        "spec.securityContext.windowsOptions.hostProcess",
        'the Pod and container "train" set securityContext.windowsOptions.hostProcess: true',
        "only false",
        "Remove hostProcess",
    ),
    "privilege escalation": Rejection(
        pod(
            initContainers=[container("setup", allowPrivilegeEscalation=None)],
            containers=[
                container(allowPrivilegeEscalation=True),
                container("web", allowPrivilegeEscalation=None),
            ],
        ),
        "allowPrivilegeEscalation != false",
        "spec.initContainers[0].securityContext.allowPrivilegeEscalation",
        'container "train" sets securityContext.allowPrivilegeEscalation: true, containers "setup" '
        'and "web" do not set it',
        "only false",
        'Set securityContext: {allowPrivilegeEscalation: false} in containers "setup", "train" '
        'and "web"',
    ),
    "privilege escalation unset": Rejection(
        pod(containers=[container("web"), container(allowPrivilegeEscalation=None)]),
        "allowPrivilegeEscalation != false",
        "spec.containers[1].securityContext.allowPrivilegeEscalation",
        'container "train" does not set securityContext.allowPrivilegeEscalation',
        "only false",
        'Set securityContext: {allowPrivilegeEscalation: false} in container "train"',
    ),
    "capabilities not dropped": Rejection(
        pod(
            containers=[
                container("a", capabilities=None),
                container("b", capabilities={"drop": ["all"]}),
            ]
        ),
        "unrestricted capabilities",
        "spec.containers[0].securityContext.capabilities.drop",
        'containers "a" and "b" do not drop "ALL" in securityContext.capabilities.drop',
        'drop: ["ALL"], and only "NET_BIND_SERVICE" in add',
        'Set securityContext: {capabilities: {drop: [ALL]}} in containers "a" and "b"',
    ),
    "capabilities added": Rejection(
        pod(
            containers=[
                container(
                    capabilities={
                        "drop": ["ALL"],
                        "add": ["NET_BIND_SERVICE", "SYS_PTRACE", "IPC_LOCK"],
                    }
                )
            ]
        ),
        "unrestricted capabilities",
        "spec.containers[0].securityContext.capabilities.add[1]",
        'container "train" adds "IPC_LOCK" and "SYS_PTRACE" in securityContext.capabilities.add',
        'drop: ["ALL"], and only "NET_BIND_SERVICE" in add',
        'Remove "IPC_LOCK" and "SYS_PTRACE" from capabilities.add. RDMA with the RDMA '
        "device plugin works without IPC_LOCK, unless the container runtime sets a memlock limit; "
        "otherwise, request an exception from the cluster administrator",
    ),
    "capabilities added and not dropped": Rejection(
        pod(
            containers=[container(capabilities={"drop": ["ALL"], "add": ["CHOWN"]})],
            ephemeralContainers=[container("debug", capabilities={})],
        ),
        "unrestricted capabilities",
        "spec.containers[0].securityContext.capabilities.add[0]",
        'container "debug" does not drop "ALL" in securityContext.capabilities.drop, container '
        '"train" adds "CHOWN" in securityContext.capabilities.add',
        'drop: ["ALL"], and only "NET_BIND_SERVICE" in add',
        'Set securityContext: {capabilities: {drop: [ALL]}} in container "debug" and remove '
        '"CHOWN" from capabilities.add. Start debug containers with kubectl debug '
        "--profile=restricted",
    ),
    "an unmasked /proc, in a user namespace too": Rejection(
        pod(hostUsers=False, containers=[container(procMount="Unmasked")]),
        "procMount",
        "spec.containers[0].securityContext.procMount",
        'container "train" sets securityContext.procMount to "Unmasked"',
        'only "Default"',
        "Remove procMount",
    ),
    "shared memory of the node as a volume": Rejection(
        pod(volumes=[{"name": "code"}, {"name": "shm", "hostPath": {"path": SHM}}]),
        "restricted volume types",
        "spec.volumes[1].hostPath",
        'volume "shm" uses hostPath',
        VOLUME_TYPES,
        f"For shared memory, set {SHARED_MEMORY}",
    ),
    "devices of the node as a volume": Rejection(
        pod(volumes=[{"name": "dev", "hostPath": {"path": "/dev"}}]),
        "restricted volume types",
        "spec.volumes[0].hostPath",
        'volume "dev" uses hostPath',
        VOLUME_TYPES,
        "Remove the volume of devices or drivers: a container gets the files of the devices that "
        "it requests",
    ),
    "devices other than GPUs as a volume": Rejection(
        pod(volumes=[{"name": "rdma", "hostPath": {"path": "/dev/infiniband"}}]),
        "restricted volume types",
        "spec.volumes[0].hostPath",
        'volume "rdma" uses hostPath',
        VOLUME_TYPES,
        "For other device files, for example of RDMA, request the resource of their device plugin, "
        "or an exception from the cluster administrator",
    ),
    "drivers of the node as a volume": Rejection(
        pod(volumes=[{"name": "cuda", "hostPath": {"path": "/home/kubernetes/bin/nvidia/lib64"}}]),
        "restricted volume types",
        "spec.volumes[0].hostPath",
        'volume "cuda" uses hostPath',
        VOLUME_TYPES,
        "Remove the volume of devices or drivers: a container gets the files of the devices that "
        "it requests",
    ),
    "a data volume named after the vendor": Rejection(
        pod(volumes=[{"name": "data", "hostPath": {"path": "/mnt/nvidia-datasets"}}]),
        "restricted volume types",
        "spec.volumes[0].hostPath",
        'volume "data" uses hostPath',
        VOLUME_TYPES,
        INSTEAD_OF_DATA,
    ),
    "the node's shared memory and data as volumes": Rejection(
        pod(
            volumes=[
                {"name": "data", "hostPath": {"path": "/data"}},
                {"name": "shm", "hostPath": {"path": SHM}},
            ]
        ),
        "restricted volume types",
        "spec.volumes[0].hostPath",
        'volumes "data" and "shm" use hostPath',
        VOLUME_TYPES,
        f"For shared memory, set {SHARED_MEMORY}; {INSTEAD_OF_DATA.replace('For', 'for')}",
    ),
    "data of the node and of servers": Rejection(
        pod(
            volumes=[
                {"name": "data", "nfs": {"server": "nfs.example", "path": "/"}},
                {"name": "cache", "emptyDir": None, "hostPath": {"path": "/mnt"}},
            ]
        ),
        "restricted volume types",
        "spec.volumes[0].nfs",
        'volumes "data" and "cache" use hostPath and nfs',
        VOLUME_TYPES,
        INSTEAD_OF_DATA,
    ),
    "an unknown volume type": Rejection(
        pod(volumes=[{"name": "data", "teleport": {"to": "host"}}]),
        "restricted volume types",
        "spec.volumes[0].teleport",
        'volume "data" uses teleport',
        VOLUME_TYPES,
        INSTEAD_OF_DATA,
    ),
    "root allowed by the Pod": Rejection(
        pod({"runAsNonRoot": False}, containers=[container(runAsNonRoot=True)]),
        "runAsNonRoot != true",
        "spec.securityContext.runAsNonRoot",
        "the Pod sets securityContext.runAsNonRoot: false",
        "only true",
        f"Set {NON_ROOT} instead",
    ),
    "root allowed by two of three containers": Rejection(
        pod(
            containers=[
                container(n, runAsNonRoot=v)
                for n, v in zip("abc", (False, True, False), strict=True)
            ]
        ),
        "runAsNonRoot != true",
        "spec.containers[0].securityContext.runAsNonRoot",
        'containers "a" and "c" set securityContext.runAsNonRoot: false',
        "only true",
        f"Set {NON_ROOT} instead",
    ),
    "runAsNonRoot unset": Rejection(
        pod({"runAsNonRoot": None}, containers=[container("a", runAsNonRoot=True), container("b")]),
        "runAsNonRoot != true",
        "spec.containers[1].securityContext.runAsNonRoot",
        'neither the Pod nor container "b" sets securityContext.runAsNonRoot',
        "only true",
        f"Set {NON_ROOT} in the Pod's spec",
    ),
    "runAsNonRoot unset on Windows": Rejection(
        pod({"runAsNonRoot": None, "seccompProfile": None}, os={"name": "windows"}),
        "runAsNonRoot != true",
        "spec.containers[0].securityContext.runAsNonRoot",
        'neither the Pod nor container "train" sets securityContext.runAsNonRoot',
        "only true",
        f"Set {NON_ROOT} in the Pod's spec",
    ),
    "runAsUser 0": Rejection(
        pod({"runAsUser": 0}, containers=[container(runAsUser=1000)]),
        "runAsUser=0",
        "spec.securityContext.runAsUser",
        "the Pod sets securityContext.runAsUser: 0",
        "any user ID except 0",
        "Set runAsUser: 65532. Install packages in the image build, and set fsGroup if the "
        "container writes to volumes",
    ),
    "an unconfined seccomp profile": Rejection(
        pod(containers=[container(seccompProfile={"type": "Unconfined"}), container("b")]),
        "seccompProfile",
        "spec.containers[0].securityContext.seccompProfile.type",
        'container "train" sets securityContext.seccompProfile.type to "Unconfined"',
        '"RuntimeDefault" or "Localhost"',
        f"Set {SECCOMP} instead",
    ),
    "a seccomp profile without a type": Rejection(
        pod({"seccompProfile": {}}),
        "seccompProfile",
        "spec.securityContext.seccompProfile.type",
        'the Pod sets securityContext.seccompProfile.type to ""',
        '"RuntimeDefault" or "Localhost"',
        f"Set {SECCOMP} instead",
    ),
    "seccomp profile unset": Rejection(
        pod({"seccompProfile": None}),
        "seccompProfile",
        "spec.containers[0].securityContext.seccompProfile",
        'neither the Pod nor container "train" sets securityContext.seccompProfile.type',
        '"RuntimeDefault" or "Localhost"',
        f"Set {SECCOMP} in the Pod's spec",
    ),
}


class TestRestricted:
    @pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED)
    def test_restricted_accepts_a_compliant_pod(self, raw: JSON) -> None:
        assert findings(raw) == []

    @pytest.mark.parametrize("case", REJECTED.values(), ids=REJECTED)
    def test_restricted_rejects_a_violation_with_one_finding(self, case: Rejection) -> None:
        (finding,) = findings(case.pod)
        assert finding.rule == ID
        assert finding.reason == case.reason
        assert finding.path == case.path
        assert finding.detail == (
            f'{case.found}; Pod Security "restricted" accepts {case.accepted}'
        )
        assert finding.remediation == case.remediation

    def test_the_remediation_explains_that_ipc_lock_keeps_the_image_user(self) -> None:
        locks = container(capabilities={"drop": ["ALL"], "add": ["IPC_LOCK"]})
        other = container("b", runAsNonRoot=True)
        raw = pod({"runAsNonRoot": None}, containers=[locks, other])
        (finding,) = [finding for finding in findings(raw) if finding.path.endswith("runAsNonRoot")]
        assert finding.remediation == (
            "Remove IPC_LOCK: gpufence then sets a user. With IPC_LOCK, it keeps the user of the "
            "image, which may be root, because the capability has no effect for other users"
        )

    def test_the_remediation_removes_privileges_that_require_escalation(self) -> None:
        """The API server rejects the pair, so the remediation must not lead to it."""
        contexts: tuple[JSON, ...] = (
            {"privileged": True},
            {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}},
        )
        for context in contexts:
            raw = pod(containers=[container(allowPrivilegeEscalation=None, **context)])
            (finding,) = [finding for finding in findings(raw) if "Escalation" in finding.reason]
            assert finding.remediation == (
                'Set securityContext: {allowPrivilegeEscalation: false} in container "train", '
                "and remove privileged and SYS_ADMIN"
            )

    def test_the_remediation_of_host_ports_names_host_network(self) -> None:
        raw = pod(hostNetwork=True, containers=[container() | {"ports": [{"hostPort": 80}]}])
        (finding,) = [finding for finding in findings(raw) if finding.reason == "hostPort"]
        assert finding.remediation == (
            "Remove hostNetwork, which makes every containerPort a hostPort, and remove hostPort"
        )

    def test_all_findings_are_reported_in_the_official_order(self) -> None:
        worst: JSON = {
            "privileged": True,
            "allowPrivilegeEscalation": True,
            "procMount": "Unmasked",
            "runAsNonRoot": False,
            "runAsUser": 0,
            "seLinuxOptions": {"user": "u"},
            "windowsOptions": {"hostProcess": True},
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
            "capabilities": {"add": ["SYS_ADMIN"]},
        }
        raw = pod(
            {"sysctls": [{"name": "kernel.shmmax"}]},
            hostPID=True,
            volumes=[{"name": "root", "hostPath": {"path": "/"}}],
            containers=[
                container(**worst)
                | {
                    "ports": [{"hostPort": 80}],
                    "livenessProbe": {"httpGet": {"host": "10.0.0.1"}},
                }
            ],
        )
        assert reasons(raw) == (
            "forbidden AppArmor profile",
            "host namespaces",
            "hostPort",
            "probe or lifecycle host",
            "privileged",
            "seLinuxOptions",
            "forbidden sysctls",
            "hostProcess",
            "allowPrivilegeEscalation != false",
            "unrestricted capabilities",
            "procMount",
            "restricted volume types",
            "runAsNonRoot != true",
            "runAsUser=0",
            "seccompProfile",
        )
        assert len(reasons(raw)) == len(CONTROLS["restricted"])
        assert reasons(raw, "baseline") == (
            "forbidden AppArmor profile",
            "non-default capabilities",
            "host namespaces",
            "hostPath volumes",
            "hostPort",
            "probe or lifecycle host",
            "privileged",
            "procMount",
            "seLinuxOptions",
            "seccompProfile",
            "forbidden sysctls",
            "hostProcess",
        )
        assert len(reasons(raw, "baseline")) == len(CONTROLS["baseline"])

    @pytest.mark.parametrize("kind", ["initContainers", "containers", "ephemeralContainers"])
    def test_every_kind_of_container_is_checked(self, kind: str) -> None:
        raw = pod()
        raw["spec"][kind] = [container("good"), {"name": "bad", "image": "registry.example/app"}]
        assert [finding.path for finding in findings(raw)] == [
            f"spec.{kind}[1].securityContext.allowPrivilegeEscalation",
            f"spec.{kind}[1].securityContext.capabilities.drop",
        ]

    def test_paths_start_at_the_root_of_the_workload(self) -> None:
        template = annotated("unconfined")
        template["spec"]["hostPID"] = True
        path = ("spec", "jobTemplate", "spec", "template", "spec")
        seen = pod_of(template, Template({}, path, "CronJob"))
        assert [
            finding.path for finding in check(seen, Context(Policy(pools=()), Request(), Facts()))
        ] == [
            f"spec.jobTemplate.spec.template.metadata.annotations[{APP_ARMOR}train]",
            "spec.jobTemplate.spec.template.spec.hostPID",
        ]

    def test_containers_and_volumes_without_a_name_are_identified_by_index(self) -> None:
        raw = pod(containers=[{"image": "x"}], volumes=[{"nfs": {}}])
        assert [finding.detail.partition(";")[0] for finding in findings(raw)] == [
            'container "#0" does not set securityContext.allowPrivilegeEscalation',
            'container "#0" does not drop "ALL" in securityContext.capabilities.drop',
            'volume "#0" uses nfs',
        ]


class TestBaseline:
    def test_baseline_accepts_a_pod_without_security_context(self) -> None:
        bare = {"spec": {"containers": [{"name": "train", "image": "registry.example/app"}]}}
        assert findings(bare, "baseline") == []

    @pytest.mark.parametrize(
        ("raw", "reason", "accepted"),
        [
            (
                pod(
                    volumes=[{"name": "a", "hostPath": {"path": "/mnt"}}, {"name": "b", "nfs": {}}]
                ),
                "hostPath volumes",
                "every other volume type",
            ),
            (
                pod(containers=[container(capabilities={"add": ["CHOWN", "CAP_CHOWN"]})]),
                "non-default capabilities",
                f"only {', '.join(DEFAULT_CAPABILITIES[:-1])} and {DEFAULT_CAPABILITIES[-1]}",
            ),
            (
                pod(containers=[container(procMount="Unmasked")]),
                "procMount",
                'only "Default"',
            ),
            (
                pod({"seccompProfile": {"type": "Unconfined"}}),
                "seccompProfile",
                '"RuntimeDefault", "Localhost" or no profile',
            ),
        ],
    )
    def test_baseline_rejects_a_violation_with_one_finding(
        self, raw: JSON, reason: str, accepted: str
    ) -> None:
        (finding,) = findings(raw, "baseline")
        assert finding.reason == reason
        assert finding.detail.endswith(f'; Pod Security "baseline" accepts {accepted}')

    def test_baseline_accepts_unmasked_proc_in_a_user_namespace(self) -> None:
        raw = pod(hostUsers=False, containers=[container(procMount="Unmasked")])
        assert findings(raw, "baseline") == []

    def test_only_baseline_checks_capabilities_on_windows(self) -> None:
        raw = pod(
            os={"name": "windows"}, containers=[container(capabilities={"add": ["SYS_ADMIN"]})]
        )
        assert reasons(raw, "baseline") == ("non-default capabilities",)
        assert reasons(raw) == ()


@pytest.mark.timeout(900)
class TestOfficialLibrary:
    """The first of these tests may have to build it."""

    def test_reasons_equal_the_library_for_every_official_fixture(
        self, oracle: Oracle, official_testdata: Path
    ) -> None:
        official = fixtures(official_testdata)
        assert len(official) > 100
        for level in LEVELS:
            raws = [fixture.pod for fixture in official]
            verdicts = oracle.pod_security_each(raws, level=level, defaulted=True)
            for fixture, verdict in zip(official, verdicts, strict=True):
                assert reasons(fixture.pod, level) == verdict.reasons, f"{fixture} by {level}"
                if fixture.level == level:
                    assert (not findings(fixture.pod, level)) == fixture.allowed, str(fixture)

    def test_reasons_equal_the_library_for_every_example_in_this_file(self, oracle: Oracle) -> None:
        examples = [*ACCEPTED.values(), *(case.pod for case in REJECTED.values())]
        for level in LEVELS:
            verdicts = oracle.pod_security_each(examples, level=level, defaulted=True, lenient=True)
            for raw, verdict in zip(examples, verdicts, strict=True):
                known = [
                    volume for volume in raw["spec"].get("volumes") or () if "teleport" in volume
                ]
                if not known and not raw["spec"].get("hostNetwork"):
                    assert reasons(raw, level) == verdict.reasons

    @settings(max_examples=150)
    @given(batch=st.lists(pods(min_sources=1), min_size=1, max_size=10))
    def test_reasons_equal_the_library_for_generated_pods(
        self, oracle: Oracle, batch: list[JSON]
    ) -> None:
        for level in LEVELS:
            verdicts = oracle.pod_security_each(batch, level=level)
            for raw, verdict in zip(batch, verdicts, strict=True):
                assert reasons(raw, level) == verdict.reasons
                assert bool(findings(raw, level)) != verdict.allowed

    @settings(max_examples=80)
    @given(batch=st.lists(pods(min_sources=1), min_size=1, max_size=10))
    def test_details_contain_every_value_that_the_library_names(
        self, oracle: Oracle, batch: list[JSON]
    ) -> None:
        """Whatever the library puts in quotes (containers, values), the finding names too."""
        for raw, verdict in zip(batch, oracle.pod_security_each(batch), strict=True):
            if any(len(volume) > 2 for volume in raw["spec"].get("volumes") or ()):
                continue  # with two sources, which the API rejects, either is named
            for finding, detail in zip(findings(raw), verdict.details, strict=True):
                plain = re.sub(r'[\w./]+=\\?"[^"]*"', "", detail)  # annotations
                for name in re.findall(r'"([\w./-]+)"', plain):
                    assert name in finding.detail, detail

    @settings(max_examples=80)
    @given(batch=st.lists(pods(), min_size=1, max_size=10))
    def test_defaults_of_the_api_server_do_not_change_the_verdict(
        self, oracle: Oracle, batch: list[JSON]
    ) -> None:
        """A webhook sees them, a file has none yet: a volume without a source is an emptyDir."""
        defaulted = [validation.pod for validation in oracle.validate_each(batch)]
        for level in LEVELS:
            verdicts = oracle.pod_security_each(batch, level=level, defaulted=True)
            for raw, whole, verdict in zip(batch, defaulted, verdicts, strict=True):
                assert reasons(whole, level) == verdict.reasons
                assert bool(findings(raw, level)) != verdict.allowed


def test_the_check_does_not_modify_the_pod() -> None:
    for case in REJECTED.values():
        before = copy.deepcopy(case.pod)
        findings(case.pod)
        assert case.pod == before


@pytest.mark.parametrize("level", LEVELS)
def test_no_control_finds_anything_in_the_context_that_gpufence_adds(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [*ACCEPTED.values(), *(case.pod for case in REJECTED.values())]
    assert pod_of(pod()).containers()[0].security_context == HARDENED
    skipping = [findings(raw, level) for raw in examples]
    # An ID that no example has: every container is judged.
    monkeypatch.setattr(HARDENED, "run_as_user", 123456789)
    assert [findings(raw, level) for raw in examples] == skipping
