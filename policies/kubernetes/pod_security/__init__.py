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
from policies.kubernetes.pod_security import confinement, host, privileges
from policies.kubernetes.pod_security.confinement import bad_annotations
from policies.kubernetes.pod_security.view import PodView, Violation, is_hardened, view
from policies.kubernetes.profile_versions import LATEST, Versions

Level = Literal["baseline", "restricted"]
Control = Callable[[PodView], Violation | None]

# registry.go runs the baseline controls first and leaves out those that a restricted one overrides:
# capabilities, procMount, seccompProfile, and hostPath volumes (by the volume types).
CONTROLS: Mapping[Level, tuple[Control, ...]] = {
    "baseline": (
        confinement.app_armor_profile,
        privileges.capabilities_baseline,
        host.host_namespaces,
        host.host_path_volumes,
        host.host_ports,
        host.host_probes_and_host_lifecycle,
        privileges.privileged,
        privileges.proc_mount_baseline,
        confinement.se_linux_options,
        confinement.seccomp_profile_baseline,
        confinement.sysctls,
        privileges.windows_host_process,
    ),
    "restricted": (
        confinement.app_armor_profile,
        host.host_namespaces,
        host.host_ports,
        host.host_probes_and_host_lifecycle,
        privileges.privileged,
        confinement.se_linux_options,
        confinement.sysctls,
        privileges.windows_host_process,
        privileges.allow_privilege_escalation,
        privileges.capabilities_restricted,
        privileges.proc_mount_restricted,
        host.restricted_volumes,
        privileges.run_as_non_root,
        privileges.run_as_user,
        confinement.seccomp_profile_restricted,
    ),
}
_OTHERS = {
    level: tuple(control for control in controls if control.__module__ == host.__name__)
    for level, controls in CONTROLS.items()
}
"""The controls that read more than security contexts and, of AppArmor, annotations.

For speed: most Pods are hardened."""


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
