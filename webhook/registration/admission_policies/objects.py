"""The ValidatingAdmissionPolicies and their bindings, as API objects.

There is one policy for each place of a pod template and each action: an action belongs to a
binding, and every policy that matches costs the API server a conversion of the object. A policy's
match condition leaves out what concerns no rule of it, so that plain Pods cost one conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date

from policies.finding import Action
from policies.kubernetes.names import NameSet
from policies.kubernetes.objects import JSONObject
from policies.policy import ExceptionEntry, Policy
from policies.rules import check_device_leak, check_pool_trespass
from webhook.registration.admission_policies import device_leak, pool_trespass
from webhook.registration.admission_policies.cel import Variable, all_of, any_of, is_in, names, text
from webhook.registration.scope import (
    RESIZE,
    TEMPLATE_PLACES,
    TemplatePlace,
    namespace_selector,
)

API_VERSION = "admissionregistration.k8s.io/v1"
POLICY_KIND = "ValidatingAdmissionPolicy"
BINDING_KIND = "ValidatingAdmissionPolicyBinding"
STATIC_SUFFIX = ".static.k8s.io"
"""What the name of an object that API servers read from disk must end with (KEP-5793)."""

_BINDING_ACTIONS: Mapping[Action, tuple[str, str]] = {
    "enforce": ("deny", "Deny"),
    "warn": ("warn", "Warn"),
    "audit": ("audit", "Audit"),
}
"""By action of a rule: how a policy's name ends, and the action of its binding."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule that can be compiled: what may concern it, and what it finds."""

    id: str
    concerns: Callable[[str, Policy], str]
    variables: Callable[[str, Policy, frozenset[str]], Iterator[Variable]]


_RULES = (
    _Rule(check_pool_trespass.ID, pool_trespass.concerns, pool_trespass.variables),
    _Rule(check_device_leak.ID, device_leak.concerns, device_leak.variables),
)
COMPILED_RULES = frozenset(rule.id for rule in _RULES)
"""The rules of which the API server evaluates a part itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The names of the objects, and where they do not apply, in addition to the policy.

    ``today`` leaves out the exceptions that have expired. ``static`` makes the objects that an API
    server reads from its own disk.
    """

    name: str = "gpufence"
    excluded_namespaces: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, str] | None = None
    today: date | None = None
    static: bool = False


def admission_policies(policy: Policy, target: Target) -> tuple[JSONObject, ...]:
    """Return the policies, each followed by its binding."""
    objects: list[JSONObject] = []
    for place in TEMPLATE_PLACES:
        for action, (ending, validation_action) in _BINDING_ACTIONS.items():
            rules = [rule for rule in _RULES if other_action(rule.id, action, policy) is not None]
            if not rules:
                continue
            name = f"{target.name}-{place.name}-{ending}"
            spec = _policy_spec(place, action, rules, policy, target)
            objects.append(_object(POLICY_KIND, name, spec, target))
            binding = {
                "policyName": _full_name(name, target),
                "validationActions": [validation_action],
            }
            objects.append(_object(BINDING_KIND, name, binding, target))
    return tuple(objects)


def all_names(name: str) -> tuple[str, ...]:
    """Return every name that a policy of this installation, and its binding, may have."""
    return tuple(
        f"{name}-{place.name}-{ending}"
        for place in TEMPLATE_PLACES
        for ending, _ in _BINDING_ACTIONS.values()
    )


def _object(kind: str, name: str, spec: JSONObject, target: Target) -> JSONObject:
    metadata: JSONObject = {"name": _full_name(name, target)}
    if target.labels:
        metadata["labels"] = dict(target.labels)
    if target.owner is not None:
        metadata["ownerReferences"] = [dict(target.owner)]
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _full_name(name: str, target: Target) -> str:
    return f"{name}{STATIC_SUFFIX}" if target.static else name


def _policy_spec(
    place: TemplatePlace, action: Action, rules: Iterable[_Rule], policy: Policy, target: Target
) -> JSONObject:
    path, spec = place.spec, f"object.{place.spec}"
    concern = any_of(*(rule.concerns(spec, policy) for rule in rules))
    specs = f"[object.{path}] : [object.{path}, oldObject.{path}]"
    variables: list[Variable] = [("specs", f'request.operation == "CREATE" ? {specs}')]
    validations = []
    for rule in rules:
        variables += rule.variables(path, policy, place.kinds)
        found = f"variables.{variables[-1][0]}"
        passes = [f"size({found}[0]) == 0", f"size({found}) > 1 && size({found}[1]) > 0"]
        if elsewhere := other_action(rule.id, action, policy):
            passes.append(elsewhere)
        passes += _exceptions(rule.id, place.kinds, policy.exceptions, target.today)
        advice = text(f"; for more, run: gpufence explain {rule.id}")
        validations.append(
            {
                "expression": any_of(*passes),
                "message": f"{rule.id}: more than fits here; run gpufence check on the manifest",
                "messageExpression": f'{text(f"{rule.id}: ")} + {found}[0].join("; ") + {advice}',
                "reason": "Forbidden",
            }
        )
    # Every field is written out, also one with the API server's default: drift compares them all.
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": namespace_selector(policy, target.excluded_namespaces),
            "objectSelector": {},
            "resourceRules": [_resource_rule(rule) for rule in place.rules],
        },
        "matchConditions": [
            {
                "name": "reaches-for-gpu-nodes",
                "expression": all_of(concern, *_judged(place, spec, policy)),
            }
        ],
        "variables": [{"name": name, "expression": text} for name, text in variables],
        "validations": validations,
    }


def _resource_rule(rule: JSONObject) -> JSONObject:
    """Return the rule without resizes: they change no field that the compiled rules read."""
    return {**rule, "resources": [r for r in rule["resources"] if r != RESIZE]}


def _judged(place: TemplatePlace, spec: str, policy: Policy) -> Iterator[str]:
    """Yield CEL that holds for a request that the policy does not exempt and that changes a Pod."""
    if usernames := policy.exemptions.usernames:
        yield f"!(request.userInfo.username in {names(usernames)})"
    if classes := policy.exemptions.runtime_classes:
        yield f'!({spec}.?runtimeClassName.orValue("") in {names(classes)})'
    changed = f"object.{place.judged} != oldObject.{place.judged}"
    leaving = "has(object.metadata.deletionTimestamp)"
    yield f'request.operation == "CREATE" || !{leaving} && {changed}'


def other_action(rule: str, action: Action, policy: Policy) -> str | None:
    """Return CEL that holds where the rule has another action; None where it is so everywhere.

    Empty where the rule has the action in every namespace.
    """
    namespace = "request.namespace"
    if not any(actions[rule] == action for actions in (policy.actions, *policy.overrides.values())):
        return None
    # From the least specific pattern to the most specific one, which counts.
    other = "" if policy.actions[rule] == action else "true"
    prefixes = sorted((n for n in policy.overrides if n.endswith("*")), key=len)
    for pattern in prefixes:
        within = is_in(namespace, NameSet.of([pattern]))
        other = _unless(other, within, policy.overrides[pattern][rule] == action)
    exact = policy.overrides.keys() - {*prefixes}
    same = {name for name in exact if policy.overrides[name][rule] == action}
    for group, has_action in ((exact - same, False), (same, True)):
        if group:
            other = _unless(other, f"{namespace} in {names(group)}", has_action)
    return other


def _unless(other: str, within: str, has_action: bool) -> str:
    """Return CEL for "has another action", given the CEL that counts outside of ``within``.

    ``other`` may be empty (false) or ``true``.
    """
    if has_action:
        return (
            all_of(f"!({within})", other) if other not in ("", "true") else other and f"!({within})"
        )
    return any_of(within, other) if other not in ("", "true") else other or within


def _exceptions(
    rule: str, kinds: frozenset[str], entries: Iterable[ExceptionEntry], today: date | None
) -> Iterator[str]:
    """Yield CEL that holds for an object with an exception from the rule, one for each exception.

    A new object tells the day by its creation timestamp, which the API server sets before it
    validates. On an update, an exception holds until the policies are compiled after its day.
    """
    for entry in entries:
        if (entry.rules and rule not in entry.rules) or entry.has_expired(today):
            continue
        if entry.kinds and not entry.kinds & kinds:
            continue
        conditions = [is_in("request.namespace", entry.namespaces)]
        if entry.kinds and not kinds <= entry.kinds:
            conditions.append(f"request.kind.kind in {names(entry.kinds & kinds)}")
        if entry.names:
            conditions.append(is_in("object.metadata.name", entry.names))
        if entry.expires is not None:
            day = f"string(object.metadata.creationTimestamp) < {text(str(entry.expires))}"
            conditions.append(f'request.operation != "CREATE" || {day}')
        yield all_of(*conditions)
