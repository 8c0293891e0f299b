"""Mutations whose action is not ``enforce``: a finding says what they would add."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.copying import fork
from policies.kubernetes.pod import Pod
from policies.kubernetes.template import below
from policies.registry import mutations_for


def findings(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each mutation that would add something and may only report it."""
    actions = context.policy.actions_in(context.request.namespace)
    for mutation in mutations_for(pod, context):
        action = actions[mutation.id]
        if action not in ("warn", "audit"):
            continue
        trial = pod.on({**pod.raw, "spec": fork(pod.spec)})
        mutation.apply(trial, context)
        lacking = list(additions(pod, trial))
        if lacking:
            yield Finding(
                mutation.id,
                pod.spec_path,
                f"the Pod lacks {mutation.summary}",
                f"gpufence would add {'; '.join(lacking)}, but its policy has {mutation.id} on "
                f"{action}",
                "Write it yourself",
                action,
            )


def additions(before: Pod, after: Pod) -> Iterator[str]:
    """Yield path and value of everything that the spec of ``after`` has in addition."""
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
