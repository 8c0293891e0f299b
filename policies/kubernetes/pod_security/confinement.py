"""The confinement of a container by the kernel: AppArmor, SELinux, seccomp, sysctls."""

from __future__ import annotations

from collections.abc import Mapping

from policies.kubernetes.core_v1 import (
    AppArmorProfile,
    SeccompProfile,
    SecurityContext,
    SELinuxOptions,
)
from policies.kubernetes.pod_security.view import PodView, Violation, offenders, subjects, unset
from policies.wording import capitalized, listing, quote

PROFILES = frozenset({"RuntimeDefault", "Localhost"})
_SECCOMP = "securityContext: {seccompProfile: {type: RuntimeDefault}}"
_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_SE_LINUX_TYPES = (
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
)
ACCEPTED_SE_LINUX_TYPES = frozenset({"", *_SE_LINUX_TYPES})
SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)


def app_armor_profile(pod: PodView) -> Violation | None:
    """The AppArmor profile is the default of the runtime, or a profile of the node.

    Restricted fields: ``appArmorProfile.type`` of the Pod's and the containers' security contexts,
    and the annotations that preceded it. Source: check_appArmorProfile.go.
    """
    bad = offenders(pod, lambda context: _is_bad(context.app_armor_profile))
    rejected = _bad_annotations(pod.pod.annotations)
    if bad is None and not rejected:
        return None
    types = {_type(context.app_armor_profile) for context in bad.contexts()} if bad else set()
    reason, accepted = "forbidden AppArmor profile", '"RuntimeDefault", "Localhost" or no profile'
    reason += "s" if len(types) + len(rejected) > 1 else ""
    paths = [f"metadata.annotations[{key}]" for key in rejected]
    found = [f'annotation {key} is "{value}"' for key, value in rejected.items()]
    faults = subjects(rejected.items())
    remediation = f"remove the {'annotation' if len(rejected) == 1 else 'annotations'}"
    if bad:
        field, correction = "appArmorProfile.type", "set appArmorProfile: {type: RuntimeDefault}"
        remediation = f"{correction} and {remediation}" if rejected else correction
        explicit = bad.violation(
            reason, field, lambda context: _type(context.app_armor_profile), accepted, ""
        )
        paths, found = [explicit.path], [explicit.found, *found]
        faults |= explicit.subjects
    return Violation(reason, paths[0], ", ".join(found), accepted, capitalized(remediation), faults)


def se_linux_options(pod: PodView) -> Violation | None:
    """SELinux runs containers with a container type, and without a custom user or role.

    Restricted fields: ``seLinuxOptions.type``, ``.user`` and ``.role`` of the Pod's and the
    containers' security contexts; ``level`` is not restricted. Source: check_seLinuxOptions.go.
    """
    bad = offenders(pod, _bad_se_linux)
    if bad is None:
        return None
    options = [_se_linux(context) for context in bad.contexts()]
    wrong = {
        "type": {one["type"] for one in options} - ACCEPTED_SE_LINUX_TYPES,
        "user": {one["user"] for one in options} - {""},
        "role": {one["role"] for one in options} - {""},
    }
    field = next((key for key, value in options[0].items() if value in wrong[key]), "type")
    values = listing([f"{key} {quote(sorted(wrong[key]))}" for key in wrong if wrong[key]])
    return Violation(
        "seLinuxOptions",
        bad.path(f"seLinuxOptions.{field}"),
        f"{bad.who} {bad.verb('sets', 'set')} {values} in securityContext.seLinuxOptions",
        f"no user, no role, and only the types {listing(_SE_LINUX_TYPES)}",
        f"Remove {listing([key for key in wrong if wrong[key]])} from seLinuxOptions",
        bad.subjects(
            lambda context: (
                f"{key} {value}" for key, value in _se_linux(context).items() if value in wrong[key]
            )
        ),
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
    given = pod.context.sysctls
    if not given:
        return None
    bad = {
        index: sysctl.name or "" for index, sysctl in enumerate(given) if sysctl.name not in SYSCTLS
    }
    if not bad:
        return None
    names = list(dict.fromkeys(bad.values()))
    return Violation(
        "forbidden sysctls",
        f"spec.securityContext.sysctls[{next(iter(bad))}].name",
        f"the Pod sets {quote(names)} in securityContext.sysctls",
        f"only {listing(SYSCTLS)}",
        f"Remove {quote(names)} from sysctls. If the workload needs the setting, contact the "
        "cluster administrator, who can set it on the nodes",
        subjects(("the Pod", name) for name in names),
    )


def _unconfined(pod: PodView, accepted: str) -> Violation | None:
    bad = offenders(pod, lambda context: _is_bad(context.seccomp_profile))
    if bad is None:
        return None
    return bad.violation(
        "seccompProfile",
        "seccompProfile.type",
        lambda context: _type(context.seccomp_profile),
        accepted,
        bad.remediation(f"Set {_SECCOMP} instead"),
    )


def _is_bad(profile: SeccompProfile | AppArmorProfile | None) -> bool:
    return profile is not None and profile.type not in PROFILES


def _type(profile: SeccompProfile | AppArmorProfile | None) -> str:
    return (profile.type if profile else None) or ""


def _bad_annotations(annotations: Mapping[str, str | None]) -> dict[str, str]:
    bad = {
        key: value
        for key, value in annotations.items()
        if key.startswith(_APP_ARMOR_ANNOTATION)
        and value
        and value != "runtime/default"
        and not value.startswith("localhost/")
    }
    return dict(sorted(bad.items())) if bad else bad


def _bad_se_linux(context: SecurityContext) -> bool:
    options = context.se_linux_options
    return bool(
        options
        and (options.user or options.role or (options.type or "") not in ACCEPTED_SE_LINUX_TYPES)
    )


def _se_linux(context: SecurityContext) -> dict[str, str]:
    options = context.se_linux_options or SELinuxOptions()
    return {"type": options.type or "", "user": options.user or "", "role": options.role or ""}
