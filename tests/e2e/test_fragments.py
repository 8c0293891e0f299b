"""The real kube-scheduler uses what is free without small Pods, as an audit says."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from audit.fleet import LABELS, pod_spec
from audit.simulated import Cluster, pod
from controlplane.cluster import ControlPlane
from controlplane.objects import node
from controlplane.placing import place
from webhook.tools.audit.fragments import without_small

pytestmark = [pytest.mark.timeout(900)]

CLUSTERS = 20
LEAST = 4


@pytest.mark.slow("waits for the scheduler to place 180 Pods")
async def test_waiting_pods_run_where_small_pods_are_not(
    control_plane: ControlPlane, namespace: str
) -> None:
    choose = random.Random(74)
    nodes, pods, owners, predicted = [], [], [], list[int]()
    for cluster in range(CLUSTERS):
        simulated = Cluster()
        for number in range(choose.randint(2, 4)):
            name, free = f"c{cluster}-n{number}", 8
            labels = {**LABELS, "cluster": str(cluster)}
            nodes.append(node(name, labels=labels, resources={"nvidia.com/gpu": "8"}))
            simulated.add("Node", nodes[-1])
            # No node has room for a waiting Pod.
            while free >= LEAST:
                devices = choose.choice([n for n in (1, 1, 1, 2, 4, 5) if n <= free])
                free -= devices
                simulated.add("Pod", pod(f"{name}-{free}", pod_spec(devices), node=name))
                if devices >= LEAST:
                    pods.append((namespace, {**pod_spec(devices), "nodeName": name}))
                    owners.append(-1)
        for number in range(5):
            devices = choose.choice((4, 6, 8))
            simulated.add("Pod", pod(f"wait-{number}", pod_spec(devices)))
            selector = {"cluster": str(cluster)}
            pods.append((namespace, {**pod_spec(devices), "nodeSelector": selector}))
            owners.append(cluster)
        [what_if] = without_small((await simulated.audit()).pools, LEAST)
        predicted.append(len(what_if.waiting))
    with control_plane.nodes(*nodes):
        outcome = place(control_plane, pods)
    ran = Counter(owners[number] for number in outcome.bound)
    differences = Counter(ran[cluster] - predicted[cluster] for cluster in range(CLUSTERS))
    print(f"\npredicted {sum(predicted)}, ran {sum(ran.values()) - ran[-1]}: {differences}")
    assert differences.keys() <= {-1, 0, 1}
    assert sum(predicted) > CLUSTERS
