"""What an audit finds in a cluster, and at whom it finds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.fleet import LABELS, TAINT, pod_spec
from audit.simulated import NODES, PATHS, TODAY, Cluster, Object, owned, pod, workload
from cases.loading import policy_spec
from controlplane.objects import node
from dumped import resource_slice
from policies.kubernetes.field_types import NameSet
from policies.policy import ExceptionEntry
from policies.shipped import shipped_policy
from specs import default_spec, policy_of
from webhook.kube.errors import ApiError
from webhook.tools.audit import cluster_audit
from webhook.tools.audit.cluster_audit import Audit
from webhook.tools.audit.judge import Inventory
from webhook.tools.audit.pools import PoolState
from webhook.tools.audit.subjects import Subject, subjects
from webhook.tools.audit.waste import Use, Window, waste
from webhook.tools.cli.report.content import pool_summary

REACHING: Object = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
ANYWHERE: Object = {"tolerations": [{"operator": "Exists"}]}
PODS = PATHS["Pod"]
TOLERATES = "a Pod without a GPU request tolerates the taint of GPU nodes"
SITS = "a Pod without a GPU request runs on a GPU node"
GPU = "nvidia.com/gpu"
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_gpu_nodes("gpu")
    made.add("Node", node("cpu"))
    return made


def reasons_by_object(audit: Audit) -> dict[str, list[str]]:
    """Return the reasons of findings, by the object in whose report they are."""
    return {
        f"{each.kind.kind} {each.owned.name}": [finding.reason for finding in each.findings]
        for each in audit.subjects
        if each.findings
    }


def subject(audit: Audit, name: str) -> Subject:
    [one] = [each for each in audit.subjects if each.owned.name == name]
    return one


async def test_a_finding_of_a_deployment_and_its_pods_is_reported_once(cluster: Cluster) -> None:
    spec = pod_spec(**REACHING)
    deployment = cluster.add("Deployment", workload("web", spec))
    current = workload("web-5d", spec, replicas=2)
    current["metadata"]["labels"] = {"app": "web"}
    current["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    replica_set = cluster.add("ReplicaSet", owned(current, deployment, "Deployment"))
    for name in ("web-5d-a", "web-5d-b"):
        cluster.add("Pod", owned(pod(name, spec, app="web"), replica_set, "ReplicaSet"))
    audit = await cluster.audit()
    assert reasons_by_object(audit) == {"Deployment web": [TOLERATES]}
    assert subject(audit, "web").pods == {"denied": 2}
    [finding] = subject(audit, "web").decision.findings
    assert finding.path == "spec.template.spec.tolerations[0]"


async def test_pods_of_an_owner_are_kept_once_and_reported_with_the_first_names(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []

    def collect(inventory: Inventory, states: list[PoolState]) -> list[Subject]:
        kept.extend(group.first.owned.name for group in inventory.pods.values())
        return subjects(inventory, states)

    monkeypatch.setattr(cluster_audit, "subjects", collect)
    deployment = cluster.add("Deployment", workload("web", pod_spec()))
    places = dict.fromkeys(("a", "b", "c", "d", "e"), "cpu")
    for name, place in {**places, "on-gpu": "gpu"}.items():
        late = pod(name, pod_spec(**REACHING), app="web", node=place)
        cluster.add("Pod", owned(late, deployment, "Deployment"))
    cluster.add("Pod", owned(pod("stray", pod_spec()), deployment, "Deployment"))
    audit = await cluster.audit()
    assert kept == ["a", "on-gpu", "stray"]
    assert (audit.pods, subject(audit, "web").pods) == (7, {"denied": 6})
    finding = subject(audit, "web").decision.findings[0]
    assert finding.detail.endswith("; found in Pod a, Pod b, Pod c and 3 more")


async def test_old_replica_sets_and_completed_jobs_are_ignored(cluster: Cluster) -> None:
    deployment = cluster.add("Deployment", workload("web", pod_spec()))
    old = workload("web", pod_spec(**REACHING), replicas=0)
    cluster.add("ReplicaSet", owned(old, deployment, "Deployment"))
    ended = workload("job", pod_spec(**REACHING))
    ended["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    cluster.add("Job", ended)
    assert reasons_by_object(await cluster.audit()) == {}


async def test_finished_pods_are_neither_listed_nor_counted(cluster: Cluster) -> None:
    job = cluster.add("Job", workload("train", pod_spec(2)))
    for number, phase in enumerate(("Running", "Succeeded", "Failed", "Pending")):
        its = pod(f"train-{number}", pod_spec(2), app="train", node="gpu")
        its["status"]["phase"] = phase
        cluster.add("Pod", owned(its, job, "Job", "batch/v1"))
        bare = pod(f"bare-{number}", pod_spec(**REACHING), node="gpu")
        bare["status"]["phase"] = phase
        cluster.add("Pod", bare)
    audit = await cluster.audit()
    asked = {request.query["fieldSelector"] for request in cluster.api.lists(PODS)}
    assert asked == {UNFINISHED}
    assert audit.pods == 4
    assert subject(audit, "train").pods == {"mutated": 2}
    assert reasons_by_object(audit) == {
        "Pod bare-0": [TOLERATES, SITS],
        "Pod bare-3": [TOLERATES, SITS],
    }
    [pool] = audit.pools
    assert (pool.requested, pool.waiting) == ({GPU: 4}, {})
    assert (pool.free, pool.trespassers) == ({GPU: 4}, 2)


@pytest.mark.parametrize("forgery", ["labels", "name", "namespace", "kind"])
async def test_a_pod_with_a_forged_daemon_set_owner_is_not_an_agent(
    forgery: str, cluster: Cluster
) -> None:
    real = cluster.add("DaemonSet", workload("agent", pod_spec(**ANYWHERE)))
    claimed = pod("intruder", pod_spec(**ANYWHERE), app="agent", node="gpu")
    if forgery == "labels":
        claimed["metadata"]["labels"] = {"app": "intruder"}
    elif forgery == "namespace":
        claimed["metadata"]["namespace"] = "elsewhere"
    named = {"metadata": {**real["metadata"], "name": "other"}} if forgery == "name" else real
    kind = "StatefulSet" if forgery == "kind" else "DaemonSet"
    cluster.add("Pod", owned(claimed, named, kind))
    assert reasons_by_object(await cluster.audit())["Pod intruder"] == [SITS]


async def test_a_plain_pod_on_a_gpu_node_is_reported_for_its_owner(cluster: Cluster) -> None:
    deployment = cluster.add("Deployment", workload("web", pod_spec()))
    for name, place in (("a", "gpu"), ("b", "gpu"), ("c", "cpu")):
        plain = pod(name, pod_spec(), app="web", node=place)
        cluster.add("Pod", owned(plain, deployment, "Deployment"))
    audit = await cluster.audit()
    assert reasons_by_object(audit) == {"Deployment web": [SITS]}
    assert subject(audit, "web").verdict == "allowed", "its next Pods are admitted"
    [finding] = subject(audit, "web").placed
    assert finding.detail.startswith("Pod a on node gpu, Pod b on node gpu: ")
    assert audit.pools[0].trespassers == 2
    off = policy_of(default_spec() | {"rules": {"pool-trespass": "off"}})
    assert reasons_by_object(await cluster.audit(off)) == {}


async def test_exemptions_and_exceptions_apply_to_pods_on_gpu_nodes(cluster: Cluster) -> None:
    cluster.add("Pod", pod("plugin", pod_spec(), node="gpu", namespace="gpu-operator"))
    agent = workload("typha", pod_spec(**ANYWHERE), namespace="calico-system")
    cluster.add("Deployment", agent)
    cluster.add("Pod", pod("net", pod_spec(**ANYWHERE), node="gpu", namespace="calico-system"))
    cluster.add("Pod", pod("legacy", pod_spec(), node="gpu"))
    policy = shipped_policy()
    entry = ExceptionEntry(
        rules=frozenset({"pool-trespass"}),
        namespaces=NameSet(["web"]),
        kinds=frozenset(),
        names=NameSet(["legacy"]),
        reason="moves in January",
        expires=TODAY.replace(day=22),
    )
    assert reasons_by_object(await cluster.audit(replace(policy, exceptions=(entry,)))) == {}
    late = replace(entry, expires=TODAY)
    audit = await cluster.audit(replace(policy, exceptions=(late,)))
    assert reasons_by_object(audit) == {"Pod legacy": [SITS]}


async def test_exceptions_that_cover_nothing_are_reported(cluster: Cluster) -> None:
    cluster.add("Pod", pod("web", pod_spec(**REACHING)))
    entry = ExceptionEntry(
        rules=frozenset({"pool-trespass"}), namespaces=NameSet(["web"]), reason="moving"
    )
    exceptions = (
        entry,
        replace(entry, names=NameSet(["api"])),
        replace(entry, expires=TODAY, reason="spring"),
        replace(entry, namespaces=NameSet(["kube-system"])),
    )
    audit = await cluster.audit(replace(shipped_policy(), exceptions=exceptions))
    assert reasons_by_object(audit) == {}
    assert audit.exceptions == (
        "spec.exceptions[1] of the policy (moving) covers no finding of this audit",
        f"spec.exceptions[2] of the policy (spring) expired on {TODAY}",
        "spec.exceptions[3] of the policy (moving) covers nothing: its namespaces are exempt",
    )


async def test_the_users_of_running_pods_are_those_that_nodes_report(cluster: Cluster) -> None:
    users = [{"name": "c", "user": {"linux": {"uid": uid, "gid": 0}}} for uid in (1000, 0)]
    running = {"status": {"containerStatuses": [*users, {"name": "starting"}]}}
    cluster.add("Pod", pod("vllm", pod_spec(1), node="gpu") | running)
    cluster.add("Pod", pod("waiting", pod_spec(1)))
    audit = await cluster.audit()
    assert subject(audit, "vllm").running_users == {0}
    assert subject(audit, "waiting").running_users == set()


async def test_pods_with_a_gpu_fraction_are_no_trespassers_and_hold_no_device() -> None:
    cluster = Cluster()
    offered = {"nvidia.com/gpu": "8", "nvidia.com/gpumem": "81920"}
    cluster.add("Node", node("gpu", labels=LABELS, taints=[TAINT], resources=offered))
    for name, scheduler in (("half", "kai-scheduler"), ("plain", "default-scheduler")):
        sitting = pod(name, pod_spec(schedulerName=scheduler), node="gpu")
        sitting["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
        cluster.add("Pod", sitting)
    part = pod("part", pod_spec(1), node="gpu")
    part["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpumem": "3000"}
    cluster.add("Pod", part)
    policy = policy_of(policy_spec("fractions"))
    audit = await cluster.audit(policy)
    assert reasons_by_object(audit) == {"Pod plain": [SITS]}
    [pool] = audit.pools
    assert (pool.offered, pool.requested, pool.trespassers) == ({GPU: 8}, {GPU: 1}, 1)


async def test_a_device_of_several_pools_is_counted_in_the_pool_of_the_node() -> None:
    cluster, gpus = Cluster(), {"nvidia.com/gpu": "8"}
    for model in ("a100", "h100"):
        taint = {"key": model, "effect": "NoSchedule"}
        cluster.add("Node", node(model, labels={"model": model}, taints=[taint], resources=gpus))
    cluster.add("Pod", pod("own", pod_spec(4), node="h100", namespace="research"))
    cluster.add("Pod", pod("waits", pod_spec(2), namespace="research"))
    cluster.add("Pod", pod("intruder", pod_spec(1), node="h100"))
    spec = default_spec()
    spec["pools"] = [
        {
            "name": model,
            "resources": ["nvidia.com/gpu"],
            "taints": [{"key": model}],
            "nodeSelector": {"model": model},
            **({"allowedNamespaces": {"names": ["research"]}} if model == "h100" else {}),
        }
        for model in ("a100", "h100")
    ]
    audit = await cluster.audit(policy_of(spec))
    a100, h100 = audit.pools
    assert (list(a100.nodes), list(h100.nodes)) == (["a100"], ["h100"])
    assert a100.offered == h100.offered == {GPU: 8}
    assert (a100.requested, a100.waiting, a100.trespassers) == ({GPU: 2}, {GPU: 2}, 0)
    assert (h100.requested, h100.waiting, h100.trespassers) == ({GPU: 7}, {GPU: 2}, 1)
    assert audit.nodes == []
    assert reasons_by_object(audit) == {
        "Pod intruder": ["a GPU Pod runs on a GPU node of another pool"]
    }


async def test_devices_are_counted_by_name_and_those_of_a_node_in_two_pools_once() -> None:
    cluster, mig, amd = Cluster(), "nvidia.com/mig-1g.10gb", "amd.com/gpu"
    mixed, odd = {GPU: "4", mig: "28"}, {amd: "2"}
    cluster.add("Node", node("mixed", labels=LABELS, taints=[TAINT], resources=mixed))
    cluster.add("Node", node("odd", labels=LABELS, taints=[TAINT], resources=odd))
    cluster.add("Node", node("starting", taints=[TAINT]))
    spec = pod_spec(3)
    spec["containers"][0]["resources"]["limits"][mig] = "5"
    cluster.add("Pod", pod("train", spec, node="mixed"))
    pools = {"whole": GPU, "slices": "nvidia.com/mig-*", "amd": amd}
    entries = [
        {
            "name": name,
            "resources": [resource],
            "taints": [{"key": resource.partition("/")[0] + "/gpu"}],
            "nodeSelector": {"amd": "true"} if name == "amd" else LABELS,
        }
        for name, resource in pools.items()
    ]
    audit = await cluster.audit(policy_of(default_spec() | {"pools": entries}))
    assert {state.pool.name: (state.offered, state.free) for state in audit.pools} == {
        "whole": ({GPU: 4, amd: 2}, {GPU: 1, amd: 2}),
        "slices": ({mig: 28}, {mig: 23}),
        "amd": ({}, {}),
    }
    members = {state.pool.name: [*state.nodes] for state in audit.pools}
    both = ["mixed", "odd", "starting"]
    assert members == {"whole": both, "slices": both, "amd": []}
    [(name, [finding])] = audit.nodes
    assert (name, finding.rule) == ("odd", "gpu-node-without-label")
    assert finding.detail.startswith("the node offers amd.com/gpu: 2 of pool amd, but not its")
    whole, slices, _ = audit.pools
    assert pool_summary(slices) == (
        f"3 nodes, devices: {mig} 28; requested: {mig} 5; waiting: none; free: {mig} 23"
    )
    rows = waste([whole, slices], Window(0.0, 3600.0), {("web", "train"): Use(2.0)})
    assert {(row.kind, row.resource): row.devices for row in rows if row.kind != "held"} == {
        ("notReady", GPU): 3,
        ("notReady", mig): 5,
    }


async def test_nodes_of_two_pools_are_reported_where_one_is_restricted(cluster: Cluster) -> None:
    cluster.add("Node", node("both", labels=LABELS | {"team": "a"}, taints=[TAINT]))
    spec = default_spec()
    reserved = {"name": "reserved", "nodeSelector": {"team": "a"}, "largestRequest": 4}
    spec["pools"].append(spec["pools"][0] | reserved)
    audit = await cluster.audit(policy_of(spec))
    [(_, [finding])] = audit.nodes
    assert (finding.rule, finding.reason) == (
        "gpu-node-in-two-pools",
        "a GPU node belongs to two pools",
    )
    assert "pools nvidia and reserved" in finding.detail
    assert '{key: team, operator: NotIn, values: ["a"]}' in finding.remediation


async def test_custom_resources_in_non_preferred_versions_are_audited(cluster: Cluster) -> None:
    cluster.serve("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
    cluster.serve("kubeflow.org", "v2beta1", "MPIJob", "mpijobs")
    template = {"template": {"spec": pod_spec(**REACHING)}}
    for kind, field in (("PyTorchJob", "pytorchReplicaSpecs"), ("MPIJob", "mpiReplicaSpecs")):
        metadata = {"name": "train", "namespace": "ml"}
        cluster.add(kind, {"metadata": metadata, "spec": {field: {"Worker": template}}})
    assert reasons_by_object(await cluster.audit()) == {
        "MPIJob train": [TOLERATES],
        "PyTorchJob train": [TOLERATES],
    }


async def test_gangs_count_by_their_pod_group_and_by_the_quota_of_their_namespace(
    cluster: Cluster,
) -> None:
    cluster.serve("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
    for name, fewest in (("large", 3), ("small", 1)):
        metadata = {"name": name, "namespace": "web"}
        cluster.add("PodGroup", {"metadata": metadata, "spec": {"minMember": fewest}})
        gang = workload(name, pod_spec(8), replicas=4)
        gang["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = name
        cluster.add("StatefulSet", gang)
    for most in ("16", "4"):
        metadata = {"name": f"gpus-{most}", "namespace": "ml"}
        spec = {"hard": {"requests.nvidia.com/gpu": most}}
        cluster.add("ResourceQuota", {"metadata": metadata, "spec": spec})
    cluster.add("Job", workload("train", pod_spec(2), namespace="ml", parallelism=3))
    audit = await cluster.audit()
    found = {
        each.owned.name: finding.detail
        for each in audit.subjects
        for finding in each.findings
        if finding.rule == "oversized-gang"
    }
    assert found.keys() == {"large", "train"}
    assert "runs 3 Pods with 8 nvidia.com/gpu each" in found["large"]
    assert "have room for 1 of them" in found["large"]
    assert (
        "needs 6 nvidia.com/gpu at a time, and the quota of namespace ml allows 4"
        in (found["train"])
    )


async def test_forbidden_kinds_are_skipped_and_other_kinds_audited(cluster: Cluster) -> None:
    cluster.add("Pod", pod("web", pod_spec(**REACHING)))
    cluster.api.errors[PATHS["Deployment"]] = (403, "deployments.apps is forbidden")
    cluster.api.errors[NODES] = (403, "nodes is forbidden")
    audit = await cluster.audit()
    assert reasons_by_object(audit) == {"Pod web": [TOLERATES]}
    assert audit.pools == []
    nodes, deployments = audit.skipped
    assert nodes.startswith("nodes: not listed, so the report does not show pools")
    assert deployments.startswith("deployments.apps: not listed, so its objects are not audited")


async def test_an_unavailable_api_group_is_reported_as_skipped(cluster: Cluster) -> None:
    cluster.serve("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
    cluster.add("Pod", pod("web", pod_spec(**REACHING)))
    cluster.api.errors["/apis/kubeflow.org/v1"] = (503, "service unavailable")
    audit = await cluster.audit()
    assert reasons_by_object(audit) == {"Pod web": [TOLERATES]}
    [message] = audit.skipped
    assert message == (
        "kubeflow.org: not listed completely, so some objects may not be audited; check its API "
        "server: service unavailable (HTTP 503)"
    )


async def test_a_failed_list_of_pods_fails_the_audit(cluster: Cluster) -> None:
    cluster.api.errors[PODS] = (500, "etcdserver: leader changed")
    with pytest.raises(ApiError, match="pods: etcdserver: leader changed"):
        await cluster.audit()
    assert len(cluster.api.lists(PODS)) == 5


async def test_an_audit_reports_how_many_objects_it_has_read(cluster: Cluster) -> None:
    for number in range(250):
        cluster.add("Pod", pod(f"web-{number}", pod_spec(), node="cpu"))
    read: list[tuple[str, int]] = []
    await cluster.audit(progress=lambda title, count: read.append((title, count)))
    assert read == [("pods", 100), ("pods", 200)]


async def test_a_pod_whose_owner_cannot_be_listed_is_its_own_subject(cluster: Cluster) -> None:
    owner = cluster.add("StatefulSet", workload("db", pod_spec()))
    cluster.add("Pod", owned(pod("db-0", pod_spec(), app="db"), owner, "StatefulSet"))
    cluster.serve("apps", "v1", "StatefulSet", "statefulsets")
    cluster.api.errors[PATHS["StatefulSet"]] = (403, "forbidden")
    audit = await cluster.audit()
    [message] = audit.skipped
    assert message.startswith("statefulsets.apps: not listed, so its objects are not audited; ")
    assert subject(audit, "db-0").pods == {"allowed": 1}


async def test_an_object_with_a_cluster_scoped_owner_is_its_own_subject(cluster: Cluster) -> None:
    cluster.serve("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies", namespaced=False)
    owner = cluster.add("ClusterPolicy", {"metadata": {"name": "cluster-policy"}, "spec": {}})
    agent = owned(workload("driver", pod_spec()), owner, "ClusterPolicy", "nvidia.com/v1")
    agent = cluster.add("DaemonSet", agent)
    cluster.add("Pod", owned(pod("driver-0", pod_spec(), app="driver"), agent, "DaemonSet"))
    audit = await cluster.audit()
    assert subject(audit, "driver").pods == {"allowed": 1}
    assert audit.skipped == ()
    assert cluster.api.lists("/apis/nvidia.com/v1/clusterpolicies") == []


async def test_a_static_pod_is_an_agent(cluster: Cluster) -> None:
    gpu = node("gpu-2", labels=LABELS, taints=[TAINT], resources={"nvidia.com/gpu": "8"})
    kubelet = cluster.add("Node", gpu)
    static = owned(pod("static-gpu-2", pod_spec(), node="gpu-2"), kubelet, "Node", "v1")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    cluster.add("Pod", static)
    [state] = (await cluster.audit()).pools
    assert state.trespassers == 0


async def test_a_malformed_object_is_reported_and_other_objects_audited(cluster: Cluster) -> None:
    cluster.serve("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
    broken = {"containers": [{"name": "x", "image": "y", "resources": {"limits": "many"}}]}
    job = cluster.add(
        "PyTorchJob", {"metadata": {"name": "odd", "namespace": "ml"}, "spec": {"x": broken}}
    )
    cluster.add("Pod", owned(pod("odd-0", broken), job, "PyTorchJob", "kubeflow.org/v1"))
    cluster.add("PyTorchJob", {"metadata": {"name": "deep", "namespace": "ml"}})
    deep = cluster.api.objects["/apis/kubeflow.org/v1/pytorchjobs/deep"]
    for _ in range(5000):
        deep["spec"] = {"x": deep.get("spec", {})}
    cluster.add("Pod", pod("web", pod_spec(**REACHING)))
    audit = await cluster.audit()
    assert reasons_by_object(audit) == {"Pod web": [TOLERATES]}
    assert "spec.x.containers[0].resources.limits" in str(subject(audit, "odd").unjudged)
    assert subject(audit, "deep").verdict == "unknown"
    [message] = audit.skipped
    assert message.startswith("Pod web/odd-0: not audited: ")


DRIVER = "gpu.nvidia.com"
SERVED = {
    "DeviceClass": "deviceclasses",
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
}


@pytest.fixture
def driven() -> Cluster:
    """A cluster with one node, whose eight GPUs a DRA driver publishes."""
    made = Cluster()
    for kind, resource in SERVED.items():
        made.serve("resource.k8s.io", "v1", kind, resource)
    made.add("Node", node("driven", taints=[TAINT]))
    made.add("DeviceClass", {"metadata": {"name": DRIVER}, "spec": {"extendedResourceName": GPU}})
    devices = [{"name": f"gpu-{number}"} for number in range(8)]
    offered = resource_slice(DRIVER, "driven", nodeName="driven", devices=devices)
    made.add("ResourceSlice", offered)
    return made


def claim(name: str, count: int, allocated: int = 0) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": count}}
    results = [{"request": "gpu", "driver": DRIVER, "pool": "driven"}] * allocated
    return {
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": {"devices": {"results": results}}} if allocated else {},
    }


def claiming(name: str, **entry: str) -> Object:
    spec = pod_spec(resourceClaims=[{"name": "gpu", **entry}])
    spec["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return pod(name, {**spec, "nodeName": "driven"}, namespace="ml")


async def test_devices_of_claims_and_of_dra_drivers_are_counted_by_namespace(
    driven: Cluster,
) -> None:
    driven.add("ResourceClaim", claim("shared", 1, allocated=2))
    template = claim("one", 1)
    driven.add("ResourceClaimTemplate", {**template, "spec": {"spec": template["spec"]}})
    driven.add("Pod", claiming("a", resourceClaimName="shared"))
    driven.add("Pod", claiming("b", resourceClaimName="shared"))
    driven.add("Pod", claiming("c", resourceClaimTemplateName="one"))
    # Two Pods of a PodGroup with the claim of the group, and a Pod with a claim of the scheduler.
    driven.add("ResourceClaim", claim("of-group", 1, allocated=1))
    driven.add("ResourceClaim", claim("d-extended-resources", 3, allocated=3))
    for name in ("e", "f"):
        grouped = claiming(name, resourceClaimTemplateName="one")
        made = [{"name": "gpu", "resourceClaimName": "of-group"}]
        grouped["status"] = {**grouped.get("status", {}), "resourceClaimStatuses": made}
        driven.add("Pod", grouped)
    driven.add("Pod", pod("d", {**pod_spec(3), "nodeName": "driven"}, namespace="web"))
    audit = await driven.audit()
    [state] = audit.pools
    rows = waste(audit.pools, Window(0.0, 3600.0))
    held = {row.namespace: row.devices for row in rows if row.kind == "held"}
    assert held == {"ml": 4, "web": 3}
    assert (state.offered, state.free, state.trespassers) == ({GPU: 8}, {GPU: 1}, 0)
    assert audit.nodes == [], "a node with a DRA driver needs no labels"


async def test_a_claim_that_does_not_exist_denies_and_one_that_is_not_listed_does_not(
    driven: Cluster,
) -> None:
    reaching = claiming("reaching", resourceClaimName="gone")
    reaching["spec"] |= REACHING
    driven.add("Pod", reaching)
    found = subject(await driven.audit(), "reaching")
    assert found.verdict == "denied", "as the webhook, which looks it up"
    assert not found.unjudged
    driven.api.errors["/apis/resource.k8s.io/v1/resourceclaims"] = (403, "forbidden")
    found = subject(await driven.audit(), "reaching")
    assert found.decision.allowed
    assert any("claims" in reason for reason in found.unjudged)
