"""The decision on one object, in two phases: mutate, then validate.

The mutating webhook runs the first phase and the validating webhook the second. ``decide`` runs
both, for files and audits. All three follow one checklist, so they come to one verdict.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from msgspec.structs import replace

from policies import advisory, updates
from policies.context import Context
from policies.decision import Decision
from policies.exceptions import apply_exceptions
from policies.exemptions import exemption
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes.copying import working_copy
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod, pod_of
from policies.kubernetes.roles import role
from policies.kubernetes.shape import (
    MalformedObjectError,
    OversizedObjectError,
    check_object,
    check_size,
    check_template,
)
from policies.kubernetes.template import Template, Unjudged
from policies.kubernetes.templates import find, is_core_workload, templates
from policies.policy import Policy
from policies.registry import CHECKS, Mutation, mutations_for

MOST_FINDINGS = 10_000
"""More than anyone reads. The list is not truncated: what is left out would not count."""

_TOO_MANY = f"it has more than {MOST_FINDINGS:,} things to change, and gpufence gives up at that"
_DELETED = "it is being deleted"

NO_REQUEST = Request()
NO_FACTS = Facts()


def mutate(
    obj: JSONObject, policy: Policy, request: Request = NO_REQUEST, facts: Facts = NO_FACTS
) -> JSONObject:
    """Return the object with what the policy adds to it, or the object itself if that is nothing.

    Raises:
        MalformedObjectError: a field that a rule reads has the wrong type or an invalid quantity.
        OversizedObjectError: the object exceeds a limit.
    """
    check_object(obj)
    if _is_update(request) and updates.is_being_deleted(obj):
        return obj
    found, _ = _read_templates(obj)
    if not found or exemption(found, policy, request):
        return obj
    return _mutate(obj, found, _subjects(found, policy, request, facts))[0]


def validate(
    obj: JSONObject, policy: Policy, request: Request = NO_REQUEST, facts: Facts = NO_FACTS
) -> Decision:
    """Return the findings of an object that is about to be stored.

    A Pod is judged as it is. A workload is judged by the Pods that will be created from it, which
    the mutating webhook changes first.

    Raises:
        MalformedObjectError, OversizedObjectError: as ``mutate`` does.
    """
    return _decide(obj, policy, request, facts, pods_are_final=True)


def decide(
    obj: JSONObject,
    policy: Policy,
    request: Request = NO_REQUEST,
    facts: Facts = NO_FACTS,
    *,
    excluded_namespaces: Container[str] = (),
) -> Decision:
    """Return what both phases make of an object: a Pod, or a workload with pod templates.

    The object is not changed. An object without a pod template is skipped, and so is a core
    workload that lacks its own, as a patch in a file does. The policy does not apply in
    ``excluded_namespaces``.

    Raises:
        MalformedObjectError, OversizedObjectError: as ``mutate`` does.
    """
    return _decide(obj, policy, request, facts, excluded_namespaces)


def _decide(
    obj: JSONObject,
    policy: Policy,
    request: Request,
    facts: Facts,
    excluded: Container[str] = (),
    *,
    pods_are_final: bool = False,
) -> Decision:
    """Judge the object. On UPDATE, the findings of the old object do not count again."""
    check_object(obj)
    if _is_update(request) and updates.is_being_deleted(obj):
        return Decision(obj, obj, exemption=_DELETED)
    decision = _judge(obj, policy, request, facts, excluded, pods_are_final=pods_are_final)
    old = request.old
    if not decision.findings or not _is_update(request) or old is None:
        return decision
    if updates.may_move(obj, old):
        return decision
    try:
        check_object(old)
        if updates.is_being_deleted(old):
            return Decision(obj, obj, exemption=_DELETED)
        # With the metadata of the new object: a Pod that its DaemonSet releases is not worse for
        # it. Only AppArmor's annotations are judged there, and they are immutable
        # (core validation.go, ValidatePodSpecificAnnotationUpdates).
        before = {**old, "metadata": obj.get("metadata")}
        known = _judge(
            before, policy, request, facts, excluded, pods_are_final=pods_are_final
        ).findings
    except MalformedObjectError:
        known = ()
    new, known = updates.split_known(decision.findings, known)
    return replace(decision, findings=new, known=known)


def _judge(
    obj: JSONObject,
    policy: Policy,
    request: Request,
    facts: Facts,
    excluded: Container[str],
    *,
    pods_are_final: bool = False,
) -> Decision:
    found, unjudged = _read_templates(obj)
    if not found:
        return Decision(obj, obj, has_template=False, unjudged=unjudged)
    if reason := exemption(found, policy, request, excluded):
        return Decision(obj, obj, exemption=reason)
    subjects = _subjects(found, policy, request, facts)
    mutated = obj
    if not (pods_are_final and found[0].kind == "Pod"):
        mutated, subjects = _mutate(obj, found, subjects)
    findings: list[Finding] = []
    for (pod, context), template in zip(subjects, found, strict=True):
        for finding in _check(pod, context):
            findings.append(_with_role(finding, obj, template))
            if len(findings) > MOST_FINDINGS:
                raise OversizedObjectError("", _TOO_MANY)
    excepted: list[Finding] = []
    if findings and policy.exceptions:
        findings, excepted = apply_exceptions(findings, obj, policy, request)
    pools = dict.fromkeys(pool.name for _, context in subjects for pool in context.requested_pools)
    return Decision(
        obj,
        mutated,
        tuple(findings),
        pools=tuple(pools),
        excepted=tuple(excepted),
        unjudged=unjudged,
    )


def _with_role(finding: Finding, obj: JSONObject, template: Template) -> Finding:
    """Name the Pods that the finding is about, if the object has several kinds of Pods."""
    about = role(obj, template.spec_path)
    return replace(finding, detail=f"{finding.detail}; this is about {about}") if about else finding


def _is_update(request: Request) -> bool:
    return request.operation == "UPDATE" and request.old is not None


def _read_templates(obj: JSONObject) -> tuple[tuple[Template, ...], tuple[Unjudged, ...]]:
    """Return the object's pod templates, all of them well-formed, and what cannot be judged."""
    found, unjudged = find(obj)
    for template in found:
        check_template(template)
    check_size(found)
    return found, unjudged


Subject = tuple[Pod, Context]


def _subjects(
    found: tuple[Template, ...], policy: Policy, request: Request, facts: Facts
) -> list[Subject]:
    """Return each template's Pod with the context that the rules judge it in."""
    pods = map(pod_of, found)
    return [(pod, Context.of(pod, policy, request, facts)) for pod in pods]


def _mutate(
    obj: JSONObject, found: tuple[Template, ...], subjects: list[Subject]
) -> tuple[JSONObject, list[Subject]]:
    """Return the object and its Pods with the enforced mutations, or themselves if unchanged."""
    plan = [_enforced(pod, context) for pod, context in subjects]
    if not any(plan):
        return obj, subjects
    copy = working_copy(obj, found)
    core = is_core_workload(obj)
    working = []
    for (pod, context), template, mutations in zip(subjects, templates(copy), plan, strict=True):
        changed = pod.on(template.raw)
        as_written = replace(context, as_written=pod) if core else context
        for mutation in mutations:
            mutation.apply(changed, as_written)
        template.settle()
        # A new view: what mutations have read from the Pod may be outdated.
        working.append((changed.on(changed.raw), as_written))
    return (copy if copy != obj else obj), working


def _enforced(pod: Pod, context: Context) -> list[Mutation]:
    actions = context.policy.actions_in(context.request.namespace)
    return [each for each in mutations_for(pod, context) if actions[each.id] == "enforce"]


def _check(pod: Pod, context: Context) -> Iterator[Finding]:
    actions = context.policy.actions_in(context.request.namespace)
    yield from advisory.findings(pod, context)
    for rule in CHECKS:
        action = actions[rule.id]
        if action == "off" or (rule.gpu_pods_only and not context.device_requests):
            continue
        if pod.devices_only and not rule.devices_only:
            continue
        for finding in rule.check(pod, context):
            yield finding if action == "enforce" else replace(finding, action=action)
