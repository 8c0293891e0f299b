"""What a Pod does not show, and the policy therefore admits: docs/concepts/threat-model.md.

A test that fails here because a Pod is denied is good news: then the page is wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from deciding import pod
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Taint
from reviewing import default_policy

JSON = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
REQUEST = Request(namespace="default", fail_closed=True)


def volume(**source: Any) -> list[JSON]:
    return [{"name": "v", **source}]


ADMITTED = {
    "variables of a ConfigMap": pod({"envFrom": [{"configMapRef": {"name": "visible-devices"}}]}),
    "hostPath /": pod(volumes=volume(hostPath={"path": "/"})),
    "hostPath /dev": pod(volumes=volume(hostPath={"path": "/dev"})),
    "hostPath /proc": pod(volumes=volume(hostPath={"path": "/proc"})),
    "a block volume": pod(
        {"volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]},
        volumes=volume(persistentVolumeClaim={"claimName": "local"}),
    ),
}


@pytest.mark.parametrize("what", ADMITTED)
def test_a_plain_pod_with_hidden_device_access_is_admitted(what: str) -> None:
    assert decide(ADMITTED[what], default_policy(), REQUEST).verdict == "allowed"


def test_the_verdict_of_a_pending_pod_depends_on_the_nodes_at_admission() -> None:
    waiting = pod(
        nodeSelector={ZONE: "a"}, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]
    )
    plain = Node("cpu-1", {ZONE: "a"})
    late = Node("gpu-1", {ZONE: "a"}, taints=(Taint("nvidia.com/gpu", "NoSchedule"),))

    def verdict(*nodes: Node) -> str:
        facts = Facts(nodes=NodeIndex(nodes))
        return decide(waiting, default_policy(), REQUEST, facts).verdict

    assert verdict(plain) == "allowed"
    assert verdict(plain, late) == "denied"
