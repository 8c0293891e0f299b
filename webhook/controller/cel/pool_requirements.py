"""The rule pool-requirements in CEL: the entries with action enforce.

A Pod surely uses a pool if it requests a resource that no other pool offers. Shares of CPU and
memory, the run time and the queue are left to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.finding import Finding
from policies.kubernetes.field_types import NameSet
from policies.policy import Policy, Pool, PoolRequirement
from policies.rules.check_pool_requirements import few_devices, missing_label, wrong_priority
from webhook.controller.cel.pods import (
    LIMIT,
    by_kind,
    containers,
    findings,
    identifier,
    mapped,
    requested,
    short_lists,
    some_container,
    some_resource,
)
from webhook.controller.cel.text import (
    Variable,
    all_of,
    any_of,
    below,
    call,
    is_in,
    joined,
    names,
    sentence,
    text,
)

SUMMARY = "Pods and pod templates that do not state what a pool requires"
FINDINGS = "unmetRequirements"


def concerns(policy: Policy) -> str:
    """Return CEL that holds for every ``pod`` in which the rule may find something."""
    return any_of(*(some_container(_requests(_own(pool, policy))) for pool, _ in _pools(policy)))


def variables(policy: Policy) -> Iterator[Variable]:
    """Yield the variables of the rule; the last one has the sentences about each of ``pods``."""
    size = f"!(side in c.resources) || size(c.resources[side]) <= {LIMIT}"
    short = any_of("!has(c.resources)", call('["limits", "requests"]', "all", "side", size))
    short = all_of(f"size({containers()}) <= {LIMIT}", call(containers(), "all", "c", short))
    yield short_lists("hasShortRequests", "pod", "variables.pods", short)
    by_pool = []
    for pool, entries in _pools(policy):
        name = f"unmet_{identifier(pool)}"
        by_pool.append(f"variables.{name}[i]")
        uses = call(containers(), "exists", "c", _requests(_own(pool, policy)))
        found = joined(*(each for entry in entries for each in _unmet(pool, entry)))
        found = call("variables.pods", "map", "pod", f"({uses}\n  ? {below(found)}\n  : [])")
        yield Variable(name, f"The sentences about pool {pool.name}, for each of pods.", found)
    yield findings("requirementSentences", joined(*by_pool), "hasShortRequests")


def _pools(policy: Policy) -> Iterator[tuple[Pool, list[PoolRequirement]]]:
    """Yield the pools with something to compile, each with its entries."""
    for pool in policy.pools:
        enforced = [entry for entry in pool.requires if entry.action == "enforce"]
        entries = [entry for entry in enforced if any(_unmet(pool, entry))]
        if entries and _own(pool, policy):
            yield pool, entries


def _own(pool: Pool, policy: Policy) -> NameSet:
    """Return the resources that only this pool offers."""
    others = [other.resources for other in policy.pools if other is not pool]
    alone = lambda name: not any(other.overlap(NameSet([name])) for other in others)  # noqa: E731
    return NameSet(filter(alone, pool.resources.patterns))


def _requests(resources: NameSet) -> str:
    """Return CEL that holds for a container ``c`` that requests one of the resources."""
    return some_resource(requested(is_in("k", resources)))


def _unmet(pool: Pool, entry: PoolRequirement) -> Iterator[str]:
    """Yield CEL for a list with the sentence about a requirement that ``pod`` does not meet."""
    labels = mapped("pod.?metadata", "labels")
    path = by_kind(text("metadata.labels"), lambda at: text(f"{at}.metadata.labels"))
    for key, values in entry.labels.items():
        has_value = [f"{labels}[{text(key)}] in {names(values)}"] if values else []
        met = all_of(f"{text(key)} in {labels}", *has_value)
        yield _unless(met, path, missing_label(pool, key, values, ""))
    if entry.priority_classes:
        met = f'pod.spec.?priorityClassName.orValue("") in {names({*entry.priority_classes, ""})}'
        path = 'variables.path + ".priorityClassName"'
        yield _unless(met, path, wrong_priority(pool, entry, ""))
    # Annotations and amounts also stand for devices: the engine counts them.
    if entry.min_devices and not (pool.fractional_resources or pool.annotation_requests):
        met = any_of("has(pod.spec.resourceClaims)", f"{_devices(pool)} >= {entry.min_devices}")
        yield _unless(met, "variables.path", few_devices(pool, entry.min_devices, ""))


def _devices(pool: Pool) -> str:
    """Return CEL for the devices of all containers of ``pod``: never less than it has at a time.

    With a DeviceClass, every extended resource may stand for a device of the pool.
    """
    named = 'k.contains("/")' if pool.device_classes else is_in("k", pool.resources)
    limits, requests = (mapped("c.?resources", side) for side in ("limits", "requests"))
    counts = [
        f"{side}.map(k, {condition}, quantity(string({side}[k])))"
        for side, condition in ((limits, named), (requests, all_of(named, f"!(k in {limits})")))
    ]
    count = f"q.isInteger() ? q.asInteger() : {LIMIT}"
    each = call(f"({below(joined(*counts))})", "map", "q", count)
    return call(containers(), "map", "c", f"{each}.sum()") + ".sum()"


def _unless(met: str, path: str, unmet: Finding) -> str:
    said = joined(path, sentence(f": {unmet.detail}. {unmet.remediation}"))
    return f"({below(met)}\n  ? []\n  : [{below(below(said))}])"
