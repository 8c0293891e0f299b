"""An object that follows a remediation is not denied by the same rules again."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cases.loading import compiled, policy_spec
from policies.engine import decide
from policies.finding import Finding
from policies.kubernetes.quantity import parse_quantity
from specs import JSON

DEFAULT = policy_spec("default")
# Warnings that depend on the count, and say something else than a count.
OFF = dict.fromkeys(["missing-shared-memory", "pool-trespass", "missing-device"], "off")
RULES = DEFAULT["rules"] | OFF
POLICY = compiled(DEFAULT | {"rules": RULES})
DEVICES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "vendor.example/nic")
COUNTS = (-1, 0, "0", 0.5, "500m", 1, "1", "1500m", 2, 3)
WRITE = re.compile(r"Set (\S+): (\S+) under limits (and remove it from|instead of) requests\b.*")


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
def test_law_the_device_count_of_a_remediation_resolves_the_finding(
    kind: str, limits: JSON, requests: JSON
) -> None:
    fixed: dict[str, JSON] = {"limits": dict(limits), "requests": dict(requests)}
    for finding in findings(workload(kind, {"limits": limits, "requests": requests})):
        written = WRITE.fullmatch(finding.remediation)
        assert written is not None, finding
        name, count = written[1], written[2]
        fixed["limits"][name] = count
        fixed["requests"].pop(name, None)
        requested = max(parse_quantity(side[name]) for side in (limits, requests) if name in side)
        assert (parse_quantity(count) > 0) == (requested != 0)
    assert not findings(workload(kind, fixed))
