"""What a user with `edit` in one namespace attempts against the chart's default installation.

The cluster has a GPU node, one that lacks its labels, and plain ones; the real scheduler and the
real controllers run. docs/concepts/threat-model.md names these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from controlplane.api import Api
from controlplane.objects import claim_template, node, taint, workload
from controlplane.poll import until
from controlplane.versions import CLAIMS
from deciding import required
from deploy import kubelet
from deploy.chart import NAMESPACE, RELEASE, Values
from deploy.installation import Installation
from each import each
from specs import JSON, default_spec

pytestmark = [
    pytest.mark.skipif(
        bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
    ),
]

TENANT = "tenant"
PODS = f"/api/v1/namespaces/{TENANT}/pods"
DRA = f"/apis/resource.k8s.io/v1/namespaces/{TENANT}"
RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TENANT}"

# A node that has joined a moment ago: GPU feature discovery has not labeled it yet.
LATE = node("gpu-late", taints=[taint("nvidia.com/gpu", "present")])
# The policy of the chart, and a pool that is for labeled namespaces. The last test stops replicas.
LAB = {
    "name": "lab",
    "resources": ["example.com/lab-gpu"],
    "taints": [{"key": "example.com/lab-gpu"}],
    "nodeSelector": {"example.com/lab-gpu": "true"},
    "allowedNamespaces": {"matchLabels": {"team": "lab"}},
}
VALUES: Values = {
    "policy": {
        "pools": [*default_spec()["pools"], LAB],
        "overrides": [{"namespaces": ["play-*"], "mode": "audit"}],
    },
    "webhook": {"drainSeconds": 0},
}


@pytest.fixture(scope="module")
def installed(installable: Installation) -> Iterator[Installation]:
    """The chart's default installation, in a cluster with a tenant."""
    cluster = installable.cluster
    cluster.create_namespace(TENANT)
    with cluster.nodes(LATE):
        installable.install(VALUES)
        binding: JSON = {
            "metadata": {"name": "alice"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "edit",
            },
            "subjects": [{"kind": "User", "name": "alice"}],
        }
        cluster.api.request("POST", f"{RBAC}/rolebindings", binding)
        until(
            lambda: "binds the Pod to GPU node" in denial(cluster.api, pod(nodeName="gpu-late")),
            "the replicas to know the nodes",
        )
        yield installable
        cluster.delete_workloads(TENANT)


@pytest.fixture(scope="module")
def alice(installed: Installation) -> Api:
    """The API as the tenant reaches it."""
    return replace(installed.cluster.api, user="alice", group="system:authenticated")


def pod(resource: str = "", *, container: JSON | None = None, **spec: Any) -> JSON:
    main: JSON = {"name": "main", "image": "registry.example/app", **(container or {})}
    if resource:
        main["resources"] = {"limits": {resource: "1"}}
    spec = {"containers": [main], **spec}
    return {"metadata": {"generateName": "attack-"}, "spec": spec}


def denial(api: Api, obj: JSON, path: str = PODS, method: str = "POST") -> str:
    """Return why an object is rejected (dry run), "" if it is created."""
    return api.refusal(path, obj, method)


HOST = "kubernetes.io/hostname"
TYPE = "node.kubernetes.io/instance-type"
PRESENT = "nvidia.com/gpu.present"
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
WILDCARD = {"operator": "Exists"}
PRIVILEGED = {"securityContext": {"privileged": True}}
ROOT = [{"name": "host", "hostPath": {"path": "/"}}]
NOT_LABELED = required(f"{PRESENT} NotIn true")
TO_COME = required(f"{HOST} In one", f"{TYPE} In p5.48xlarge")

SELECTING = "/var/run/nvidia-container-devices"
PEEK: JSON = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}


def annotated(key: str, value: str) -> JSON:
    return {**pod(), "metadata": {"generateName": "attack-", "annotations": {key: value}}}


def with_path(path: str, resource: str = "", **mount: str) -> JSON:
    """Return a Pod with a volume for a path of the host, mounted if the mount is given."""
    volumes = [{"name": "v", "hostPath": {"path": path}}]
    mounts = [{"name": "v", **mount}] if mount else []
    return pod(resource, container={"volumeMounts": mounts}, volumes=volumes)


def with_env(**variables: str) -> JSON:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return pod(container={"env": env})


BY_RULE: dict[str, dict[str, JSON]] = {
    "pool-trespass": {
        "nodeName of a GPU node": pod(nodeName="gpu"),
        "nodeName of a GPU node, privileged, with hostPath /": pod(
            container=PRIVILEGED, nodeName="gpu", volumes=ROOT
        ),
        "nodeName of a node that does not exist yet": pod(nodeName="gpu-2"),
        "nodeName of a node that has no label yet": pod(nodeName="gpu-late"),
        "host name of a GPU node": pod(nodeSelector={HOST: "gpu"}),
        "host name of a node that has no label yet": pod(
            nodeSelector={HOST: "gpu-late"}, tolerations=[TOLERATION]
        ),
        "toleration and NotIn, which a node without its label accepts": pod(
            tolerations=[TOLERATION], **NOT_LABELED
        ),
        "wildcard and NotIn, which a node without its label accepts": pod(
            tolerations=[WILDCARD], **NOT_LABELED
        ),
        "toleration, and a term for nodes to come": pod(tolerations=[TOLERATION], **TO_COME),
    },
    "missing-device": {
        "nodeName of a GPU node, with a device that it lacks": pod(
            "nvidia.com/mig-9g.99gb", nodeName="gpu"
        ),
    },
    "device-leak": {
        "a CDI annotation": annotated("cdi.k8s.io/gpus", "nvidia.com/gpu=all"),
        "an annotation for NVIDIA's NRI plugin": annotated(
            "nvidia.cdi.k8s.io/container.main", "nvidia.com/gpu=all"
        ),
        "an annotation for the device injector of GKE": annotated(
            "devices.gke.io/container.main", "- path: /dev/nvidia0"
        ),
        "a mount that selects every GPU": with_path("/dev/null", mountPath=f"{SELECTING}/all"),
        "a mount that selects every GPU without a slash": with_path(
            "/dev/null", mountPath=f"{SELECTING}cdi/all"
        ),
        "a device file below a volume of the root": with_path(
            "/", mountPath="/g", subPath="dev/nvidia0"
        ),
        "a device file by its numbers": with_path("/dev/char/195:0"),
        "a device file below the directory of a process": with_path("/proc/1/cwd/dev/nvidia0"),
        "a device file of the driver container": with_path("/run/nvidia/driver/dev/nvidia0"),
        "a container that passes for a legacy image": with_env(CUDA_VERSION="9.0"),
        "a version that is a device value": with_env(CUDA_VERSION="none"),
        "a version beside requirements that are empty once expanded": with_env(
            E="", CUDA_VERSION="12.4", NVIDIA_REQUIRE_CUDA="$(E)"
        ),
        "RDMA devices beside none": with_env(NVIDIA_VISIBLE_DEVICES="none", NVIDIA_MOFED="enabled"),
    },
    "system-priority": {
        "a GPU Pod with a priority of the system": pod(
            "nvidia.com/gpu", priorityClassName="system-node-critical"
        ),
    },
    "unrestricted-gpu-pod": {
        "hostPath / in a GPU Pod": with_path("/", "nvidia.com/gpu"),
        "hostPath /dev in a GPU Pod": with_path("/dev", "nvidia.com/gpu"),
    },
    "pool-not-allowed": {
        "a pool that admits other namespaces by label": pod("example.com/lab-gpu"),
    },
}
ATTACKS = {
    attack: (obj, rule) for rule, attacks in BY_RULE.items() for attack, obj in attacks.items()
}


def test_an_attack_of_a_pod_is_denied(alice: Api) -> None:
    def is_denied(attack: str) -> None:
        obj, rule = ATTACKS[attack]
        assert f"{rule}: " in denial(alice, obj)

    each(ATTACKS, is_denied)


def agent(**spec: Any) -> JSON:
    """Return a DaemonSet that tolerates every taint."""
    return workload("DaemonSet", "attack", pod(tolerations=[WILDCARD], **spec)["spec"])


AGENTS = {
    "for one GPU node": (agent(**required("metadata.name In gpu")), "pool-trespass"),
    "for hosts of both kinds": (agent(**required(f"{HOST} In gpu one")), "pool-trespass"),
    "with a priority of the system": (
        agent(priorityClassName="system-cluster-critical"),
        "system-priority",
    ),
}


def test_an_attack_of_a_daemon_set_is_denied(installed: Installation, alice: Api) -> None:
    path = "/apis/apps/v1/namespaces/{}/daemonsets"

    def is_denied(attack: str) -> None:
        obj, rule = AGENTS[attack]
        assert f"{rule}: " in denial(alice, obj, path.format(TENANT))
        # The cluster's own agents are in exempt namespaces.
        assert denial(installed.cluster.api, obj, path.format("kube-system")) == ""

    each(AGENTS, is_denied)
    # An agent of every node, which its author has not bound, is no attack, nor one of other hosts.
    for obj in (agent(), agent(**required(f"{HOST} In one two"))):
        assert denial(alice, obj, path.format(TENANT)) == ""


def test_a_variable_that_overrides_the_requested_devices_is_removed(alice: Api) -> None:
    made = alice.request("POST", f"{PODS}?dryRun=All", pod("nvidia.com/gpu", container=PEEK))
    env = made["spec"]["containers"][0].get("env") or []
    assert [each for each in env if each["name"] == PEEK["env"][0]["name"]] == []


TOO_LARGE = (
    'admission webhook "pods.gpufence.dev" denied the request: gpufence cannot review '
    "this object, because the review is over 8 MiB. Make the object smaller: move long values into "
    "a ConfigMap"
)


def filler(count: int) -> JSON:
    """Return fields of a container with characters that the API server escapes to six bytes."""
    return {"env": [{"name": "FILLER", "value": "<" * count}]}


def test_a_pod_of_a_named_node_whose_review_is_too_large_is_rejected(alice: Api) -> None:
    large = filler(1_400_000)
    assert denial(alice, pod(container=large)) == ""
    bound = pod(container=large, nodeName="gpu")
    assert denial(alice, bound) == TOO_LARGE
    path = f"/apis/apps/v1/namespaces/{TENANT}/deployments"
    assert denial(alice, workload("Deployment", "attack", bound["spec"]), path) == TOO_LARGE


def test_parallel_large_reviews_are_denied_or_fail_closed(
    installed: Installation, alice: Api
) -> None:
    """What the API server cannot send in time, it decides itself, by the failure policy."""
    large, many = pod(container=filler(1_250_000), nodeName="gpu"), 24
    # A slow API server may use up the timeout before it sends anything.
    patient = replace(alice, timeout=120)
    with ThreadPoolExecutor(many) as threads:
        denials = list(threads.map(lambda _: denial(patient, large), range(many)))
    print("\n" + "\n".join(sorted({f"{denials.count(each)} x {each}" for each in denials})))
    assert all(denials)
    # Neither does gpufence answer with an HTTP error, which another failure policy would ignore.
    log = (installed.cluster.directory / "kube-apiserver.log").read_text()
    assert "the server responded with the status code" not in log


def claiming(name: str, *, used: bool = True, **spec: Any) -> JSON:
    container = {"resources": {"claims": [{"name": "gpu"}]}} if used else {}
    entry = {"name": "gpu", "resourceClaimTemplateName": name}
    return pod(container=container, resourceClaims=[entry], **spec)


@CLAIMS
def test_a_pod_of_a_replaced_claim_template_gets_no_toleration(alice: Api) -> None:
    path = f"{DRA}/resourceclaimtemplates"
    alice.request("POST", path, claim_template("swapped", "gpu.nvidia.com"))
    gpu = alice.request("POST", f"{PODS}?dryRun=All", claiming("swapped"))
    assert any(each["key"] == "nvidia.com/gpu" for each in gpu["spec"]["tolerations"])
    alice.request("DELETE", f"{path}/swapped")
    alice.request("POST", path, claim_template("swapped", "none.example.com"))
    other = alice.request("POST", f"{PODS}?dryRun=All", claiming("swapped"))
    assert not any(each["key"] == "nvidia.com/gpu" for each in other["spec"]["tolerations"])
    assert "pool-trespass: " in denial(alice, claiming("swapped", tolerations=[TOLERATION]))


GPU_OR_NOT = [
    {"name": "impossible", "deviceClassName": "gpu.nvidia.com", "count": 1000},
    {"name": "nic", "deviceClassName": "none.example.com"},
]


@CLAIMS
def test_a_claim_never_justifies_the_variable(alice: Api) -> None:
    path = f"{DRA}/resourceclaimtemplates"
    alice.request("POST", path, claim_template("whole", "gpu.nvidia.com"))
    alice.request("POST", path, claim_template("either", firstAvailable=GPU_OR_NOT))
    unknown, either, replaced = claiming("whole"), claiming("either"), claiming("whole")
    [use] = unknown["spec"]["containers"][0]["resources"]["claims"]
    use["request"] = "unknown"
    # No container gets the device of such a claim, and the image may set the variable.
    assert "unschedulable-gpu-pod: " in denial(alice, unknown)
    for obj in (unknown, either, replaced, claiming("nowhere")):
        obj["spec"]["containers"][0] |= PEEK
        assert "device-leak: " in denial(alice, obj)


@CLAIMS
def test_a_pod_with_an_unused_claim_is_denied(alice: Api) -> None:
    alice.request(
        "POST", f"{DRA}/resourceclaimtemplates", claim_template("unused", "gpu.nvidia.com")
    )
    parked = claiming("unused", used=False, tolerations=[TOLERATION])
    assert "pool-trespass: " in denial(alice, parked)
    assert "unschedulable-gpu-pod: " in denial(alice, claiming("unused", used=False))


@CLAIMS
def test_a_privileged_debug_container_is_denied_after_claim_deletion(
    installed: Installation, alice: Api
) -> None:
    templates = f"{DRA}/resourceclaimtemplates"
    alice.request("POST", templates, claim_template("gone", "gpu.nvidia.com"))
    made = alice.request("POST", PODS, claiming("gone"))
    path = f"{PODS}/{made['metadata']['name']}"

    def generated() -> Any:
        status = installed.cluster.api.request("GET", path)["status"]
        return status.get("resourceClaimStatuses")

    until(generated, "the claim to be generated")
    alice.request("DELETE", f"{templates}/gone")
    admin = installed.cluster.api
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox", **PRIVILEGED}]}}
    # `edit` has no right to debug; a tenant with that right gets no further.
    debugger = replace(admin, user="bob")
    # The scheduler writes to the Pod meanwhile: a patch has no conflict with it.
    denied = partial(denial, debugger, debug, f"{path}/ephemeralcontainers", "PATCH")
    assert "unrestricted-gpu-pod: " in denied()
    [status] = generated()
    admin.request("DELETE", f"{DRA}/resourceclaims/{status['resourceClaimName']}")
    assert "unrestricted-gpu-pod: " in denied()


def test_a_tenant_cannot_create_a_namespace_that_is_exempt_or_relaxed_by_its_name(
    installed: Installation, alice: Api
) -> None:
    """The tenant may create namespaces; the cluster has none of these names."""
    admin = installed.cluster.api
    bob = replace(alice, user="bob")
    grant(admin, "creates-namespaces", "", "namespaces", "create", "alice", "bob")
    grant(admin, "uses-the-override", "gpufence.dev", "fencepolicies", "relax", "bob")

    def denied(api: Api, **metadata: str) -> str:
        return denial(api, {"metadata": metadata}, "/api/v1/namespaces")

    until(lambda: denied(alice, name="of-her-own") == "", "the right to create namespaces")
    exempt, relaxed = "exempts this namespace by its name", "relax it for namespaces of this name"
    for name in ("gpu-operator-resources", "kube-flannel"):
        for api in (alice, bob):
            until(lambda: exempt in denied(api, name=name), "the guard")  # noqa: B023
        assert denied(admin, name=name) == ""
    for metadata in ({"name": "play-1"}, {"generateName": "play-"}):
        assert relaxed in denied(alice, **metadata)
        until(lambda: denied(bob, **metadata) == "", "the verb of the policy to count")  # noqa: B023
        assert denied(admin, **metadata) == ""
    assert denied(alice, name="play") == ""


def grant(admin: Api, name: str, group: str, resource: str, verb: str, *users: str) -> None:
    """Give the users one right in the whole cluster."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    metadata = {"name": name}
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]
    admin.request("POST", f"{rbac}/clusterroles", {"metadata": metadata, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **metadata}
    subjects = [{"kind": "User", "name": user} for user in users]
    binding = {"metadata": metadata, "roleRef": role, "subjects": subjects}
    admin.request("POST", f"{rbac}/clusterrolebindings", binding)


def test_without_replicas_only_a_selection_by_other_labels_succeeds(
    installed: Installation, alice: Api
) -> None:
    """Its webhook never stops plain workloads. This test comes last: it stops the replicas."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
    stopped = {"spec": {"replicas": 0}}
    installed.cluster.api.request("PATCH", path, stopped, "application/merge-patch+json")
    # One refused connection says little: another replica may answer the next review.
    until(lambda: not installed.pods(), "the replicas to be gone")
    no_answer = "failed calling webhook"
    reasons = {attack: denial(alice, obj) for attack, (obj, _) in ATTACKS.items()}
    for attack, reason in reasons.items():
        by = "no answer" if no_answer in reason else reason.partition(": ")[2][:60]
        print(f"| {attack} | {by or 'CREATED'} |")
    created = {attack for attack, reason in reasons.items() if not reason}
    assert created == {"host name of a GPU node"}
