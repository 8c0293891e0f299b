"""What the author of a valid policy likely does not mean, as sentences.

Each function is about one kind of mistake, and follows from the policy alone. ``gpufence policy
validate`` prints the sentences, ``kubectl apply`` shows them as warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.profile_versions import VERSIONS
from policies.kubernetes.quantity import parse_quantity
from policies.policy import Actions, EffectiveHardening, ExceptionEntry, Hardening, Policy, Pool
from policies.reach import HOST
from policies.vendors import known_vendors
from policies.vocabulary import exclusion
from policies.wording import did_you_mean, listing


class Doubt(NamedTuple):
    """The path of a field below ``spec``, and a sentence without its full stop."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"spec.{self.path}: {self.sentence}"


_LEAST_MEMORY = parse_quantity("16Mi")
"""Less is a number without a unit: no container runs in it."""

_OF_EVERY_NODE = frozenset(
    {
        HOST,
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
"""Labels that each kubelet sets (pkg/kubelet/kubelet_node_status.go)."""

_TOLERATED_BY_DEFAULT = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)
"""Taints that every Pod gets a toleration for (the plugin DefaultTolerationSeconds)."""

_CONTROLLERS = "system:serviceaccount:kube-system:"
_NEEDED_BY = {
    "unrestricted-gpu-pod": "restricted-security-context",
    "pool-trespass": "pool-exclusion",
}
"""Checks, and the rule that adds what most Pods need to pass them."""

_MOST_NAMES = 500
"""Names in overrides. A replica reviews policies, and settles the actions of so many at a time."""

_MOST_COMPARED = 100
"""Names that are compared with known ones, at about 0.1 ms each, while Pods wait."""

_MOST_PAIRS = 10_000
"""Pairs of pools that are compared, at about 5 us each."""

_CLASSES_OF_NODES = frozenset({"system-cluster-critical", "system-node-critical"})
_OWNED = {"Deployment": "ReplicaSet and Pod", "CronJob": "Job and Pod"}


def doubts(policy: Policy) -> Iterator[Doubt]:
    """Yield what the author likely does not mean, in the order of the fields."""
    is_short = _compared(policy) <= _MOST_COMPARED
    of_pools = (_spelling, *_OF_POOL) if is_short else _OF_POOL
    for index, pool in enumerate(policy.pools):
        for of_pool in of_pools:
            for path, sentence in of_pool(pool, policy):
                yield Doubt(f"pools[{index}]{path}", sentence)
    checks = (*_OF_POLICY, _kinds) if is_short else _OF_POLICY
    if sum(len(each.namespaces) for each in policy.overrides) <= _MOST_NAMES:
        checks += _OF_OVERRIDES
    for check in checks:
        yield from check(policy)


def _compared(policy: Policy) -> int:
    """Return how many names of devices and kinds the policy has."""
    devices = (len(each.resources.exact) + len(each.device_classes) for each in policy.pools)
    return sum(devices) + sum(len(each.kinds) for each in policy.exceptions)


def _overlaps(policy: Policy) -> Iterator[Doubt]:
    """Name pools that no label tells apart, where not every Pod may use one of them."""
    if len(policy.pools) * len(policy.restricted_pools) > _MOST_PAIRS:
        return
    for pool, other in policy.overlaps():
        if pool.selector:
            yield Doubt(
                f"pools[{policy.pools.index(pool)}]",
                f"no label tells pools {pool.name} and {other.name} apart: a node can belong to "
                f"both, and GPU Pods that may not use pool {other.name} are kept off it. Add "
                f"{exclusion(other, pool)} to matchExpressions of pool {pool.name}",
            )


def _fence(pool: Pool, _policy: Policy) -> Iterator[Doubt]:
    for index, taint in enumerate(pool.taints):
        if taint.key in _TOLERATED_BY_DEFAULT:
            yield Doubt(
                f".taints[{index}]",
                f"every Pod tolerates {taint.key}, so pool-trespass denies every Pod without a "
                "device. Use a taint of the GPU nodes alone",
            )
    if not pool.fence:
        yield Doubt(
            ".taints",
            f"no taint of pool {pool.name} keeps Pods off its nodes: Pods without a device run "
            "there. Add a taint with the effect NoSchedule or NoExecute, to the nodes as well",
        )


def _labels(pool: Pool, _policy: Policy) -> Iterator[Doubt]:
    # One value of a host name is one node.
    if any(values and key == HOST for key, values in pool.selector.items()):
        return
    if pool.selector and _OF_EVERY_NODE.issuperset(pool.selector):
        keys = listing(pool.selector)
        yield Doubt(
            ".nodeSelector",
            f"every node has {keys}, so every node belongs to pool {pool.name}. Use a label of the "
            "GPU nodes alone",
        )


def _amounts(pool: Pool, _policy: Policy) -> Iterator[Doubt]:
    sizes = [
        (f".requires[{index}].maxMemoryPerDevice", each.max_memory_per_device)
        for index, each in enumerate(pool.requires)
    ]
    yield from _too_small(sizes)
    for index, entry in enumerate(pool.requires):
        least, most = entry.min_devices, pool.largest_request
        if least and most and least > most:
            yield Doubt(
                f".requires[{index}].minDevices",
                f"{least} is more than largestRequest, {most}: no Pod may use pool {pool.name}. "
                "Change one of the two",
            )
        classes = entry.priority_classes
        if classes and classes <= _CLASSES_OF_NODES:
            yield Doubt(
                f".requires[{index}].priorityClasses",
                f"system-priority denies {listing(sorted(classes))} for GPU Pods, so the pool "
                "accepts no PriorityClass. Name another class",
            )


def _too_small(sizes: Iterable[tuple[str, str | None]]) -> Iterator[Doubt]:
    for path, size in sizes:
        if size is not None and parse_quantity(size) < _LEAST_MEMORY:
            sentence = f"{size} is too small for any Pod. Write a larger size, such as 20Gi"
            if size.isdecimal() and len(size) < 5:
                sentence = f"{size} is a number of bytes, and too small for any Pod. Write {size}Gi"
            yield Doubt(path, sentence)


def _spelling(pool: Pool, _policy: Policy) -> Iterator[Doubt]:
    devices = [name for each in known_vendors() for name in each.patterns if "*" not in name]
    classes = [name for each in known_vendors() for name in each.device_classes]
    for field, what, own, known in (
        (".resources", "device", pool.resources.exact, devices),
        (".deviceClasses", "DeviceClass", pool.device_classes, classes),
    ):
        for name in sorted(own.difference(known)):
            if near := _nearly(name, known):
                text = f"{name} is no {what} that is known. If you mean {near}, write that"
                yield Doubt(field, text)


def _names(pool: Pool, _policy: Policy) -> Iterator[Doubt]:
    for prefix in pool.resources.prefixes:
        if prefix.endswith("/"):
            yield Doubt(
                ".resources",
                f"{prefix}* covers every resource of the vendor: network devices, amounts of "
                "memory, and misspelled names. Name the devices",
            )


def _nearly(name: str, known: list[str]) -> str:
    """Return the known name that differs by a letter or two; empty if there is none."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, n=1, cutoff=0.92)), "")


def _without_mutation(policy: Policy) -> Iterator[Doubt]:
    """Name checks that deny nearly every Pod because what they require is not added."""
    found: dict[str, str] = {}
    for name, actions in {"": policy.general, **policy.strictest}.items():
        if actions.mode != "enforce":
            continue
        for check, mutation in _NEEDED_BY.items():
            weak = actions.written[mutation] != "enforce"
            if weak and actions.written[check] == "enforce" and _matters(check, policy):
                found.setdefault(check, f" in {name}" if name else "")
    for check, where in found.items():
        mutation = _NEEDED_BY[check]
        what = "GPU Pod" if mutation != "pool-exclusion" else "Pod that tolerates every taint"
        yield Doubt(
            f"rules[{check}]",
            f"enforces{where}, and {mutation}, which adds what it requires, does not: nearly every "
            f"{what} is denied. Set {mutation}: enforce, or {check}: warn",
        )


def _matters(check: str, policy: Policy) -> bool:
    return check != "unrestricted-gpu-pod" or policy.effective_hardening.level == "restricted"


def _nothing_denies(policy: Policy) -> Iterator[Doubt]:
    enforcing = [each for each in policy.action_sets if each.mode == "enforce"]
    if enforcing and not any(_denies(each) for each in enforcing):
        yield Doubt("rules", "no rule denies anything: the mode is enforce, and no check enforces")


def _denies(actions: Actions) -> bool:
    fences = ("pool-trespass", "device-leak", "pool-not-allowed", "unrestricted-gpu-pod")
    return any(actions[rule] == "enforce" for rule in fences)


def _hardenings(policy: Policy) -> Iterator[tuple[str, Hardening]]:
    """Yield each place with security settings, in the order of the fields."""
    yield "hardening", policy.hardening
    for name, settings in (
        ("pools", [each.hardening for each in policy.pools]),
        ("overrides", [each.hardening for each in policy.overrides]),
    ):
        for index, own in enumerate(settings):
            if own:
                yield f"{name}[{index}].hardening", own


def _sizes(policy: Policy) -> Iterator[Doubt]:
    yield from _too_small([(f"{path}.home", own.home) for path, own in _hardenings(policy)])


def _profiles(policy: Policy) -> Iterator[Doubt]:
    """Name profiles that warn about nothing, and versions that deny what the policy adds."""
    general = policy.effective_hardening
    of_pools = {each.hardening.level for each in policy.pools if each.hardening} - {None}
    for path, own in _hardenings(policy):
        found = general.with_settings(own)
        levels = {found.level} if own.level else {found.level, *of_pools}
        if own.warn not in (None, "off") and not any(
            replace(found, level=level or found.level).warning for level in levels
        ):
            yield Doubt(
                f"{path}.warn",
                f"{own.warn} has no effect, because the level, {found.level}, denies as much. Set "
                "a weaker level, or remove warn",
            )
        if (own.version or own.host_users is False) and _denies_every_user(found):
            yield Doubt(
                path,
                "denies GPU Pods that set no user, because hostUsers: false counts from version "
                "v1.35 of the profile on. Set a newer version, or remove hostUsers",
            )


def _denies_every_user(own: EffectiveHardening) -> bool:
    """Return whether Pods get a user namespace, which the pinned profile does not consider."""
    older = VERSIONS[: VERSIONS.index("v1.35")]
    return own.level == "restricted" and own.host_users is False and own.version in older


def _exemptions(policy: Policy) -> Iterator[Doubt]:
    exempt = policy.exemptions
    for name in sorted(exempt.usernames):
        if "*" in name:
            yield Doubt(
                "exemptions.usernames",
                (f"{name!r} is no name of a user: * stands for itself here. Name each user"),
            )
        elif name.startswith(("system:serviceaccounts", "system:authenticated")):
            yield Doubt(
                "exemptions.usernames", f"{name!r} is a group, and covers no user. Name each user"
            )
        elif name.startswith(_CONTROLLERS) and name.endswith("-controller"):
            yield Doubt(
                "exemptions.usernames",
                f"{name} creates the Pods of many workloads: all of them are "
                "exempt. Exempt namespaces, or add exceptions",
            )
    if not exempt.namespaces:
        yield Doubt(
            "exemptions.namespaces",
            "no namespace is exempt, so the device plugin and the agents of the GPU nodes are "
            "checked as well. Name their namespaces, such as gpu-operator",
        )


def _overrides(policy: Policy) -> Iterator[Doubt]:
    later: set[str] = set()
    for index in range(len(policy.overrides) - 1, -1, -1):
        entry = policy.overrides[index]
        own = {name for name in ("mode", "hardening") if getattr(entry, name)}
        own |= {*entry.actions(policy.rules)}
        if own and own <= later:
            yield Doubt(
                f"overrides[{index}]", "has no effect: a later entry for * sets the same fields"
            )
        if "*" in entry.namespaces:
            later |= own - {"hardening"}
        named = [rule for rule, action in entry.rules.items() if action == "enforce"]
        modes = {policy.strictest[name].mode for name in entry.namespaces or "*"}
        if named and "enforce" not in modes:
            yield Doubt(
                f"overrides[{index}].rules",
                f"{listing(named)} cannot enforce where the mode is {modes.pop()}. Add mode: "
                "enforce to the entry",
            )


def _exceptions(policy: Policy) -> Iterator[Doubt]:
    for index, entry in enumerate(policy.exceptions):
        for sentence in _of_exception(entry):
            yield Doubt(f"exceptions[{index}]", sentence)


def _of_exception(entry: ExceptionEntry) -> Iterator[str]:
    if "*" in entry.namespaces.patterns and not (entry.rules or entry.names or entry.kinds):
        end = f" until {entry.expires}" if entry.expires else ", without an end"
        yield f"covers every finding in every namespace{end}. Name rules or namespaces"
    if entry.rules == {"unrestricted-gpu-pod"} and not entry.controls:
        yield (
            "accepts the whole profile: privileged Pods with the file system of their node as "
            "well. Name controls"
        )
    for name in entry.names.patterns:
        if "*" in name.removesuffix("*"):
            yield f"names {name!r}: * counts at the end only. Name the objects"
    for kind in sorted(entry.kinds):
        if (below := _OWNED.get(kind)) and "Pod" not in entry.kinds:
            yield (
                f"covers a {kind}, and not the Pods that it makes. Add the kinds {below}, and a "
                "name with * at the end"
            )


def _kinds(policy: Policy) -> Iterator[Doubt]:
    known = [*dict.fromkeys(["Pod", *(kind for _, kind in CORE_WORKLOADS)])]
    for index, entry in enumerate(policy.exceptions):
        for kind in sorted(entry.kinds.difference(known)):
            if near := did_you_mean(kind, known):
                yield Doubt(
                    f"exceptions[{index}]",
                    f"has the kind {kind}, which Kubernetes does not have. {near}",
                )


def _failure_policy(policy: Policy) -> Iterator[Doubt]:
    if policy.failure_policy == "Ignore" and policy.mode == "enforce":
        yield Doubt(
            "failurePolicy",
            "while no replica answers, GPU Pods are created without toleration and hardening, and "
            "stay so. Taints and the policies in the API server still keep other Pods off",
        )


_OF_POOL: tuple[Callable[[Pool, Policy], Iterator[Doubt]], ...] = (
    _names,
    _fence,
    _labels,
    _amounts,
)
_OF_POLICY: tuple[Callable[[Policy], Iterator[Doubt]], ...] = (
    _overlaps,
    _failure_policy,
    _sizes,
    _profiles,
    _exemptions,
    _exceptions,
)
_OF_OVERRIDES: tuple[Callable[[Policy], Iterator[Doubt]], ...] = (
    _nothing_denies,
    _without_mutation,
    _overrides,
)
