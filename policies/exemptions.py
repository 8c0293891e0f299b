"""Objects that the policy does not apply to."""

from __future__ import annotations

from collections.abc import Container, Iterable

from policies.facts import Request
from policies.kubernetes.pod import Pod
from policies.policy import Policy


def exemption(
    pods: Iterable[Pod], policy: Policy, request: Request, excluded: Container[str] = ()
) -> str:
    """Return why the policy does not apply to an object with these Pods; empty if it does.

    Namespaces in ``excluded`` are those from which API servers send no admission requests.
    """
    exemptions = policy.exemptions
    if request.namespace in exemptions.namespaces:
        return f"the policy exempts namespace {request.namespace}"
    if request.username in exemptions.usernames:
        return f"the policy exempts user {request.username}"
    if exemptions.runtime_classes:
        names = {pod.spec.runtime_class_name for pod in pods}
        if names and names <= exemptions.runtime_classes:
            return f"the policy exempts runtime class {', '.join(sorted(map(str, names)))}"
    if request.namespace in excluded:
        return f"API servers do not call gpufence for namespace {request.namespace}"
    return ""
