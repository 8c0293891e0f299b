"""Mutations whose action is not ``enforce``: a finding lists what they would add."""

from __future__ import annotations

import json
from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.editor import Editor
from policies.kubernetes.pod import Pod
from policies.registry import MUTATIONS, mutations_for

_IDS = [mutation.id for mutation in MUTATIONS]
_REPORTED = frozenset({"warn", "audit"})


def findings(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each mutation that would add something and may only report it."""
    actions = context.policy.actions_in(context.request.namespace)
    if _REPORTED.isdisjoint(map(actions.__getitem__, _IDS)):
        return
    for mutation in mutations_for(pod, context):
        action = actions[mutation.id]
        if action not in _REPORTED:
            continue
        trial = Editor(pod, dry_run=True)
        trial.apply(mutation.additions(pod, context))
        if trial.recorded:
            missing = [f"{field}: {json.dumps(value)}" for field, value in trial.recorded]
            yield Finding(
                mutation.id,
                pod.at("spec"),
                f"the Pod lacks {mutation.summary}",
                f"gpufence does not add {'; '.join(missing)}, because the policy sets "
                f"{mutation.id} to {action}",
                "Add these fields to the manifest",
                action,
            )
