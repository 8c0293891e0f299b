"""Every rule, in the order in which it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from policies.catalog import DEFAULT_ACTIONS, TITLES
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
    check_oversized_gang,
    check_pool_not_allowed,
    check_pool_requirements,
    check_pool_trespass,
    check_privileged_near_devices,
    check_shared_device_count,
    check_stranded_devices,
    check_stuck_rollout,
    check_system_priority,
    check_tolerated_device_taint,
    check_unequal_device_limits,
    check_unknown_device_resource,
    check_unrequested_gpu_runtime,
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


def _nothing(_pod: Pod, _context: Context) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A mutation, a check, or both: a check that adds what is missing instead of reporting it.

    ``title`` and ``default`` are those of the catalog. The rule applies to ``pods`` only. With
    ``devices_only``, it reads only the devices that a Pod requests.

    ``changes`` adds to the Pod or, if the rule ``removes``, removes entries. It never changes a
    value of the spec. ``summary`` says what the Pod lacks, or has. With ``debug_containers``, the
    rule also fills ephemeral containers that are added to an existing Pod: all else of it is
    immutable. If ``is_kept``, a GPU Pod that lacks the changes when it is validated is denied. The
    others have a check of their own, or depend on what a replica knows of the cluster.
    ``check`` returns findings, and never changes the Pod.
    """

    id: str
    title: str
    default: Action
    pods: Pods = "all"
    devices_only: bool = False
    changes: Callable[[Pod, Context], Iterable[Change]] = _nothing
    summary: str = ""
    removes: bool = False
    debug_containers: bool = False
    is_kept: bool = False
    check: Callable[[Pod, Context], Iterable[Finding]] = _nothing

    @property
    def is_mutation(self) -> bool:
        """Whether the rule only makes changes, without a check of its own."""
        return self.check is _nothing


def _rule(module: ModuleType, **options: Any) -> Rule:
    return Rule(
        id=module.ID,
        title=TITLES[module.ID],
        default=DEFAULT_ACTIONS[module.ID],
        changes=getattr(module, "changes", _nothing),
        summary=getattr(module, "SUMMARY", ""),
        check=getattr(module, "check", _nothing),
        **options,
    )


RULES: tuple[Rule, ...] = (
    _rule(set_device_requests, pods="requesting", devices_only=True),
    _rule(set_pool_toleration, pods="gpu", is_kept=True),
    _rule(set_pool_node_affinity, pods="gpu", is_kept=True),
    _rule(set_pool_exclusion),
    _rule(set_restricted_security_context, pods="gpu", debug_containers=True),
    _rule(set_void_visible_devices, pods="gpu", debug_containers=True, is_kept=True),
    _rule(set_assigned_devices, pods="gpu", removes=True, is_kept=True),
    _rule(set_gpu_runtime_class, pods="gpu"),
    _rule(check_unequal_device_limits, pods="requesting", devices_only=True),
    _rule(check_shared_device_count, pods="requesting", devices_only=True),
    _rule(check_oversized_device_request, pods="gpu", devices_only=True),
    _rule(check_pool_not_allowed, pods="gpu", devices_only=True),
    _rule(check_pool_requirements, pods="gpu", devices_only=True),
    _rule(check_unschedulable_gpu_pod),
    _rule(check_ambiguous_pool, pods="gpu"),
    _rule(check_missing_device, pods="gpu"),
    _rule(check_unrestricted_gpu_pod, pods="gpu"),
    _rule(check_pool_trespass),
    _rule(check_system_priority),
    _rule(check_device_leak),
    _rule(check_unrequested_gpu_runtime),
    _rule(check_privileged_near_devices),
    _rule(check_missing_shared_memory, pods="requesting"),
    _rule(check_admin_access_claim, pods="requesting"),
    _rule(check_tolerated_device_taint, pods="requesting"),
    _rule(check_unknown_device_resource),
    _rule(check_needs_root, pods="gpu"),
    _rule(check_stuck_rollout, pods="gpu"),
    _rule(check_oversized_gang, pods="requesting"),
    _rule(check_stranded_devices, pods="gpu"),
)

OF_OBJECTS = frozenset({check_oversized_gang.ID})
"""The rules whose findings are about all Pods of an object together."""

MUTATIONS = tuple(rule for rule in RULES if rule.changes is not _nothing)
CHECKS = tuple(rule for rule in RULES if not rule.is_mutation)
KEPT_MUTATIONS = tuple(rule for rule in MUTATIONS if rule.is_kept)
"""All of them are about GPU Pods."""


def _by_pods(rules: tuple[Rule, ...]) -> Mapping[Pods, tuple[Rule, ...]]:
    return {
        "all": tuple(rule for rule in rules if rule.pods == "all"),
        "requesting": tuple(rule for rule in rules if rule.pods != "gpu"),
        "gpu": rules,
    }


MUTATIONS_BY_PODS = _by_pods(MUTATIONS)
CHECKS_BY_PODS = _by_pods(CHECKS)
"""The rules by the Pods that they are about: those about more Pods are among them."""
