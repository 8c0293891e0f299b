"""The in-tree policies of running replicas, and what holds in an outage of all replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.contestants import cpu_seconds
from controlplane import policies, webhooks
from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.objects import GPU_NODE, node, taint, workload
from controlplane.poll import until
from controlplane.webhooks import in_tree_denial
from release.release import NAME, Release, release
from specs import default_spec

JSON = dict[str, Any]
DENYING = f"{NAME}-pool-trespass"


class Installed:
    """A release whose policy can be changed, and the objects of the second line."""

    def __init__(self, released: Release) -> None:
        self.release = released
        self.api: Api = released.cluster.api

    def use(self, **changes: Any) -> None:
        """Change the policy of the replicas."""
        policies.use(self.api, default_spec() | changes)


@pytest.fixture
def installed(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Installed]:
    with release(control_plane, tmp_path) as released:
        yield Installed(released)


def flags(installed: Installed) -> tuple[str, ...]:
    return ("--poll-seconds", "1")


def test_a_policy_change_updates_admission_policies_without_a_gap(
    installed: Installed,
) -> None:
    second: JSON = {
        "name": "amd",
        "resources": ["amd.com/gpu"],
        "taints": [{"key": "amd.com/gpu"}],
        "nodeSelector": {"feature.node.kubernetes.io/amd-gpu": "true"},
    }
    pools = default_spec()["pools"]
    with installed.release.replicas(2, *flags(installed)):
        until(lambda: DENYING in in_tree_denial(installed.api), "the second line")
        for changes in ({"pools": [*pools, second]}, {}, {"pools": [*pools, second]}):
            installed.use(**changes)

            def follows(expected: bool = "pools" in changes) -> bool:
                assert in_tree_denial(installed.api), "a trespasser is admitted during the change"
                return denied_amd(installed.api) == expected

            until(follows, "the admission policies to follow")


def denied_amd(api: Api) -> bool:
    """Return whether the second line denies a trespasser on the pool that is added."""
    spec = {
        "containers": [{"name": "a", "image": "a"}],
        "tolerations": [{"key": "amd.com/gpu", "operator": "Exists"}],
    }
    pod = {"metadata": {"generateName": "amd-"}, "spec": spec}
    return f"'{DENYING}'" in api.refusal("/api/v1/namespaces/default/pods", pod)


GPU = {"limits": {"nvidia.com/gpu": "1"}}
TOLERATING = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
MAIN = {"name": "main", "image": "app"}
ENV = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]

NOT_GPU = {"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": ["true"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEPT_OFF = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [NOT_GPU]}]}}
TYPED = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m7i"]}
BY_TYPE = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [TYPED]}]}}


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
        "Pod with a node affinity": spec(affinity={"nodeAffinity": BY_TYPE}),
        "Pod that keeps off GPU nodes": spec(affinity={"nodeAffinity": KEPT_OFF}),
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
    """A release whose last replica is dead."""

    installed: Installed
    failure_policy: str
    second_line: bool


FAILURE_POLICIES = ("Fail", "Ignore")
WITH_SECOND_LINE = {policy: (policy, True) for policy in FAILURE_POLICIES}


FIRST = {
    "plain Pod": (spec(), "created"),
    "GPU Pod": (TRIED[WAITS]["GPU Pod"], "mutated"),
    "trespasser": (spec(**TOLERATING), f"'{DENYING}'"),
}
NOT_READY = ("not yet ready to handle request", "rbac/bootstrap-roles", "is not ready")
"""What an API server answers in its first moments, to any user."""


# Python leaves a socket open whose peer is gone before the handshake (SSLSocket._create).
@pytest.mark.slow("restarts the API server")
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
def test_the_first_pods_after_a_restart_of_the_api_server_get_their_verdict(
    installed: Installed, control_plane: ControlPlane
) -> None:
    path = "/api/v1/namespaces/default/pods?dryRun=All"
    answers: dict[str, Counter[str]] = {kind: Counter() for kind in FIRST}

    def create(kind: str) -> None:
        pod = {"metadata": {"generateName": "first-"}, "spec": FIRST[kind][0]}
        while answers[kind].total() < 100:
            try:
                made = control_plane.api.request("POST", path, pod)
                answer = "mutated" if "affinity" in made["spec"] else "created"
            except ApiError as error:
                named = (*NOT_READY, *(expected for _, expected in FIRST.values()))
                answer = next((each for each in named if each in str(error)), str(error))
            except (OSError, HTTPException):
                continue
            answers[kind][answer] += 1

    with installed.release.replicas(2, *flags(installed)):
        until(lambda: DENYING in in_tree_denial(installed.api), "the second line")
        webhooks.wait_until_called(control_plane, created=True)
        control_plane.apiserver.kill()
        with ThreadPoolExecutor(len(FIRST)) as threads:
            creating = [threads.submit(create, kind) for kind in FIRST]
            control_plane.start_apiserver()
            for each in creating:
                each.result()
        control_plane.start_clients()
    print(f"\n{answers}")
    for kind, (_, expected) in FIRST.items():
        assert set(answers[kind]) - {*NOT_READY} == {expected}


@pytest.fixture(
    scope="module",
    params=[
        *WITH_SECOND_LINE.values(),
        *((policy, False) for policy in FAILURE_POLICIES),
    ],
    ids=lambda given: f"{given[0]}-{'with' if given[1] else 'without'}",
)
def outage(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outage]:
    failure_policy, second_line = request.param
    directory = tmp_path_factory.mktemp("outage")
    with release(control_plane, directory) as released:
        installed = Installed(released)
        installed.use(failurePolicy=failure_policy)
        given = [] if second_line else ["--no-admission-policies"]
        with released.replicas(1, *flags(installed), controller=given) as running:
            if second_line:
                until(lambda: DENYING in in_tree_denial(installed.api), "the second line")
            until(lambda: "-placement." in placements(installed.api), "the placement webhooks")
            running.replicas[0].kill()
            yield Outage(installed, failure_policy, second_line)


def test_admission_policies_deny_trespassers_without_replicas(outage: Outage) -> None:
    found = {
        what: tried(outage.installed.api, "kube-system" if what == AGENT else "default", spec)
        for specs in TRIED.values()
        for what, spec in specs.items()
    }
    for what, outcome in found.items():
        print(f"| {outage.failure_policy} | {outage.second_line} | {what} | {outcome} |")
    assert found == expected(outage.failure_policy, outage.second_line)


def test_a_mirror_pod_of_a_kubelet_never_waits(outage: Outage) -> None:
    api = outage.installed.api
    node = api.request("POST", "/api/v1/nodes", {"metadata": {"generateName": "static-"}})
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    metadata = {
        "name": f"mirror-{name}",
        "annotations": {"kubernetes.io/config.mirror": "0"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    # The kubelet adds this toleration to every static Pod.
    tolerations = [{"operator": "Exists", "effect": "NoExecute"}]
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
    with pytest.raises(ApiError, match=r'failed calling webhook "pods\.gpufence\.dev"|denied'):
        control_plane.api.request("POST", pods, {"metadata": metadata, "spec": agent})


@in_fail
@pytest.mark.parametrize("excluded", ["kube-system", "gpu-operator"])
def test_gpu_pods_are_created_in_excluded_namespaces(
    outage: Outage, control_plane: ControlPlane, excluded: str
) -> None:
    control_plane.create_namespace(excluded)
    path = f"/api/v1/namespaces/{excluded}/pods?dryRun=All"
    control_plane.api.request("POST", path, pod(**TRIED[WAITS]["GPU Pod"]))
    control_plane.api.request("POST", path, pod(tolerations=[{"operator": "Exists"}]))


LONG: dict[str, tuple[str, JSON]] = {
    "variables": ("default", spec(containers=[{**MAIN, "env": [{"name": "a"}] * 40_000}])),
    "tolerations": ("default", spec(tolerations=[{"key": "a", "operator": "Exists"}] * 35_000)),
}


@in_fail
@pytest.mark.parametrize("long", LONG)
def test_a_pod_with_a_long_list_costs_the_api_server_no_time_with_its_square(
    outage: Outage, control_plane: ControlPlane, long: str
) -> None:
    """No expression searches it, so that only a replica can tell. 40,000 variables took 4 s."""

    def cost() -> float:
        before = cpu_seconds(control_plane.apiserver)
        assert tried(outage.installed.api, *LONG[long]) == WAITS
        return cpu_seconds(control_plane.apiserver) - before

    # The API server does other work as well: the least of three is the cost of the request.
    assert min(cost() for _ in range(3)) < 1.5


@pytest.mark.slow("restarts the control plane")
@in_fail
def test_the_cluster_recovers_without_gpufence_after_a_full_restart(
    outage: Outage, control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.stop()
    control_plane.start()
    with control_plane.nodes(GPU_NODE), agent_on(control_plane, "kube-system", "gpu"):
        created = control_plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod())
        assert created["metadata"]["name"].startswith("plain-")


@pytest.mark.parametrize("outage", [WITH_SECOND_LINE["Ignore"]], indirect=True)
def test_audit_lists_gpu_pods_admitted_unmutated_during_an_outage(outage: Outage) -> None:
    installed = outage.installed
    spec = TRIED[WAITS]["GPU Pod"]
    pod = {"metadata": {"name": "unchanged"}, "spec": spec}
    created = installed.api.request("POST", "/api/v1/namespaces/default/pods", pod)
    assert "affinity" not in created["spec"]
    try:
        output = installed.release.run("audit", "--fail-on", "never")
    finally:
        installed.api.request("DELETE", "/api/v1/namespaces/default/pods/unchanged")
    # Other tests leave Pods behind in the shared cluster.
    assert "without the mutations of the policy: default/unchanged" in output


def placements(api: Api) -> str:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}"
    return " ".join(webhook["name"] for webhook in api.request("GET", path)["webhooks"])


def tried(api: Api, namespace: str, of: JSON) -> str:
    """Return the outcome of a Pod's creation (dry run)."""
    pod = {"metadata": {"generateName": "tried-"}, "spec": of}
    refusal = api.refusal(f"/api/v1/namespaces/{namespace}/pods", pod)
    if "ValidatingAdmissionPolicy" in refusal:
        return DENIED
    return WAITS if "failed calling webhook" in refusal else refusal or CREATED
