"""The decision on one object, in two phases: mutate, then validate.

The mutating webhook runs the first phase and the validating webhook the second. ``decide`` runs
both, for files and audits. All three follow one checklist, so they come to one verdict.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from msgspec.structs import replace

from policies import advisory, updates
from policies.context import Context
from policies.decision import Decision
from policies.exceptions import apply_exceptions
from policies.exemptions import exemption
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes.core_v1 import Pod as PodObject
from policies.kubernetes.decoding import MalformedObjectError, OversizedObjectError
from policies.kubernetes.editor import Editor, Operation
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.workload import Workload
from policies.needs import missing_facts
from policies.policy import Policy
from policies.registry import CHECKS, mutations_for

MOST_FINDINGS = 10_000
"""The list is not truncated: findings that are left out would not count."""

_TOO_MANY = f"it has more than {MOST_FINDINGS:,} findings, which is the limit"
_DELETED = "it is being deleted"

Object = JSONObject | PodObject | Workload
"""What is decided on: parsed JSON, or what was made of it before."""

NO_REQUEST = Request()
NO_FACTS = Facts()


def mutate(
    obj: Object, policy: Policy, request: Request = NO_REQUEST, facts: Facts = NO_FACTS
) -> tuple[Operation, ...]:
    """Return what the policy adds to the object, as JSON Patch operations.

    Raises:
        MalformedObjectError: a field that a rule reads has the wrong type or an invalid quantity.
        OversizedObjectError: the object exceeds a limit.
    """
    obj = _workload(obj)
    if _is_update(request) and obj.is_being_deleted:
        return ()
    pods = obj.pods()
    if not pods or exemption(pods, policy, request):
        return ()
    operations: list[Operation] = []
    for pod in pods:
        operations += _mutate(pod, Context.of(pod, policy, request, facts)).operations
    return tuple(operations)


def validate(
    obj: Object, policy: Policy, request: Request = NO_REQUEST, facts: Facts = NO_FACTS
) -> Decision:
    """Return the findings of an object that is about to be stored.

    A Pod is judged as it is. A workload is judged by the Pods that will be created from it, which
    the mutating webhook changes first.

    Raises:
        MalformedObjectError, OversizedObjectError: as ``mutate`` does.
    """
    return _decide(_workload(obj), policy, request, facts, pods_are_final=True)


def decide(
    obj: Object,
    policy: Policy,
    request: Request = NO_REQUEST,
    facts: Facts = NO_FACTS,
    *,
    excluded_namespaces: Container[str] = (),
) -> Decision:
    """Return what both phases make of an object: a Pod, or a workload with pod templates.

    An object without a pod template is skipped, and so is a core workload that lacks its own, as a
    patch in a file does. The policy does not apply in ``excluded_namespaces``.

    Raises:
        MalformedObjectError, OversizedObjectError: as ``mutate`` does.
    """
    return _decide(_workload(obj), policy, request, facts, excluded_namespaces)


def _decide(
    obj: Workload,
    policy: Policy,
    request: Request,
    facts: Facts,
    excluded: Container[str] = (),
    *,
    pods_are_final: bool = False,
) -> Decision:
    """Judge the object. On UPDATE, the findings of the old object do not count again."""
    original = obj.raw or {}
    if _is_update(request) and obj.is_being_deleted:
        return Decision(original, exemption=_DELETED)
    pods = obj.pods()
    decision = _judge(obj, pods, policy, request, facts, excluded, pods_are_final=pods_are_final)
    if not decision.findings or not _is_update(request) or request.old is None:
        return decision
    try:
        old = Workload(request.old)
        if updates.may_move(pods, old):
            return decision
        if old.is_being_deleted:
            return Decision(original, exemption=_DELETED)
        # With the metadata of the new object: a Pod that its DaemonSet releases is not worse for
        # it. Only AppArmor's annotations are judged there, and they are immutable
        # (core validation.go, ValidatePodSpecificAnnotationUpdates).
        before = old.with_metadata(obj)
        known = _judge(
            before, before.pods(), policy, request, facts, excluded, pods_are_final=pods_are_final
        ).findings
    except MalformedObjectError:
        known = ()
    new, known = updates.split_known(decision.findings, known)
    return replace(decision, findings=new, known=known)


def _judge(
    obj: Workload,
    pods: Sequence[Pod],
    policy: Policy,
    request: Request,
    facts: Facts,
    excluded: Container[str],
    *,
    pods_are_final: bool,
) -> Decision:
    original = obj.raw or {}
    if not pods:
        return Decision(original, has_template=False, unjudged=obj.unjudged)
    if reason := exemption(pods, policy, request, excluded):
        return Decision(original, exemption=reason)
    operations: list[Operation] = []
    findings: list[Finding] = []
    pools: dict[str, None] = {}
    missing: dict[str, None] = {}
    for pod in pods:
        context = Context.of(pod, policy, request, facts)
        pools |= dict.fromkeys(pool.name for pool in context.requested_pools)
        missing |= dict.fromkeys(missing_facts(pod, context))
        if not (pods_are_final and pod.kind == "Pod"):
            if obj.is_core_workload:
                context = replace(context, written_devices=pod.device_resources())
            editor = _mutate(pod, context)
            if not pods_are_final:
                operations += editor.operations
        for finding in _check(pod, context):
            findings.append(_with_role(finding, obj, pod))
            if len(findings) > MOST_FINDINGS:
                raise OversizedObjectError("", _TOO_MANY)
    excepted: list[Finding] = []
    if findings and policy.exceptions:
        findings, excepted = apply_exceptions(findings, obj, policy, request)
    return Decision(
        original,
        tuple(operations),
        tuple(findings),
        pools=tuple(pools),
        excepted=tuple(excepted),
        missing_facts=tuple(missing),
        unjudged=obj.unjudged,
    )


def _mutate(pod: Pod, context: Context) -> Editor:
    """Apply the enforced mutations to the Pod, and return what they added."""
    editor = Editor(pod)
    actions = context.policy.actions_in(context.request.namespace)
    for mutation in mutations_for(pod, context):
        if actions[mutation.id] == "enforce":
            editor.apply(mutation.additions(pod, context))
    pod.changed()
    return editor


def _check(pod: Pod, context: Context) -> Iterator[Finding]:
    actions = context.policy.actions_in(context.request.namespace)
    yield from advisory.findings(pod, context)
    is_gpu_pod, devices_only = bool(context.device_requests), pod.devices_only
    for rule in CHECKS:
        action = actions[rule.id]
        if action == "off" or (rule.gpu_pods_only and not is_gpu_pod):
            continue
        if devices_only and not rule.devices_only:
            continue
        for finding in rule.check(pod, context):
            yield finding if action == "enforce" else replace(finding, action=action)


def _with_role(finding: Finding, obj: Workload, pod: Pod) -> Finding:
    """Name the Pods that the finding is about, if the object has several kinds of Pods."""
    about = obj.role(pod)
    return replace(finding, detail=f"{finding.detail}; this is about {about}") if about else finding


def _workload(obj: Object) -> Workload:
    return obj if isinstance(obj, Workload) else Workload(obj)


def _is_update(request: Request) -> bool:
    return request.operation == "UPDATE" and request.old is not None
