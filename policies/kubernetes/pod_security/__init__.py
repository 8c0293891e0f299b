"""Pod Security's profiles ``baseline`` and ``restricted``, as versions 1.30 to 1.37 have them.

One function for each control, in the order of the official library, with its result for every Pod:
k8s.io/pod-security-admission v0.37, policy/check_*.go and registry.go. JSON null counts as unset,
and an empty object as set, as they do after Go's decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from policies.kubernetes.field_types import camel_case
from policies.kubernetes.pod import Pod
from policies.kubernetes.pod_security.confinement import (
    app_armor_profile,
    bad_annotations,
    se_linux_options,
    seccomp_profile_baseline,
    seccomp_profile_restricted,
    sysctls,
)
from policies.kubernetes.pod_security.host import (
    host_namespaces,
    host_path_volumes,
    host_ports,
    host_probes_and_host_lifecycle,
    restricted_volumes,
)
from policies.kubernetes.pod_security.privileges import (
    allow_privilege_escalation,
    capabilities_baseline,
    capabilities_restricted,
    privileged,
    proc_mount_baseline,
    proc_mount_restricted,
    run_as_non_root,
    run_as_user,
    windows_host_process,
)
from policies.kubernetes.pod_security.view import (
    PodView,
    Violation,
    is_hardened,
    view,
)
from policies.kubernetes.profile_versions import LATEST, Versions

Level = Literal["baseline", "restricted"]
Control = Callable[[PodView], Violation | None]

# registry.go runs the baseline controls first and leaves out those that a restricted one overrides:
# capabilities, procMount, seccompProfile, and hostPath volumes (by the volume types).
CONTROLS: Mapping[Level, tuple[Control, ...]] = {
    "baseline": (
        app_armor_profile,
        capabilities_baseline,
        host_namespaces,
        host_path_volumes,
        host_ports,
        host_probes_and_host_lifecycle,
        privileged,
        proc_mount_baseline,
        se_linux_options,
        seccomp_profile_baseline,
        sysctls,
        windows_host_process,
    ),
    "restricted": (
        app_armor_profile,
        host_namespaces,
        host_ports,
        host_probes_and_host_lifecycle,
        privileged,
        se_linux_options,
        sysctls,
        windows_host_process,
        allow_privilege_escalation,
        capabilities_restricted,
        proc_mount_restricted,
        restricted_volumes,
        run_as_non_root,
        run_as_user,
        seccomp_profile_restricted,
    ),
}


_OF_SECURITY_CONTEXTS: frozenset[Control] = frozenset(
    {
        allow_privilege_escalation,
        app_armor_profile,
        capabilities_baseline,
        capabilities_restricted,
        privileged,
        proc_mount_baseline,
        proc_mount_restricted,
        run_as_non_root,
        run_as_user,
        se_linux_options,
        seccomp_profile_baseline,
        seccomp_profile_restricted,
        sysctls,
        windows_host_process,
    }
)
"""The controls that read nothing but security contexts and, of AppArmor, annotations.

For speed: most Pods are hardened."""
_OTHERS = {
    level: tuple(control for control in controls if control not in _OF_SECURITY_CONTEXTS)
    for level, controls in CONTROLS.items()
}


def violations(
    pod: Pod,
    level: Level,
    versions: Versions = LATEST,
    *,
    completed: bool = False,
    besides: Level | None = None,
) -> list[Violation]:
    """Return a violation for each control of the level that the Pod fails in one of the versions.

    With ``completed``, without those that another violation causes (see ``PodView``): none are left
    if and only if the official library accepts the Pod. With ``besides``, without the
    controls that this level has as well.
    """
    seen = view(pod, versions, completed=completed)
    hardened = is_hardened(seen) and not bad_annotations(pod.annotations)
    controls = (_OTHERS if hardened else CONTROLS)[level]
    if besides:
        controls = tuple(each for each in controls if each not in CONTROLS[besides])
    return [
        violation._replace(control=name_of(control))
        for control in controls
        if (violation := control(seen)) is not None
    ]


def name_of(control: Control) -> str:
    """Return the ID of a control in the official library, without the level."""
    name = control.__name__.removesuffix("_baseline").removesuffix("_restricted")
    return camel_case(name)
