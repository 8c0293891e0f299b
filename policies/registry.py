"""Every rule, in the order in which it runs. The ids are part of gpufence's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeVar

from policies.context import Context
from policies.finding import Action, Finding
from policies.kubernetes.editor import Change
from policies.kubernetes.pod import Pod
from policies.rules import (
    check_admin_access_claim,
    check_ambiguous_pool,
    check_device_leak,
    check_missing_device,
    check_missing_shared_memory,
    check_needs_root,
    check_oversized_device_request,
    check_pool_not_allowed,
    check_pool_requirements,
    check_pool_trespass,
    check_privileged_near_devices,
    check_shared_device_count,
    check_stuck_rollout,
    check_system_priority,
    check_tolerated_device_taint,
    check_unequal_device_limits,
    check_unknown_device_resource,
    check_unrestricted_gpu_pod,
    check_unschedulable_gpu_pod,
    set_assigned_devices,
    set_device_requests,
    set_gpu_runtime_class,
    set_pool_exclusion,
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
    """A rule that adds to the Pod, or removes entries. It never changes a value.

    ``page`` is the rule's documentation page. ``summary`` says what the Pod lacks, or what it has
    if the rule ``removes``. ``devices_only`` says that it looks at nothing of a Pod but the devices
    that it requests, and ``debug_containers`` that it fills the ephemeral containers which come to
    an existing Pod: all else is immutable.
    """

    id: str
    page: str
    changes: Callable[[Pod, Context], Iterable[Change]]
    summary: str
    pods: Pods = "gpu"
    devices_only: bool = False
    debug_containers: bool = False
    removes: bool = False
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


_GPU_POD = """\
```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpu: 1
```"""
_NO_SETTINGS = "\n## Settings\n\nThe rule has no settings except its action.\n"


def _page(module: ModuleType) -> str:
    """Return the docstring of a rule as its page, with the example that many pages share."""
    page = (module.__doc__ or "").replace("{GPU_POD}", _GPU_POD)
    return page if "\n## Settings\n" in page else f"{page}{_NO_SETTINGS}"


def _mutation(module: ModuleType, **options: Any) -> Mutation:
    return Mutation(module.ID, _page(module), module.changes, module.SUMMARY, **options)


def _check(module: ModuleType, **options: Any) -> Check:
    return Check(module.ID, _page(module), module.check, **options)


MUTATIONS: tuple[Mutation, ...] = (
    _mutation(set_device_requests, pods="requesting", devices_only=True),
    _mutation(set_pool_toleration),
    _mutation(set_pool_node_affinity),
    _mutation(set_pool_exclusion, pods="all"),
    _mutation(set_restricted_security_context, debug_containers=True),
    _mutation(set_void_visible_devices, debug_containers=True),
    _mutation(set_assigned_devices, removes=True),
    _mutation(set_gpu_runtime_class),
    _mutation(check_pool_requirements),
)

CHECKS: tuple[Check, ...] = (
    _check(check_unequal_device_limits, pods="requesting", devices_only=True),
    _check(check_shared_device_count, pods="requesting", devices_only=True),
    _check(check_oversized_device_request, pods="gpu", devices_only=True),
    _check(check_pool_not_allowed, pods="gpu", devices_only=True),
    _check(check_pool_requirements, pods="gpu", devices_only=True),
    _check(check_unschedulable_gpu_pod, pods="requesting"),
    _check(check_ambiguous_pool, pods="gpu"),
    _check(check_missing_device, pods="gpu"),
    _check(check_unrestricted_gpu_pod, pods="gpu"),
    _check(check_pool_trespass),
    _check(check_system_priority),
    _check(check_device_leak),
    _check(check_privileged_near_devices, default="warn"),
    _check(check_missing_shared_memory, pods="requesting", default="warn"),
    _check(check_admin_access_claim, pods="requesting", default="warn"),
    _check(check_tolerated_device_taint, pods="requesting", default="warn"),
    _check(check_unknown_device_resource, pods="requesting", default="warn"),
    _check(check_needs_root, pods="gpu", default="warn"),
    _check(check_stuck_rollout, pods="gpu", default="warn"),
)

RULES: tuple[Mutation | Check, ...] = (
    *(rule for rule in MUTATIONS if rule.id not in {check.id for check in CHECKS}),
    *CHECKS,
)
"""Every rule once. A check may have a mutation: what the check would report, it adds."""

AnyRule = TypeVar("AnyRule", Mutation, Check)


def _by_pods(rules: tuple[AnyRule, ...]) -> Mapping[Pods, tuple[AnyRule, ...]]:
    return {
        "all": tuple(rule for rule in rules if rule.pods == "all"),
        "requesting": tuple(rule for rule in rules if rule.pods != "gpu"),
        "gpu": rules,
    }


MUTATIONS_BY_PODS = _by_pods(MUTATIONS)
CHECKS_BY_PODS = _by_pods(CHECKS)
"""The rules by the Pods that they are about: those about more Pods are among them."""
