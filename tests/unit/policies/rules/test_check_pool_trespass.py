"""GPU Pods near pools that they may not use, besides the cases."""

from __future__ import annotations

from typing import Any

import pytest

from cases.loading import policy_spec
from deciding import pod, policy, required, term
from policies.engine import decide
from policies.facts import Facts
from policies.finding import Finding
from policies.kubernetes.nodes import Node, NodeIndex
from strategies import JSON

TAINT: JSON = {"key": "gpu"}
LAB_ONLY = {"allowedNamespaces": {"names": ["lab"]}}
QUEUE: JSON = {"requires": [{"queue": True, "action": "enforce"}]}
SHARED = "a GPU Pod can run on nodes of a pool that it may not use"
WITHIN: JSON = {"nodeSelector": {"gpu": "a"}}
BY_KEY: JSON = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}


def pool(name: str, device: str, labels: JSON, taints: tuple[JSON, ...] = (TAINT,)) -> JSON:
    resources = [f"example.com/{device}"]
    return {"name": name, "resources": resources, "nodeSelector": labels, "taints": [*taints]}


def both(*words: str) -> JSON:
    """Return a term with several expressions."""
    return {"matchExpressions": [term(each)["matchExpressions"][0] for each in words]}


OPEN = pool("open", "a", {"gpu": "a"})
LAB = pool("lab", "b", {"lab": "1"}) | LAB_ONLY


def findings(
    pools: list[JSON],
    devices: str = "a",
    count: int = 1,
    off: tuple[str, ...] = ("pool-node-affinity",),
    nodes: tuple[JSON, ...] = (),
    metadata: JSON | None = None,
    **spec: Any,
) -> list[Finding]:
    limits = {f"example.com/{device}": count for device in devices}
    own = policy(pools=pools, rules=dict.fromkeys(off, "off"))
    index = NodeIndex(Node(f"n{n}", labels, (), {}) for n, labels in enumerate(nodes))
    made = pod({"resources": {"limits": limits}}, metadata=metadata, **spec)
    decision = decide(made, own, facts=Facts(nodes=index if nodes else None))
    assert not decision.failures
    return [finding for finding in decision.findings if finding.rule == "pool-trespass"]


SPOT = {"key": "spot", "operator": "Exists"}
INNER = pool("inner", "a", {"lab": "1", "slice": "x"})


@pytest.mark.parametrize(
    ("pools", "given", "shared"),
    [
        ([OPEN, LAB], WITHIN, True),
        ([OPEN, LAB], WITHIN | {"tolerations": [SPOT]}, True),
        ([OPEN, LAB], required("gpu In a"), True),
        ([OPEN, LAB], required("gpu In a", "gpu In a b"), False),
        ([OPEN, LAB], {}, False),
        ([OPEN, LAB | {"taints": [{"key": "lab"}]}], WITHIN, False),
        ([OPEN, LAB | {"taints": [TAINT, {"key": "lab"}]}], WITHIN, False),
        (
            [OPEN, LAB],
            WITHIN | {"off": ("pool-node-affinity", "pool-toleration")},
            False,
        ),
        (
            [OPEN, LAB],
            {
                "nodeSelector": {"gpu": "a", "zone": "a"},
                "nodes": ({"gpu": "a", "zone": "a"}, {"gpu": "a", "zone": "b", "lab": "1"}),
            },
            False,
        ),
        ([OPEN, LAB], required(both("gpu In a", "lab DoesNotExist"), "gpu In a"), True),
        (
            [OPEN, INNER, LAB],
            required(both("gpu In a", "lab DoesNotExist"), both("lab In 1", "slice In x")),
            False,
        ),
    ],
)
def test_nodes_of_its_pool_may_be_closed_to_a_pod(
    pools: list[JSON], given: JSON, shared: bool
) -> None:
    assert (SHARED in [finding.reason for finding in findings(pools, **given)]) is shared


def test_a_pool_whose_requirements_a_pod_does_not_meet_is_closed_to_it() -> None:
    queued = pool("lab", "b", {"lab": "1"}) | QUEUE
    [finding] = findings([OPEN, queued], **WITHIN)
    assert "it does not state what pool lab requires" in finding.detail
    assert not findings([OPEN, queued], off=("pool-node-affinity", "pool-requirements"), **WITHIN)
    label = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
    assert not findings([OPEN, queued], metadata=label, **WITHIN)
    [finding] = findings([OPEN, queued], metadata=label)
    assert "the Pod requests no device of this pool" in finding.detail


def test_a_pod_of_a_pool_without_labels_has_no_nodes_to_select() -> None:
    """A scheduler places it, and no label keeps it to its own nodes."""
    [fractions] = policy_spec("fractions")["pools"]
    own = fractions | {"nodeSelector": {}, "deviceClasses": ["gpu.nvidia.com"]}
    other = pool("other", "b", {"b": "1"}, fractions["taints"])
    made = pod(metadata={"annotations": {"gpu-fraction": "0.5"}}, schedulerName="kai-scheduler")
    [finding] = decide(made, policy(pools=[own, other])).findings
    assert finding.remediation == (
        "Set example.com/b: 1 under resources.limits in place of gpu-fraction: 0.5, or remove the "
        "toleration"
    )


def test_a_selection_is_at_fault_where_it_names_the_pool() -> None:
    elsewhere = required("gpu In a") | {"nodeSelector": {"zone": "a"}}
    [finding] = findings([OPEN], "", **elsewhere)
    assert finding.path.endswith("nodeSelectorTerms[0]")


BIG = pool("big", "a", {"big": "1"}, ({"key": "big"},)) | {"largestRequest": 1}
X, Y = pool("x", "a", {"x": "1"}), pool("y", "b", {"y": "1"})


@pytest.mark.parametrize(
    ("pools", "given", "detail", "remediation"),
    [
        # Its selection excludes a pool of one of its devices, and its namespace one of the other.
        (
            [X, Y, LAB],
            {"devices": "ab", "nodeSelector": {"x": "2"}},
            "but pool lab is reserved for namespaces lab",
            "Select the nodes of its own pool",
        ),
        (
            [X, LAB | QUEUE],
            {"nodeSelector": {"x": "2"}, "off": ("pool-node-affinity", "unschedulable-gpu-pod")},
            "(pool lab), but pool lab is reserved for namespaces lab",
            "Select the nodes of its own pool",
        ),
        (
            [OPEN, BIG],
            {"count": 2, "tolerations": [{"key": "big", "operator": "Exists"}]},
            "but pool big allows 1 device per Pod",
            "Remove the toleration",
        ),
        (
            [OPEN, pool("lab", "a", {"lab": "1"}, ({"key": "lab"},)) | {"largestRequest": 8}],
            {"nodeSelector": {"lab": "2"}, "nodeName": "n0", "nodes": ({"lab": "1"},)},
            "but the Pod's node selection excludes pool lab",
            "If a platform of the cluster creates this Pod",
        ),
        (
            [OPEN],
            {"devices": "", "resourceClaims": [{"name": "c", "resourceClaimName": "c"}], **BY_KEY},
            "but the Pod requests no GPU",
            "If the DeviceClass of its claims has devices of pool open",
        ),
    ],
)
def test_a_finding_says_why_a_pool_is_closed(
    pools: list[JSON], given: JSON, detail: str, remediation: str
) -> None:
    [finding] = findings(pools, **given)
    assert detail in finding.detail
    assert finding.remediation.startswith(remediation)
