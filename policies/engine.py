"""The decision: setters in order on one working copy, then every check, then actions.

One function, ``decide``, serves the webhook, the command line and the audit, so that all of them
give one verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from policies.facts import Facts, JSONObject
from policies.finding import Action, Finding
from policies.kubernetes.copying import fork, working_copy
from policies.kubernetes.pod import Pod
from policies.kubernetes.roles import role
from policies.kubernetes.shape import (
    MalformedObjectError,
    OversizedObjectError,
    check_object,
    check_size,
    check_template,
)
from policies.kubernetes.template import Template, Unjudged, below, field_path
from policies.kubernetes.templates import find, is_core_workload, templates
from policies.policy import Policy
from policies.registry import CHECKS, SETTERS, Setter
from policies.requests import device_requests

Verdict = Literal["allowed", "mutated", "denied", "unjudged", "skipped"]


MOST_FINDINGS = 10_000
"""More than anybody reads. Not cut short, because what is left out would not count, either."""

_TOO_MANY = f"it has more than {MOST_FINDINGS:,} things to change, and gpufence gives up at that"


class Decision(msgspec.Struct, frozen=True):
    """The outcome for one object.

    ``mutated`` is ``original`` itself where nothing was added. ``exemption`` says why the policy
    does not apply, and ``pools`` names the pools whose devices are requested.
    """

    original: JSONObject
    mutated: JSONObject
    findings: tuple[Finding, ...] = ()
    exemption: str = ""
    pools: tuple[str, ...] = ()
    has_template: bool = True
    excepted: tuple[Finding, ...] = ()
    """Findings that one of the policy's exceptions covers, and that therefore do not count."""
    known: tuple[Finding, ...] = ()
    """On UPDATE, findings that the old object had already, and that therefore do not count."""
    unjudged: tuple[Unjudged, ...] = ()
    """The parts of the object whose Pods are judged only when they are created."""

    @property
    def allowed(self) -> bool:
        return not any(finding.action == "enforce" for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        if not self.allowed:
            return "denied"
        if self.unjudged:
            return "unjudged"
        if not self.has_template:
            return "skipped"
        return "allowed" if self.mutated is self.original else "mutated"


def decide(obj: JSONObject, policy: Policy, facts: Facts) -> Decision:
    """Decide on one object: a Pod, or a workload whose pod templates are mutated and checked.

    The object is not changed. An object without a pod template is skipped: so is a Deployment that
    lacks its own, as a patch in a file does (the webhook refuses to let such a one pass). On
    UPDATE, one that is being deleted is let go, and what the old object had already does not count
    again: finalizers must go, replicas must scale.

    Raises:
        MalformedObjectError: a field that a rule reads is of the wrong type, or no quantity.
        OversizedObjectError: the object is larger than can be judged.
    """
    check_object(obj)
    if facts.operation != "UPDATE" or facts.old is None:
        return _judge(obj, policy, facts)
    if _is_being_deleted(obj):
        return Decision(obj, obj, exemption="it is being deleted")
    decision = _judge(obj, policy, facts)
    if not decision.findings or _is_placed_anew(obj, facts.old):
        return decision
    try:
        check_object(facts.old)
        if _is_being_deleted(facts.old):
            return Decision(obj, obj, exemption="it is being deleted")
        # With the metadata of today: a Pod that its DaemonSet lets go is none the worse for that.
        # (Nobody can change the one thing that is judged there, AppArmor's annotations: core
        # validation.go, ValidatePodSpecificAnnotationUpdates.)
        before = {**facts.old, "metadata": obj.get("metadata")}
        known = _judge(before, policy, facts).findings
    except MalformedObjectError:
        known = ()
    new, old = _part(decision.findings, known)
    return replace(decision, findings=new, known=old)


_PLACING_FIELDS = ("tolerations", "nodeSelector", "affinity", "schedulingGates")


def _is_placed_anew(obj: JSONObject, old: JSONObject) -> bool:
    """Tell whether a Pod with claims, which waits for a node, may now be placed on others.

    What its claims are may have changed since it was created: a claim that did not exist then, or
    was another one, would make findings known that nobody has ever been told of.
    """
    if (obj.get("apiVersion"), obj.get("kind")) != ("v1", "Pod"):
        return False
    spec, before = obj["spec"], old.get("spec")
    if not isinstance(before, dict) or before.get("nodeName") or not spec.get("resourceClaims"):
        return False
    return any(spec.get(field) != before.get(field) for field in _PLACING_FIELDS)


def _is_being_deleted(obj: JSONObject) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def _judge(obj: JSONObject, policy: Policy, facts: Facts) -> Decision:
    found, unjudged = find(obj)
    if not found:
        return Decision(obj, obj, has_template=False, unjudged=unjudged)
    for template in found:
        check_template(template)
    check_size(found)
    if exemption := _exemption(found, policy, facts):
        return Decision(obj, obj, exemption=exemption)
    pods = [pod_of(template, policy, facts) for template in found]
    mutated, pods = _mutate(obj, found, pods, policy, facts)
    findings: list[Finding] = []
    for pod, template in zip(pods, found, strict=True):
        for finding in _findings(pod, policy, facts):
            findings.append(_with_role(finding, obj, template))
            if len(findings) > MOST_FINDINGS:
                raise OversizedObjectError("", _TOO_MANY)
    excepted: list[Finding] = []
    if findings and policy.exceptions:
        findings, excepted = _except(findings, obj, policy, facts)
    pools = dict.fromkeys(request.pool.name for pod in pods for request in pod.requests)
    return Decision(
        obj,
        mutated,
        tuple(findings),
        pools=tuple(pools),
        excepted=tuple(excepted),
        unjudged=unjudged,
    )


def _except(
    findings: Iterable[Finding], obj: JSONObject, policy: Policy, facts: Facts
) -> tuple[list[Finding], list[Finding]]:
    """Part the findings that count from those that an exception covers.

    Where the exception has expired, the finding says so.
    """
    metadata = obj.get("metadata") or {}
    kind = str(obj.get("kind"))
    name = metadata.get("name") or metadata.get("generateName") or ""
    counting: list[Finding] = []
    excepted: list[Finding] = []
    for finding in findings:
        entries = [
            entry
            for entry in policy.exceptions
            if entry.covers(finding.rule, facts.namespace, kind, name)
        ]
        if any(not entry.has_expired(facts.today) for entry in entries):
            excepted.append(finding)
        elif entries:
            last = max(entries, key=lambda entry: entry.expires or date.max)
            note = f"; an exception for it ({last.reason}) expired on {last.expires}"
            counting.append(replace(finding, detail=finding.detail + note))
        else:
            counting.append(finding)
    return counting, excepted


def _exemption(found: Iterable[Template], policy: Policy, facts: Facts) -> str:
    exemptions = policy.exemptions
    if facts.namespace in exemptions.namespaces:
        return f"the policy exempts namespace {facts.namespace}"
    if facts.username in exemptions.usernames:
        return f"the policy exempts user {facts.username}"
    names = {template.raw["spec"].get("runtimeClassName") for template in found}
    if exemptions.runtime_classes and names <= exemptions.runtime_classes:
        return f"the policy exempts runtime class {', '.join(sorted(map(str, names)))}"
    return ""


def pod_of(template: Template, policy: Policy, facts: Facts) -> Pod:
    """Return a template's Pod as the rules see it, with what it requests of the pools."""
    pod = Pod(
        template.raw,
        field_path(template.spec_path),
        template.kind,
        template.aliases,
        devices_only=template.devices_only,
    )
    pod.requests = device_requests(pod, policy, facts)
    return pod


def _mutate(
    obj: JSONObject, found: Sequence[Template], pods: list[Pod], policy: Policy, facts: Facts
) -> tuple[JSONObject, list[Pod]]:
    """Return the object with the enforced setters applied, and its Pods as they then are.

    Where nothing would be added, that is the object itself.
    """
    if facts.final and pods[0].kind == "Pod":
        return obj, pods
    actions = policy.actions_in(facts.namespace)
    plan = [
        [setter for setter in _setters(pod, facts) if actions[setter.id] == "enforce"]
        for pod in pods
    ]
    if not any(plan):
        return obj, pods
    copy = working_copy(obj, found)
    core = is_core_workload(obj)
    working = []
    for pod, template, setters in zip(pods, templates(copy), plan, strict=True):
        changed = pod.on(template.raw, as_written=pod if core else None)
        for setter in setters:
            setter.apply(changed, policy, facts)
        template.settle()
        # Anew: what setters have looked at may no longer be so.
        working.append(changed.on(changed.raw, as_written=changed.as_written))
    return (copy if copy != obj else obj), working


def _setters(pod: Pod, facts: Facts) -> Iterator[Setter]:
    """Yield the setters that may change the Pod in this request.

    The spec of an existing Pod is immutable but for its new ephemeral containers.
    """
    if not pod.requests and not pod.device_resources():
        return
    existing = pod.kind == "Pod" and facts.operation == "UPDATE"
    debugged = facts.subresource == "ephemeralcontainers"
    for setter in SETTERS:
        if existing and not (debugged and setter.debug_containers):
            continue
        if pod.devices_only and not setter.devices_only:
            continue
        if pod.requests or not setter.gpu_pods_only:
            yield setter


def _findings(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    actions = policy.actions_in(facts.namespace)
    advisory = [setter for setter in SETTERS if actions[setter.id] in ("warn", "audit")]
    for setter in _setters(pod, facts) if advisory else ():
        if setter in advisory:
            yield from _would_add(setter, pod, policy, facts, actions[setter.id])
    for rule in CHECKS:
        action = actions[rule.id]
        if action == "off" or (rule.gpu_pods_only and not pod.requests):
            continue
        if pod.devices_only and not rule.devices_only:
            continue
        for finding in rule.check(pod, policy, facts):
            yield finding if action == "enforce" else replace(finding, action=action)


def _with_role(finding: Finding, obj: JSONObject, template: Template) -> Finding:
    """Say whose Pods the finding is about, where an object has several sorts of them."""
    whose = role(obj, template.spec_path)
    return replace(finding, detail=f"{finding.detail}; this is about {whose}") if whose else finding


def _would_add(
    setter: Setter, pod: Pod, policy: Policy, facts: Facts, action: Action
) -> Iterator[Finding]:
    """Say what a setter would add that the policy does not let add it."""
    trial = pod.on({**pod.raw, "spec": fork(pod.spec)}, as_written=pod.as_written)
    setter.apply(trial, policy, facts)
    lacking = list(additions(pod, trial))
    if lacking:
        yield Finding(
            setter.id,
            pod.spec_path,
            f"the Pod lacks {setter.summary}",
            f"gpufence would add {'; '.join(lacking)}, but its policy has {setter.id} on {action}",
            "Write it yourself",
            action,
        )


def additions(before: Pod, after: Pod) -> Iterator[str]:
    """Yield path and value of everything that the spec of ``after`` has more."""
    for field, value in _added(before.spec, after.spec, "spec"):
        yield f"{before.at(field)}: {json.dumps(value)}"


def _added(before: Any, after: Any, field: str) -> Iterator[tuple[str, Any]]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in after.items():
            if before.get(key) is None:
                yield below(field, key), value
            else:
                yield from _added(before[key], value, below(field, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index, value in enumerate(after):
            if index >= len(before):
                yield below(field, index), value
            else:
                yield from _added(before[index], value, below(field, index))


def _part(
    findings: Iterable[Finding], before: Iterable[Finding]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Part the new from the known: each finding of the old object accounts for one."""
    left: dict[tuple[str, ...], list[Finding]] = {}
    for old in before:
        left.setdefault(_subject_matter(old), []).append(old)
    new: list[Finding] = []
    known: list[Finding] = []
    for finding in findings:
        alike = left.get(_subject_matter(finding), [])
        same = next((old for old in alike if finding.subjects <= old.subjects), None)
        if same is None:
            new.append(finding)
        else:
            known.append(finding)
            alike.remove(same)
    return tuple(new), tuple(known)


def _subject_matter(finding: Finding) -> tuple[str, ...]:
    """Return what two findings share where one can say no more than the other.

    Where a finding names its subjects they tell, and its detail where it names none. Paths do not
    count: an entry that only moved in its list is not a new finding.
    """
    return finding.rule, finding.reason, "" if finding.subjects else finding.detail
