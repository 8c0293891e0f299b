"""The policy as the rules read it: sets, tuples and tables, made once from the document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from policies.finding import Action
from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.custom_workloads import WELL_KNOWN, CustomWorkloads
from policies.kubernetes.names import NameSet
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import Alternative, Taint, accepts

ProfileLevel = Literal["baseline", "restricted"]
FailurePolicy = Literal["Fail", "Ignore"]
"""What API servers do with Pods that use GPU nodes while no replica answers: deny or allow."""


@dataclass(frozen=True, slots=True)
class AllowedNamespaces:
    """The namespaces that may request a pool: by name, or by labels that they carry."""

    names: NameSet = field(default_factory=NameSet)
    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()
    deny_unknown: bool = False
    """Whether a namespace is denied if its labels decide and are unknown."""

    @property
    def by_labels(self) -> bool:
        """Whether the labels of a namespace can admit it."""
        return bool(self.match_labels or self.match_expressions)

    def accepts_labels(self, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace with these labels meets the label selector."""
        selector = Alternative(self.match_labels, self.match_expressions, (), "")
        return self.by_labels and accepts(selector, "", labels)

    def __str__(self) -> str:
        parts = []
        if self.names:
            parts.append(f"namespaces {', '.join(self.names.patterns)}")
        if self.by_labels:
            labels = [f"{key}={value}" for key, value in sorted(self.match_labels.items())]
            labels += map(_describe, self.match_expressions)
            parts.append(f"namespaces with the labels {', '.join(labels)}")
        return " and ".join(parts)


def _describe(requirement: Requirement) -> str:
    """Return a requirement on a label as kubectl writes it."""
    key, values = requirement.key or "", ", ".join(requirement.values or ())
    forms = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }
    return forms[requirement.operator or ""]


@dataclass(frozen=True, slots=True)
class AnnotationRequest:
    """Annotations by which a Pod requests a device of one scheduler.

    They request nothing of another scheduler, which does not read them.
    """

    annotations: tuple[str, ...]
    scheduler_name: str
    container_annotation: str = ""
    """The annotation that names the container with the device; without it, the first has it."""
    count_annotation: str = ""
    """The annotation with the number of devices; without it, the number is one."""

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all annotations that matter."""
        keys = {*self.annotations, self.container_annotation, self.count_annotation}
        return frozenset(filter(None, keys))


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A set of GPU nodes: what they offer, the taints that fence them, the labels on them."""

    name: str
    resources: NameSet
    device_classes: frozenset[str]
    taints: tuple[Taint, ...]
    node_selector: Mapping[str, str]
    shared_resources: NameSet
    runtime_class: str | None = None
    allowed_namespaces: AllowedNamespaces | None = None
    """The namespaces that may request the pool's devices; ``None`` for every namespace."""
    largest_request: int | None = None
    """How many devices one Pod may request; ``None`` for any number."""
    fractional_resources: NameSet = field(default_factory=NameSet)
    """The resources that are an amount of a device (its memory), and no number of devices."""
    annotation_requests: tuple[AnnotationRequest, ...] = ()

    def contains(self, node: Node) -> bool:
        """Return whether the node belongs to the pool: it carries all of the pool's labels."""
        return node.has_labels(self.node_selector)

    @property
    def example_request(self) -> str:
        """How a container requests one device of the pool, for use in remediation."""
        if self.resources.exact:
            whole = [name for name in self.resources.exact if name not in self.fractional_resources]
            return f"{min(whole or self.resources.exact)}: 1 under resources.limits"
        if self.resources.prefixes:
            return f"{self.resources.prefixes[0]}...: 1 under resources.limits"
        return f"a resource claim on device class {min(self.device_classes)}"


@dataclass(frozen=True, slots=True)
class Hardening:
    """What is filled into the security context of a GPU Pod, and the profile it must meet.

    ``None`` for an ID leaves it to the image.
    """

    level: ProfileLevel = "restricted"
    run_as_user: int | None = 65532
    run_as_group: int | None = None
    fs_group: int | None = None


@dataclass(frozen=True, slots=True)
class Exemptions:
    """The Pods that the policy does not apply to: the three kinds that Pod Security has."""

    namespaces: frozenset[str] = frozenset()
    usernames: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ExceptionEntry:
    """Findings that do not count: of which rules, where, of what, why, until when.

    An empty set of rules, kinds or names stands for all. ``expires`` is the first day on which the
    exception no longer counts.
    """

    rules: frozenset[str]
    namespaces: NameSet
    kinds: frozenset[str]
    names: NameSet
    reason: str
    expires: date | None = None

    def covers(self, rule: str, namespace: str, kind: str, name: str) -> bool:
        """Return whether the exception is about this finding, expired or not."""
        return (
            (not self.rules or rule in self.rules)
            and namespace in self.namespaces
            and (not self.kinds or kind in self.kinds)
            and (not self.names or name in self.names)
        )

    def has_expired(self, today: date | None) -> bool:
        return self.expires is not None and today is not None and today >= self.expires


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A FencePolicy, ready for use."""

    pools: tuple[Pool, ...]
    hardening: Hardening = Hardening()
    actions: Mapping[str, Action] = field(default_factory=dict)
    exemptions: Exemptions = Exemptions()
    overrides: Mapping[str, Mapping[str, Action]] = field(default_factory=dict)
    """The actions of the namespaces that have actions of their own, every rule among them.

    A key is the name of a namespace, or a prefix followed by ``*``. The name counts more than a
    prefix, and a longer prefix more than a shorter one.
    """
    exceptions: tuple[ExceptionEntry, ...] = ()
    failure_policy: FailurePolicy = "Fail"
    custom_workloads: tuple[CustomWorkloads, ...] = WELL_KNOWN
    """The custom resources that API servers send when they are created."""
    pools_of_class: Mapping[str, tuple[Pool, ...]] = field(init=False, default_factory=dict)
    """By DeviceClass, the pools that offer its devices."""
    pools_by_key: Mapping[str, tuple[Pool, ...]] = field(init=False, default_factory=dict)
    """By the key of a label or of a taint, the pools whose nodes have it."""
    pools_of_annotations: Mapping[AnnotationRequest, tuple[Pool, ...]] = field(
        init=False, default_factory=dict
    )
    """By the annotations that request a device, the pools that offer it."""
    _pools_of_name: Mapping[str, tuple[Pool, ...]] = field(init=False, default_factory=dict)
    _pools_by_prefix: tuple[Pool, ...] = field(init=False, default=())
    _override_prefixes: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        classes: dict[str, tuple[Pool, ...]] = {}
        keys: dict[str, tuple[Pool, ...]] = {}
        names: dict[str, tuple[Pool, ...]] = {}
        annotations: dict[AnnotationRequest, tuple[Pool, ...]] = {}
        for pool in self.pools:
            for name in pool.device_classes:
                classes[name] = (*classes.get(name, ()), pool)
            for key in {*pool.node_selector, *(taint.key for taint in pool.taints)}:
                keys[key] = (*keys.get(key, ()), pool)
            for annotation in pool.annotation_requests:
                annotations[annotation] = (*annotations.get(annotation, ()), pool)
            for name in pool.resources.exact:
                names[name] = tuple(pool for pool in self.pools if name in pool.resources)
        object.__setattr__(self, "pools_of_class", classes)
        object.__setattr__(self, "pools_by_key", keys)
        object.__setattr__(self, "pools_of_annotations", annotations)
        object.__setattr__(self, "_pools_of_name", names)
        by_prefix = tuple(pool for pool in self.pools if pool.resources.prefixes)
        object.__setattr__(self, "_pools_by_prefix", by_prefix)
        patterns = (pattern for pattern in self.overrides if pattern.endswith("*"))
        prefixes = sorted((pattern[:-1] for pattern in patterns), key=len, reverse=True)
        object.__setattr__(self, "_override_prefixes", tuple(prefixes))

    def actions_in(self, namespace: str) -> Mapping[str, Action]:
        """Return each rule's action for objects of the namespace."""
        actions = self.overrides.get(namespace)
        if actions is None:
            for prefix in self._override_prefixes:
                if namespace.startswith(prefix):
                    return self.overrides[f"{prefix}*"]
            return self.actions
        return actions

    def pools_of_resource(self, name: str) -> tuple[Pool, ...]:
        """Return the pools that offer the extended resource."""
        pools = self._pools_of_name.get(name)
        if pools is None:
            pools = tuple(pool for pool in self._pools_by_prefix if name in pool.resources)
        return pools

    def counts(self, resource: str) -> bool:
        """Return whether a quantity of the resource is a number of devices of a pool."""
        pools = self.pools_of_resource(resource)
        return bool(pools) and all(resource not in pool.fractional_resources for pool in pools)

    def pool_of_device(self, name: str, node: Node) -> Pool | None:
        """Return the pool of a node's devices of an extended resource.

        Labels tell the pools that offer the resource apart. Until the node has them, its taints do.
        """
        pools = self.pools_of_resource(name)
        for pool in pools:
            if pool.contains(node):
                return pool
        fenced = (pool for pool in pools if node.is_fenced_by(pool.taints))
        return next(fenced, pools[0] if pools else None)
