"""Run the rules on one Pod: the mutations of a policy, then its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from policies import advisory
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.editor import Editor
from policies.kubernetes.pod import Pod
from policies.registry import checks_for, mutations_for


def mutate_pod(pod: Pod, context: Context) -> Editor:
    """Apply the enforced mutations to the Pod, and return what they added."""
    editor = Editor(pod)
    actions = context.policy.actions_in(context.request.namespace)
    for mutation in mutations_for(pod, context):
        if actions[mutation.id] == "enforce":
            editor.apply(mutation.additions(pod, context), mutation.id)
    pod.changed()
    return editor


def check_pod(pod: Pod, context: Context, role: Callable[[Pod], str]) -> Iterator[Finding]:
    """Yield the findings of the Pod, with the actions that the policy has for their rules.

    If the object has several kinds of Pods, a finding names the ``role`` of its Pod.
    """
    for finding in _findings(pod, context):
        about = role(pod)
        if about:
            yield replace(finding, detail=f"{finding.detail}; this is about {about}")
        else:
            yield finding


def _findings(pod: Pod, context: Context) -> Iterator[Finding]:
    yield from advisory.findings(pod, context)
    actions = context.policy.actions_in(context.request.namespace)
    for rule in checks_for(pod, context):
        action = actions[rule.id]
        if action == "off":
            continue
        for finding in rule.check(pod, context):
            yield finding if action == "enforce" else replace(finding, action=action)
