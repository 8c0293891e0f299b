"""The admission policies and their bindings, as API objects.

There is one ValidatingAdmissionPolicy for each action, because an action belongs to a binding. It
has all rules that the API server can evaluate, because users see one denial. Its match condition
leaves out what concerns no pool: whatever it matches costs the API server three further conversions
of the object. A MutatingAdmissionPolicy for GPU Pods is opt-in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from types import ModuleType

from policies.finding import Action
from policies.kubernetes.objects import JSONObject
from policies.policy import ExceptionEntry, Policy
from policies.rules import (
    check_device_leak,
    check_pool_requirements,
    check_pool_trespass,
    check_unrestricted_gpu_pod,
)
from webhook.controller.cel import device_leak, pod_security, pool_requirements, pool_trespass
from webhook.controller.cel.additions import additions
from webhook.controller.cel.configurations import (
    API_VERSION,
    DESCRIPTION,
    Registration,
    namespace_selector,
    pod_rules,
    resource_rule,
)
from webhook.controller.cel.covered import conditions, of_object, variables, with_variables
from webhook.controller.cel.pods import by_kind, holds_for_pod, in_namespaces, pod_of
from webhook.controller.cel.text import (
    Variable,
    all_of,
    any_of,
    below,
    call,
    commented,
    is_in,
    joined,
    names,
    negated,
    printed,
    text,
)

POLICY_KIND = "ValidatingAdmissionPolicy"
BINDING_KIND = "ValidatingAdmissionPolicyBinding"
MUTATING_POLICY_KIND = "MutatingAdmissionPolicy"
MUTATING_BINDING_KIND = "MutatingAdmissionPolicyBinding"
STATIC_SUFFIX = ".static.k8s.io"
"""What the name of an object that API servers read from disk must end with (KEP-5793)."""
_MODULES: Mapping[str, ModuleType] = {
    check_pool_trespass.ID: pool_trespass,
    check_device_leak.ID: device_leak,
    check_pool_requirements.ID: pool_requirements,
}
"""By rule, the module that compiles it."""
_WITH_MUTATIONS = {**_MODULES, check_unrestricted_gpu_pod.ID: pod_security}
"""The same where the API server mutates GPU Pods."""
COMPILED_RULES = frozenset(_MODULES)
"""The rules that the API server evaluates in part."""

_ACTIONS: Mapping[Action, tuple[str, str, str]] = {
    "enforce": ("pods", "Deny", "Denies"),
    "warn": ("pods-warn", "Warn", "Warns about"),
    "audit": ("pods-audit", "Audit", "Records in the audit log"),
}
"""By action: how the name of its policy ends, the action of its binding, and what it does."""


def admission_policies(
    policy: Policy, registration: Registration, *, today: date | None = None, static: bool = False
) -> tuple[JSONObject, ...]:
    """Return the policies, each followed by its binding.

    ``today`` leaves out the exceptions that have expired. ``static`` makes the objects that an API
    server reads from its own disk.
    """
    objects: list[JSONObject] = []
    modules = _WITH_MUTATIONS if registration.mutates else _MODULES
    ending_of_all = STATIC_SUFFIX if static else ""
    if registration.mutates:
        objects += mutating_policy(policy, registration, f"{registration.name}-pods{ending_of_all}")
    for action, (ending, validation_action, does) in _ACTIONS.items():
        rules = [
            rule
            for rule, module in modules.items()
            if module.concerns(policy) != "false" and _elsewhere(rule, action, policy) != "true"
        ]
        if not rules:
            continue
        name = f"{registration.name}-{ending}{ending_of_all}"
        excused = {
            rule: any_of(
                _elsewhere(rule, action, policy), *_exceptions(rule, policy.exceptions, today)
            )
            for rule in rules
        }
        summary = "; ".join(_WITH_MUTATIONS[rule].SUMMARY for rule in rules)
        metadata = registration.metadata(name)
        spec = _validating_spec(excused, policy, registration)
        bound = {"policyName": name, "validationActions": [validation_action]}
        objects += (
            _object(POLICY_KIND, metadata, spec, f"{does} {summary}."),
            _object(BINDING_KIND, metadata, bound),
        )
    return tuple(objects)


def all_names(name: str) -> tuple[str, ...]:
    """Return every name that a policy of this installation, and its binding, may have."""
    return tuple(f"{name}-{ending}" for ending, *_ in _ACTIONS.values())


def mutating_policy(
    policy: Policy, registration: Registration, name: str
) -> tuple[JSONObject, ...]:
    """Return the MutatingAdmissionPolicy and its binding; nothing if it would cover no Pod.

    It has one mutation, because the API server applies several of them one by one, and a Pod is
    mutated completely or not at all. The failure policy is Ignore: a Pod that the API server fails
    to mutate lacks something, and goes to the webhook.
    """
    requests_device = next(conditions(policy, registration.left_out), None)
    if requests_device is None:
        return ()
    operations = joined(*(f"// {each.comment}\n{each.operations}" for each in additions(policy)))
    patch = {"expression": with_variables(f"$isCovered\n? {below(operations)}\n: []")}
    spec = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": _match_constraints(
            policy, registration, [resource_rule("", "v1", ["CREATE"], ["pods"])]
        ),
        "matchConditions": [
            {
                "name": "requests-a-device",
                "expression": of_object(printed(requests_device.expression)),
            }
        ],
        "variables": [each.to_object() for each in variables(policy, registration.left_out)],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": patch}],
    }
    description = "Adds to GPU Pods what gpufence requires, if the Pod alone decides what that is."
    metadata = registration.metadata(name)
    return (
        _object(MUTATING_POLICY_KIND, metadata, spec, description),
        _object(MUTATING_BINDING_KIND, metadata, {"policyName": name}),
    )


def _object(kind: str, metadata: JSONObject, spec: JSONObject, description: str = "") -> JSONObject:
    if description:
        metadata = {**metadata, "annotations": {DESCRIPTION: description}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _match_constraints(
    policy: Policy, registration: Registration, rules: list[JSONObject]
) -> JSONObject:
    return {
        "matchPolicy": "Equivalent",
        "namespaceSelector": namespace_selector(policy, registration.excluded_namespaces),
        "objectSelector": {},
        "resourceRules": rules,
    }


def _validating_spec(
    excused: Mapping[str, str], policy: Policy, registration: Registration
) -> JSONObject:
    """Return the spec of the policy for some rules, each with CEL that excuses an object from it.

    One validation has the findings of all rules, because users see the first denial alone.
    """
    both = "[dyn(object)] : [dyn(object), dyn(oldObject)]"
    variables: list[Variable] = [
        Variable(
            "pods",
            "The Pod, or the pod template of another object; on an update, also the old one.",
            call(f'(request.operation == "CREATE" ? {both})', "map", "o", pod_of("o")),
        ),
        Variable(
            "path",
            "Where the object has its Pod spec.",
            by_kind(text("spec"), lambda at: text(f"{at}.spec")),
        ),
    ]
    concerns = []
    for rule, excuses in excused.items():
        module = _WITH_MUTATIONS[rule]
        concerns.append((f"{module.SUMMARY}.", module.concerns(policy)))
        variables += module.variables(policy)
        said = f"variables.{variables[-1].name}"
        variables.append(_findings(rule, said, module.FINDINGS, excuses))
    found = " + ".join(f"variables.{_WITH_MUTATIONS[rule].FINDINGS}" for rule in excused)
    variables.append(Variable("findings", "", found))
    validation = {
        "expression": "size(variables.findings) == 0",
        "message": "gpufence found more than fits here; run gpufence check on the manifest",
        "messageExpression": 'variables.findings.join(". ")',
        "reason": "Forbidden",
    }
    # Every field is written out, also one with the API server's default: drift compares them all.
    return {
        "failurePolicy": "Fail",
        # Resizes change no field that the compiled rules read.
        "matchConstraints": _match_constraints(
            policy, registration, pod_rules("ephemeralcontainers")
        ),
        "matchConditions": [
            {
                "name": "reaches-for-gpu-nodes",
                "expression": printed(
                    all_of(holds_for_pod(commented("||", concerns)), *_is_judged(policy))
                ),
            }
        ],
        "variables": [each.to_object() for each in variables],
        "validations": [validation],
    }


def _findings(rule: str, said: str, name: str, excuses: str) -> Variable:
    """Return the findings of a rule that count: an update may keep what was there."""
    passes = any_of(excuses, f"size({said}) > 1 && size({said}[1]) > 0")
    comment = f"The findings of {rule}"
    comment += "." if excuses == "false" else ", without overrides and exceptions of the policy."
    found = f"{said}[0].map(said, {text(f'{rule}: ')} + said)"
    return Variable(name, comment, f"({printed(passes)}\n  ? []\n  : {found})")


def _is_judged(policy: Policy) -> Iterator[str]:
    """Yield CEL that holds for a request that the policy does not exempt.

    An update that changes nothing has the findings of the old object.
    """
    if usernames := policy.exemptions.usernames:
        yield f"!(request.userInfo.username in {names(usernames)})"
    if classes := policy.exemptions.runtime_classes:
        exempt = f'pod.spec.?runtimeClassName.orValue("") in {names(classes)}'
        yield negated(holds_for_pod(exempt))
    yield '(request.operation == "CREATE" || !has(object.metadata.deletionTimestamp))'


def _elsewhere(rule: str, action: Action, policy: Policy) -> str:
    """Return CEL that holds in namespaces where the rule has another action than this one."""
    return in_namespaces(policy, lambda actions: actions[rule] != action)


def _exceptions(rule: str, entries: Iterable[ExceptionEntry], today: date | None) -> Iterator[str]:
    """Yield CEL that holds for an object with an exception from the rule, one for each exception.

    A new object tells the day by its creation timestamp, which the API server sets before it
    validates. On an update, an exception holds until the policies are compiled after its day.
    """
    for entry in entries:
        if (entry.rules and rule not in entry.rules) or entry.has_expired(today):
            continue
        conditions = [is_in("request.namespace", entry.namespaces)]
        if entry.kinds:
            conditions.append(f"request.kind.kind in {names(entry.kinds)}")
        if entry.names:
            conditions.append(is_in("object.metadata.name", entry.names))
        if entry.expires is not None:
            day = f"string(object.metadata.creationTimestamp) < {text(str(entry.expires))}"
            conditions.append(f'(request.operation != "CREATE" || {day})')
        yield all_of(*conditions)
