"""The confinement of a container by the kernel: AppArmor, SELinux, seccomp, sysctls."""

from __future__ import annotations

from collections.abc import Mapping

from policies.kubernetes.core_v1 import AppArmorProfile, SeccompProfile
from policies.kubernetes.pod_security.view import (
    Fault,
    PodView,
    Violation,
    at,
    offenders,
    unset,
    violation,
    wrong_setting,
    wrong_settings,
)
from policies.wording import capitalized, listing, quote

PROFILES = frozenset({"RuntimeDefault", "Localhost"})
_SECCOMP = "securityContext: {seccompProfile: {type: RuntimeDefault}}"
_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_SE_LINUX_TYPES = {
    "container_t": 0,
    "container_init_t": 0,
    "container_kvm_t": 0,
    "container_engine_t": 31,
}
"""By type, the first minor version that accepts it."""
_SYSCTLS = {
    "kernel.shm_rmid_forced": 0,
    "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.ip_unprivileged_port_start": 0,
    "net.ipv4.ping_group_range": 0,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_notsent_lowat": 37,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_slow_start_after_idle": 37,
    "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.tcp_wmem": 32,
}
"""By sysctl, the first minor version that accepts it."""


def app_armor_profile(pod: PodView) -> Violation | None:
    """The AppArmor profile is the default of the runtime, or a profile of the node.

    Restricted fields: ``appArmorProfile.type`` of the Pod's and the containers' security contexts,
    and the annotations that preceded it. Source: check_appArmorProfile.go.
    """
    field = "appArmorProfile.type"
    faults = wrong_settings(pod, field, lambda each: _wrong_type(each.app_armor_profile))
    rejected = bad_annotations(pod.pod.annotations)
    if not faults and not rejected:
        return None
    several = len({fault.what for fault in faults}) + len(rejected) > 1
    reason = f"forbidden AppArmor profile{'s' if several else ''}"
    accepted = '"RuntimeDefault", "Localhost" or no profile'
    found, remediation = [], []
    if explicit := wrong_setting(reason, faults, accepted, "", quoted=True):
        found.append(explicit.found)
        remediation.append("set appArmorProfile: {type: RuntimeDefault}")
    if rejected:
        found += [f'annotation {key} is "{value}"' for key, value in rejected.items()]
        remediation.append(f"remove the annotation{'s' if len(rejected) > 1 else ''}")
    faults += [
        Fault(None, f"metadata.annotations[{key}]", f"{key}: {value}")
        for key, value in rejected.items()
    ]
    correction = capitalized(" and ".join(remediation))
    return violation(reason, faults, ", ".join(found), accepted, correction)


def se_linux_options(pod: PodView) -> Violation | None:
    """SELinux runs containers with a container type, and without a custom user or role.

    Restricted fields: ``seLinuxOptions.type``, ``.user`` and ``.role`` of the Pod's and the
    containers' security contexts; ``level`` is not restricted. Source: check_seLinuxOptions.go.
    """
    if all(context.se_linux_options is None for context in pod.contexts):
        return None
    types = _accepted(_SE_LINUX_TYPES, pod)
    values_of = {"type": {"", *types}, "user": {""}, "role": {""}}
    wrong = [
        (owner, key, value)
        for owner, context in zip(pod.owners, pod.contexts, strict=True)
        for key, accepted in values_of.items()
        if (value := getattr(context.se_linux_options, key, None) or "") not in accepted
    ]
    if not wrong:
        return None
    faults = [Fault(o, at(o, f"seLinuxOptions.{key}"), f"{key} {value}") for o, key, value in wrong]
    values = {key: sorted({value for _, k, value in wrong if k == key}) for key in values_of}
    keys = [key for key in values if values[key]]
    shown = listing(f"{key} {quote(values[key])}" for key in keys)
    return violation(
        "seLinuxOptions",
        faults,
        f"{offenders(faults, 'sets', 'set')} {shown} in securityContext.seLinuxOptions",
        f"no user, no role, and only the types {listing(types)}",
        f"Remove {listing(keys)} from seLinuxOptions",
    )


def seccomp_profile_baseline(pod: PodView) -> Violation | None:
    """A seccomp profile, if set, confines the container.

    Restricted fields: ``seccompProfile.type`` of the Pod's and the containers' security contexts.
    Source: check_seccompProfile_baseline.go.
    """
    return _unconfined(pod, '"RuntimeDefault", "Localhost" or no profile')


def seccomp_profile_restricted(pod: PodView) -> Violation | None:
    """Every container has a seccomp profile that confines it, its own or that of the Pod.

    Restricted fields: ``seccompProfile.type`` of the Pod's and the containers' security contexts. A
    Windows Pod cannot have one. Source: check_seccompProfile_restricted.go.
    """
    if pod.windows:
        return None
    accepted = '"RuntimeDefault" or "Localhost"'
    explicit = _unconfined(pod, accepted)
    if explicit or pod.context.seccomp_profile is not None:
        return explicit
    silent = [
        container
        for container in pod.containers
        if container.security_context.seccomp_profile is None
    ]
    remediation = f"Set {_SECCOMP} in the Pod's spec"
    return unset(silent, "seccompProfile", "seccompProfile.type", accepted, remediation)


def sysctls(pod: PodView) -> Violation | None:
    """The Pod sets only sysctls that do not affect other Pods.

    Restricted field: ``securityContext.sysctls[*].name`` of the Pod. Source: check_sysctls.go.
    """
    if not pod.context.sysctls:
        return None
    accepted = _accepted(_SYSCTLS, pod)
    faults = [
        Fault(None, f"spec.securityContext.sysctls[{index}].name", sysctl.name or "")
        for index, sysctl in enumerate(pod.context.sysctls)
        if sysctl.name not in accepted
    ]
    if not faults:
        return None
    names = quote(dict.fromkeys(fault.what for fault in faults))
    return violation(
        "forbidden sysctls",
        faults,
        f"the Pod sets {names} in securityContext.sysctls",
        f"only {listing(accepted)}",
        f"Remove {names} from sysctls. If the workload needs the setting, contact the "
        "cluster administrator, who can set it on the nodes",
    )


def _accepted(values: Mapping[str, int], pod: PodView) -> list[str]:
    """Return the values that every version of the profile accepts that counts for the Pod."""
    return [value for value, since in values.items() if since <= pod.versions.oldest]


def _unconfined(pod: PodView, accepted: str) -> Violation | None:
    field = "seccompProfile.type"
    faults = wrong_settings(pod, field, lambda each: _wrong_type(each.seccomp_profile))
    instead = f"Set {_SECCOMP} instead"
    return wrong_setting("seccompProfile", faults, accepted, instead, quoted=True)


def _wrong_type(profile: SeccompProfile | AppArmorProfile | None) -> str | None:
    return None if profile is None or profile.type in PROFILES else profile.type or ""


def bad_annotations(annotations: Mapping[str, str | None]) -> dict[str, str]:
    """Return the annotations that set an AppArmor profile which the control rejects."""
    bad = {
        key: value
        for key, value in annotations.items()
        if key.startswith(_APP_ARMOR_ANNOTATION)
        and value
        and value != "runtime/default"
        and not value.startswith("localhost/")
    }
    return dict(sorted(bad.items())) if bad else bad
