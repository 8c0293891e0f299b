"""Parsed JSON as the typed values that the engine reads, and the engine's functions on JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from policies.context import Context
from policies.decision import patched
from policies.facts import Facts, Request
from policies.kubernetes import scheduling
from policies.kubernetes.core_v1 import PodSpec, PodTemplate, Requirement, Toleration
from policies.kubernetes.editor import Editor, PatchOperation
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import Alternative, Taint
from policies.kubernetes.template import Template
from policies.policy import Policy
from policies.rules import set_restricted_security_context
from specs import JSON

A_POD = Template({}, ("spec",), "Pod")
NO_POOLS = Policy(pools=())


def pod_of(raw: JSON, template: Template = A_POD) -> Pod:
    """Return the Pod of a pod template."""
    decoded = msgspec.convert(raw, PodTemplate)
    assert decoded.spec is not None
    return Pod(decoded.spec, decoded.metadata, template)


def spec_of(raw: JSON) -> PodSpec:
    return msgspec.convert(raw, PodSpec)


def requirement(raw: JSON) -> Requirement:
    return msgspec.convert(raw, Requirement)


def toleration(raw: JSON) -> Toleration:
    return msgspec.convert(raw, Toleration)


def operations_of(pod: Pod, changes: Any) -> tuple[PatchOperation, ...]:
    """Return the operations that changes of the Pod make."""
    editor = Editor(pod)
    editor.apply(changes, "a-rule")
    return tuple(operation for _, operation in editor.changes)


def hardened(raw: JSON, policy: Policy = NO_POOLS, request: Request | None = None) -> JSON:
    """Return a Pod after the mutation `restricted-security-context`; the Pod itself stays."""
    pod = pod_of(raw)
    context = Context(policy, request or Request(), Facts())
    changes = set_restricted_security_context.changes(pod, context)
    return patched(raw, operations_of(pod, changes))


def tolerates(raw: JSON, taint: Taint) -> bool:
    return scheduling.tolerates(toleration(raw), taint)


def may_tolerate(raw: JSON, taint: Taint) -> bool:
    return scheduling.may_tolerate(toleration(raw), taint)


def is_wildcard(raw: JSON) -> bool:
    return scheduling.is_wildcard(toleration(raw))


def alternatives(spec: JSON) -> list[Alternative]:
    return [each for each in scheduling.alternatives(spec_of(spec)) if each.parses]


def matches_node(spec: JSON, name: str, labels: Mapping[str, str]) -> bool:
    return scheduling.matches_node(spec_of(spec), name, labels)


def required_terms(spec: JSON) -> list[JSON] | None:
    """Return the node selector terms as they are written."""
    if scheduling.required_terms(spec_of(spec)) is None:
        return None
    required = spec["affinity"]["nodeAffinity"][scheduling.REQUIRED]
    return required.get("nodeSelectorTerms") or []
