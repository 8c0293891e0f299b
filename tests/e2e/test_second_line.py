"""The in-tree policies of running replicas, and what holds in an outage of all replicas."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPException
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.contestants import cpu_seconds
from bench.expressions import dense
from controlplane import policies, webhooks
from controlplane.api import Api, ApiError
from controlplane.binaries import is_older, version_of
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Replica
from controlplane.objects import GPU_NODE, node, taint, workload
from controlplane.poll import until
from controlplane.webhooks import in_tree_denial
from deciding import required
from each import each
from policies.reach import CONTROLLER_MANAGER
from release.release import NAME, Release, release
from specs import JSON, default_spec

DENYING = f"{NAME}-pool-trespass"
FLAGS = ("--poll-seconds", "1")
DENSE = dense()
ADMITTED = (
    "900 terms with 99 labels",
    "1,000 containers that show devices",
    "1,000 containers with a quantity",
    "200 of most things",
)
"""Those that are too large for API servers to judge, as Deployments that exist and change."""

GPU = {"limits": {"nvidia.com/gpu": "1"}}
TOLERATING = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
MAIN = {"name": "main", "image": "app"}
ENV = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


def spec(**fields: Any) -> JSON:
    return {"containers": [MAIN], **fields}


WAITS, DENIED, CREATED = "rejected: no answer", "denied by the second line", "created"
AGENT = "node agent in kube-system"
EVERY_TOLERATION = "trespasser by every toleration"
TRIED: dict[str, dict[str, JSON]] = {
    CREATED: {
        "plain Pod": spec(),
        AGENT: spec(tolerations=[{"operator": "Exists"}]),
        "Pod with a node selection": spec(
            nodeSelector={"node.kubernetes.io/instance-type": "m7i.large"}
        ),
        "Pod with a host name": spec(nodeSelector={"kubernetes.io/hostname": "some-node"}),
        "Pod with a node affinity": spec(**required("node.kubernetes.io/instance-type In m7i")),
        "Pod that keeps off GPU nodes": spec(**required("nvidia.com/gpu.present NotIn true")),
        "hostPath of logs": spec(volumes=[{"name": "logs", "hostPath": {"path": "/var/log"}}]),
        "hostPath of another device": spec(
            volumes=[{"name": "fuse", "hostPath": {"path": "/dev/fuse"}}]
        ),
        "hostPath of device plugins": spec(
            volumes=[{"name": "p", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
        ),
        "CPU and memory of the Pod": spec(resources={"limits": {"cpu": "1", "memory": "1Gi"}}),
        "device of a class of no pool": spec(
            containers=[
                {
                    **MAIN,
                    "resources": {
                        "limits": {"deviceclass.resource.kubernetes.io/nic.example.com": "1"}
                    },
                }
            ]
        ),
    },
    DENIED: {
        "trespasser by toleration": spec(**TOLERATING),
        "trespasser by label": spec(nodeSelector={"nvidia.com/gpu.present": "true"}),
        "device leak by variable": spec(containers=[{**MAIN, "env": ENV}]),
        "device leak by path": spec(
            volumes=[{"name": "dev", "hostPath": {"path": "/dev/nvidia0"}}]
        ),
    },
    WAITS: {
        "GPU Pod": spec(containers=[{**MAIN, "resources": GPU}]),
        "Pod bound by nodeName": spec(nodeName="some-node"),
        "trespasser that only the nodes tell": spec(
            **TOLERATING, nodeSelector={"node.kubernetes.io/instance-type": "p5"}
        ),
        "privileged GPU Pod": spec(
            containers=[{**MAIN, "resources": GPU, "securityContext": {"privileged": True}}]
        ),
        "resource of another vendor": spec(
            containers=[{**MAIN, "resources": {"limits": {"example.com/fpga": "1"}}}]
        ),
        "claim for another device": spec(
            containers=[{**MAIN, "resources": {"claims": [{"name": "nic"}]}}],
            resourceClaims=[{"name": "nic", "resourceClaimTemplateName": "nic"}],
        ),
        "hostPath of /dev": spec(volumes=[{"name": "dev", "hostPath": {"path": "/dev"}}]),
        EVERY_TOLERATION: spec(tolerations=[{"operator": "Exists"}]),
        "every toleration, with a node selection": spec(
            tolerations=[{"operator": "Exists"}],
            nodeSelector={"node.kubernetes.io/instance-type": "m7i.large"},
        ),
    },
}
"""What is created in an outage, by the outcome with the second line and failure policy Fail."""


def expected(failure_policy: str, second_line: bool) -> dict[str, str]:
    """Return the outcomes of what is tried.

    Without the second line, its denials wait for a replica too. With failure policy Ignore, only a
    Pod that names its node waits. The webhook changes a Pod with every toleration before the second
    line sees it, so the failure policy comes first.
    """
    outcomes = {}
    for outcome, tried in TRIED.items():
        for what, spec in tried.items():
            found = WAITS if outcome == DENIED and not second_line else outcome
            ignored = failure_policy == "Ignore" and "nodeName" not in spec
            outcomes[what] = CREATED if found == WAITS and ignored else found
    if failure_policy == "Ignore" and second_line:
        outcomes[EVERY_TOLERATION] = DENIED
    return outcomes


class Outage(NamedTuple):
    """A release that API servers cannot reach; its replica and its controller run."""

    release: Release
    replica: Replica
    failure_policy: str
    second_line: bool

    @property
    def api(self) -> Api:
        return self.release.cluster.api

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Let API servers reach the replica inside the block."""
        self.release.service.select([self.replica])
        yield
        self.release.service.end()
        until(lambda: tried(self.api, TRIED[WAITS]["GPU Pod"]) != CREATED, "the outage to be back")


FAILURE_POLICIES = ("Fail", "Ignore")
WITH_SECOND_LINE = {policy: (policy, True) for policy in FAILURE_POLICIES}


@pytest.fixture(scope="module")
def unreachable(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outage]:
    """A release without a controller, and without an endpoint."""
    with (
        release(control_plane, tmp_path_factory.mktemp("outage")) as released,
        released.replicas(1, *FLAGS) as running,
    ):
        running.controller.stop()
        released.service.end()
        yield Outage(released, running.replicas[0], "Fail", second_line=True)


@pytest.fixture(
    scope="module",
    params=[
        *WITH_SECOND_LINE.values(),
        *((policy, False) for policy in FAILURE_POLICIES),
    ],
    ids=lambda given: f"{given[0]}-{'with' if given[1] else 'without'}",
)
def outage(request: pytest.FixtureRequest, unreachable: Outage) -> Iterator[Outage]:
    failure_policy, second_line = request.param
    api, released = unreachable.api, unreachable.release
    policies.use(api, default_spec() | {"failurePolicy": failure_policy})
    with released.controller(*FLAGS, *(() if second_line else ("--no-admission-policies",))):
        until(lambda: (DENYING in in_tree_denial(api)) is second_line, "the second line")
        # API servers learn of each admission policy by itself.
        leak = TRIED[DENIED]["device leak by variable"]
        until(lambda: (tried(api, leak) == DENIED) is second_line, "its policy about devices")
        until(
            lambda: (
                tried(api, TRIED[WAITS]["GPU Pod"])
                == (WAITS if failure_policy == "Fail" else CREATED)
            ),
            "the failure policy",
        )
        apart = "pods-placement" if failure_policy == "Fail" else "pods-named-node"
        until(lambda: f" {apart}." in placements(api), "the webhooks that fail differently")
        yield unreachable._replace(failure_policy=failure_policy, second_line=second_line)


def test_admission_policies_deny_trespassers_without_replicas(outage: Outage) -> None:
    found = {
        what: tried(outage.api, spec, "kube-system" if what == AGENT else "default")
        for specs in TRIED.values()
        for what, spec in specs.items()
    }
    for what, outcome in found.items():
        print(f"| {outage.failure_policy} | {outage.second_line} | {what} | {outcome} |")
    assert found == expected(outage.failure_policy, outage.second_line)


def test_a_mirror_pod_of_a_kubelet_never_waits(outage: Outage) -> None:
    api = outage.api
    node = api.request("POST", "/api/v1/nodes", {"metadata": {"generateName": "static-"}})
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    metadata = {
        "name": f"mirror-{name}",
        "annotations": {"kubernetes.io/config.mirror": "0"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    # The kubelet adds the first one to every static Pod, and many have the second.
    tolerations = [{"operator": "Exists", "effect": "NoExecute"}, {"operator": "Exists"}]
    mirror = {"metadata": metadata, "spec": spec(nodeName=name, tolerations=tolerations)}
    kubelet = replace(api, user=f"system:node:{name}", group="system:nodes")

    def is_accepted() -> bool:
        try:
            kubelet.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", mirror)
        except ApiError as error:
            # NodeRestriction looks the node up in a cache, which learns of it a moment later.
            if f'node "{name}" not found' not in str(error):
                raise
            return False
        return True

    try:
        until(is_accepted, "the mirror Pod to be accepted")
    finally:
        api.request("DELETE", f"/api/v1/nodes/{name}")


def pod(**fields: Any) -> JSON:
    return {"metadata": {"generateName": "plain-"}, "spec": spec(**fields)}


PLAIN = (
    pod(),
    pod(initContainers=[{"name": "init", "image": "busybox"}]),
    pod(
        nodeSelector={"kubernetes.io/os": "linux"},
        tolerations=[{"key": "spot", "operator": "Exists"}],
    ),
    pod(volumes=[{"name": "scratch", "emptyDir": {}}]),
)
in_fail = pytest.mark.parametrize("outage", [WITH_SECOND_LINE["Fail"]], indirect=True)
in_ignore = pytest.mark.parametrize("outage", [WITH_SECOND_LINE["Ignore"]], indirect=True)


@in_fail
def test_plain_pods_are_created_and_updated_without_a_webhook_call(
    outage: Outage, control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"

    def no_webhook_is_called() -> bool:
        before = webhooks.calls(control_plane.api.text("/metrics"))
        for plain in PLAIN:
            created = control_plane.api.request("POST", path, plain)
            control_plane.api.request(
                "PATCH",
                f"{path}/{created['metadata']['name']}",
                {"metadata": {"labels": {"updated": "yes"}}},
                "application/merge-patch+json",
            )
        return webhooks.calls(control_plane.api.text("/metrics")) == before

    # A controller may create Pods of another test meanwhile, and the API server counts all calls.
    until(no_webhook_is_called, "these Pods to be created without a call")


@contextmanager
def agent_on(cluster: ControlPlane, namespace: str, node_name: str) -> Iterator[None]:
    """Run a DaemonSet that tolerates every taint, and wait for its Pod on the only node."""
    agents = workload("DaemonSet", "agent", spec(tolerations=[{"operator": "Exists"}]))
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    pods = f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dagent"

    def placed() -> list[str]:
        items = cluster.api.request("GET", pods)["items"]
        return [item["spec"].get("nodeName", "") for item in items]

    cluster.api.request("POST", path, agents)
    try:
        until(lambda: placed() == [node_name], f"the agent's Pod on the node {node_name}")
        yield
    finally:
        cluster.api.request("DELETE", f"{path}/agent")
        # No kubelet is there to end it.
        cluster.api.request("DELETE", f"{pods}&gracePeriodSeconds=0")


@in_fail
def test_a_node_agent_starts_on_a_new_node(
    outage: Outage, control_plane: ControlPlane, namespace: str
) -> None:
    """The Pods of a DaemonSet may tolerate every taint, in any namespace."""
    joined = node("joined", taints=[taint("nvidia.com/gpu", "present")])
    with control_plane.nodes(joined), agent_on(control_plane, namespace, "joined"):
        pass
    # A Pod that its author creates is no agent, whatever owner it names.
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1"}
    agent = spec(tolerations=[{"operator": "Exists"}])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    metadata = {"generateName": "forged-", "ownerReferences": [{**owner, "controller": True}]}
    made = {"metadata": metadata, "spec": agent}
    with pytest.raises(ApiError, match=r'failed calling webhook "pods\.gpufence\.dev"|denied'):
        control_plane.api.request("POST", pods, made)
    # Without --use-service-account-credentials, all controllers have one account.
    manager = replace(control_plane.api, user=CONTROLLER_MANAGER, group="system:masters")
    manager.request("POST", f"{pods}?dryRun=All", made)


@in_fail
@pytest.mark.parametrize("excluded", ["kube-system", "gpu-operator"])
def test_gpu_pods_are_created_in_excluded_namespaces(
    outage: Outage, control_plane: ControlPlane, excluded: str
) -> None:
    control_plane.create_namespace(excluded)
    path = f"/api/v1/namespaces/{excluded}/pods?dryRun=All"
    control_plane.api.request("POST", path, pod(**TRIED[WAITS]["GPU Pod"]))
    control_plane.api.request("POST", path, pod(tolerations=[{"operator": "Exists"}]))


@in_ignore
def test_no_object_costs_the_api_server_much_more_than_without_gpufence(
    outage: Outage, control_plane: ControlPlane, found_binaries: dict[str, Path]
) -> None:
    """50 ms for each 100 kB. Searching what each Pod has with each other took 0.4 s for 3 kB.

    Before 1.37, an API server converts the whole object for each webhook and each policy.
    """
    api, version = outage.api, version_of(found_binaries["kube-apiserver"])
    limit = 100 if is_older(version, "v1.37") else 50

    def cost(path: str, obj: JSON, method: str) -> float:
        before = cpu_seconds(control_plane.apiserver)
        for _ in range(3):
            api.refusal(path, obj, method)
        return (cpu_seconds(control_plane.apiserver) - before) * 1000 / 3

    def is_cheap(path: str, obj: JSON, method: str = "POST") -> None:
        allowed = limit * ceil(len(json.dumps(obj)) / 100_000)
        # The API server does other work as well.
        assert any(
            cost(path.format("default"), obj, method)
            < allowed + cost(path.format("gpu-operator"), obj, method)
            for _ in range(3)
        )

    def update_is_cheap(name: str) -> None:
        deployments, spec = "/apis/apps/v1/namespaces/{}/deployments", DENSE[name]["spec"]
        stored = workload("Deployment", "dense", spec, paused=True)
        changed = workload(
            "Deployment", "dense", {**spec, "terminationGracePeriodSeconds": 7}, paused=True
        )
        try:
            for namespace in ("default", "gpu-operator"):
                api.request("POST", deployments.format(namespace), stored)
            is_cheap(f"{deployments}/dense", changed, "PUT")
        finally:
            for namespace in ("default", "gpu-operator"):
                with suppress(ApiError):
                    api.request("DELETE", f"{deployments.format(namespace)}/dense")

    control_plane.create_namespace("gpu-operator")
    each(DENSE, lambda name: is_cheap("/api/v1/namespaces/{}/pods", DENSE[name]))
    each(ADMITTED, update_is_cheap)


NODES_KNOWN = 'gpufence_cluster_objects{resource="nodes"}'
WATCHES_LOST = 'gpufence_cluster_watch_restarts_total{resource="nodes"}'
NOT_READY = ("not yet ready to handle request", "rbac/bootstrap-roles", "is not ready")
"""What an API server answers in its first moments, to any user."""
FIRST = {
    what: (TRIED[outcome][what], outcome)
    for what, outcome in (
        ("plain Pod", CREATED),
        ("GPU Pod", WAITS),
        ("trespasser by toleration", DENIED),
    )
}


def first_answers(api: Api, of: JSON) -> set[str]:
    """Return what an API server answers to a hundred creations from its start."""
    answers: list[str] = []
    while len(answers) < 100:
        try:
            answer = tried(api, of)
        except (OSError, HTTPException):
            answer = NOT_READY[0]
        if any(each in answer for each in NOT_READY):
            time.sleep(0.02)
        else:
            answers.append(answer)
    return set(answers)


# Python leaves a socket open whose peer is gone before the handshake (SSLSocket._create).
@pytest.mark.slow("restarts the control plane")
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
@in_fail
def test_the_cluster_recovers_without_gpufence_after_a_full_restart(
    outage: Outage, control_plane: ControlPlane, namespace: str
) -> None:
    """The first Pods get their verdict, and the replica keeps what it knows of the cluster."""
    api, replica = control_plane.api, outage.replica
    with control_plane.nodes(GPU_NODE):
        until(lambda: replica.metric(NODES_KNOWN) == 1, "the replica to know the node")
        lost = replica.metric(WATCHES_LOST)
        control_plane.apiserver.kill()
        control_plane.stop()
        until(lambda: replica.metric(WATCHES_LOST) > lost, "the loss to be counted")
        stands = replica.metric(NODES_KNOWN), replica.unready()
        with ThreadPoolExecutor(len(FIRST)) as threads:
            given = {what: threads.submit(first_answers, api, FIRST[what][0]) for what in FIRST}
            control_plane.start()
        assert stands == (1, ""), "what was known stands, and the replica is ready"
        assert {what: answers.result() for what, answers in given.items()} == {
            what: {outcome} for what, (_, outcome) in FIRST.items()
        }
        with agent_on(control_plane, "kube-system", "gpu"):
            api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod())
        with outage.answered():
            until(lambda: is_denied_on(api, "gpu"), "the old node to count")
            with control_plane.nodes(
                {**GPU_NODE, "metadata": {**GPU_NODE["metadata"], "name": "new"}}
            ):
                until(lambda: is_denied_on(api, "new"), "the new node to count")
            until(lambda: replica.metric(NODES_KNOWN) == 1, "the new node to be gone")


def is_denied_on(api: Api, name: str) -> bool:
    """Return whether a replica denies a Pod that names the node."""
    path = "/api/v1/namespaces/default/pods"
    return "binds the Pod to GPU node" in api.refusal(path, pod(nodeName=name))


@in_ignore
def test_audit_lists_gpu_pods_admitted_unmutated_during_an_outage(outage: Outage) -> None:
    pods = "/api/v1/namespaces/default/pods"
    obj = {"metadata": {"name": "unchanged"}, "spec": TRIED[WAITS]["GPU Pod"]}
    assert "affinity" not in outage.api.request("POST", pods, obj)["spec"]
    try:
        output = outage.release.run("audit", "--fail-on", "never")
    finally:
        outage.api.request("DELETE", f"{pods}/unchanged")
    # Other tests leave Pods behind in the shared cluster.
    assert "without the mutations of the policy: default/unchanged" in output


@in_ignore
def test_a_policy_change_updates_admission_policies_without_a_gap(outage: Outage) -> None:
    second: JSON = {
        "name": "amd",
        "resources": ["amd.com/gpu"],
        "taints": [{"key": "amd.com/gpu"}],
        "nodeSelector": {"feature.node.kubernetes.io/amd-gpu": "true"},
    }
    former = default_spec() | {"failurePolicy": "Ignore"}
    trespasser = spec(tolerations=[{"key": "amd.com/gpu", "operator": "Exists"}])
    for changed in (True, False):
        pools = [*former["pools"], second] if changed else former["pools"]
        policies.use(outage.api, former | {"pools": pools})

        def follows(expected: str = DENIED if changed else CREATED) -> bool:
            assert tried(outage.api, spec(**TOLERATING)) == DENIED
            return tried(outage.api, trespasser) == expected

        until(follows, "the admission policies to follow")


def placements(api: Api) -> str:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}"
    return " ".join(webhook["name"] for webhook in api.request("GET", path)["webhooks"])


def tried(api: Api, of: JSON, namespace: str = "default") -> str:
    """Return the outcome of a Pod's creation (dry run)."""
    pod = {"metadata": {"generateName": "tried-"}, "spec": of}
    refusal = api.refusal(f"/api/v1/namespaces/{namespace}/pods", pod)
    if "ValidatingAdmissionPolicy" in refusal:
        return DENIED
    return WAITS if "failed calling webhook" in refusal else refusal or CREATED
