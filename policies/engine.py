"""The decision on one object: one checklist, in one of three phases.

Each Pod of the object gets its mutations, then the checks judge it; exceptions, and what the stored
object had already, do not count. Both webhooks and the tools run this one list (``_run``). The
phase says what happens to the mutations: the mutating webhook makes them, the validating webhook
requires them, and files and audits get both at once.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Literal

from msgspec.structs import replace

from policies.context import Context, missing_facts
from policies.decision import Decision, Failure
from policies.exemptions import apply_exceptions, excepted_mutations, may_move, split_known
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes.core_v1 import PodObject
from policies.kubernetes.editor import Editor, PatchOperation
from policies.kubernetes.objects import JSONObject, MalformedObjectError, OversizedObjectError
from policies.kubernetes.pod import Pod
from policies.kubernetes.template import Unjudged
from policies.kubernetes.workload import Workload
from policies.policy import Actions, Policy
from policies.reach import is_mirror_pod
from policies.registry import (
    CHECKS_BY_PODS,
    KEPT_MUTATIONS,
    MUTATIONS,
    MUTATIONS_BY_PODS,
    OF_OBJECTS,
    Pods,
    Rule,
)
from policies.requests import Scope

MOST_FINDINGS = 1000
"""The list is not truncated: findings that are left out would not count."""

_TOO_MANY = f"it has more than {MOST_FINDINGS:,} findings, which is the limit"
_DELETED = "it is being deleted"
_SEND_AGAIN = (
    "Send the request again. If it is denied again, contact the cluster administrator, who can "
    "rename the configuration of the other webhook: API servers call mutating webhooks in the "
    "order of these names, and the last one must be gpufence"
)
_CREATE_AGAIN = "Delete the Pod, and create it again now that its resource claims exist"
_MUTATION_IDS = [mutation.id for mutation in MUTATIONS]

Object = JSONObject | PodObject | Workload
"""What is decided on: parsed JSON, or what was made of it before."""

NO_REQUEST = Request()
NO_FACTS = Facts()


class Phase(Enum):
    """The question about an object. What happens to its mutations follows from it."""

    MUTATE = "what API servers change before they store it"
    VALIDATE = "whether API servers store it"
    DECIDE = "both, for a file or an audit"


_Fate = Literal["make", "assume", "require", "report"]
"""What happens to the mutations of a Pod: they are part of the answer; the Pod is judged with them,
because it will get them when it is created; it must have them already; or, in a mode that changes
nothing, each is a finding, and the Pod is judged with them."""


def mutate(
    obj: Object, policy: Policy, request: Request = NO_REQUEST, facts: Facts = NO_FACTS
) -> tuple[PatchOperation, ...]:
    """Return what the policy changes in the object, as JSON Patch operations.

    Raises:
        MalformedObjectError: a field that a rule reads has the wrong type or an invalid quantity.
        OversizedObjectError: the object exceeds a limit.
    """
    return _run(obj, Scope(policy, request, facts), Phase.MUTATE).operations


def validate(
    obj: Object, policy: Policy, request: Request = NO_REQUEST, facts: Facts = NO_FACTS
) -> Decision:
    """Return the findings of an object that is about to be stored.

    A Pod is judged as it is, and denied if it lacks what the mutating webhook adds. A workload is
    judged by the Pods that will be created from it, which the mutating webhook changes first. In a
    mode that changes nothing, both are judged as if the mutating webhook had changed them.

    Raises:
        MalformedObjectError, OversizedObjectError: as ``mutate`` does.
    """
    return _run(obj, Scope(policy, request, facts), Phase.VALIDATE)


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
    return _run(obj, Scope(policy, request, facts), Phase.DECIDE, excluded_namespaces)


def _run(
    obj: Object, scope: Scope, phase: Phase, excluded_namespaces: Container[str] = ()
) -> Decision:
    """Judge an object as it will be stored. The findings of the stored one do not count again."""
    workload = obj if isinstance(obj, Workload) else Workload(obj)
    request = scope.request
    old = request.old if request.operation == "UPDATE" else None
    if old is not None:
        if request.subresource == "ephemeralcontainers" and phase is not Phase.DECIDE:
            workload = _with_ephemeral_containers(old, workload)
        if workload.is_being_deleted:
            return Decision(workload.raw or {}, exemption=_DELETED)
    decision = _judge(workload, scope, phase, excluded_namespaces)
    if old is None or not decision.findings:
        return decision
    try:
        stored = Workload(old)
        if stored.is_being_deleted:
            return Decision(workload.raw or {}, exemption=_DELETED)
        if may_move(workload.pods(), old):
            return decision
        # With the metadata of the new object: a Pod that its DaemonSet releases is not worse for
        # it. AppArmor's annotations are immutable (core validation.go,
        # ValidatePodSpecificAnnotationUpdates), and a label that is removed is a new finding.
        before = _judge(stored.with_metadata(workload), scope, phase, excluded_namespaces)
    except MalformedObjectError:
        return decision
    new, known = split_known(decision.findings, before.findings)
    failures = decision.failures + before.failures
    return replace(decision, findings=new, known=known, failures=failures)


def _with_ephemeral_containers(old: JSONObject | PodObject, obj: Workload) -> Workload:
    """Return the stored Pod with the ephemeral containers of the client's, as it will be stored.

    The mutating webhooks get the object of the client (``k8s.io/kubernetes``,
    ``pkg/registry/core/pod/strategy.go``, ``dropNonEphemeralContainerUpdates``).
    """
    try:
        return Workload(old).with_ephemeral_containers(obj)
    except MalformedObjectError:
        # The error of the client's object gets its path where its Pod is read.
        return obj


def _judge(
    obj: Workload, scope: Scope, phase: Phase, excluded_namespaces: Container[str]
) -> Decision:
    """Run the checklist on an object as it is."""
    policy, request = scope.policy, scope.request
    actions = scope.actions
    if phase is Phase.MUTATE and actions.mode != "enforce":
        return Decision(obj.raw or {})
    pods = obj.pods()
    if decision := _left_alone(obj, pods, policy, request, excluded_namespaces):
        return decision
    unjudged = list(obj.unjudged)
    changes: list[tuple[str, PatchOperation]] = []
    findings: list[Finding] = []
    failures: list[Failure] = []
    pools: dict[str, None] = {}
    missing: dict[str, None] = {}
    left_out = excepted_mutations(_MUTATION_IDS, obj, scope)
    for pod in pods:
        written = pod.device_resources
        context = Context.of(pod, policy, request, scope.facts)
        if left_out:
            context = replace(context, excepted=left_out)
        if len(pods) > 1:
            context = replace(context, siblings=pods)
        for pool in context.requested_pools:
            pools[pool.name] = None
        if phase is Phase.DECIDE:
            missing |= dict.fromkeys(missing_facts(pod, context))
            if context.is_undecided(pod):
                path = (*pod.template.spec_path, "resourceClaims")
                unjudged.append(Unjudged(path, "its resource claims are unknown"))
        fate = _fate(pod, phase, actions)
        if fate == "require":
            # A plain Pod has nothing to lose.
            if context.device_requests or pod.spec.resource_claims:
                findings += _lost(pod, context, actions)
        else:
            if obj.is_core_workload:
                context = replace(context, written_devices=written)
            editor = _edit(pod, context, actions, failures)
            if fate == "make":
                changes += editor.changes
            elif fate == "report":
                findings += _unmade(editor, pod, actions)
            if phase is Phase.MUTATE:
                continue
            pod.changed()
        found = _findings(pod, context, actions, MOST_FINDINGS - len(findings), failures)
        if found and (role := pod.template.role):
            found = [
                finding
                if finding.rule in OF_OBJECTS
                else replace(finding, detail=f"{finding.detail}; this is about {role}")
                for finding in found
            ]
        findings += found
    if phase is Phase.DECIDE and (findings or pools) and scope.needs_labels:
        missing["namespaces"] = None
    counting, excepted = apply_exceptions(findings, obj, scope) if findings else ((), ())
    mutations, operations = zip(*changes, strict=True) if changes else ((), ())
    return Decision(
        obj.raw or {},
        operations,
        counting,
        mutations=mutations,
        pools=tuple(pools),
        excepted=excepted,
        missing_facts=tuple(missing),
        unjudged=tuple(unjudged),
        failures=tuple(failures),
    )


def _left_alone(
    obj: Workload,
    pods: tuple[Pod, ...],
    policy: Policy,
    request: Request,
    excluded_namespaces: Container[str],
) -> Decision | None:
    """Return the decision on an object on which no rule runs; ``None`` if rules decide."""
    if not (pods or obj.unjudged):
        return Decision(obj.raw or {}, has_template=False)
    if reason := policy.exemptions.cover(request.namespace, request.username):
        return Decision(obj.raw or {}, exemption=reason)
    if request.namespace in excluded_namespaces:
        reason = f"API servers do not call gpufence for namespace {request.namespace}"
        return Decision(obj.raw or {}, exemption=reason)
    if pods:
        return None
    return Decision(obj.raw or {}, has_template=False, unjudged=obj.unjudged)


def _fate(pod: Pod, phase: Phase, actions: Actions) -> _Fate:
    """Return what happens to the mutations of a Pod."""
    if actions.mode != "enforce":
        return "report"
    if phase is Phase.VALIDATE:
        return "require" if pod.template.kind == "Pod" else "assume"
    return "make"


def mutate_pod(pod: Pod, context: Context) -> Editor:
    """Apply the mutations to the Pod whose action is enforce, and return the changes.

    The policy's mode makes no difference here: callers decide whether to use the changes.
    """
    editor = _edit(pod, context, context.actions, [])
    pod.changed()
    return editor


def _edit(pod: Pod, context: Context, actions: Actions, failures: list[Failure]) -> Editor:
    """Apply the mutations to the Pod's spec. To read the Pod again, call ``changed`` first."""
    editor = Editor(pod)
    mutations = _mutations_for(pod, context)
    if not mutations:
        return editor
    written = actions.written
    for mutation in mutations:
        if written[mutation.id] != "enforce":
            continue
        try:
            if changes := [*mutation.changes(pod, context)]:
                editor.apply(changes, mutation.id)
        except Exception as error:
            if actions[mutation.id] == "enforce":
                error.add_note(mutation.id)
                raise
            failures.append(Failure(mutation.id, error))
    return editor


def _mutations_for(pod: Pod, context: Context) -> Sequence[Rule]:
    """Return the mutations that may change the Pod in this request.

    The spec of an existing Pod is immutable except for its new ephemeral containers.
    """
    mutations = _rules_for(pod, context, MUTATIONS_BY_PODS)
    if context.excepted:
        mutations = [rule for rule in mutations if rule.id not in context.excepted]
    if context.exists(pod):
        if context.request.subresource != "ephemeralcontainers":
            return ()
        return [mutation for mutation in mutations if mutation.debug_containers]
    return mutations


def _unmade(editor: Editor, pod: Pod, actions: Actions) -> Iterator[Finding]:
    """Yield a finding for each mutation that the policy's mode prevents."""
    for mutation in MUTATIONS:
        if changes := editor.made_by(mutation.id):
            why = f"the policy's mode is {actions.mode}"
            finding = _unmade_finding(mutation, pod, changes, why)
            yield replace(finding, action=actions.mode, would="enforce")


def _lost(pod: Pod, context: Context, actions: Actions) -> Iterator[Finding]:
    """Yield a finding for each mutation whose changes the Pod does not have, and needs to keep.

    Between the reviews, another webhook can change the Pod, and its author the claims.
    """
    if not context.may_have_device(pod) or is_mirror_pod(pod, context):
        return
    old = context.request.old
    # It may have been created before its claims, as a Pod without devices.
    is_late = bool(context.device_requests and old is not None and may_move((pod,), old))
    mutations = KEPT_MUTATIONS
    if context.exists(pod) and not is_late:
        mutations = tuple(rule for rule in _mutations_for(pod, context) if rule.is_kept)
    if context.excepted:
        mutations = tuple(rule for rule in mutations if rule.id not in context.excepted)
    written = actions.written
    for mutation in mutations:
        if written[mutation.id] != "enforce" or not (changes := [*mutation.changes(pod, context)]):
            continue
        trial = Editor(pod, dry_run=True)
        trial.apply(changes, mutation.id)
        yield _lost_finding(mutation, pod, trial.made_by(mutation.id), is_late=is_late)


def _findings(
    pod: Pod, context: Context, actions: Actions, most: int, failures: list[Failure]
) -> list[Finding]:
    """Return the findings of the Pod, with the actions that the policy has for their rules.

    Raises:
        OversizedObjectError: those that deny would be more than ``most``, with the others.
    """
    findings: list[Finding] = []
    if not actions.reported.isdisjoint(_MUTATION_IDS):
        findings += _changes_to_report(pod, context, actions, failures)
    rules = _rules_for(pod, context, CHECKS_BY_PODS)
    if actions.off:
        rules = [rule for rule in rules if rule.id not in actions.off]
    for rule in rules:
        try:
            for finding in rule.check(pod, context):
                if finding.action != "enforce" and len(findings) >= most:
                    # It only warns, under a rule that denies: it is left out.
                    continue
                findings.append(_with_action(finding, actions))
                _check_number(findings, most)
        except Exception as error:
            if actions[rule.id] == "enforce":
                error.add_note(rule.id)
                raise
            failures.append(Failure(rule.id, error))
            findings = [finding for finding in findings if finding.rule != rule.id]
    return findings


def _check_number(findings: Sequence[Finding], most: int) -> None:
    if len(findings) > most:
        raise OversizedObjectError("", _TOO_MANY)


def _with_action(finding: Finding, actions: Actions) -> Finding:
    """Return the finding with the action of its rule, unless the finding itself only warns."""
    action, written = actions[finding.rule], actions.written[finding.rule]
    if action == "enforce":
        return finding
    if written == "enforce":
        written = finding.action
    return replace(finding, action=action, would=None if action == written else written)


def _rules_for(
    pod: Pod, context: Context, by_pods: Mapping[Pods, Sequence[Rule]]
) -> Sequence[Rule]:
    """Return the rules that are about the Pod."""
    if context.may_have_device(pod):
        rules = by_pods["gpu"]
    elif pod.device_resources or pod.spec.resource_claims or pod.spec.resources:
        rules = by_pods["requesting"]
    else:
        rules = by_pods["all"]
    return [rule for rule in rules if rule.devices_only] if pod.devices_only else rules


def _changes_to_report(
    pod: Pod, context: Context, actions: Actions, failures: list[Failure]
) -> Iterator[Finding]:
    """Yield a finding for each mutation that would add something and may only report it."""
    for mutation in _mutations_for(pod, context):
        action = actions.written[mutation.id]
        if action in ("enforce", "off"):
            continue
        trial = Editor(pod, dry_run=True)
        why = f"the policy sets {mutation.id} to {action}"
        try:
            trial.apply([*mutation.changes(pod, context)], mutation.id)
            if changes := trial.made_by(mutation.id):
                yield _with_action(_unmade_finding(mutation, pod, changes, why), actions)
        except Exception as error:
            failures.append(Failure(mutation.id, error))


def _unmade_finding(
    mutation: Rule, pod: Pod, changes: Iterable[tuple[str, Any]], why: str
) -> Finding:
    """Return the finding about changes that the policy prevents."""
    verb, remediation = "add", "Add these fields to the manifest"
    if mutation.removes:
        verb, remediation = "remove", "Remove these entries from the manifest"
    detail = f"gpufence does not {verb} {_described(mutation, changes)}, because {why}"
    return _change_finding(mutation, pod, detail, remediation)


def _lost_finding(
    mutation: Rule, pod: Pod, changes: Iterable[tuple[str, Any]], *, is_late: bool
) -> Finding:
    """Return the finding about changes that were made, or would be now, and are not in the Pod."""
    verb, has = ("removes", "has") if mutation.removes else ("adds", "lacks")
    changed = "the policy or its resource claims" if pod.spec.resource_claims else "the policy"
    why = f"{changed} changed meanwhile, or another mutating webhook changed the Pod after gpufence"
    remediation = _SEND_AGAIN
    if is_late:
        why, remediation = "its resource claims were not known when it was created", _CREATE_AGAIN
    detail = f"gpufence {verb} {_described(mutation, changes)}, and the Pod {has} it: {why}"
    return _change_finding(mutation, pod, detail, remediation)


def _change_finding(mutation: Rule, pod: Pod, detail: str, remediation: str) -> Finding:
    has = "has" if mutation.removes else "lacks"
    reason = f"the Pod {has} {mutation.summary}"
    return Finding(mutation.id, pod.at("spec"), reason, detail, remediation)


def _described(mutation: Rule, changes: Iterable[tuple[str, Any]]) -> str:
    if mutation.removes:
        return ", ".join(field for field, _ in changes)
    return "; ".join(f"{field}: {json.dumps(value)}" for field, value in changes)
