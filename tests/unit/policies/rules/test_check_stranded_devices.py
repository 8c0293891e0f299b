"""Which Pods leave devices useless, besides the cases."""

from __future__ import annotations

import pytest

from deciding import POOL, pod, policy
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes.claims import Claim
from policies.kubernetes.nodes import Node, NodeIndex, Room
from policies.kubernetes.quantity import NANOS
from policies.rules import check_stranded_devices
from strategies import JSON

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
POLICY = policy(pools=[POOL | {"resources": [*POOL["resources"], NIC]}])
ALL_CPUS = {"requests": {"cpu": 64, "memory": "16Gi"}}
CHANNEL = frozenset({"compute-domain-default-channel.nvidia.com"})
CLAIMS = {("default", "one"): Claim((CHANNEL, frozenset({"nic"})))}


@pytest.mark.parametrize(
    ("devices", "resources", "says"),
    [
        ({GPU: 1}, ALL_CPUS, "1 of 8 nvidia.com/gpu: what remains is too little for 7"),
        ({GPU: 1, NIC: 1}, ALL_CPUS, "1 of 8 example.com/nic: what remains is too little for 7"),
        ({GPU: 7}, {"claims": [{"name": "c"}]}, "no other Pod with a channel can use the other 1"),
    ],
)
def test_a_pod_leaves_devices_useless(devices: dict[str, int], resources: JSON, says: str) -> None:
    """The node has 64 CPUs, and its memory is unknown."""
    node = Node("n", POOL["nodeSelector"], (), {GPU: 8, NIC: 8}, room=Room(64 * NANOS, 0))
    facts = Facts(nodes=NodeIndex([node]), claims=CLAIMS)
    claims = [{"name": "c", "resourceClaimName": "one"}] if "claims" in resources else []
    made = pod({"resources": {"limits": devices, **resources}}, resourceClaims=claims)
    decision = decide(made, POLICY, facts=facts)
    assert not decision.failures
    [finding] = [f for f in decision.findings if f.rule == check_stranded_devices.ID]
    assert says in finding.detail
