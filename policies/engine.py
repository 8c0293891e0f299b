"""The decision: setters in order on one working copy, then every check, then actions.

One function, ``decide``, serves the webhook, the command line and the audit, so that all of them
give one verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from policies.compiled import Policy
from policies.facts import Facts, JSONObject
from policies.finding import Action, Finding
from policies.pod import Pod
from policies.registry import CHECKS, SETTERS, Setter
from policies.requests import device_requests
from policies.set_restricted_security_context import ID as HARDENING_ID
from policies.shape import check_object, check_template
from policies.templates import Template, field_path, is_core_workload, templates

Verdict = Literal["allowed", "mutated", "denied", "skipped"]


@dataclass(frozen=True, slots=True)
class Decision:
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

    @property
    def allowed(self) -> bool:
        return not any(finding.action == "enforce" for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        if not self.has_template:
            return "skipped"
        if not self.allowed:
            return "denied"
        return "allowed" if self.mutated is self.original else "mutated"


def decide(obj: JSONObject, policy: Policy, facts: Facts) -> Decision:
    """Decide on one object: a Pod, or a workload whose pod templates are mutated and checked.

    The object is not changed. An object without a pod template is skipped, one that is being
    deleted is let go, and on UPDATE what the old object had already does not count again.

    Raises:
        MalformedObjectError: a field that a rule reads is of the wrong type, or no quantity.
    """
    check_object(obj)
    found = templates(obj)
    if not found:
        return Decision(obj, obj, has_template=False)
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return Decision(obj, obj, exemption="it is being deleted")
    found = tuple(_checked(found))
    if exemption := _exemption(found, policy, facts):
        return Decision(obj, obj, exemption=exemption)

    pods = [_pod(template, policy, facts) for template in found]
    mutated, pods = _mutate(obj, pods, policy, facts)
    findings = [finding for pod in pods for finding in _findings(pod, policy, facts)]
    if findings and facts.operation == "UPDATE" and facts.old is not None:
        findings = _only_new(findings, facts.old, policy, facts)
    pools = dict.fromkeys(request.pool.name for pod in pods for request in pod.requests)
    return Decision(obj, mutated, tuple(findings), pools=tuple(pools))


def _exemption(found: Iterable[Template], policy: Policy, facts: Facts) -> str:
    exemptions = policy.exemptions
    if facts.namespace in exemptions.namespaces:
        return f"the policy exempts namespace {facts.namespace}"
    if facts.username in exemptions.usernames:
        return f"the policy exempts user {facts.username}"
    names = {template.raw["spec"].get("runtimeClassName") for template in found}
    if names <= exemptions.runtime_classes:
        return f"the policy exempts runtime class {', '.join(sorted(map(str, names)))}"
    return ""


def _pod(template: Template, policy: Policy, facts: Facts) -> Pod:
    pod = Pod(template.raw, field_path(template.spec_path), template.kind)
    pod.requests = device_requests(pod, policy, facts)
    return pod


def _mutate(
    obj: JSONObject, pods: list[Pod], policy: Policy, facts: Facts
) -> tuple[JSONObject, list[Pod]]:
    """Return the object with the enforced setters applied, and its Pods as they then are.

    Where nothing would be added, that is the object itself.
    """
    plan = [
        [setter for setter in _setters(pod, facts) if policy.actions[setter.id] == "enforce"]
        for pod in pods
    ]
    if not any(plan):
        return obj, pods
    copy = clone(obj)
    core = is_core_workload(obj)
    working = []
    for pod, template, setters in zip(pods, templates(copy), plan, strict=True):
        changed = replace(pod, raw=template.raw, as_written=pod if core else None)
        for setter in setters:
            setter.apply(changed, policy, facts)
        working.append(changed)
    return (copy, working) if copy != obj else (obj, pods)


def _setters(pod: Pod, facts: Facts) -> Iterator[Setter]:
    """Yield the setters that may change the Pod in this request.

    The spec of an existing Pod is immutable but for its new ephemeral containers.
    """
    if not pod.requests and not pod.device_containers():
        return
    existing = pod.kind == "Pod" and facts.operation == "UPDATE"
    for setter in SETTERS:
        if existing and (setter.id != HARDENING_ID or facts.subresource != "ephemeralcontainers"):
            continue
        if pod.requests or not setter.gpu_pods_only:
            yield setter


def _findings(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    for setter in _setters(pod, facts):
        action = policy.actions[setter.id]
        if action in ("warn", "audit"):
            yield from _would_add(setter, pod, policy, facts, action)
    for rule in CHECKS:
        action = policy.actions[rule.id]
        if action == "off" or (rule.gpu_pods_only and not pod.requests):
            continue
        for finding in rule.check(pod, policy, facts):
            yield finding if action == "enforce" else replace(finding, action=action)


def _would_add(
    setter: Setter, pod: Pod, policy: Policy, facts: Facts, action: Action
) -> Iterator[Finding]:
    trial = replace(pod, raw=clone(pod.raw))
    setter.apply(trial, policy, facts)
    if trial.raw != pod.raw:
        yield Finding(
            setter.id,
            pod.at("spec"),
            f"the Pod lacks {setter.summary}",
            f"gpufence would add {setter.summary}, but its policy has {setter.id} on {action}",
            action=action,
        )


def _only_new(
    findings: list[Finding], old: JSONObject, policy: Policy, facts: Facts
) -> list[Finding]:
    """Leave out what the old object had already: finalizers must go, replicas must scale.

    Findings are told apart by what they say, not by their path: an entry that moved in its list is
    not a new finding.
    """
    before = Counter(
        _identity(finding)
        for template in _checked(templates(old))
        for finding in _findings(_pod(template, policy, facts), policy, facts)
    )
    new = []
    for finding in findings:
        if before[_identity(finding)] > 0:
            before[_identity(finding)] -= 1
        else:
            new.append(finding)
    return new


def _checked(found: Iterable[Template]) -> Iterator[Template]:
    for template in found:
        check_template(template)
        yield template


def _identity(finding: Finding) -> tuple[str, str, str]:
    return finding.rule, finding.reason, finding.detail


def clone(value: Any) -> Any:
    """Return a deep copy of parsed JSON."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value
