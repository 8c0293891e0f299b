"""Every rule, in the order in which it runs. The ids are part of gpufence's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from policies.facts import Facts
from policies.finding import Action, Finding
from policies.kubernetes.pod import Pod
from policies.policy import Policy
from policies.rules import (
    check_device_leak,
    check_oversized_device_request,
    check_pool_not_allowed,
    check_pool_trespass,
    check_privileged_near_devices,
    check_shared_device_count,
    check_unequal_device_limits,
    check_unrestricted_gpu_pod,
    check_unschedulable_gpu_pod,
    set_device_requests,
    set_gpu_runtime_class,
    set_pool_node_affinity,
    set_pool_toleration,
    set_restricted_security_context,
    set_void_visible_devices,
)


@dataclass(frozen=True, slots=True)
class Setter:
    """A rule that adds to a working copy of the Pod, and never takes away.

    ``page`` is the rule's documentation page, ``summary`` says what it adds, and ``devices_only``
    that it looks at nothing of a Pod but the devices that it requests. ``debug_containers`` says
    that it fills the ephemeral containers which come to an existing Pod: all else is immutable.
    """

    id: str
    page: str
    apply: Callable[[Pod, Policy, Facts], None]
    summary: str
    gpu_pods_only: bool
    devices_only: bool = False
    debug_containers: bool = False
    default: Action = "enforce"


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that returns findings, and never changes the Pod.

    ``default`` is what becomes of them where a policy does not name the rule; ``devices_only`` says
    that the rule looks at nothing of a Pod but the devices that it requests.
    """

    id: str
    page: str
    check: Callable[[Pod, Policy, Facts], Iterator[Finding]]
    gpu_pods_only: bool
    devices_only: bool = False
    default: Action = "enforce"


class _SetterModule(Protocol):
    ID: str
    SUMMARY: str
    __doc__: str | None

    def apply(self, pod: Pod, policy: Policy, facts: Facts, /) -> None: ...


class _CheckModule(Protocol):
    ID: str
    __doc__: str | None

    def check(self, pod: Pod, policy: Policy, facts: Facts, /) -> Iterator[Finding]: ...


def _setter(
    module: _SetterModule,
    *,
    gpu_pods_only: bool = True,
    devices_only: bool = False,
    debug_containers: bool = False,
) -> Setter:
    return Setter(
        module.ID,
        module.__doc__ or "",
        module.apply,
        module.SUMMARY,
        gpu_pods_only,
        devices_only,
        debug_containers,
    )


def _check(
    module: _CheckModule,
    *,
    gpu_pods_only: bool = False,
    devices_only: bool = False,
    default: Action = "enforce",
) -> Check:
    page = module.__doc__ or ""
    return Check(module.ID, page, module.check, gpu_pods_only, devices_only, default)


SETTERS: tuple[Setter, ...] = (
    _setter(set_device_requests, gpu_pods_only=False, devices_only=True),
    _setter(set_pool_toleration),
    _setter(set_pool_node_affinity),
    _setter(set_restricted_security_context, debug_containers=True),
    _setter(set_void_visible_devices, debug_containers=True),
    _setter(set_gpu_runtime_class),
)

CHECKS: tuple[Check, ...] = (
    _check(check_unequal_device_limits, devices_only=True),
    _check(check_shared_device_count, devices_only=True),
    _check(check_oversized_device_request, gpu_pods_only=True, devices_only=True),
    _check(check_pool_not_allowed, gpu_pods_only=True, devices_only=True),
    _check(check_unschedulable_gpu_pod),
    _check(check_unrestricted_gpu_pod, gpu_pods_only=True),
    _check(check_pool_trespass),
    _check(check_device_leak),
    _check(check_privileged_near_devices, default="warn"),
)

RULES: tuple[Setter | Check, ...] = (*SETTERS, *CHECKS)
