"""What pools require of each kind of workload, besides the cases."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest

from deciding import pod, policy
from policies.engine import NO_FACTS, decide, validate
from policies.facts import Facts, Request
from policies.finding import Finding
from policies.kubernetes.claims import Ask, Claim, HostShare
from policies.kubernetes.core_v1 import PodObject
from policies.kubernetes.kinds import CORE_WORKLOADS
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.quantity import NANOS
from policies.reach import CONTROLLERS
from policies.rules import check_pool_requirements
from policies.vocabulary import QUEUE_LABEL
from strategies import JSON
from webhook.tools import custom_resources

LABEL = "gpu.example/pool"
POOL: JSON = {"name": "a", "resources": ["gpu.example/a"], "nodeSelector": {LABEL: "a"}}
CONTAINER = {"name": "train", "image": "i", "resources": {"limits": {"gpu.example/a": 1}}}
SPEC = {"containers": [CONTAINER]}
WORKERS = {"Worker": {"template": {"spec": SPEC}}}
STEPS = [{"name": "train", "container": CONTAINER}]
JOBS = [{"name": "workers", "template": {"spec": {"template": {"spec": SPEC}}}}]


def findings(
    obj: Any,
    requires: JSON,
    facts: Facts = NO_FACTS,
    pool: JSON = POOL,
    others: tuple[JSON, ...] = (),
) -> list[Finding]:
    """Return the findings about an object, and a pool with one entry under requires."""
    own = policy(pools=[{**pool, "requires": [requires]}, *others])
    found = decide(custom_resources.workload(obj, own), own, facts=facts).findings
    return [finding for finding in found if finding.rule == check_pool_requirements.ID]


def workload(api_version: str, kind: str, spec: JSON, **metadata: Any) -> JSON:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "train", **metadata},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("api_version", "kind", "place", "spec"),
    [
        ("v1", "Pod", "spec", SPEC),
        ("batch/v1", "Job", "spec", {"template": {"spec": SPEC}}),
        (
            "batch/v1",
            "CronJob",
            "spec.jobTemplate.spec",
            {"jobTemplate": {"spec": {"template": {"spec": SPEC}}}},
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "spec.replicatedJobs[0].template.spec",
            {"replicatedJobs": JOBS},
        ),
        (
            "ray.io/v1",
            "RayJob",
            "spec",
            {"rayClusterSpec": {"headGroupSpec": {"template": {"spec": SPEC}}}},
        ),
        (
            "trainer.kubeflow.org/v1alpha1",
            "TrainJob",
            "spec",
            {"trainer": {"resourcesPerNode": CONTAINER["resources"]}},
        ),
        ("argoproj.io/v1alpha1", "Workflow", "spec", {"templates": STEPS}),
        ("argoproj.io/v1alpha1", "WorkflowTemplate", "spec", {"templates": STEPS}),
        ("argoproj.io/v1alpha1", "ClusterWorkflowTemplate", "spec", {"templates": STEPS}),
        (
            "argoproj.io/v1alpha1",
            "CronWorkflow",
            "spec.workflowSpec",
            {"workflowSpec": {"templates": STEPS}},
        ),
        ("kubeflow.org/v1", "JAXJob", "spec.runPolicy", {"jaxReplicaSpecs": WORKERS}),
        ("kubeflow.org/v1", "MPIJob", "spec.runPolicy", {"mpiReplicaSpecs": WORKERS}),
        ("kubeflow.org/v1", "PaddleJob", "spec.runPolicy", {"paddleReplicaSpecs": WORKERS}),
        ("kubeflow.org/v1", "PyTorchJob", "spec.runPolicy", {"pytorchReplicaSpecs": WORKERS}),
        ("kubeflow.org/v1", "TFJob", "spec.runPolicy", {"tfReplicaSpecs": WORKERS}),
        ("kubeflow.org/v1", "XGBoostJob", "spec.runPolicy", {"xgbReplicaSpecs": WORKERS}),
    ],
)
def test_a_workload_has_its_deadline_in_the_field_that_the_finding_names(
    api_version: str, kind: str, place: str, spec: JSON
) -> None:
    obj = workload(api_version, kind, copy.deepcopy(spec))
    [finding] = findings(obj, {"maxRuntime": "1h"})
    assert finding.path == place
    assert finding.remediation == f"Set {place}.activeDeadlineSeconds to 3600 or less (1h)"
    holder: Any = obj
    for step in place.replace("[0]", ".0").split("."):
        holder = holder[int(step)] if step == "0" else holder.setdefault(step, {})
    holder["activeDeadlineSeconds"] = 3601
    [finding] = findings(obj, {"maxRuntime": "1h"})
    assert finding.path == f"{place}.activeDeadlineSeconds"
    holder["activeDeadlineSeconds"] = 3600
    assert not findings(obj, {"maxRuntime": "1h"})


@pytest.mark.parametrize(
    ("duration", "seconds"), [("90s", 90), ("2m", 120), ("2h", 7200), ("1h30m", 5400)]
)
def test_a_run_time_has_hours_minutes_and_seconds(duration: str, seconds: int) -> None:
    [finding] = findings(workload("v1", "Pod", SPEC), {"maxRuntime": duration})
    assert f"to {seconds} or less ({duration})" in finding.remediation


def test_the_pod_of_an_admission_request_has_a_deadline_and_a_queue() -> None:
    requires = {"maxRuntime": "1h", "queue": True}
    queue = {"kueue.x-k8s.io/queue-name": "team-blue"}
    obj = workload("v1", "Pod", SPEC | {"activeDeadlineSeconds": 3600}, labels=queue)
    assert not findings(msgspec.json.decode(json.dumps(obj), type=PodObject), requires)
    late = workload("v1", "Pod", SPEC | {"activeDeadlineSeconds": 3601})
    found = findings(msgspec.json.decode(json.dumps(late), type=PodObject), requires)
    assert [finding.path for finding in found] == ["spec.activeDeadlineSeconds", "metadata.labels"]


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [("argoproj.io/v1alpha1", "Workflow"), ("serving.kserve.io/v1beta1", "InferenceService")],
)
def test_pods_of_argo_workflows_and_kserve_are_judged_themselves(
    api_version: str, kind: str
) -> None:
    owner = {"apiVersion": api_version, "kind": kind, "name": "a", "uid": "a", "controller": True}
    assert findings(workload("v1", "Pod", SPEC, ownerReferences=[owner]), {"queue": True})


def test_a_pod_of_a_replication_controller_is_accepted_at_its_controller() -> None:
    owner = {"apiVersion": "v1", "kind": "ReplicationController", "name": "a", "uid": "a"}
    owners = [owner | {"controller": True}]
    assert not findings(workload("v1", "Pod", SPEC, ownerReferences=owners), {"queue": True})


@pytest.mark.parametrize(
    "requires", [{"minDevices": 8}, {"maxCPUPerDevice": 12}, {"maxMemoryPerDevice": "1Gi"}]
)
def test_the_number_of_devices_is_unknown_with_an_amount_of_a_device(requires: JSON) -> None:
    pool = POOL | {"resources": ["gpu.example/memory"]}
    limits = {"gpu.example/memory": 1, "cpu": 96, "memory": "900Gi"}
    obj = pod({"resources": {"limits": limits}})
    [_] = findings(obj, requires, pool=pool)
    assert not findings(obj, requires, pool=pool | {"fractionalResources": pool["resources"]})


def test_a_claim_is_at_fault_if_it_takes_more_than_the_containers() -> None:
    obj = pod(
        {"resources": {"limits": {"gpu.example/a": 1, "cpu": 4}, "claims": [{"name": "c"}]}},
        resourceClaims=[{"name": "c", "resourceClaimName": "c"}],
    )
    claims = {("default", "c"): Claim((frozenset({"cpus"}),), asks=((Ask("cpus"),),))}
    for taken, path in ((4, "spec.containers[0].resources"), (5, "spec.resourceClaims")):
        shares = {"cpus": [(HostShare("cpu", taken * NANOS),)]}
        facts = Facts(claims=claims, host_shares=shares)
        [finding] = findings(obj, {"maxCPUPerDevice": 1}, facts)
        assert finding.path == path


def test_of_several_pools_those_count_whose_known_nodes_a_pod_can_get() -> None:
    other = POOL | {"name": "b", "nodeSelector": {LABEL: "b"}}
    nodes = NodeIndex([Node("n", {LABEL: "b", "zone": "b"}), Node("plain", {"zone": "b"})])
    for spec, counts in (
        ({}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"nodeName": "n"}, False),
        ({"nodeName": "plain"}, True),
    ):
        obj = pod(CONTAINER, **spec)
        assert findings(obj, {"queue": True}, others=(other,))
        found = findings(obj, {"queue": True}, Facts(nodes=nodes), others=(other,))
        assert bool(found) is counts, spec


JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
OPERATOR = "system:serviceaccount:jobset-system:jobset-controller"


def of_kind(kind: str, **metadata: Any) -> JSON:
    spec = SPEC if kind == "v1 Pod" else {"template": {"spec": SPEC}}
    api_version, _, name = kind.partition(" ")
    return workload(api_version, name, spec, **metadata)


@pytest.mark.parametrize(
    ("username", "owner", "counts"),
    [
        (JOB_CONTROLLER, "batch/v1 Job", True),
        ("system:kube-controller-manager", "batch/v1 Job", True),
        ("alice", "batch/v1 Job", False),
        (OPERATOR, "batch/v1 Job", False),
        (OPERATOR, "jobset.x-k8s.io/v1alpha2 JobSet", True),
        ("alice", "jobset.x-k8s.io/v1alpha2 JobSet", False),
    ],
)
@pytest.mark.parametrize("kind", ["v1 Pod", "batch/v1 Job"])
def test_an_owner_counts_only_if_a_controller_sends_the_request(
    kind: str, username: str, owner: str, counts: bool
) -> None:
    version, of = owner.split()
    entry = {"apiVersion": version, "kind": of, "name": "a", "uid": "a", "controller": True}
    obj = of_kind(kind, ownerReferences=[entry])
    labels = {QUEUE_LABEL: "team"}
    labeled = of_kind(kind, labels=labels)
    owned = of_kind(kind, labels=labels, ownerReferences=[entry])
    # Also if an update adds the owner, and removes what the policy requires. A Pod keeps its owner.
    for change, is_accepted in (
        (Request(), counts),
        (Request(operation="UPDATE", old=labeled), counts),
        (Request(operation="UPDATE", old=owned), counts or kind == "v1 Pod"),
    ):
        request = msgspec.structs.replace(change, username=username, fail_closed=True)
        required = policy(pools=[{**POOL, "requires": [{"queue": True}]}])
        found = validate(obj, required, request).findings
        rules = {finding.rule for finding in found}
        assert is_accepted == (check_pool_requirements.ID not in rules), change


@pytest.mark.parametrize("kind", ["batch/v1 Job", "apps/v1 StatefulSet"])
def test_the_queue_cannot_be_removed_later(kind: str) -> None:
    labeled = of_kind(kind, labels={QUEUE_LABEL: "team"})
    request = Request(operation="UPDATE", old=labeled, username="alice", fail_closed=True)
    written = policy(pools=[{**POOL, "requires": [{"queue": True}]}])
    assert not validate(labeled, written, request).findings
    bare = of_kind(kind)
    [finding] = validate(bare, written, request).findings
    assert finding.rule == check_pool_requirements.ID
    unchanged = msgspec.structs.replace(request, old=bare)
    assert not validate(bare, written, unchanged).findings


def test_each_controller_of_core_workloads_counts() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "a", "controller": True}
    obj = of_kind("v1 Pod", ownerReferences=[owner])
    required = policy(pools=[{**POOL, "requires": [{"queue": True}]}])
    of_kinds = {key for key in CORE_WORKLOADS if key[0] in ("apps", "batch")}
    assert CONTROLLERS.keys() == of_kinds | {("", "ReplicationController")}
    names = ("cronjob", "daemon-set", "deployment", "job", "replicaset", "replication")
    for name in (*names, "statefulset"):
        username = f"system:serviceaccount:kube-system:{name}-controller"
        found = validate(obj, required, Request(username=username, fail_closed=True)).findings
        assert check_pool_requirements.ID not in {finding.rule for finding in found}, name
