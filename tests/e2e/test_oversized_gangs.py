"""The real kube-scheduler never starts a whole gang that gpufence calls too large."""

from __future__ import annotations

import random
from typing import Any

import pytest

from controlplane.cluster import ControlPlane
from controlplane.objects import node
from controlplane.placing import place
from policies.engine import decide
from policies.facts import Facts
from specs import default_spec, policy_of
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState
from webhook.tools.custom_resources import workload

pytestmark = [pytest.mark.timeout(900)]

JSON = dict[str, Any]

CLUSTERS = 50
GPU, PRESENT = "nvidia.com/gpu", "nvidia.com/gpu.present"


def gpu_nodes(name: str, choose: random.Random) -> list[JSON]:
    return [
        node(
            f"{name}-{number}",
            labels={PRESENT: "true", "cluster": name, "zone": choose.choice("ab")},
            resources={GPU: str(choose.choice((1, 2, 4, 8, 8)))},
        )
        for number in range(choose.randint(1, 4))
    ]


def gang(name: str, choose: random.Random) -> JSON:
    """Return a JobSet with one to three templates."""
    jobs = []
    for number in range(choose.choice((1, 1, 2, 3))):
        zone = {"zone": choose.choice("ab")} if choose.random() < 0.3 else {}
        devices = {"limits": {GPU: choose.choice((1, 2, 3, 4, 8))}}
        pod = {
            "nodeSelector": {"cluster": name, **zone},
            "containers": [{"name": "main", "image": "registry.example/app", "resources": devices}],
        }
        job = {"parallelism": choose.randint(1, 5), "template": {"spec": pod}}
        jobs.append({"name": f"job-{number}", "template": {"spec": job}})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": jobs},
    }


def is_too_large(gang: JSON, facts: Facts) -> bool:
    policy = policy_of(default_spec())
    found = decide(workload(gang, policy), policy, facts=facts).findings
    return any(finding.rule == "oversized-gang" for finding in found)


@pytest.mark.slow("waits for the scheduler to place 270 Pods")
def test_a_gang_that_is_called_too_large_never_starts_wholly(
    control_plane: ControlPlane, namespace: str
) -> None:
    choose = random.Random(74)
    names = [f"cluster-{number}" for number in range(CLUSTERS)]
    nodes = {name: gpu_nodes(name, choose) for name in names}
    gangs = {name: gang(name, choose) for name in names}
    state = ClusterState(policy_of(default_spec()))
    for obj in (each for of_cluster in nodes.values() for each in of_cluster):
        put(state, obj)
    facts = state.facts({"nodes"})
    owners, pods = [], []
    for name in names:
        for job in gangs[name]["spec"]["replicatedJobs"]:
            spec = job["template"]["spec"]
            for _ in range(spec["parallelism"]):
                owners.append(name)
                pods.append((namespace, spec["template"]["spec"]))
    with control_plane.nodes(*(each for of_cluster in nodes.values() for each in of_cluster)):
        outcome = place(control_plane, pods)
    waiting = {owners[number] for number in outcome.pending}
    large = {name for name in names if is_too_large(gangs[name], facts)}
    alike = {name for name in names if len(gangs[name]["spec"]["replicatedJobs"]) == 1}
    fits_one = {owners[number] for number in outcome.bound}
    print(f"\n{len(large)} of {CLUSTERS} gangs are too large, {len(waiting)} wait; {outcome}"[:300])
    assert large <= waiting
    # Of equal Pods, it tells each that has room for one and not for all.
    assert alike & waiting & fits_one <= large
    assert 10 < len(large) < CLUSTERS - 10
