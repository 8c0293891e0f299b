"""Pods with good, bad, partial, null and empty values in the fields that Pod Security reads."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from policies.policy import Hardening, Policy
from specs import JSON

_NAMES = st.sampled_from(["main", "setup", "sidecar", "debug", "a", "b"])


def _maybe(*values: Any) -> st.SearchStrategy[Any]:
    """Any of the values, or null."""
    return st.sampled_from([None, *values])


def _record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    """An object that has any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def _or_null(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


_PROFILE = _or_null(
    _record(
        type=_maybe("RuntimeDefault", "Localhost", "Unconfined", "", "runtime/default", "OCI"),
        localhostProfile=_maybe("profiles/gpu.json"),
    )
)
_SE_LINUX = _or_null(
    _record(
        type=_maybe(
            "container_t", "container_engine_t", "container_kvm_t", "spc_t", "", "Container_t"
        ),
        user=_maybe("", "system_u"),
        role=_maybe("", "system_r"),
        level=_maybe("s0:c1,c2"),
    )
)
_WINDOWS_OPTIONS = _or_null(
    _record(
        hostProcess=_maybe(True, False),
        runAsUserName=_maybe("ContainerUser", "ContainerAdministrator", "containeradministrator"),
    )
)
_CAPABILITY = st.sampled_from(
    ["ALL", "NET_BIND_SERVICE", "CHOWN", "SYS_ADMIN", "CAP_SYS_ADMIN", "IPC_LOCK", "all", "CAP_ALL"]
)
_CAPABILITIES = _or_null(
    _record(
        add=_or_null(st.lists(_CAPABILITY, max_size=2)),
        drop=_or_null(st.lists(st.one_of(st.just("ALL"), _CAPABILITY), max_size=2)),
    )
)
_IDENTITY = {
    "runAsNonRoot": _maybe(True, False),
    "runAsUser": _maybe(0, 1000, 65532),
    "runAsGroup": _maybe(0, 100),
    "seccompProfile": _PROFILE,
    "appArmorProfile": _PROFILE,
    "seLinuxOptions": _SE_LINUX,
    "windowsOptions": _WINDOWS_OPTIONS,
}
_SYSCTL = st.fixed_dictionaries(
    {
        "name": st.sampled_from(
            [
                "kernel.shm_rmid_forced",
                "net.ipv4.ip_local_reserved_ports",
                "net.ipv4.tcp_keepalive_time",
                "net.ipv4.tcp_notsent_lowat",
                "net.ipv4.tcp_rmem",
                "net.ipv4.tcp_slow_start_after_idle",
                "kernel.shmmax",
                "net/ipv4/tcp_rmem",
                "net.core.somaxconn",
                "",
            ]
        ),
        "value": st.just("1"),
    }
)
_POD_FIELDS = {
    **_IDENTITY,
    "fsGroup": _maybe(0, 100),
    "sysctls": _or_null(st.lists(_SYSCTL, max_size=3)),
    "supplementalGroups": _or_null(st.lists(st.just(5), max_size=1)),
}
_CONTAINER_FIELDS = {
    **_IDENTITY,
    "allowPrivilegeEscalation": _maybe(True, False),
    "privileged": _maybe(True, False),
    "procMount": _maybe("Default", "Unmasked", ""),
    "capabilities": _CAPABILITIES,
    "readOnlyRootFilesystem": _maybe(True),
}


def _contexts(good: JSON, fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """No security context, any, or a good one with at most one field changed."""
    one_field = [st.fixed_dictionaries({name: value}) for name, value in fields.items()]
    nearly_good = st.one_of(st.just({}), *one_field).map(lambda change: {**good, **change})
    return st.one_of(st.none(), _record(**fields), nearly_good, nearly_good)


POD_CONTEXTS = _contexts(
    {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, _POD_FIELDS
)
CONTAINER_CONTEXTS = _contexts(
    {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, _CONTAINER_FIELDS
)
_ACTION = _or_null(_record(host=_maybe("", "127.0.0.1", "10.0.0.1"), port=st.just(80)))
_HANDLER = _or_null(_record(httpGet=_ACTION, tcpSocket=_ACTION))
_PROBE = _or_null(
    _record(
        httpGet=_ACTION, tcpSocket=_ACTION, grpc=_maybe({"port": 9090}), periodSeconds=st.just(5)
    )
)
_LIFECYCLE = _or_null(_record(postStart=_HANDLER, preStop=_HANDLER))
_PORT = _record(containerPort=st.sampled_from([80, 8080]), hostPort=_maybe(0, 80, 9090, 443))
_RARELY_SET = {
    "ports": _or_null(st.lists(_PORT, max_size=2)),
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": _LIFECYCLE,
}


def _containers(min_size: int = 0) -> st.SearchStrategy[list[JSON]]:
    plain = st.fixed_dictionaries(
        {"name": _NAMES, "image": st.just("registry.example/app")},
        optional={"securityContext": CONTAINER_CONTEXTS},
    )
    busy = st.fixed_dictionaries(
        {"name": _NAMES, "image": st.just("registry.example/app")},
        optional={"securityContext": CONTAINER_CONTEXTS, **_RARELY_SET},
    )
    return st.lists(st.one_of(plain, busy), min_size=min_size, max_size=2)


_SOURCES = (
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
)


def volumes(*, min_sources: int = 0) -> st.SearchStrategy[JSON]:
    """A volume of any type; with no source, or (which the API rejects) with two."""
    source = st.sampled_from(_SOURCES)
    nothing: JSON = {}
    return st.builds(
        _volume,
        st.sampled_from(["data", "shm", "code"]),
        st.dictionaries(source, st.none(), max_size=1),
        st.dictionaries(source, st.just(nothing), min_size=min_sources, max_size=2),
    )


def _volume(name: str, unset: JSON, sources: JSON) -> JSON:
    return {"name": name, **unset, **sources}


_ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "container.apparmor.security.beta.kubernetes.io/main",
            "container.apparmor.security.beta.kubernetes.io/gone",
            "container.apparmor.security.beta.kubernetes.io",
            "seccomp.security.alpha.kubernetes.io/pod",
        ]
    ),
    st.sampled_from(["", "runtime/default", "localhost/x", "unconfined", "localhost"]),
    max_size=3,
)


def pods(*, min_sources: int = 0) -> st.SearchStrategy[JSON]:
    """A Pod by the types of the API, valid or not, whose volumes have so many sources at least."""
    spec = st.fixed_dictionaries(
        {"containers": _containers(1)},
        optional={
            "securityContext": POD_CONTEXTS,
            "initContainers": _or_null(_containers()),
            "ephemeralContainers": _or_null(_containers()),
            "volumes": _or_null(st.lists(volumes(min_sources=min_sources), max_size=3)),
            "hostNetwork": _maybe(False, True),
            "hostPID": _maybe(False, True),
            "hostIPC": _maybe(False, True),
            "hostUsers": _maybe(True, False),
            "os": _maybe({}, {"name": "windows"}, {"name": "linux"}),
        },
    )
    metadata = st.fixed_dictionaries(
        {"name": st.just("pod")}, optional={"annotations": _or_null(_ANNOTATIONS)}
    )
    return st.fixed_dictionaries({"metadata": metadata, "spec": spec})


_PATHS = st.sampled_from(
    ["/gpufence-home", "gpufence-home/", "/gpufence-home-2", "/gpufence-home/.cache", "/data"]
)
_OF_A_HOME = _record(
    volumeDevices=_PATHS.map(lambda path: [{"name": "disk", "devicePath": path}]),
    volumeMounts=_PATHS.map(lambda path: [{"name": "data", "mountPath": path}]),
    env=_maybe([], [{"name": "HOME", "value": "/data"}], [{"name": "A", "value": "a"}]),
    envFrom=_maybe([{"configMapRef": {"name": "settings"}}]),
)
EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_WRITTEN = _record(
    annotations=_or_null(
        _record(
            **{
                "gpufence.dev/run-as-user": st.sampled_from(["0", "65532", ""]),
                EVICTABLE: st.sampled_from(["", "data", "data, gpufence-home", "gpufence-home"]),
                # With the others, as much as the API server accepts, or a little more.
                "long": st.integers(262_000, 262_144).map("a".__mul__),
            }
        )
    )
)


@st.composite
def creatable_pods(draw: st.DrawFn, *, ephemeral: bool = False) -> JSON:
    """A Pod that the API server would mostly create: what is wild in it are the security contexts.

    With ephemeral containers it is one that exists: they cannot come with a new Pod.
    """
    kinds = ["initContainers", "containers", *(["ephemeralContainers"] if ephemeral else [])]
    contexts = draw(
        st.fixed_dictionaries(
            {kind: st.lists(CONTAINER_CONTEXTS, min_size=1, max_size=2) for kind in kinds}
        )
    )
    spec: JSON = draw(
        _record(
            securityContext=POD_CONTEXTS,
            hostUsers=_maybe(True, False),
            hostNetwork=_maybe(False, True),
            os=_maybe({"name": "linux"}, {"name": "windows"}),
        )
    )
    for kind, entries in contexts.items():
        spec[kind] = [
            {"name": f"{kind.lower()}-{index}", "image": "registry.example/app", **draw(_OF_A_HOME)}
            | ({} if context is None else {"securityContext": context})
            for index, context in enumerate(entries)
        ]
    own = draw(st.sampled_from(["scratch", "gpufence-home"]))
    spec["volumes"] = [{"name": own, "emptyDir": {}}] + [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("disk", "data")
    ]
    return {"metadata": {"name": "pod", **draw(_WRITTEN)}, "spec": spec}


HARDENING = st.builds(
    lambda user, group, volumes, home: Policy(
        pools=(),
        hardening=Hardening(run_as_user=user, run_as_group=group, fs_group=volumes, home=home),
    ),
    st.sampled_from([None, 65532, 1000]),
    st.sampled_from([None, 3000]),
    st.sampled_from([None, 2000]),
    st.sampled_from([None, "20Gi"]),
)
"""Policies without pools, by what the mutation adds."""
