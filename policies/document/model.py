"""The policy document: ``apiVersion: gpufence.dev/v1alpha1``, ``kind: FencePolicy``.

This module validates parsed YAML or JSON, and compiles it into ``policies.policy.Policy``, which
the rules read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from policies import policy as compiled
from policies.document.parts import Part, sentences
from policies.document.suggestions import unknown
from policies.finding import Action
from policies.kubernetes import custom_workloads
from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.names import NameSet
from policies.kubernetes.quantity import (
    is_extended_resource_name,
    is_label_value,
    is_qualified_name,
    is_subdomain,
)
from policies.kubernetes.scheduling import Taint, TaintEffect
from policies.registry import RULES

API_VERSION = "gpufence.dev/v1alpha1"
KIND = "FencePolicy"
SCHEMA_ID = "https://gpufence.dev/schemas/fence-policy.json"
_MAX_UID = 2**31 - 1
_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
# The names that editors and helm accept. Validators check what would need lookahead.
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"


class PolicyError(ValueError):
    """The document is not valid; ``problems`` has a sentence for each problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def _extended_resource_pattern(pattern: str) -> str:
    name = f"{pattern[:-1]}x" if pattern.endswith("*") else pattern
    if "*" in name or not is_extended_resource_name(name):
        raise ValueError(
            "is not the name of an extended resource; use vendor.example/name or "
            "vendor.example/prefix-*"
        )
    return pattern


def _qualified_name(name: str) -> str:
    if not is_qualified_name(name):
        raise ValueError("is not a qualified name; use name or domain.example/name")
    return name


def _label_value(value: str) -> str:
    if not is_label_value(value):
        raise ValueError("is not a label value; use up to 63 letters, digits, '-', '_' and '.'")
    return value


def _subdomain(name: str) -> str:
    if not is_subdomain(name):
        raise ValueError(
            "is not a valid name; use up to 253 lower-case letters, digits, '-' and '.'"
        )
    return name


def _namespace_pattern(pattern: str) -> str:
    name = pattern.removesuffix("*")
    # A prefix can end with a dash, where a name cannot.
    if not (pattern == "*" or is_subdomain(name if name == pattern else f"{name}x")):
        raise ValueError("is not the name of a namespace; use a name, or a prefix followed by *")
    return pattern


def _custom_group(name: str) -> str:
    if "." not in name or not is_subdomain(name):
        raise ValueError(
            "is not the API group of a custom resource; use a group such as kubeflow.org"
        )
    return name


def _action(value: Any) -> Any:
    # In YAML 1.1, which Kubernetes reads, an unquoted off is the boolean false.
    return "off" if value is False else value


def _each_key_by_name(schema: dict[str, Any]) -> None:
    """List the keys of a mapping: for ``propertyNames``, helm reports a wrong path."""
    names, value = schema.pop("propertyNames")["enum"], schema["additionalProperties"]
    properties = {name: value | {"description": _TITLES[name]} for name in names}
    schema |= {"properties": properties, "additionalProperties": False}


def _one_of_at_least(**sizes: str) -> ConfigDict:
    """Require one of these keys, with an entry, in a part's JSON schema."""
    ways: list[JsonValue] = [
        {"required": [key], "properties": {key: {size: 1}}} for key, size in sizes.items()
    ]
    return ConfigDict(json_schema_extra={"anyOf": ways})


_ONLY_SUCH_KEYS: Any = {"additionalProperties": False}


def _text(pattern: str, max_length: int | None = None) -> WithJsonSchema:
    """Return the JSON schema of a text that a validator checks."""
    length = {} if max_length is None else {"maxLength": max_length}
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"} | length)


SubdomainName = Annotated[str, AfterValidator(_subdomain), _text(_SUBDOMAIN, 253)]
NonEmpty = Annotated[str, Field(min_length=1)]
RuleAction = Annotated[Action, BeforeValidator(_action)]
QualifiedName = Annotated[str, AfterValidator(_qualified_name), _text(f"({_SUBDOMAIN}/)?{_NAME}")]
LabelValue = Annotated[str, AfterValidator(_label_value), _text(f"({_NAME})?")]
NamespacePattern = Annotated[
    str,
    AfterValidator(_namespace_pattern),
    _text(rf"(\*|{_SUBDOMAIN}|{_SUBDOMAIN}[-.]?\*)", 253),
]
ResourcePattern = Annotated[
    str,
    AfterValidator(_extended_resource_pattern),
    _text(rf"{_SUBDOMAIN}/({_NAME}|([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?\*)"),
]
UserID = Annotated[int, Field(ge=1, le=_MAX_UID)]


class TaintSpec(Part):
    """A taint of the pool's nodes."""

    key: QualifiedName = Field(description="The taint's key.")
    value: LabelValue | None = Field(
        None, description="The taint's value. Without it, every value matches."
    )
    effect: TaintEffect = Field(
        "NoSchedule", description="NoSchedule, PreferNoSchedule or NoExecute."
    )


def _not_refuse(value: Any) -> Any:
    if value == "refuse":
        raise ValueError(f"{value!r} has the name deny since gpufence 0.2; write unknown: deny")
    return value


class LabelRequirementSpec(Part):
    """A requirement on a label, as in the label selectors of Kubernetes."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"operator": {"enum": ["In", "NotIn"]}}},
            "then": {"required": ["values"], "properties": {"values": {"minItems": 1}}},
            "else": {"properties": {"values": {"maxItems": 0}}},
        }
    )

    key: QualifiedName = Field(description="The label's key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="In and NotIn compare the label's value with values. A namespace without the "
        "label meets NotIn and DoesNotExist."
    )
    values: list[LabelValue] = Field(
        default_factory=list, description="The values, for In and NotIn only."
    )

    @model_validator(mode="after")
    def _check(self) -> LabelRequirementSpec:
        if bool(self.values) != (self.operator in ("In", "NotIn")):
            problem = (
                "has values; remove them" if self.values else "has no values; add at least one"
            )
            raise ValueError(f"{problem} (operator {self.operator})")
        return self


class AllowedNamespacesSpec(Part):
    """The namespaces that may request a pool: by name, or by labels."""

    model_config = _one_of_at_least(
        names="minItems", matchLabels="minProperties", matchExpressions="minItems"
    )

    names: list[NamespacePattern] = Field(
        default_factory=list, description="Names of namespaces, or prefixes followed by *."
    )
    match_labels: dict[QualifiedName, LabelValue] = Field(
        default_factory=dict,
        description="Labels that a namespace must have, all of them.",
        json_schema_extra=_ONLY_SUCH_KEYS,
    )
    match_expressions: list[LabelRequirementSpec] = Field(
        default_factory=list,
        description="Requirements that the labels of a namespace must meet, in addition to "
        "matchLabels.",
    )
    unknown: Annotated[Literal["allow", "deny"], BeforeValidator(_not_refuse)] = Field(
        "allow", description="Whether to allow a namespace whose labels are unknown."
    )

    @model_validator(mode="after")
    def _check(self) -> AllowedNamespacesSpec:
        if not (self.names or self.match_labels or self.match_expressions):
            raise ValueError("is empty; set names, matchLabels or matchExpressions")
        return self


def _other_scheduler(name: str) -> str:
    if name == "default-scheduler":
        raise ValueError(
            "is the scheduler that Pods have by default, which gives devices by resources and "
            "claims only; use the name of a scheduler that reads the annotations"
        )
    return name


class AnnotationRequestSpec(Part):
    """Annotations by which a Pod requests a device of a scheduler."""

    annotations: list[QualifiedName] = Field(
        min_length=1,
        description="Keys of annotations. Each of them is a request if its value is a positive "
        "number.",
    )
    scheduler_name: Annotated[SubdomainName, AfterValidator(_other_scheduler)] = Field(
        description="The scheduler that reads the annotations. For Pods with another "
        "schedulerName, they are no request.",
        json_schema_extra={"not": {"const": "default-scheduler"}},
    )
    container_annotation: QualifiedName | None = Field(
        None,
        description="The annotation that names the container with the device. The default is the "
        "first container.",
    )
    count_annotation: QualifiedName | None = Field(
        None,
        description="The annotation with the number of devices. The default is one device.",
    )


class PoolSpec(Part):
    """A set of GPU nodes."""

    model_config = _one_of_at_least(resources="minItems", deviceClasses="minItems")

    name: str = Field(
        pattern=_LABEL, description="A short name: lower-case letters, digits and '-', up to 63."
    )
    resources: list[ResourcePattern] = Field(
        default_factory=list,
        description="Extended resources of the nodes: exact names, or a prefix followed by *. "
        "Pools with the same resource must differ in nodeSelector.",
    )
    shared_resources: list[ResourcePattern] = Field(
        default_factory=list,
        description="Resources of the pool that are shares of a device (time-slicing, MPS). A "
        "container may request one.",
    )
    fractional_resources: list[ResourcePattern] = Field(
        default_factory=list,
        description="Resources of the pool that are an amount of a device, such as its memory in "
        "MiB. They make a GPU Pod, and do not count as devices.",
    )
    annotation_requests: list[AnnotationRequestSpec] = Field(
        default_factory=list,
        description="Annotations by which Pods request a device of a scheduler.",
    )
    device_classes: list[SubdomainName] = Field(
        default_factory=list, description="DeviceClasses (DRA) of the nodes' devices."
    )
    taints: list[TaintSpec] = Field(default_factory=list, description="The taints of the nodes.")
    node_selector: dict[QualifiedName, LabelValue] = Field(
        min_length=1,
        description="The labels that identify the nodes, all of them.",
        json_schema_extra=_ONLY_SUCH_KEYS,
    )
    runtime_class: SubdomainName | None = Field(
        None, description="The RuntimeClass for GPU Pods that set none."
    )
    allowed_namespaces: AllowedNamespacesSpec | None = Field(
        None, description="The namespaces that may request the pool. The default is all namespaces."
    )
    largest_request: Annotated[int, Field(ge=1)] | None = Field(
        None, description="The largest number of the pool's devices that one Pod may request."
    )

    @model_validator(mode="after")
    def _check(self) -> PoolSpec:
        if not self.resources and not self.device_classes:
            raise ValueError("offers no devices; set resources or deviceClasses")
        offered = NameSet.of(self.resources)
        for kind, names in (
            ("shared", self.shared_resources),
            ("fractional", self.fractional_resources),
        ):
            for name in names:
                if offered.overlap(NameSet.of([name])) is None:
                    raise ValueError(
                        f"has the {kind} resource {name!r}, which is not in resources; add it "
                        "there as well"
                    )
        return self


class HardeningSpec(Part):
    """The security context of GPU Pods, and the Pod Security profile that they must meet."""

    level: compiled.ProfileLevel = Field(
        "restricted", description="The Pod Security profile that GPU Pods must meet."
    )
    run_as_user: UserID | None = Field(
        65532, description="The user ID for Pods that set none. null does not set it."
    )
    run_as_group: UserID | None = Field(
        None, description="The group ID for Pods that set none. null does not set it."
    )
    fs_group: UserID | None = Field(
        None,
        description="The group that owns volumes, for Pods that set none. null does not set it.",
    )


class ExemptionsSpec(Part):
    """The Pods to which the policy does not apply."""

    namespaces: list[SubdomainName] = Field(
        default_factory=list, description="Names of namespaces."
    )
    usernames: list[NonEmpty] = Field(
        default_factory=list, description="Names of users or service accounts."
    )
    runtime_classes: list[SubdomainName] = Field(
        default_factory=list, description="Names of the RuntimeClasses of Pods."
    )


_TITLES = {rule.id: rule.page.partition("\n")[0] for rule in RULES}
_RULE_IDS = list(_TITLES)


def _known_rule(rule: str) -> str:
    if rule not in _RULE_IDS:
        raise ValueError(unknown("rule", rule, _RULE_IDS))
    return rule


RuleId = Annotated[
    str, AfterValidator(_known_rule), WithJsonSchema({"type": "string", "enum": _RULE_IDS})
]


class OverrideSpec(Part):
    """Other actions for some namespaces."""

    namespaces: list[NamespacePattern] = Field(
        min_length=1, description="Names of namespaces, or prefixes followed by *."
    )
    rules: dict[RuleId, RuleAction] = Field(
        min_length=1,
        description="The action of each rule in these namespaces.",
        json_schema_extra=_each_key_by_name,
    )


def _day(value: Any) -> Any:
    # Some YAML readers return dates, others return text.
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise ValueError("is not a date; use the format YYYY-MM-DD") from error
    return value


Day = Annotated[date, BeforeValidator(_day)]


class ExceptionSpec(Part):
    """Findings that do not count, optionally until a date."""

    rules: list[RuleId] = Field(
        default_factory=list, description="Names of rules. The default is all rules."
    )
    namespaces: list[NamespacePattern] = Field(
        min_length=1, description="Names of namespaces, or prefixes followed by *."
    )
    kinds: list[NonEmpty] = Field(
        default_factory=list,
        description="Kinds of objects, for example Deployment. The default is all kinds.",
    )
    names: list[NonEmpty] = Field(
        default_factory=list,
        description="Names of objects: exact, or a prefix followed by *. The default is all "
        "objects.",
    )
    reason: NonEmpty = Field(description="The reason for the exception.")
    expires: Day | None = Field(
        None, description="The first day on which the exception no longer applies: YYYY-MM-DD."
    )


class CustomWorkloadsSpec(Part):
    """Custom resources that embed pod templates."""

    group: Annotated[
        str, AfterValidator(_custom_group), _text(f"{_SUBDOMAIN}\\.{_SUBDOMAIN}", 253)
    ] = Field(description="The API group, without a version: kubeflow.org.")
    resources: list[Annotated[str, Field(pattern=_LABEL)]] = Field(
        min_length=1, description="The plural resource names: pytorchjobs."
    )


def _well_known_workloads() -> list[CustomWorkloadsSpec]:
    return [
        CustomWorkloadsSpec(group=group, resources=list(resources))
        for group, resources in custom_workloads.WELL_KNOWN
    ]


class MetadataSpec(Part):
    """The metadata of the document, for other tools. gpufence ignores them."""

    name: SubdomainName | None = Field(None, description="The name of the document.")
    labels: dict[QualifiedName, LabelValue] = Field(
        default_factory=dict, description="Labels.", json_schema_extra=_ONLY_SUCH_KEYS
    )
    annotations: dict[QualifiedName, str] = Field(
        default_factory=dict, description="Annotations.", json_schema_extra=_ONLY_SUCH_KEYS
    )


class FencePolicy(Part):
    """The policy document of gpufence."""

    api_version: Literal["gpufence.dev/v1alpha1"] = Field(description="The document's version.")
    kind: Literal["FencePolicy"] = Field(description="The document's kind.")
    metadata: MetadataSpec | None = Field(
        None, description="The metadata of the document, for other tools."
    )
    failure_policy: compiled.FailurePolicy = Field(
        "Fail",
        description="Whether API servers reject (Fail) or admit (Ignore) GPU Pods, and Pods that "
        "use GPU nodes, while no replica answers.",
    )
    pools: list[PoolSpec] = Field(min_length=1, description="The pools of GPU nodes.")
    hardening: HardeningSpec = Field(
        default_factory=HardeningSpec, description="The security settings of GPU Pods."
    )
    rules: dict[RuleId, RuleAction] = Field(
        default_factory=dict,
        description="The action of each rule: enforce, warn, audit or off.",
        json_schema_extra=_each_key_by_name,
    )
    exemptions: ExemptionsSpec = Field(
        default_factory=ExemptionsSpec, description="The Pods to which the policy does not apply."
    )
    overrides: list[OverrideSpec] = Field(
        default_factory=list,
        description="Other actions for some namespaces. The last matching entry counts.",
    )
    exceptions: list[ExceptionSpec] = Field(
        default_factory=list, description="Findings that do not count, optionally until a date."
    )
    custom_workloads: list[CustomWorkloadsSpec] = Field(
        default_factory=_well_known_workloads,
        description="Custom resources whose pod templates gpufence checks at creation. The default "
        "is a list of well-known ones.",
    )

    @model_validator(mode="after")
    def _runtime_classes_are_not_exempt(self) -> FencePolicy:
        for pool in self.pools:
            if pool.runtime_class in self.exemptions.runtime_classes:
                raise ValueError(
                    f"sets the RuntimeClass {pool.runtime_class!r} for pool {pool.name!r}, and "
                    "exempts it in exemptions.runtimeClasses; remove one of the two"
                )
        return self

    @model_validator(mode="after")
    def _labels_tell_pools_apart(self) -> FencePolicy:
        for index, pool in enumerate(self.pools):
            for other in self.pools[:index]:
                if pool.name == other.name:
                    raise ValueError(f"has two pools named {pool.name!r}; give each its own name")
                shared = NameSet.of(other.resources).overlap(NameSet.of(pool.resources))
                shared = shared or next(
                    iter(sorted(set(other.device_classes) & set(pool.device_classes))), None
                )
                wide, narrow = sorted((other, pool), key=lambda pool: len(pool.node_selector))
                if shared and wide.node_selector.items() <= narrow.node_selector.items():
                    raise ValueError(
                        f"has {shared!r} in two pools, {other.name!r} and {pool.name!r}, but "
                        f"every node of {narrow.name!r} is also a node of {wide.name!r}; add a "
                        f"label to the nodeSelector of {wide.name!r} that tells them apart"
                    )
        return self

    def compile(self) -> compiled.Policy:
        """Return the compiled policy."""
        actions: dict[str, Action] = {rule.id: rule.default for rule in RULES}
        actions |= self.rules
        overrides = {
            pattern: _overridden(actions, pattern, self.overrides)
            for override in self.overrides
            for pattern in override.namespaces
        }
        return compiled.Policy(
            pools=tuple(_compile_pool(pool) for pool in self.pools),
            hardening=compiled.Hardening(
                level=self.hardening.level,
                run_as_user=self.hardening.run_as_user,
                run_as_group=self.hardening.run_as_group,
                fs_group=self.hardening.fs_group,
            ),
            actions=actions,
            overrides=overrides,
            exceptions=tuple(_compile_exception(entry) for entry in self.exceptions),
            failure_policy=self.failure_policy,
            custom_workloads=tuple(
                custom_workloads.CustomWorkloads(entry.group, tuple(entry.resources))
                for entry in self.custom_workloads
            ),
            exemptions=compiled.Exemptions(
                namespaces=frozenset(self.exemptions.namespaces),
                usernames=frozenset(self.exemptions.usernames),
                runtime_classes=frozenset(self.exemptions.runtime_classes),
            ),
        )


def parse_policy(document: Any) -> FencePolicy:
    """Validate a document that was read from YAML or JSON.

    Raises:
        PolicyError: the document is invalid.
    """
    if not isinstance(document, Mapping):
        raise PolicyError(
            [f"the policy: must be a mapping with kind: {KIND}, but is {document!r:.60}"]
        )
    try:
        return FencePolicy.model_validate(document)
    except ValidationError as error:
        raise PolicyError(sentences(error, FencePolicy, "the policy")) from error


def schema_document() -> dict[str, Any]:
    """Return the JSON schema of policy documents."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    schema = FencePolicy.model_json_schema(by_alias=True)
    return {"$schema": dialect, "$id": SCHEMA_ID, "title": KIND} | schema


def default_policy_text() -> str:
    """Return the default policy as YAML."""
    return resources.files("policies.document").joinpath("default.yaml").read_text(encoding="utf-8")


def _compile_pool(pool: PoolSpec) -> compiled.Pool:
    return compiled.Pool(
        name=pool.name,
        resources=NameSet.of(pool.resources),
        device_classes=frozenset(pool.device_classes),
        taints=tuple(Taint(t.key, t.effect, t.value) for t in pool.taints),
        node_selector=dict(pool.node_selector),
        shared_resources=NameSet.of(pool.shared_resources),
        runtime_class=pool.runtime_class,
        allowed_namespaces=_compile_allowed_namespaces(pool.allowed_namespaces),
        largest_request=pool.largest_request,
        fractional_resources=NameSet.of(pool.fractional_resources),
        annotation_requests=tuple(
            compiled.AnnotationRequest(
                tuple(annotation.annotations),
                annotation.scheduler_name,
                annotation.container_annotation or "",
                annotation.count_annotation or "",
            )
            for annotation in pool.annotation_requests
        ),
    )


def _overridden(
    actions: dict[str, Action], pattern: str, overrides: Iterable[OverrideSpec]
) -> dict[str, Action]:
    """Return the actions in the namespaces of a pattern: those of every entry that covers it."""
    for override in overrides:
        # A prefix covers every pattern that starts with it.
        if pattern in NameSet.of(override.namespaces):
            actions = actions | override.rules
    return actions


def _compile_allowed_namespaces(
    allowed: AllowedNamespacesSpec | None,
) -> compiled.AllowedNamespaces | None:
    if allowed is None:
        return None
    return compiled.AllowedNamespaces(
        names=NameSet.of(allowed.names),
        match_labels=dict(allowed.match_labels),
        match_expressions=tuple(
            Requirement(key=e.key, operator=e.operator, values=list(e.values))
            for e in allowed.match_expressions
        ),
        deny_unknown=allowed.unknown == "deny",
    )


def _compile_exception(entry: ExceptionSpec) -> compiled.ExceptionEntry:
    return compiled.ExceptionEntry(
        rules=frozenset(entry.rules),
        namespaces=NameSet.of(entry.namespaces),
        kinds=frozenset(entry.kinds),
        names=NameSet.of(entry.names),
        reason=entry.reason,
        expires=entry.expires,
    )
