"""Every rule, in the order in which it runs. The ids are part of gpufence's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from policies.context import Context
from policies.finding import Action, Finding
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.rules import (
    check_admin_access_claim,
    check_ambiguous_pool,
    check_device_leak,
    check_missing_device,
    check_missing_shared_memory,
    check_oversized_device_request,
    check_pool_not_allowed,
    check_pool_trespass,
    check_privileged_near_devices,
    check_shared_device_count,
    check_unequal_device_limits,
    check_unknown_device_resource,
    check_unrestricted_gpu_pod,
    check_unschedulable_gpu_pod,
    set_device_requests,
    set_gpu_runtime_class,
    set_pool_node_affinity,
    set_pool_toleration,
    set_restricted_security_context,
    set_void_visible_devices,
)

Pods = Literal["all", "requesting", "gpu"]
"""The Pods that a rule is about: ``gpu`` are those that request a device of a pool, ``requesting``
those with a device resource of any kind, a claim, or resources at Pod level."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A rule that adds to the Pod, and never changes or removes.

    ``page`` is the rule's documentation page, ``summary`` says what it adds, and ``devices_only``
    that it looks at nothing of a Pod but the devices that it requests. ``debug_containers`` says
    that it fills the ephemeral containers which come to an existing Pod: all else is immutable.
    """

    id: str
    page: str
    additions: Callable[[Pod, Context], Iterator[Addition]]
    summary: str
    pods: Pods = "gpu"
    devices_only: bool = False
    debug_containers: bool = False
    default: Action = "enforce"


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that returns findings, and never changes the Pod.

    ``default`` is their action where a policy does not name the rule. The rule is skipped for other
    Pods than ``pods``. With ``devices_only``, the rule depends on nothing of a Pod but the devices
    that it requests.
    """

    id: str
    page: str
    check: Callable[[Pod, Context], Iterable[Finding]]
    pods: Pods = "all"
    devices_only: bool = False
    default: Action = "enforce"


class _MutationModule(Protocol):
    ID: str
    SUMMARY: str
    __doc__: str | None

    def additions(self, pod: Pod, context: Context, /) -> Iterator[Addition]: ...


class _CheckModule(Protocol):
    ID: str
    __doc__: str | None

    def check(self, pod: Pod, context: Context, /) -> Iterable[Finding]: ...


def _mutation(
    module: _MutationModule,
    *,
    pods: Pods = "gpu",
    devices_only: bool = False,
    debug_containers: bool = False,
) -> Mutation:
    return Mutation(
        module.ID,
        module.__doc__ or "",
        module.additions,
        module.SUMMARY,
        pods,
        devices_only,
        debug_containers,
    )


def _check(
    module: _CheckModule,
    *,
    pods: Pods = "all",
    devices_only: bool = False,
    default: Action = "enforce",
) -> Check:
    page = module.__doc__ or ""
    return Check(module.ID, page, module.check, pods, devices_only, default)


MUTATIONS: tuple[Mutation, ...] = (
    _mutation(set_device_requests, pods="requesting", devices_only=True),
    _mutation(set_pool_toleration),
    _mutation(set_pool_node_affinity),
    _mutation(set_restricted_security_context, debug_containers=True),
    _mutation(set_void_visible_devices, debug_containers=True),
    _mutation(set_gpu_runtime_class),
)

CHECKS: tuple[Check, ...] = (
    _check(check_unequal_device_limits, pods="requesting", devices_only=True),
    _check(check_shared_device_count, pods="requesting", devices_only=True),
    _check(check_oversized_device_request, pods="gpu", devices_only=True),
    _check(check_pool_not_allowed, pods="gpu", devices_only=True),
    _check(check_unschedulable_gpu_pod, pods="requesting"),
    _check(check_ambiguous_pool, pods="gpu"),
    _check(check_missing_device, pods="gpu"),
    _check(check_unrestricted_gpu_pod, pods="gpu"),
    _check(check_pool_trespass),
    _check(check_device_leak),
    _check(check_privileged_near_devices, default="warn"),
    _check(check_missing_shared_memory, pods="requesting", default="warn"),
    _check(check_admin_access_claim, pods="requesting", default="warn"),
    _check(check_unknown_device_resource, pods="requesting", default="warn"),
)

_CHECKS_OF_REQUESTING_PODS = tuple(check for check in CHECKS if check.pods != "gpu")
_CHECKS_OF_ALL_PODS = tuple(check for check in CHECKS if check.pods == "all")

RULES: tuple[Mutation | Check, ...] = (*MUTATIONS, *CHECKS)


def mutations_for(pod: Pod, context: Context) -> Sequence[Mutation]:
    """Return the mutations that may change the Pod in this request.

    The spec of an existing Pod is immutable except for its new ephemeral containers.
    """
    is_gpu_pod = context.may_have_device(pod)
    if not is_gpu_pod and not pod.device_resources():
        return ()
    existing, devices_only = context.exists(pod), pod.devices_only
    if is_gpu_pod and not existing and not devices_only:
        return MUTATIONS
    debugged = context.request.subresource == "ephemeralcontainers"
    return [
        mutation
        for mutation in MUTATIONS
        if (is_gpu_pod or mutation.pods != "gpu")
        and (mutation.devices_only or not devices_only)
        and (not existing or (debugged and mutation.debug_containers))
    ]


def checks_for(pod: Pod, context: Context) -> Sequence[Check]:
    """Return the checks that may find something in the Pod."""
    if context.may_have_device(pod):
        checks = CHECKS
    elif pod.device_resources() or pod.spec.resource_claims or pod.spec.resources:
        checks = _CHECKS_OF_REQUESTING_PODS
    else:
        checks = _CHECKS_OF_ALL_PODS
    return [check for check in checks if check.devices_only] if pod.devices_only else checks
