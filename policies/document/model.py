"""The policy document: ``apiVersion: gpufence.dev/v1alpha1``, ``kind: FencePolicy``.

The document is validated here and compiled into ``policies.policy.Policy``, which is what rules
read. Reading files is not done here: documents come in as parsed YAML or JSON.
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
_MAX_UID = 2**31 - 1
_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
# The names that editors and helm accept. Validators check what would need lookahead.
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"


class PolicyError(ValueError):
    """The document is no valid policy; ``problems`` says where and why, one sentence each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def _extended_resource_pattern(pattern: str) -> str:
    name = f"{pattern[:-1]}x" if pattern.endswith("*") else pattern
    if "*" in name or not is_extended_resource_name(name):
        raise ValueError(
            "is not the name of an extended resource; write vendor.example/name, "
            "or vendor.example/prefix-*"
        )
    return pattern


def _qualified_name(name: str) -> str:
    if not is_qualified_name(name):
        raise ValueError("is not a qualified name; write name or domain.example/name")
    return name


def _label_value(value: str) -> str:
    if not is_label_value(value):
        raise ValueError("is not a label value: up to 63 letters, digits, '-', '_' and '.'")
    return value


def _subdomain(name: str) -> str:
    if not is_subdomain(name):
        raise ValueError("is not a name: lower-case letters, digits, '-' and '.', up to 253")
    return name


def _custom_group(name: str) -> str:
    if "." not in name or not is_subdomain(name):
        raise ValueError("is not the API group of a custom resource; write kubeflow.org")
    return name


def _action(value: Any) -> Any:
    # In YAML 1.1, which Kubernetes reads, an unquoted off is the boolean false.
    return "off" if value is False else value


def _each_key_by_name(schema: dict[str, Any]) -> None:
    """Have a mapping's JSON schema name its keys: helm says of ``propertyNames`` a wrong place."""
    names, value = schema.pop("propertyNames")["enum"], schema["additionalProperties"]
    schema |= {"properties": dict.fromkeys(names, value), "additionalProperties": False}


def _one_of_at_least(**sizes: str) -> ConfigDict:
    """Let a part's JSON schema require one of these keys, and an entry in it."""
    ways: list[JsonValue] = [
        {"required": [key], "properties": {key: {size: 1}}} for key, size in sizes.items()
    ]
    return ConfigDict(json_schema_extra={"anyOf": ways})


_ONLY_SUCH_KEYS: Any = {"additionalProperties": False}


def _text(pattern: str, max_length: int | None = None) -> WithJsonSchema:
    """Return the JSON schema of a text that a validator judges, which the schema cannot see."""
    length = {} if max_length is None else {"maxLength": max_length}
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"} | length)


SubdomainName = Annotated[str, AfterValidator(_subdomain), _text(_SUBDOMAIN, 253)]
NonEmpty = Annotated[str, Field(min_length=1)]
RuleAction = Annotated[Action, BeforeValidator(_action)]
QualifiedName = Annotated[str, AfterValidator(_qualified_name), _text(f"({_SUBDOMAIN}/)?{_NAME}")]
LabelValue = Annotated[str, AfterValidator(_label_value), _text(f"({_NAME})?")]
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
        None, description="The taint's value; without one, any value is meant."
    )
    effect: TaintEffect = Field(
        "NoSchedule", description="NoSchedule, PreferNoSchedule or NoExecute."
    )


class AllowedNamespacesSpec(Part):
    """The namespaces that may request a pool: any that one of the two names."""

    model_config = _one_of_at_least(names="minItems", matchLabels="minProperties")

    names: list[SubdomainName] = Field(default_factory=list, description="Names of namespaces.")
    match_labels: dict[QualifiedName, LabelValue] = Field(
        default_factory=dict,
        description="Labels that a namespace carries, all of them.",
        json_schema_extra=_ONLY_SUCH_KEYS,
    )
    unknown: Literal["allow", "deny", "refuse"] = Field(
        "allow",
        description="What happens to a namespace whose labels are unknown; refuse is the former "
        "name of deny.",
    )

    @model_validator(mode="after")
    def _check(self) -> AllowedNamespacesSpec:
        if not self.names and not self.match_labels:
            raise ValueError("is empty: name at least one of names or matchLabels")
        return self


class PoolSpec(Part):
    """A set of GPU nodes."""

    model_config = _one_of_at_least(resources="minItems", deviceClasses="minItems")

    name: str = Field(
        pattern=_LABEL, description="A short name: lower-case letters, digits and '-', up to 63."
    )
    resources: list[ResourcePattern] = Field(
        default_factory=list,
        description="Extended resources that the nodes offer: exact, or a prefix followed by *.",
    )
    shared_resources: list[ResourcePattern] = Field(
        default_factory=list,
        description="Those of the resources that are shares of a device (time-slicing, MPS): "
        "requested at most once per container.",
    )
    device_classes: list[SubdomainName] = Field(
        default_factory=list, description="DeviceClasses (DRA) that the nodes' devices belong to."
    )
    taints: list[TaintSpec] = Field(
        default_factory=list, description="The taints that fence the nodes."
    )
    node_selector: dict[QualifiedName, LabelValue] = Field(
        min_length=1,
        description="The labels that identify the nodes, all of them.",
        json_schema_extra=_ONLY_SUCH_KEYS,
    )
    runtime_class: SubdomainName | None = Field(
        None, description="The RuntimeClass that GPU Pods get where they name none."
    )
    allowed_namespaces: AllowedNamespacesSpec | None = Field(
        None, description="The namespaces that may request the pool; without it, every one."
    )
    largest_request: Annotated[int, Field(ge=1)] | None = Field(
        None, description="How many of the pool's devices one Pod may request."
    )

    @model_validator(mode="after")
    def _check(self) -> PoolSpec:
        if not self.resources and not self.device_classes:
            raise ValueError("offers nothing: name at least one of its resources or deviceClasses")
        offered = NameSet.of(self.resources)
        for shared in self.shared_resources:
            if offered.overlap(NameSet.of([shared])) is None:
                raise ValueError(
                    f"has the shared resource {shared!r}, which is not among its resources; "
                    "add it there too"
                )
        return self


class HardeningSpec(Part):
    """What is filled into GPU Pods, and the profile that they must meet."""

    level: compiled.ProfileLevel = Field(
        "restricted", description="The Pod Security profile that GPU Pods must meet."
    )
    run_as_user: UserID | None = Field(
        65532, description="The UID that is set where the Pod sets none; null leaves it open."
    )
    run_as_group: UserID | None = Field(
        None, description="The GID that is set where the Pod sets none; null leaves it open."
    )
    fs_group: UserID | None = Field(
        None,
        description="The group that owns volumes where the Pod sets none; null leaves it open.",
    )


class ExemptionsSpec(Part):
    """Whose Pods are left alone."""

    namespaces: list[SubdomainName] = Field(
        default_factory=list, description="Names of namespaces."
    )
    usernames: list[NonEmpty] = Field(
        default_factory=list, description="Names of users or service accounts."
    )
    runtime_classes: list[SubdomainName] = Field(
        default_factory=list, description="Names of the RuntimeClasses of Pods."
    )


_RULE_IDS = [rule.id for rule in RULES]


def _known_rule(rule: str) -> str:
    if rule not in _RULE_IDS:
        raise ValueError(unknown("rule", rule, _RULE_IDS))
    return rule


RuleId = Annotated[
    str, AfterValidator(_known_rule), WithJsonSchema({"type": "string", "enum": _RULE_IDS})
]


class OverrideSpec(Part):
    """Other actions for some namespaces."""

    namespaces: list[SubdomainName] = Field(min_length=1, description="Names of namespaces.")
    rules: dict[RuleId, RuleAction] = Field(
        min_length=1,
        description="What happens to each rule's findings there.",
        json_schema_extra=_each_key_by_name,
    )


def _day(value: Any) -> Any:
    # YAML readers that know dates give one, the others give its text.
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise ValueError("is not a date; write it as YYYY-MM-DD") from error
    return value


Day = Annotated[date, BeforeValidator(_day)]


class ExceptionSpec(Part):
    """Findings that are tolerated for a while."""

    rules: list[RuleId] = Field(
        default_factory=list, description="Rules whose findings are tolerated; none for all."
    )
    namespaces: list[SubdomainName] = Field(min_length=1, description="Names of namespaces.")
    kinds: list[NonEmpty] = Field(
        default_factory=list, description="Kinds of objects: Pod, Deployment; none for all."
    )
    names: list[NonEmpty] = Field(
        default_factory=list,
        description="Names of objects, exact or a prefix followed by *; none for all.",
    )
    reason: NonEmpty = Field(description="Why, for later readers.")
    expires: Day | None = Field(
        None, description="The first day on which the exception no longer counts."
    )


class CustomWorkloadsSpec(Part):
    """Custom resources that embed pod templates."""

    group: Annotated[
        str, AfterValidator(_custom_group), _text(f"{_SUBDOMAIN}\\.{_SUBDOMAIN}", 253)
    ] = Field(description="Their API group, without a version: kubeflow.org.")
    resources: list[Annotated[str, Field(pattern=_LABEL)]] = Field(
        min_length=1, description="Their names in URLs: pytorchjobs."
    )


def _well_known_workloads() -> list[CustomWorkloadsSpec]:
    return [
        CustomWorkloadsSpec(group=group, resources=list(resources))
        for group, resources in custom_workloads.WELL_KNOWN
    ]


class FencePolicy(Part):
    """The policy document of gpufence."""

    api_version: Literal["gpufence.dev/v1alpha1"] = Field(description="The document's version.")
    kind: Literal["FencePolicy"] = Field(description="The document's kind.")
    failure_policy: compiled.FailurePolicy = Field(
        "Fail",
        description="What becomes of what reaches for GPU nodes while no replica answers: "
        "Fail refuses it, Ignore lets it past.",
    )
    pools: list[PoolSpec] = Field(min_length=1, description="The pools of GPU nodes.")
    hardening: HardeningSpec = Field(
        default_factory=HardeningSpec, description="What GPU Pods must look like."
    )
    rules: dict[RuleId, RuleAction] = Field(
        default_factory=dict,
        description="What happens to each rule's findings; a rule without entry has its default.",
        json_schema_extra=_each_key_by_name,
    )
    exemptions: ExemptionsSpec = Field(
        default_factory=ExemptionsSpec, description="Whose Pods are left alone."
    )
    overrides: list[OverrideSpec] = Field(
        default_factory=list, description="Other actions for some namespaces; the last one counts."
    )
    exceptions: list[ExceptionSpec] = Field(
        default_factory=list, description="Findings that are tolerated for a while."
    )
    custom_workloads: list[CustomWorkloadsSpec] = Field(
        default_factory=_well_known_workloads,
        description="Custom resources whose pod templates are judged as they are created, before "
        "there are Pods; without it, the well-known ones.",
    )

    @model_validator(mode="after")
    def _runtime_classes_are_not_exempt(self) -> FencePolicy:
        for pool in self.pools:
            if pool.runtime_class in self.exemptions.runtime_classes:
                raise ValueError(
                    f"gives the GPU Pods of pool {pool.name!r} the runtimeClass "
                    f"{pool.runtime_class!r} and exempts its Pods from every check; leave it out "
                    "of one of the two"
                )
        return self

    @model_validator(mode="after")
    def _pools_do_not_overlap(self) -> FencePolicy:
        for index, pool in enumerate(self.pools):
            for other in self.pools[:index]:
                if pool.name == other.name:
                    raise ValueError(f"has two pools named {pool.name!r}; give each its own name")
                shared = NameSet.of(other.resources).overlap(NameSet.of(pool.resources))
                shared = shared or next(
                    iter(sorted(set(other.device_classes) & set(pool.device_classes))), None
                )
                if shared is not None:
                    raise ValueError(
                        f"has {shared!r} in two pools, {other.name!r} and {pool.name!r}, so a "
                        "request for it would name neither; leave it in one of them"
                    )
        return self

    def compile(self) -> compiled.Policy:
        """Return the policy as the rules read it."""
        actions: dict[str, Action] = {rule.id: rule.default for rule in RULES}
        actions |= self.rules
        overrides: dict[str, dict[str, Action]] = {}
        for override in self.overrides:
            for namespace in override.namespaces:
                overrides[namespace] = overrides.get(namespace, actions) | override.rules
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
        PolicyError: with a sentence for each problem: where it is, what it is, what is accepted.
    """
    if not isinstance(document, Mapping):
        raise PolicyError([f"a policy is a mapping with kind: {KIND}, not {document!r:.60}"])
    try:
        return FencePolicy.model_validate(document)
    except ValidationError as error:
        raise PolicyError(sentences(error, FencePolicy, "the policy")) from error


def default_policy_text() -> str:
    """Return the policy that ships with gpufence, as YAML."""
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
    )


def _compile_allowed_namespaces(
    allowed: AllowedNamespacesSpec | None,
) -> compiled.AllowedNamespaces | None:
    if allowed is None:
        return None
    return compiled.AllowedNamespaces(
        names=frozenset(allowed.names),
        match_labels=dict(allowed.match_labels),
        deny_unknown=allowed.unknown != "allow",
    )


def _compile_exception(entry: ExceptionSpec) -> compiled.ExceptionEntry:
    return compiled.ExceptionEntry(
        rules=frozenset(entry.rules),
        namespaces=frozenset(entry.namespaces),
        kinds=frozenset(entry.kinds),
        names=NameSet.of(entry.names),
        reason=entry.reason,
        expires=entry.expires,
    )
