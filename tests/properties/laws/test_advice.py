"""An object that follows a remediation is not denied by the same rules again."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cases.loading import compiled, policy_document
from policies.engine import decide
from policies.finding import Finding
from policies.kubernetes.quantity import parse_quantity

POLICY = compiled(policy_document("default"))
DEVICES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "vendor.example/nic")
COUNTS = (-1, 0, "0", 0.5, "500m", 1, "1", "1500m", 2, 3)
WRITE = re.compile(r"Write (\S+): (\S+) under limits (and leave it out of|instead of) requests\b.*")

JSON = dict[str, Any]


def workload(kind: str, resources: JSON) -> JSON:
    """Return an object whose only container has these resources."""
    spec = {"containers": [{"name": "train", "image": "a", "resources": resources}]}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    group = {"Job": "batch/v1", "PyTorchJob": "kubeflow.org/v1"}[kind]
    template = {"template": {"spec": spec}}
    body = template if kind == "Job" else {"pytorchReplicaSpecs": {"Worker": template}}
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "a"}, "spec": body}


def findings(obj: JSON) -> tuple[Finding, ...]:
    return tuple(decide(obj, POLICY).findings)


@given(
    st.sampled_from(["Pod", "Job", "PyTorchJob"]),
    st.dictionaries(st.sampled_from(DEVICES), st.sampled_from(COUNTS)),
    st.dictionaries(st.sampled_from(DEVICES), st.sampled_from(COUNTS)),
)
def test_law_a_count_that_is_written_as_told_is_accepted_and_is_none_only_where_none_was_asked_for(
    kind: str, limits: JSON, requests: JSON
) -> None:
    mended: dict[str, JSON] = {"limits": dict(limits), "requests": dict(requests)}
    for finding in findings(workload(kind, {"limits": limits, "requests": requests})):
        told = WRITE.fullmatch(finding.remediation)
        assert told is not None, finding
        name, count = told[1], told[2]
        mended["limits"][name] = count
        mended["requests"].pop(name, None)
        asked = max(parse_quantity(side[name]) for side in (limits, requests) if name in side)
        assert (parse_quantity(count) > 0) == (asked != 0)
    assert not findings(workload(kind, mended))
