"""The Pods of a cluster against a discovered policy: what it would deny."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject, MalformedObjectError, mapping, mappings
from policies.policy import Policy
from policies.reach import DAEMON_SET_CONTROLLER, MIRROR_ANNOTATION
from webhook.wording import counted, some


def denials(policy: Policy, pods: Iterable[JSONObject], nodes: NodeIndex) -> Iterator[str]:
    """Yield a sentence for each rule that denies Pods, as they were before they got a node."""
    facts, count = Facts(nodes=nodes), 0
    denied: dict[str, list[str]] = {}
    for pod in pods:
        metadata = mapping(pod.get("metadata"))
        if MIRROR_ANNOTATION in mapping(metadata.get("annotations")):
            continue
        count += 1
        try:
            decision = decide(_as_created(pod), policy, _request(metadata), facts)
        except MalformedObjectError:
            continue
        for rule in dict.fromkeys(f.rule for f in decision.findings if f.action == "enforce"):
            name = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
            denied.setdefault(rule, []).append(name)
    for rule, names in denied.items():
        yield (
            f"{rule} would deny {len(names)} of {counted(count, 'Pod')}: {some(names)}. Start with "
            "mode: audit, or correct the Pods or the policy"
        )


def _as_created(pod: JSONObject) -> JSONObject:
    """Return the Pod without what the scheduler and the kubelet have written."""
    spec = {key: value for key, value in mapping(pod.get("spec")).items() if key != "nodeName"}
    return {**pod, "spec": spec, "status": {}}


def _request(metadata: JSONObject) -> Request:
    owners = mappings(metadata.get("ownerReferences"))
    is_agent = any(owner.get("kind") == "DaemonSet" for _, owner in owners)
    return Request(
        namespace=str(metadata.get("namespace") or "default"),
        username=DAEMON_SET_CONTROLLER if is_agent else "",
    )
