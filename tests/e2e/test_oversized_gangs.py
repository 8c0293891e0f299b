"""What gpufence says of gangs, stranded devices and pieces, against the real kube-scheduler."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from audit.fleet import LABELS, pod_spec
from audit.simulated import Cluster, pod
from controlplane.cluster import ControlPlane
from controlplane.devices import device_class
from controlplane.fence import following
from controlplane.objects import node
from controlplane.placing import place
from controlplane.versions import CLAIMS
from policies.engine import decide
from policies.facts import Facts
from specs import JSON, default_spec, policy_of
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState
from webhook.tools.audit.fragments import without_small
from webhook.tools.custom_resources import workload

pytestmark = [pytest.mark.timeout(900)]

CLUSTERS = 50
GPU, PRESENT = "nvidia.com/gpu", "nvidia.com/gpu.present"
CHANNEL = "compute-domain-default-channel.nvidia.com"


def gpu_nodes(name: str, choose: random.Random) -> list[JSON]:
    return [
        node(
            f"{name}-{number}",
            labels={
                PRESENT: "true",
                "cluster": name,
                "zone": choose.choice("ab"),
                "rack": f"{name}-{choose.choice('ab')}",
            },
            resources={GPU: str(choose.choice((1, 2, 4, 8, 8)))},
        )
        for number in range(choose.randint(1, 4))
    ]


def gang(name: str, choose: random.Random) -> JSON:
    """Return a JobSet with one to three templates, some of which need one rack."""
    jobs = []
    for number in range(choose.choice((1, 1, 2, 3))):
        zone = {"zone": choose.choice("ab")} if choose.random() < 0.3 else {}
        devices = {"limits": {GPU: choose.choice((1, 2, 3, 4, 8))}}
        labels = {"part": f"{name}-{number}"}
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "rack"}
        terms = [term] if choose.random() < 0.3 else []
        pod = {
            "nodeSelector": {"cluster": name, **zone},
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            "containers": [{"name": "main", "image": "registry.example/app", "resources": devices}],
        }
        template = {"metadata": {"labels": labels}, "spec": pod}
        job = {"parallelism": choose.randint(1, 5), "template": template}
        jobs.append({"name": f"job-{number}", "template": {"spec": job}})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": jobs},
    }


def findings(obj: JSON, facts: Facts, rule: str) -> list[str]:
    policy = policy_of(default_spec())
    found = decide(workload(obj, policy), policy, facts=facts).findings
    return [finding.detail for finding in found if finding.rule == rule]


def facts_of(nodes: list[JSON]) -> Facts:
    state = ClusterState(policy_of(default_spec()))
    for obj in nodes:
        put(state, obj)
    return state.facts({"nodes"})


@pytest.mark.slow("waits for the scheduler to place 270 Pods")
def test_a_gang_that_is_called_too_large_never_starts_wholly(
    control_plane: ControlPlane, namespace: str
) -> None:
    choose = random.Random(74)
    names = [f"cluster-{number}" for number in range(CLUSTERS)]
    nodes = [each for name in names for each in gpu_nodes(name, choose)]
    gangs = {name: gang(name, choose) for name in names}
    facts = facts_of(nodes)
    owners, pods = list[str](), []
    for name in names:
        for job in gangs[name]["spec"]["replicatedJobs"]:
            spec = job["template"]["spec"]
            template, count = spec["template"], spec["parallelism"]
            owners += [name] * count
            pods += [(namespace, template["spec"], template["metadata"]["labels"])] * count
    with control_plane.nodes(*nodes):
        outcome = place(control_plane, pods)
    waiting = {owners[number] for number in outcome.pending}
    large = {name for name in names if findings(gangs[name], facts, "oversized-gang")}
    in_racks = {name for name in names if "labelSelector" in str(gangs[name])}
    alike = {name for name in names if len(gangs[name]["spec"]["replicatedJobs"]) == 1} - in_racks
    fits_one = {owners[number] for number in outcome.bound}
    print(f"\n{len(large)} of {CLUSTERS} gangs are too large, {len(waiting)} wait; {outcome}"[:300])
    assert large <= waiting
    # Of equal Pods, it tells each that has room for one and not for all.
    assert alike & waiting & fits_one <= large
    assert 10 < len(large) < CLUSTERS - 10
    assert len(large & in_racks) > 3


@pytest.mark.slow("waits for the scheduler to place 200 Pods")
def test_as_many_devices_are_of_use_as_a_pod_does_not_strand(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Other Pods use a fourth of the share of a device, each with one device."""
    choose = random.Random(74)
    nodes, pods, owners, stranded = list[JSON](), [], list[str](), dict[str, int]()

    def pod(name: str, devices: int, cpu: int, memory: int, **fields: Any) -> JSON:
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        resources = {"limits": {GPU: devices}, "requests": requests}
        container = {"name": "main", "image": "registry.example/app", "resources": resources}
        return {"nodeSelector": {"cluster": name}, "containers": [container], **fields}

    for number in range(CLUSTERS):
        name, devices = f"strand-{number}", choose.choice((2, 4, 8))
        cpu, memory = devices * choose.choice((4, 8, 16)), devices * choose.choice((8, 64))
        room = {GPU: str(devices), "cpu": str(cpu), "memory": f"{memory}Gi"}
        nodes.append(node(name, labels={PRESENT: "true", "cluster": name}, resources=room))
        taken = choose.choice((0.1, 0.8, 0.97, 1)), choose.choice((0.1, 0.8, 0.97, 1))
        count = choose.randint(1, devices)
        spec = pod(name, count, int(1000 * cpu * taken[0]), int(1024 * memory * taken[1]))
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hog"}, "spec": spec}
        found = findings(obj, facts_of(nodes[-1:]), "stranded-devices")
        [text] = re.findall(r"too little for (\d+) of", found[0]) if found else ["0"]
        stranded[name] = devices - count - int(text)
        pods.append((namespace, {**spec, "nodeName": name}))
        share = pod(name, 1, 1000 * cpu // devices // 4, 1024 * memory // devices // 4)
        pods += [(namespace, share)] * (devices - count)
        owners += [""] + [name] * (devices - count)
    with control_plane.nodes(*nodes):
        outcome = place(control_plane, pods)
    ran = [owners[number] for number in outcome.bound]
    print(f"\nof use: {sum(stranded.values())}, used: {len(ran) - CLUSTERS}, {outcome}"[:200])
    assert {name: ran.count(name) for name in stranded} == stranded
    assert len(outcome.pending) > CLUSTERS


@CLAIMS
def test_the_client_sees_each_warning_and_no_action_denies(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    policy = default_spec()
    policy["rules"] |= {"oversized-gang": "enforce", "stranded-devices": "enforce"}
    container: JSON = {"name": "main", "image": "registry.example/app"}

    def applied(kind: str, name: str, spec: JSON, version: str = "v1") -> str:
        obj = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        arguments = ("apply", "-n", namespace, "-f", "-")
        return control_plane.kubectl(*arguments, stdin=yaml.safe_dump(obj)).stderr

    def pod(**resources: Any) -> JSON:
        limits = {"limits": {GPU: 1}, **resources}
        spec = {"restartPolicy": "Never", "nodeSelector": {"cluster": "warned"}}
        return {**spec, "containers": [{**container, "resources": limits}]}

    labels = {PRESENT: "true", "cluster": "warned"}
    nodes = [node(f"warned-{n}", labels=labels, resources={GPU: "4"}) for n in range(2)]
    requests = [{"name": "channel", "exactly": {"deviceClassName": CHANNEL}}]
    with (
        control_plane.nodes(*nodes),
        device_class(control_plane, CHANNEL),
        following(control_plane, tmp_path, policy),
    ):
        applied(
            "ResourceClaimTemplate",
            "channel",
            {"spec": {"devices": {"requests": requests}}},
            "resource.k8s.io/v1",
        )
        claims = [{"name": "channel", "resourceClaimTemplateName": "channel"}]
        job = {"parallelism": 9, "completions": 9, "template": {"spec": pod()}}
        warnings = [
            applied("Job", "train", job, "batch/v1"),
            applied("Pod", "hog", pod(requests={"cpu": "16"})),
            applied(
                "Pod", "domain", {**pod(claims=[{"name": "channel"}]), "resourceClaims": claims}
            ),
        ]
    print("".join(["\n", *warnings]))
    assert "runs 9 Pods with 1 nvidia.com/gpu each at a time" in warnings[0]
    assert "too little for 3 of the other 3" in warnings[1]
    assert "the only IMEX channel of its node" in warnings[2]


@pytest.mark.slow("waits for the scheduler to place 180 Pods")
async def test_waiting_pods_run_where_small_pods_are_not(
    control_plane: ControlPlane, namespace: str
) -> None:
    choose, least = random.Random(74), 4
    nodes, pods, owners, predicted = [], [], [], list[int]()
    for cluster in range(20):
        simulated = Cluster()
        for number in range(choose.randint(2, 4)):
            name, free = f"c{cluster}-n{number}", 8
            labels = {**LABELS, "cluster": str(cluster)}
            nodes.append(node(name, labels=labels, resources={"nvidia.com/gpu": "8"}))
            simulated.add("Node", nodes[-1])
            # No node has room for a waiting Pod.
            while free >= least:
                devices = choose.choice([n for n in (1, 1, 1, 2, 4, 5) if n <= free])
                free -= devices
                simulated.add("Pod", pod(f"{name}-{free}", pod_spec(devices), node=name))
                if devices >= least:
                    pods.append((namespace, {**pod_spec(devices), "nodeName": name}))
                    owners.append(-1)
        for number in range(5):
            devices = choose.choice((4, 6, 8))
            simulated.add("Pod", pod(f"wait-{number}", pod_spec(devices)))
            selector = {"cluster": str(cluster)}
            pods.append((namespace, {**pod_spec(devices), "nodeSelector": selector}))
            owners.append(cluster)
        [what_if] = without_small((await simulated.audit()).pools, least)
        predicted.append(len(what_if.waiting))
    with control_plane.nodes(*nodes):
        outcome = place(control_plane, pods)
    ran = Counter(owners[number] for number in outcome.bound)
    differences = Counter(ran[cluster] - predicted[cluster] for cluster in range(20))
    print(f"\npredicted {sum(predicted)}, ran {sum(ran.values()) - ran[-1]}: {differences}")
    assert differences.keys() <= {-1, 0, 1}
    assert sum(predicted) > 20
