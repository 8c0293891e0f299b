"""Objects, policies and updates for tests of the engine's checklist."""

from __future__ import annotations

from typing import Any

from cases.loading import compiled, policy_spec
from policies.facts import Request
from policies.kubernetes.scheduling import REQUIRED
from policies.policy import Policy
from specs import JSON

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
POOL = policy_spec("default")["pools"][0]


def pod(*containers: JSON, metadata: JSON | None = None, **spec: Any) -> JSON:
    found = [{"name": f"c{i}", "image": "i", **one} for i, one in enumerate(containers or [{}])]
    meta = {"name": "p", **(metadata or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": found, **spec},
    }


def deployment(template: JSON) -> JSON:
    spec = {"template": {"spec": template["spec"]}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def term(words: str) -> JSON:
    """Return the node selector term for a text such as ``zone In a b``."""
    key, operator, *values = words.split()
    part = "matchFields" if key == "metadata.name" else "matchExpressions"
    return {part: [{"key": key, "operator": operator, "values": values}]}


def required(*terms: JSON | str) -> JSON:
    """Return the affinity of a Pod's spec with required node selector terms."""
    listed = [term(each) if isinstance(each, str) else each for each in terms]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": listed}}}}


def policy(**fields: Any) -> Policy:
    return compiled(policy_spec("default") | fields)


def update(old: JSON, **request: Any) -> Request:
    return Request(operation="UPDATE", old=old, **request)
