"""The policy: what a document may hold, what each field means, and what the rules read.

Each class is a part of the document. A field's annotation validates it, and the text below it
describes it in the JSON schema and in the reference. ``policies.document`` validates documents.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cached_property, reduce
from itertools import islice, permutations
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from policies.finding import ACTIONS, Action, Mode, limited
from policies.kubernetes.claims import class_of_resource
from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.field_types import (
    NO_NAMES,
    NO_USER,
    NOT_EMPTY,
    Amount,
    Day,
    Duration,
    Flag,
    InAPIServer,
    InReplica,
    Label,
    LabelValue,
    NamespaceNames,
    NamespacePattern,
    NonEmpty,
    ObjectNames,
    Part,
    Positive,
    Price,
    QualifiedName,
    ResourceNames,
    SchedulerName,
    Sentence,
    SubdomainName,
    UserID,
    UserIDOrNone,
    Validation,
    before,
    described,
    nested,
    one_of,
    snake_case,
)
from policies.kubernetes.kinds import WELL_KNOWN, CustomWorkloads
from policies.kubernetes.profile_versions import LATEST_VERSION, VERSIONS
from policies.kubernetes.quantity import is_extended_resource_name
from policies.kubernetes.scheduling import FENCING_EFFECTS, Alternative, Taint, accepts
from policies.kubernetes.selector import (
    NAMESPACE_LABEL,
    Selector,
    can_match,
    includes,
    narrowed,
    negated,
    requirement,
    selector_of,
)
from policies.vendors import domains_of
from policies.wording import unknown

if TYPE_CHECKING:
    from pydantic import ValidationInfo

ProfileLevel = Literal["restricted", "baseline", "off"]
ProfileVersion = Annotated[str, one_of(LATEST_VERSION, *VERSIONS)]
FailurePolicy = Literal["Fail", "Ignore"]
"""What API servers do with Pods that use GPU nodes while no replica answers: deny or allow."""

_PROFILE = "unrestricted-gpu-pod"
"""The rule whose exceptions may name controls."""
_LEVELS = get_args(ProfileLevel)
_MOST_KNOWN = 1000
"""The actions that a policy keeps, of patterns and labels of namespaces."""
_ANY = "*"
"""Stands for every value of a label. It is not a valid value."""
_Key = TypeVar("_Key")


def _rule_name(core: Any, _type: Any, _handler: Any) -> Any:
    return core.with_info_after_validator_function(
        _known_rule, core.str_schema(strict=True), metadata={"is_rule": True}
    )


def _known_rule(name: str, info: ValidationInfo) -> str:
    """Return the name of a rule. The context of a validation has the rules that exist."""
    if name not in (rules := (info.context or {})["rules"]):
        raise ValueError(unknown("rule", name, rules))
    return name


def _any_of(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of a part with at least one of the fields.

    By the name of a field: the keyword for the number of its entries, where it needs one.
    """
    return {
        "anyOf": [
            {"required": [name]} | ({"properties": {name: {size: 1}}} if size else {})
            for name, size in fields.items()
        ]
    }


_LABELS_OF_NODES = {"nodeSelector": "minProperties", "matchExpressions": "minItems"}
_FENCED_DEVICE_CLASSES = {
    "required": ["deviceClasses", "taints"],
    "properties": {"deviceClasses": {"minItems": 1}, "taints": {"minItems": 1}},
}
"""The schema of a pool that needs no labels."""

ControlName = Literal[
    "allowPrivilegeEscalation",
    "appArmorProfile",
    "capabilities",
    "hostNamespaces",
    "hostPathVolumes",
    "hostPorts",
    "hostProbesAndHostLifecycle",
    "privileged",
    "procMount",
    "restrictedVolumes",
    "runAsNonRoot",
    "runAsUser",
    "seLinuxOptions",
    "seccompProfile",
    "sysctls",
    "windowsHostProcess",
]
"""The controls of Pod Security by the IDs of its library, without the level."""
RuleId = Annotated[str, Validation(_rule_name)]
# In YAML 1.1, which Kubernetes reads, an unquoted off is the boolean false.
RuleAction = Annotated[Action, before(lambda value: "off" if value is False else value)]
OptionalAction = Annotated[Action | None, before(lambda value: "off" if value is False else value)]


@dataclass(frozen=True, slots=True)
class LabelRequirement(Part):
    """A requirement on a label, as in the label selectors of Kubernetes."""

    __pydantic_config__ = described(
        **{
            "if": {"properties": {"operator": {"enum": ["In", "NotIn"]}}},
            "then": {"required": ["values"], "properties": {"values": {"minItems": 1}}},
            "else": {"properties": {"values": {"maxItems": 0}}},
        }
    )

    key: InAPIServer[QualifiedName]
    """The label's key."""
    operator: InAPIServer[Literal["In", "NotIn", "Exists", "DoesNotExist"]]
    """In and NotIn compare the label's value with values. A namespace without the label meets NotIn
    and DoesNotExist."""
    values: InAPIServer[tuple[LabelValue, ...]] = ()
    """The values, for In and NotIn only."""

    def __post_init__(self) -> None:
        if bool(self.values) != (self.operator in ("In", "NotIn")):
            problem = (
                "has values; remove them" if self.values else "has no values; add at least one"
            )
            raise ValueError(f"{problem} (operator {self.operator})")

    @property
    def is_negative(self) -> bool:
        """Whether objects without the label meet the requirement."""
        return self.operator in ("NotIn", "DoesNotExist")

    def __str__(self) -> str:
        """Return the requirement as kubectl writes it."""
        values = ", ".join(self.values)
        forms = {
            "In": f"{self.key} in ({values})",
            "NotIn": f"{self.key} notin ({values})",
            "Exists": self.key,
            "DoesNotExist": f"!{self.key}",
        }
        return forms[self.operator]


@dataclass(frozen=True, slots=True)
class NodeRequirement(LabelRequirement):
    """A requirement on a label of nodes, as in the node selector terms of Kubernetes."""

    key: InAPIServer[QualifiedName]
    """The label's key."""
    operator: InAPIServer[Literal["In", "NotIn", "Exists", "DoesNotExist"]]
    """In and NotIn compare the label's value with values. A node without the label meets NotIn and
    DoesNotExist."""
    values: InAPIServer[tuple[LabelValue, ...]] = ()
    """The values, for In and NotIn only."""


_BY_LABELS = {"matchLabels": "minProperties", "matchExpressions": "minItems"}


@dataclass(frozen=True, slots=True)
class NamespaceSelector(Part):
    """Namespaces by their labels."""

    __pydantic_config__ = described(**_any_of(_BY_LABELS))

    match_labels: InAPIServer[Mapping[QualifiedName, LabelValue]] = field(default_factory=dict)
    """Labels that a namespace must have, all of them."""
    match_expressions: InAPIServer[tuple[LabelRequirement, ...]] = ()
    """Requirements that the labels of a namespace must meet, in addition to matchLabels. The label
    kubernetes.io/metadata.name is the name of the namespace."""

    def __post_init__(self) -> None:
        if not self.by_labels:
            raise ValueError("is empty; set matchLabels or matchExpressions")

    @property
    def by_labels(self) -> bool:
        """Whether labels select namespaces."""
        return bool(self.match_labels or self.match_expressions)

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What the labels of a namespace must meet."""
        return (
            *(Requirement(key, "In", [value]) for key, value in sorted(self.match_labels.items())),
            *(Requirement(e.key, e.operator, [*e.values]) for e in self.match_expressions),
        )

    def selects(self, namespace: str, labels: Mapping[str, str] | None) -> bool | None:
        """Return whether the labels of a namespace select it; ``None`` if unknown labels decide.

        Its name is a label, which is always known.
        """
        every = self.requirements
        known = every if labels is not None else [r for r in every if r.key == NAMESPACE_LABEL]
        own = {**(labels or {}), NAMESPACE_LABEL: namespace}
        if not (self.by_labels and accepts(Alternative({}, tuple(known), (), ""), "", own)):
            return False
        return True if len(known) == len(every) else None

    def __str__(self) -> str:
        labels = [f"{key}={value}" for key, value in sorted(self.match_labels.items())]
        labels += map(str, self.match_expressions)
        return f"namespaces with the labels {', '.join(labels)}"


@dataclass(frozen=True, slots=True)
class AllowedNamespaces(NamespaceSelector):
    """The namespaces that may request a pool: by name, or by labels."""

    __pydantic_config__ = described(**_any_of({"names": "minItems"} | _BY_LABELS))

    match_labels: InReplica[Mapping[QualifiedName, LabelValue]] = field(default_factory=dict)
    match_expressions: InReplica[tuple[LabelRequirement, ...]] = ()
    names: InAPIServer[NamespaceNames] = NO_NAMES
    """Names of namespaces, or prefixes followed by *."""
    unknown: InReplica[Literal["allow", "deny"]] = "allow"
    """Whether to allow a namespace whose labels are unknown."""

    def __post_init__(self) -> None:
        if not (self.names or self.by_labels):
            raise ValueError("is empty; set names, matchLabels or matchExpressions")

    def __str__(self) -> str:
        parts = [f"namespaces {', '.join(self.names.patterns)}"] if self.names else []
        parts += [NamespaceSelector.__str__(self)] if self.by_labels else []
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class AnnotationRequest(Part):
    """Annotations by which a Pod requests a device of a scheduler."""

    annotations: InAPIServer[Annotated[tuple[QualifiedName, ...], NOT_EMPTY]]
    """Keys of annotations. Each of them is a request if its value is a positive number."""
    scheduler_name: InAPIServer[SchedulerName]
    """The scheduler that reads the annotations. For Pods with another schedulerName, they are no
    request."""
    container_annotation: InAPIServer[QualifiedName | None] = None
    """The annotation that names the container with the device. The default is the first
    container."""
    count_annotation: InAPIServer[QualifiedName | None] = None
    """The annotation with the number of devices. The default is one device."""

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all annotations that matter."""
        keys = {*self.annotations, self.container_annotation, self.count_annotation}
        return frozenset(filter(None, keys))


@dataclass(frozen=True, slots=True)
class Hardening(Part):
    """Settings of the security context of GPU Pods, and of the Pod Security profile that they must
    meet. What is left out is that of the policy, and there that of gpufence."""

    level: InReplica[ProfileLevel | None] = None
    """The Pod Security profile that GPU Pods must meet. off accepts every security context. The
    default is restricted."""
    warn: InReplica[ProfileLevel | None] = None
    """A stricter profile, which denies no Pod: gpufence warns about what it would reject in
    addition. off, the default, warns about nothing."""
    version: InReplica[ProfileVersion | None] = None
    """The version of both profiles. latest, the default, is that of the cluster's Kubernetes."""
    run_as_user: InReplica[UserIDOrNone] = None
    """The user ID for Pods that set none, or none to leave the user to the image. The default is
    65532."""
    run_as_group: InReplica[UserID | None] = None
    """The group ID for Pods that set none."""
    fs_group: InReplica[UserID | None] = None
    """The group that owns volumes, for Pods that set none, with fsGroupChangePolicy
    OnRootMismatch."""
    host_users: InReplica[Literal[False] | None] = None
    """false gives a Pod that sets neither a user nor hostUsers a user namespace instead of
    runAsUser: root in its containers has no privileges on the node."""
    home: InReplica[Amount | None] = None
    """Gives each container that gets its user from runAsUser a home directory, and the group of
    that user to the volumes of its claims. The value is the size limit for the home directories of
    a Pod, such as 20Gi. Without effect where runAsUser is none, or the level is not restricted.
    The default is no home directory."""


@dataclass(frozen=True, slots=True)
class EffectiveHardening:
    """The security settings of a Pod, each from the last place that sets it."""

    level: ProfileLevel = "restricted"
    warn: ProfileLevel = "off"
    version: str = LATEST_VERSION
    run_as_user: int | None = 65532
    """``None`` leaves the user to the image."""
    run_as_group: int | None = None
    fs_group: int | None = None
    host_users: Literal[False] | None = None
    home: str | None = None

    def with_settings(self, settings: Hardening | None) -> EffectiveHardening:
        """Return these settings, with those that ``settings`` has in their place."""
        given = {name: value for name, value in _settings_of(settings).items() if value is not None}
        if given.get("run_as_user") == NO_USER:
            given["run_as_user"] = None
        return replace(self, **given) if given else self

    @property
    def warning(self) -> Literal["restricted", "baseline"] | None:
        """The profile that only warns, if it is the stricter one."""
        is_stricter = _LEVELS.index(self.warn) < _LEVELS.index(self.level)
        return self.warn if is_stricter and self.warn != "off" else None

    @property
    def settings(self) -> Hardening:
        """These settings as a policy sets them."""
        user = NO_USER if self.run_as_user is None else self.run_as_user
        return Hardening(**{**_settings_of(self), "run_as_user": user})


_REQUIREMENTS = (
    "labels",
    "maxRuntime",
    "queue",
    "maxCPUPerDevice",
    "maxMemoryPerDevice",
    "minDevices",
    "priorityClasses",
    "doNotDisrupt",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequirement(Part):
    """What a Pod must state to use a pool: at least one of the fields besides action."""

    __pydantic_config__ = described(**_any_of(dict.fromkeys(_REQUIREMENTS, "")))

    action: InReplica[Literal["warn", "enforce"]] = "warn"
    """Whether gpufence warns about a Pod that does not meet the entry, or denies it. The action of
    the rule pool-requirements can weaken it."""
    labels: InAPIServer[Mapping[QualifiedName, tuple[LabelValue, ...]]] = field(
        default_factory=dict
    )
    """Labels of the Pod, each with its possible values. An empty list accepts every value."""
    max_runtime: InReplica[Duration | None] = None
    """The longest activeDeadlineSeconds of the Pod or of its workload, such as 24h."""
    queue: InAPIServer[Flag] = False
    """Whether the Pod or its workload must name a queue of Kueue (the label
    kueue.x-k8s.io/queue-name)."""
    max_cpu_per_device: InReplica[Amount | None] = None
    """The most CPU that a Pod may request for each of its devices."""
    max_memory_per_device: InReplica[Amount | None] = None
    """The most memory that a Pod may request for each of its devices."""
    min_devices: InReplica[Positive | None] = None
    """The smallest number of the pool's devices that a Pod may request."""
    priority_classes: InReplica[frozenset[SubdomainName]] = frozenset()
    """The PriorityClasses that Pods may have. A Pod without a PriorityClass is accepted."""
    do_not_disrupt: InReplica[Flag] = False
    """Whether a Pod whose work is lost when it ends early has the annotations that keep Karpenter
    and cluster-autoscaler from removing its node. With action enforce, gpufence adds them."""

    def __post_init__(self) -> None:
        if not any(getattr(self, snake_case(name)) for name in _REQUIREMENTS):
            raise ValueError(f"requires nothing; set one of {', '.join(_REQUIREMENTS)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Pool(Part):
    """A set of GPU nodes."""

    __pydantic_config__ = described(
        allOf=[
            _any_of({"resources": "minItems", "deviceClasses": "minItems"}),
            {"anyOf": [*_any_of(_LABELS_OF_NODES)["anyOf"], _FENCED_DEVICE_CLASSES]},
        ]
    )

    name: InAPIServer[Label]
    """A short name: lower-case letters, digits and '-', up to 63."""
    resources: InAPIServer[ResourceNames] = NO_NAMES
    """Extended resources of the nodes: exact names, or a prefix followed by *. Pools with the same
    resource must differ in their labels."""
    shared_resources: InReplica[ResourceNames] = NO_NAMES
    """Resources of the pool that are shares of a device (time-slicing, MPS). A container may
    request one."""
    fractional_resources: InAPIServer[ResourceNames] = NO_NAMES
    """Resources of the pool that are an amount of a device, such as its memory in MiB. They make a
    GPU Pod, and do not count as devices."""
    annotation_requests: InAPIServer[tuple[AnnotationRequest, ...]] = ()
    """Annotations by which Pods request a device of a scheduler."""
    device_classes: InAPIServer[frozenset[SubdomainName]] = frozenset()
    """DeviceClasses (DRA) of the nodes' devices."""
    taints: InAPIServer[tuple[Taint, ...]] = ()
    """The taints that fence the nodes: GPU Pods tolerate them, and no other Pod may tolerate one of
    them."""
    tolerate: InReplica[tuple[Taint, ...]] = ()
    """Further taints of nodes of the pool that GPU Pods tolerate, such as one for spot instances or
    for a team. Other Pods may tolerate them as well: they fence nothing."""
    node_selector: InAPIServer[Mapping[QualifiedName, LabelValue]] = field(default_factory=dict)
    """The labels that identify the nodes, all of them. A label with a value is the short form of an
    entry of matchExpressions. A pool with deviceClasses and a taint needs no labels: its nodes are
    those that offer its devices."""
    match_expressions: InAPIServer[tuple[NodeRequirement, ...]] = ()
    """Requirements on the labels that identify the nodes, in addition to nodeSelector: one of
    several values (In), or any value (Exists). NotIn and DoesNotExist leave out nodes of other
    pools."""
    runtime_class: InReplica[SubdomainName | None] = None
    """The RuntimeClass for GPU Pods that set none."""
    allowed_namespaces: InAPIServer[AllowedNamespaces | None] = None
    """The namespaces that may request the pool. The default is all namespaces."""
    hardening: InReplica[Hardening | None] = None
    """The security settings of the pool's GPU Pods. What it sets counts before the policy's."""
    largest_request: InReplica[Positive | None] = None
    """The largest number of the pool's devices that one Pod may request."""
    price_per_device_hour: InReplica[Price | None] = None
    """The price of a device for one hour, in any currency. gpufence audit uses it to state the cost
    of unused devices."""
    requires: InAPIServer[tuple[PoolRequirement, ...]] = ()
    """What Pods must state to use the pool."""

    def __post_init__(self) -> None:
        if not self.resources and not self.device_classes:
            raise ValueError("offers no devices; set resources or deviceClasses")
        if self.without and not self.selector:
            raise ValueError(
                "has no label that its nodes must have: nodes without a GPU meet NotIn and "
                "DoesNotExist as well; add nodeSelector, or matchExpressions with In or Exists"
            )
        for taint in self.tolerate:
            if any(own.includes(taint) or taint.includes(own) for own in self.taints):
                raise ValueError(
                    f"has the taint {taint} in taints, which fence, and in tolerate; remove it "
                    "from one of the two"
                )
        if not self.selector and not (self.device_classes and self.fence):
            raise ValueError(
                "has no labels of its nodes; set nodeSelector or matchExpressions, or else both "
                "deviceClasses and a taint with the effect NoSchedule or NoExecute"
            )
        if len(self.selector) + len(self.without) < (
            len(self.node_selector) + len(self.match_expressions)
        ):
            keys = [each.key for each in self.match_expressions if not each.is_negative]
            twice = _twice([*self.node_selector, *keys])
            raise ValueError(f"has two requirements on the label {twice!r}; keep one of them")
        if not self.can_meet(Alternative({}, (), (), "")):
            raise ValueError("has nodeSelector and matchExpressions that no node meets together")
        for kind, names in (
            ("shared", self.shared_resources),
            ("fractional", self.fractional_resources),
        ):
            for name in names.patterns:
                if not self.resources.meets(name):
                    raise ValueError(
                        f"has the {kind} resource {name!r}, which is not in resources; add it "
                        "there as well"
                    )

    @cached_property
    def selector(self) -> Selector:
        """The labels that identify the nodes of the pool; none if only their devices do."""
        return selector_of(self.node_selector) | {
            each.key: tuple(sorted({*each.values}))
            for each in self.match_expressions
            if not each.is_negative
        }

    @cached_property
    def without(self) -> tuple[Requirement, ...]:
        """What leaves out nodes with the labels of the pool: NotIn and DoesNotExist."""
        return tuple(
            Requirement(each.key, each.operator, [*each.values] or None)
            for each in self.match_expressions
            if each.is_negative
        )

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """All that the labels of a node of the pool meet."""
        return (*(requirement(*label) for label in self.selector.items()), *self.without)

    def includes(self, other: Pool) -> bool:
        """Return whether every node with the labels of the other pool has those of this one."""
        return includes(self.selector, other.selector) and not any(
            other.can_meet(Alternative({}, (negated(each),), (), "")) for each in self.without
        )

    @property
    def is_restricted(self) -> bool:
        """Whether not every Pod may use the nodes of the pool."""
        return bool(self.allowed_namespaces or self.largest_request or self.requires)

    def can_meet(self, alternative: Alternative) -> bool:
        """Return whether a node with the labels of the pool could meet the alternative."""
        return can_match(narrowed(alternative, self.without), self.selector)

    @cached_property
    def fence(self) -> tuple[Taint, ...]:
        """The taints that keep Pods off the nodes of the pool."""
        return tuple(taint for taint in self.taints if taint.effect in FENCING_EFFECTS)

    @cached_property
    def tolerated(self) -> tuple[Taint, ...]:
        """The taints for which GPU Pods get tolerations."""
        return (*self.fence, *(each for each in self.tolerate if each.effect in FENCING_EFFECTS))

    @cached_property
    def vendors(self) -> frozenset[str]:
        """The vendors of the devices by domain, as nvidia.com of nvidia.com/gpu."""
        return domains_of(self.resources.patterns, self.device_classes)

    def offers(self, name: str) -> bool:
        """Return whether the nodes offer devices by this name: a resource, or that of a class."""
        return name in self.resources or class_of_resource(name) in self.device_classes

    @property
    def request(self) -> str:
        """How a container requests one device of the pool: the start of a remediation."""
        if resource := self.example:
            return f"Set {resource}: 1 under resources.limits"
        return f"Use a resource claim on device class {min(self.device_classes)}"

    @property
    def example(self) -> str:
        """A resource of the pool, one of whole devices if it has any; empty without resources."""
        if self.resources.exact:
            whole = [name for name in self.resources.exact if name not in self.fractional_resources]
            return min(whole or self.resources.exact)
        return example_of(self.resources.prefixes[0]) if self.resources.prefixes else ""

    def shared_device(self, other: Pool) -> str | None:
        """Return the name of a resource or device class that both pools offer, if there is one."""
        classes = sorted(self.device_classes & other.device_classes)
        return self.resources.overlap(other.resources) or next(iter(classes), None)


def example_of(prefix: str) -> str:
    """Return a name that starts with the prefix and that Kubernetes accepts."""
    return f"{prefix}{'1g.10gb' if prefix.endswith('/mig-') else 'NAME'}"


ALWAYS_EXCLUDED = frozenset(
    {
        "kube-system",
        "calico-system",
        "kube-flannel",
        "openshift-multus",
        "openshift-ovn-kubernetes",
        "tigera-operator",
    }
)
"""The namespaces that gpufence's webhook configurations exclude, whatever the policy says.

API servers send no admission requests from them. Files and a live cluster are therefore judged
with these namespaces excluded; the webhook itself judges every request that it receives.

A cluster needs them to start again. Besides kube-system, these are the network plugins whose agents
run in a namespace of their own. Their Pods tolerate every taint, and a new node needs them
before it can run a replica of gpufence.
"""


@dataclass(frozen=True, slots=True)
class Exemptions(Part):
    """The Pods to which the policy does not apply."""

    namespaces: InAPIServer[frozenset[Label]] = frozenset()
    """Names of namespaces."""
    usernames: InAPIServer[frozenset[NonEmpty]] = frozenset()
    """Names of users or service accounts."""

    def cover(self, namespace: str, username: str) -> str:
        """Return why the policy does not apply to a request; empty if it does."""
        if namespace in self.namespaces:
            return f"the policy exempts namespace {namespace}"
        if username in self.usernames:
            return f"the policy exempts user {username}"
        return ""


_NAMESPACES = _any_of({"namespaces": "minItems", "namespaceSelector": ""})
_SETTINGS = {"mode": "", "hardening": "", "defaultAction": "", "rules": "minProperties"}


def _require_namespaces(entry: Override | ExceptionEntry) -> None:
    if not (entry.namespaces or entry.namespace_selector):
        raise ValueError("is for no namespace; set namespaces or namespaceSelector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override(Part):
    """Other settings for some namespaces."""

    __pydantic_config__ = described(allOf=[_NAMESPACES, _any_of(_SETTINGS)])

    namespaces: InAPIServer[tuple[NamespacePattern, ...]] = ()
    """Names of namespaces, or prefixes followed by *."""
    namespace_selector: InAPIServer[NamespaceSelector | None] = None
    """Further namespaces by their labels. Where they are unknown, the stricter settings count:
    those with the entry, or those without it. So they do while no replica answers."""
    rules: InAPIServer[Mapping[RuleId, RuleAction]] = field(default_factory=dict)
    """The action of each rule in these namespaces."""
    mode: InAPIServer[Mode | None] = None
    """The mode in these namespaces. The default is the policy's mode."""
    hardening: InReplica[Hardening | None] = None
    """The security settings of GPU Pods in these namespaces. What it sets counts before those of
    the pools."""
    default_action: InAPIServer[OptionalAction] = None
    """The strongest action of the rules that this entry does not name."""

    def __post_init__(self) -> None:
        _require_namespaces(self)
        if not (self.mode or self.rules or self.hardening or self.default_action):
            raise ValueError("changes nothing; set rules, defaultAction, mode or hardening")

    def actions(self, general: Mapping[str, Action]) -> Mapping[str, Action]:
        """Return the actions that the entry sets, where the policy has these ``general`` ones."""
        if self.default_action is None:
            return self.rules
        default = self.default_action
        return {rule: limited(action, default) for rule, action in general.items()} | dict(
            self.rules
        )

    def settings(self, general: Mapping[str, Action]) -> dict[str, Any]:
        """Return what the entry sets: actions by rule, the mode, and fields of the hardening."""
        given = {**self.actions(general), "mode": self.mode, **_settings_of(self.hardening)}
        return {key: value for key, value in given.items() if value is not None}


class Actions:
    """Each rule's action in some namespaces: as the policy has it, limited by the mode there.

    ``written`` are the actions without the limit. By these actions, ``reported`` are the rules that
    warn or audit, and ``off`` those that are off. What ``hardening`` sets counts in the namespaces
    before what the pools and the policy set. ``possible`` has by field the profiles and versions
    that unknown labels may set: of all profiles, the strictest counts, and of versions, each.
    """

    def __init__(
        self,
        written: Mapping[str, Action],
        mode: Mode,
        hardening: Hardening | None = None,
        possible: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    ) -> None:
        self.written = written
        self.reported = frozenset(r for r, a in written.items() if a in ("warn", "audit"))
        self.off = frozenset(r for r, a in written.items() if a == "off")
        self.mode = mode
        self.hardening = hardening
        self.possible = possible

    def __getitem__(self, rule: str) -> Action:
        action = self.written[rule]
        return action if self.mode == "enforce" else limited(action, self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionEntry(Part):
    """Findings that do not count, optionally until a date."""

    __pydantic_config__ = described(**_NAMESPACES)

    rules: InAPIServer[frozenset[RuleId]] = frozenset()
    """Names of rules. The default is all rules that check. A rule that changes Pods must be named:
    it then leaves the objects as they are."""
    controls: InReplica[frozenset[ControlName]] = frozenset()
    """Controls of Pod Security, if unrestricted-gpu-pod is the only rule. The default is all
    controls."""
    values: InReplica[ObjectNames] = NO_NAMES
    """What the controls may find: paths of hostPath volumes, capabilities, names of sysctls, ports:
    exact, or a prefix followed by *. The default is all values."""
    namespaces: InAPIServer[NamespaceNames] = NO_NAMES
    """Names of namespaces, or prefixes followed by *."""
    namespace_selector: InAPIServer[NamespaceSelector | None] = None
    """Further namespaces by their labels. None is one of them if its labels are unknown."""
    kinds: InAPIServer[frozenset[NonEmpty]] = frozenset()
    """Kinds of objects, for example Deployment. The default is all kinds."""
    names: InAPIServer[ObjectNames] = NO_NAMES
    """Names of objects: exact, or a prefix followed by *. The default is all objects."""
    reason: InReplica[NonEmpty]
    """The reason for the exception."""
    expires: InAPIServer[Day | None] = None
    """The first day on which the exception no longer applies: YYYY-MM-DD."""

    def __post_init__(self) -> None:
        _require_namespaces(self)
        if self.controls and self.rules != {_PROFILE}:
            raise ValueError(f"has controls, which belong to one rule; set rules: [{_PROFILE}]")
        if self.values and not self.controls:
            raise ValueError("has values, which belong to controls; set controls")

    def accepts(self, rejected: tuple[str, str]) -> bool:
        """Return whether the exception is about a control and the value that it rejects."""
        control, value = rejected
        return not self.controls or (
            control in self.controls and (not self.values or value in self.values)
        )

    def is_for(self, namespace: str, labels: Mapping[str, str] | None) -> bool | None:
        """Return whether the exception is for a namespace; ``None`` if unknown labels decide."""
        if namespace in self.namespaces:
            return True
        selector = self.namespace_selector
        return selector.selects(namespace, labels) if selector else False

    def covers(
        self,
        rule: str,
        namespace: str,
        kind: str,
        name: str,
        labels: Mapping[str, str] | None = None,
    ) -> bool:
        """Return whether the exception is about this rule and this object, expired or not.

        ``labels`` are those of the namespace, ``None`` if they are unknown.
        """
        return (
            (not self.rules or rule in self.rules)
            and (not self.kinds or kind in self.kinds)
            and (not self.names or name in self.names)
            and self.is_for(namespace, labels) is True
        )

    def has_expired(self, today: date | None) -> bool:
        return self.expires is not None and today is not None and today >= self.expires


@dataclass(frozen=True, eq=False, kw_only=True)
class Policy(Part):
    """The spec of a FencePolicy."""

    mode: InAPIServer[Mode] = "enforce"
    """enforce: change and deny Pods. warn: change and deny nothing, and warn about each object that
    enforce would change or deny. audit: the same, in the audit log and the metrics only."""
    failure_policy: InAPIServer[FailurePolicy] = "Fail"
    """Whether API servers reject (Fail) or admit (Ignore) GPU Pods, and Pods that use GPU nodes,
    while no replica answers."""
    pools: InAPIServer[Annotated[tuple[Pool, ...], NOT_EMPTY]]
    """The pools of GPU nodes."""
    quarantine_taints: InReplica[tuple[Taint, ...]] = ()
    """Taints of nodes that start, or that are under repair. No GPU Pod should tolerate them."""
    hardening: InReplica[Hardening] = Hardening()
    """The security settings of GPU Pods."""
    default_action: InReplica[OptionalAction] = None
    """The strongest action of the rules that rules does not name. The default is the action that
    each rule has by itself."""
    rules: InAPIServer[Mapping[RuleId, RuleAction]] = field(default_factory=dict)
    """The action of each rule: enforce, warn, audit or off."""
    help: InAPIServer[Sentence] = ""
    """Whom to contact, or a link: denials end with this sentence."""
    exemptions: InAPIServer[Exemptions] = Exemptions()
    """The Pods to which the policy does not apply."""
    overrides: InAPIServer[tuple[Override, ...]] = ()
    """Other settings for some namespaces. All matching entries count: of several that set a rule,
    the mode or a field of hardening, the last one."""
    exceptions: InAPIServer[tuple[ExceptionEntry, ...]] = ()
    """Findings that do not count, optionally until a date."""
    custom_workloads: InAPIServer[tuple[CustomWorkloads, ...]] = WELL_KNOWN
    """Custom resources whose pod templates gpufence checks: in audits, and at creation unless their
    operator merges templates (Argo, Flink, KServe, Spark, Trainer). The default is a list of
    well-known ones."""

    def __post_init__(self) -> None:
        quarantined: dict[tuple[str, str], set[str | None]] = {}
        for taint in self.quarantine_taints:
            quarantined.setdefault((taint.key, taint.effect), set()).add(taint.value)
        for pool in self.pools:
            for taint in (*pool.taints, *pool.tolerate):
                values = quarantined.get((taint.key, taint.effect))
                # Without a value, a taint includes those with any.
                if values and (taint.value is None or values & {None, taint.value}):
                    raise ValueError(
                        f"has the taint {taint} in pool {pool.name!r}, whose Pods tolerate it, and "
                        "in quarantineTaints; remove it from one of the two"
                    )
        _require_differences(self.pools)

    @cached_property
    def vendors(self) -> frozenset[str]:
        """The vendors of the devices of all pools."""
        return frozenset[str]().union(*(pool.vendors for pool in self.pools))

    @cached_property
    def pools_of_class(self) -> Mapping[str, tuple[Pool, ...]]:
        """By DeviceClass, the pools that offer its devices."""
        return _by({pool: pool.device_classes for pool in self.pools})

    @cached_property
    def reads_claims(self) -> bool:
        """Whether a decision depends on what claims request: devices of a pool, or CPUs."""
        return bool(self.pools_of_class) or any(
            entry.max_cpu_per_device or entry.max_memory_per_device
            for pool in self.pools
            for entry in pool.requires
        )

    @cached_property
    def pools_by_key(self) -> Mapping[str, tuple[Pool, ...]]:
        """By the key of a label or of a taint, the pools whose nodes have it."""
        return _by(
            {pool: {*pool.selector, *(taint.key for taint in pool.taints)} for pool in self.pools}
        )

    @cached_property
    def restricted_pools(self) -> tuple[Pool, ...]:
        """The pools with labels whose nodes not every Pod may use, if there is another pool."""
        restricted = (pool for pool in self.pools if pool.selector and pool.is_restricted)
        return tuple(restricted) if len(self.pools) > 1 else ()

    @cached_property
    def _neighbors(self) -> dict[Pool, tuple[Pool, ...]]:
        return {}

    def neighbors(self, pool: Pool) -> tuple[Pool, ...]:
        """Return the restricted pools that nodes of the pool can belong to as well.

        Without those that all its nodes belong to: only the devices tell the two apart.
        """
        if pool not in self._neighbors:
            labels = Alternative({}, pool.requirements, (), "")
            self._neighbors[pool] = tuple(
                other
                for other in self.restricted_pools
                if other is not pool
                and (pool.selector or pool.shared_device(other))
                and other.can_meet(labels)
                and not other.includes(pool)
            )
        return self._neighbors[pool]

    def overlaps(self) -> Iterator[tuple[Pool, Pool]]:
        """Yield each pool with a restricted one whose nodes can be its own, the pair once."""
        for pool in self.pools if self.restricted_pools else ():
            for other in self.neighbors(pool):
                is_known = pool in self.restricted_pools and pool in self.neighbors(other)
                if not is_known or self.pools.index(pool) < self.pools.index(other):
                    yield pool, other

    @cached_property
    def pools_of_annotations(self) -> Mapping[AnnotationRequest, tuple[Pool, ...]]:
        """By the annotations that request a device, the pools that offer it."""
        return _by({pool: pool.annotation_requests for pool in self.pools})

    @cached_property
    def _pools_of_name(self) -> Mapping[str, tuple[Pool, ...]]:
        names = {name for pool in self.pools for name in pool.resources.exact}
        return {
            name: tuple(pool for pool in self.pools if name in pool.resources) for name in names
        }

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        return tuple({prefix for pool in self.pools for prefix in pool.resources.prefixes})

    @cached_property
    def general(self) -> Actions:
        """The actions of the rules in namespaces without an override."""
        return Actions(self.rules, self.mode)

    @cached_property
    def _settings(self) -> tuple[dict[str, Any], ...]:
        return tuple(override.settings(self.rules) for override in self.overrides)

    @cached_property
    def _last(self) -> Mapping[str, dict[str, int]]:
        """By the pattern of a namespace's name and a setting, the last override that has it."""
        last: dict[str, dict[str, int]] = defaultdict(dict)
        for index, override in enumerate(self.overrides):
            for pattern in override.namespaces:
                last[pattern].update(dict.fromkeys(self._settings[index], index))
        for pattern, wider in nested(last):
            for key, index in last[wider].items() if wider else ():
                last[pattern][key] = max(index, last[pattern].get(key, 0))
        return last

    @cached_property
    def overrides_by_label(self) -> Mapping[int, NamespaceSelector]:
        """The label selectors of overrides, by their position."""
        selectors = ((n, each.namespace_selector) for n, each in enumerate(self.overrides))
        return {n: selector for n, selector in selectors if selector}

    @cached_property
    def _known_actions(self) -> dict[tuple[str, tuple[tuple[int, bool], ...]], Actions]:
        return {}

    def _actions(self, pattern: str, selected: Mapping[int, bool]) -> Actions:
        """Return the actions in namespaces with this pattern, and of overrides by label.

        ``selected`` says whether it is certain that an override by label is for the namespace. Of
        settings that are not certain, the strictest one counts, and none of other kinds.
        """
        key = pattern, tuple(selected.items())
        if (known := self._known_actions.get(key)) is not None:
            return known
        last = self._last[pattern] if pattern else {}
        values = {name: [self._settings[index][name]] for name, index in last.items()}
        for index, is_certain in sorted(selected.items()):
            for name, value in self._settings[index].items():
                if index >= last.get(name, 0):
                    values[name] = [*(() if is_certain else values.get(name, [None])), value]
        rules, mode, hardening = dict(self.rules), self.mode, dict[str, Any]()
        possible = dict[str, Sequence[Any]]()
        for name, found in values.items():
            if name == "mode":
                mode = min((each or mode for each in found), key=ACTIONS.index)
            elif name in rules:
                rules[name] = min((each or rules[name] for each in found), key=ACTIONS.index)
            else:
                hardening[name], *others = found
                possible |= {name: others} if others else {}
        own = Hardening(**hardening) if any(v is not None for v in hardening.values()) else None
        made = Actions(rules, mode, own, possible)
        if len(self._known_actions) < _MOST_KNOWN:
            self._known_actions[key] = made
        return made

    @cached_property
    def overridden(self) -> Mapping[str, Actions]:
        """The actions of the namespaces that have actions of their own, every rule among them.

        A key is the name of a namespace, or a prefix followed by ``*``. The name counts more than a
        prefix, and a longer prefix more than a shorter one. Labels of namespaces count for none.
        """
        return {pattern: self._actions(pattern, {}) for pattern in self._last}

    @cached_property
    def strictest(self) -> Mapping[str, Actions]:
        """The same where the labels of namespaces are unknown; ``*`` is every other namespace."""
        unknown = dict.fromkeys(self.overrides_by_label, False)
        if not unknown:
            return {"*": self.general, **self.overridden}
        every = {"*": "", **{pattern: pattern for pattern in self._last}}
        return {name: self._actions(pattern, unknown) for name, pattern in every.items()}

    @cached_property
    def _override_prefixes(self) -> tuple[str, ...]:
        prefixes = [pattern[:-1] for pattern in self.overridden if pattern.endswith("*")]
        return tuple(sorted(prefixes, key=len, reverse=True))

    @cached_property
    def action_sets(self) -> tuple[Actions, ...]:
        """The actions of the rules, and those of each namespace that has actions of its own."""
        of_labels = [self._actions("", {index: True}) for index in self.overrides_by_label]
        of_labels += self.strictest.values() if of_labels else ()
        return (self.general, *self.overridden.values(), *of_labels)

    @cached_property
    def enforces(self) -> bool:
        """Whether the mode is enforce, in any namespace."""
        return any(actions.mode == "enforce" for actions in self.action_sets)

    @property
    def unenforced(self) -> str:
        """Where the mode prevents changes and denials, as a sentence; empty if nowhere."""
        of_labels = {
            str(each): self._actions("", {n: True}) for n, each in self.overrides_by_label.items()
        }
        overridden = {**self.overridden, **of_labels}
        enforced = sorted(n for n, each in overridden.items() if each.mode == "enforce")
        if self.mode != "enforce":
            problem = f"the policy's mode is {self.mode}: gpufence changes and denies nothing"
            return f"{problem}, except in {', '.join(enforced)}" if enforced else problem
        others = ", ".join(sorted(overridden.keys() - set(enforced)))
        problem = f"the policy's mode is not enforce in {others}"
        return f"{problem}: gpufence changes and denies nothing there" if others else ""

    def actions_in(self, namespace: str, labels: Mapping[str, str] | None = None) -> Actions:
        """Return each rule's action for objects of the namespace.

        ``labels`` are those of the namespace. Where they are unknown, the stricter actions count.
        """
        if not self.overrides:
            return self.general
        pattern = namespace if namespace in self._last else ""
        if not pattern:
            prefixes = (each for each in self._override_prefixes if namespace.startswith(each))
            pattern = next((f"{prefix}*" for prefix in prefixes), "")
        if self.overrides_by_label:
            verdicts = {
                n: each.selects(namespace, labels) for n, each in self.overrides_by_label.items()
            }
            if selected := {
                n: is_so is True for n, is_so in verdicts.items() if is_so is not False
            }:
                return self._actions(pattern, selected)
        return self.overridden[pattern] if pattern else self.general

    def needs_labels(self, namespace: str) -> bool:
        """Return whether the labels of the namespace decide on overrides or exceptions."""
        selectors = self.overrides_by_label.values()
        return any(each.selects(namespace, None) is None for each in selectors) or any(
            each.is_for(namespace, None) is None for each in self.exceptions_by_label
        )

    @cached_property
    def exceptions_by_label(self) -> tuple[ExceptionEntry, ...]:
        """The exceptions that are for namespaces by their labels."""
        return tuple(each for each in self.exceptions if each.namespace_selector)

    @property
    def selectors(self) -> list[NamespaceSelector]:
        """The label selectors of overrides and exceptions."""
        of_exceptions = (each.namespace_selector for each in self.exceptions_by_label)
        return [*self.overrides_by_label.values(), *filter(None, of_exceptions)]

    @cached_property
    def _hardens_differently(self) -> bool:
        own = [pool.hardening for pool in self.pools]
        return any(own) or any(override.hardening for override in self.overrides)

    @cached_property
    def exceptions_of_rule(self) -> Mapping[str, tuple[ExceptionEntry, ...]]:
        """By rule, the exceptions that name it."""
        found: dict[str, tuple[ExceptionEntry, ...]] = {}
        for entry in self.exceptions:
            for rule in entry.rules:
                found[rule] = (*found.get(rule, ()), entry)
        return found

    @cached_property
    def effective_hardening(self) -> EffectiveHardening:
        """The security settings where neither a pool nor an override has others."""
        return EffectiveHardening().with_settings(self.hardening)

    def hardening_of(self, actions: Actions, pools: Iterable[Pool]) -> EffectiveHardening:
        """Return the security settings of a Pod with devices of these pools.

        Each is that of the namespace's overrides, whose ``actions`` these are, or else of the pool,
        or else of the policy. Of several pools, the one with the strictest profiles counts.
        """
        general = self.effective_hardening
        if not self._hardens_differently:
            return general
        own = actions.hardening
        of_pools = [general.with_settings(pool.hardening).with_settings(own) for pool in pools]
        strictest = min(
            of_pools or [general.with_settings(own)],
            key=lambda each: [*map(_LEVELS.index, (each.level, each.warn))],
        )
        if not actions.possible:
            return strictest
        profiles = {
            name: min((getattr(strictest, name), *possible), key=_LEVELS.index)
            for name, possible in actions.possible.items()
            if name in ("level", "warn")
        }
        return replace(strictest, **profiles)

    def pools_of_resource(self, name: str) -> tuple[Pool, ...]:
        """Return the pools that offer the extended resource; none if the API rejects its name."""
        pools = self._pools_of_name.get(name)
        if pools is None and name.startswith(self._prefixes) and is_extended_resource_name(name):
            pools = tuple(pool for pool in self.pools if name in pool.resources)
        return pools or ()

    def pools_of_device(self, name: str) -> tuple[Pool, ...]:
        """Return the pools that offer the resource, or the class of an implicit resource name."""
        return self.pools_of_resource(name) or self.pools_of_class.get(class_of_resource(name), ())

    def counts(self, resource: str) -> bool:
        """Return whether a quantity of the resource is a number of devices of a pool."""
        pools = self.pools_of_device(resource)
        return bool(pools) and all(resource not in pool.fractional_resources for pool in pools)


def _settings_of(hardening: Hardening | EffectiveHardening | None) -> dict[str, Any]:
    """Return the fields of a hardening by name; ``None`` for those that it does not set."""
    if hardening is None:
        return {}
    return {each.name: getattr(hardening, each.name) for each in fields(hardening)}


def _by(keys: Mapping[Pool, Iterable[_Key]]) -> dict[_Key, tuple[Pool, ...]]:
    """Return the pools by their keys, in the order of the policy."""
    found: dict[_Key, tuple[Pool, ...]] = {}
    for pool, own in keys.items():
        for key in own:
            found[key] = (*found.get(key, ()), pool)
    return found


def _twice(names: Iterable[str]) -> str | None:
    """Return the first name that comes twice, if there is one."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _require_differences(pools: Sequence[Pool]) -> None:
    """Raise a ValueError if two pools have one name, or labels do not tell their devices apart.

    Sets of pools are the bits of a number. Two pools are compared only if the narrow one may be
    part of the wide one: one of its values is accepted for each label of the wide one.
    """
    if twice := _twice(pool.name for pool in pools):
        raise ValueError(f"has two pools named {twice!r}; give each its own name")
    selectors = [
        {key: frozenset(values) for key, values in pool.selector.items()} for pool in pools
    ]
    labeled: dict[tuple[str, str], int] = defaultdict(int)
    for number, selector in enumerate(selectors):
        for key, values in selector.items():
            for value in (_ANY, *islice(values, 1)):
                labeled[key, value] |= 1 << number
    for number, (wide, narrower) in enumerate(zip(selectors, _sharing(pools), strict=True)):
        for key, values in wide.items():
            narrower &= reduce(or_, (labeled[key, value] for value in values or (_ANY,)))
        for other in range(len(pools)):
            if narrower >> other & 1 and other != number and pools[number].includes(pools[other]):
                one, two = (pools[each] for each in sorted((number, other)))
                raise ValueError(
                    f"has {one.shared_device(two)!r} in two pools, {one.name!r} and {two.name!r}, "
                    f"but every node of {pools[other].name!r} is also a node of "
                    f"{pools[number].name!r}; add a label to the nodeSelector of "
                    f"{pools[number].name!r} that tells them apart"
                )


def _sharing(pools: Sequence[Pool]) -> list[int]:
    """Return for each pool the pools that offer one of its devices, itself among them."""
    offered: dict[str, int] = defaultdict(int)
    names = [(*pool.resources.patterns, *pool.device_classes) for pool in pools]
    for number, own in enumerate(names):
        for name in own:
            offered[name] |= 1 << number
    for name, wider in nested(offered):
        offered[name] |= offered[wider] if wider else 0
    sharing = [reduce(or_, (offered[name] for name in own), 0) for own in names]
    for one, two in permutations(range(len(pools)), 2):
        sharing[two] |= (sharing[one] >> two & 1) << one
    return sharing
