"""Nodes whose devices a DRA driver publishes, without a device plugin and without labels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.devices import DRA, DRIVER, device_class, driver_devices
from controlplane.fence import following
from controlplane.gpufence import Server
from controlplane.objects import GPU_NODE, TOLERATION, claim_template, node, pod, taint
from controlplane.placing import Outcome, place
from controlplane.poll import until
from controlplane.versions import EXTENDED_RESOURCES, TAINT_RULES
from each import each
from policies.kubernetes.claims import implicit_resource
from policies.shipped import DEFAULT
from running import run_here
from specs import JSON, default_spec, fence_policy

pytestmark = [EXTENDED_RESOURCES, pytest.mark.timeout(600)]

GPU, MIG_CLASS = "nvidia.com/gpu", "mig.nvidia.com"
IMPLICIT_MIG = f"deviceclass.resource.kubernetes.io/{MIG_CLASS}"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
FENCED = taint(GPU, "present")
NODES = [
    node("driven-1", taints=[FENCED]),
    node("driven-2", taints=[FENCED]),
    node("driven-mig", taints=[FENCED]),
    # One without a taint.
    node("driven-open", labels={INSTANCE_TYPE: "p5.48xlarge"}),
    node("plain", labels={INSTANCE_TYPE: "m7i.8xlarge"}),
]
DRIVEN = {"driven-1", "driven-2", "driven-open"}
DEVICES = {"driven-1": "gpu", "driven-2": "gpu", "driven-open": "gpu", "driven-mig": "mig"}


def selected(kind: str) -> list[JSON]:
    of_type = f"device.attributes['{DRIVER}'].type == '{kind}'"
    return [{"cel": {"expression": f"device.driver == '{DRIVER}' && {of_type}"}}]


@pytest.fixture(scope="module", params=["labels", "no labels"])
def server(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A registered replica: with the default policy, and with one whose pool has no labels."""
    spec = default_spec()
    if request.param == "no labels":
        del spec["pools"][0]["nodeSelector"]
    with following(control_plane, tmp_path_factory.mktemp("published"), spec) as running:
        yield running


@pytest.fixture(scope="module")
def published(control_plane: ControlPlane) -> Iterator[None]:
    """The nodes, the DeviceClasses and the ResourceSlices."""
    with ExitStack() as stack:
        stack.enter_context(control_plane.nodes(*NODES))
        stack.enter_context(
            device_class(control_plane, selectors=selected("gpu"), extendedResourceName=GPU)
        )
        stack.enter_context(device_class(control_plane, MIG_CLASS, selectors=selected("mig")))
        for name, kind in DEVICES.items():
            stack.enter_context(driver_devices(control_plane, name, 8, kind))
        yield


@pytest.fixture
def known(published: None, server: Server) -> Server:
    """The replica, which knows all of it."""
    wanted = {"nodes": len(NODES), "deviceclasses": 2, "resourceslices": len(DEVICES)}
    for name, count in wanted.items():
        until_known(server, name, count)
    return server


def until_known(server: Server, name: str, count: int) -> None:
    series = f'gpufence_cluster_objects{{resource="{name}"}}'
    until(lambda: server.metric(series) == count, f"{count} {name} to be known")


def claim(cluster: ControlPlane, namespace: str, device_class: str) -> JSON:
    """Return the fields of a Pod that requests a device of the class by a claim template."""
    template = claim_template(f"one-{device_class}", device_class)
    path = f"{DRA}/namespaces/{namespace}/resourceclaimtemplates"
    cluster.api.request("POST", path, template)
    return {"name": "gpu", "resourceClaimTemplateName": f"one-{device_class}"}


def claiming(spec: JSON, entry: JSON) -> JSON:
    spec["resourceClaims"] = [entry]
    resources = spec["containers"][0].setdefault("resources", {})
    resources["claims"] = [{"name": entry["name"]}]
    return spec


def gpu_pods(cluster: ControlPlane, namespace: str) -> dict[str, JSON]:
    """Return the specs of Pods that request a device, each in its own way."""
    gpu, mig = (claim(cluster, namespace, each) for each in (DRIVER, MIG_CLASS))
    return {
        "extended resource": pod({GPU: 1})["spec"],
        "claim": claiming(pod()["spec"], gpu),
        "both": claiming(pod({GPU: 1})["spec"], gpu),
        "claim for a partition": claiming(pod()["spec"], mig),
        "implicit resource of a partition": pod({IMPLICIT_MIG: 1})["spec"],
    }


def placed(cluster: ControlPlane, namespace: str, specs: dict[str, JSON]) -> dict[str, str]:
    """Return the node of each Pod, or why there is none."""
    outcome: Outcome = place(cluster, [(namespace, spec) for spec in specs.values()])
    return {
        name: outcome.denials.get(number) or outcome.nodes[number] or "Pending"
        for number, name in enumerate(specs)
    }


def assert_each_runs(found: dict[str, str], plugged: frozenset[str] = frozenset()) -> None:
    """Check that each Pod has a node with its device; ``plugged`` have no driver."""
    for name, where in found.items():
        driven = {"driven-mig"} if "partition" in name else DRIVEN
        assert where in (driven | plugged if name == "extended resource" else driven), found


@pytest.mark.usefixtures("published")
def test_without_gpufence_each_gpu_pod_with_the_toleration_runs(
    control_plane: ControlPlane, namespace: str
) -> None:
    specs = gpu_pods(control_plane, namespace)
    assert_each_runs(
        placed(
            control_plane,
            namespace,
            {name: {**spec, "tolerations": [TOLERATION]} for name, spec in specs.items()},
        )
    )


@pytest.mark.usefixtures("known")
def test_each_gpu_pod_runs_on_a_node_with_the_device(
    control_plane: ControlPlane, namespace: str
) -> None:
    assert_each_runs(placed(control_plane, namespace, gpu_pods(control_plane, namespace)))


@pytest.fixture
def half_moved(control_plane: ControlPlane, known: Server) -> Iterator[None]:
    """A node with a device plugin and labels, in addition to those with a driver."""
    plugged = {**GPU_NODE, "metadata": {**GPU_NODE["metadata"], "name": "plugged"}}
    with control_plane.nodes(plugged):
        until_known(known, "nodes", len(NODES) + 1)
        yield
    until_known(known, "nodes", len(NODES))


@pytest.mark.usefixtures("half_moved")
def test_where_half_of_the_nodes_have_moved_each_gpu_pod_runs(
    control_plane: ControlPlane, namespace: str
) -> None:
    found = placed(control_plane, namespace, gpu_pods(control_plane, namespace))
    assert_each_runs(found, frozenset({"plugged"}))


@pytest.mark.usefixtures("half_moved")
def test_where_half_of_the_nodes_have_moved_all_devices_are_used(
    control_plane: ControlPlane, namespace: str
) -> None:
    # A controller frees the devices of earlier Pods.
    until(lambda: not held_devices(control_plane), "the devices of earlier Pods to be free")
    specs = {str(number): pod({GPU: 8})["spec"] for number in range(4)}
    found = placed(control_plane, namespace, specs)
    assert {*found.values()} == {*DRIVEN, "plugged"}, found


def held_devices(cluster: ControlPlane) -> list[JSON]:
    """Return the devices of the driver that claims hold."""
    claims = cluster.api.request("GET", f"{DRA}/resourceclaims")["items"]
    held = [(each.get("status") or {}).get("allocation") or {} for each in claims]
    devices = [device for each in held for device in each.get("devices", {}).get("results", ())]
    pools = {f"{name}-{kind}" for name, kind in DEVICES.items()}
    return [device for device in devices if device["pool"] in pools]


@pytest.mark.parametrize("server", ["labels"], indirect=True)
@pytest.mark.usefixtures("known")
def test_discover_and_audit_know_the_devices_and_who_holds_them(
    control_plane: ControlPlane, namespace: str
) -> None:
    of_cluster = ("--kubeconfig", control_plane.kubeconfig)
    discovered = run_here("policy", "discover", *of_cluster)
    assert discovered.status == 0, discovered.err
    pools = yaml.safe_load(discovered.out)["spec"]["pools"]
    assert {DRIVER, MIG_CLASS} <= {name for pool in pools for name in pool["deviceClasses"]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number, spec in enumerate(gpu_pods(control_plane, namespace).values()):
        control_plane.api.request("POST", pods, {"metadata": {"name": f"a-{number}"}, "spec": spec})

    def all_run() -> bool:
        items = control_plane.api.request("GET", pods)["items"]
        return all(each["spec"].get("nodeName") for each in items)

    until(all_run, "all Pods to have nodes")
    options = ("--policy", DEFAULT, "-o", "json", "--fail-on", "never")
    audited = run_here("audit", *of_cluster, *options)
    report = json.loads(audited.out)
    [pool] = report["pools"]
    # 1 by the resource, 1 by a claim, 2 by both, and 2 partitions.
    partitions = implicit_resource(MIG_CLASS)
    own = [row for row in report["waste"]["rows"] if row["namespace"] == namespace]
    held = {row["resource"]: row["devices"] for row in own if row["kind"] == "held"}
    assert held == {GPU: 4, partitions: 2}
    offered, free = pool["allocatable"], pool["free"]
    assert sum(offered.values()) == 32
    assert {name: offered[name] - free[name] for name in offered} == {GPU: 4, partitions: 2}


@TAINT_RULES
def test_a_rule_taints_devices_for_the_scheduler_and_for_gpufence(
    control_plane: ControlPlane, known: Server, namespace: str
) -> None:
    rules = f"{DRA}/devicetaintrules"
    taint_of = {"key": "broken", "effect": "NoSchedule"}
    broken = ("driven-1", "driven-2")
    for name in broken:
        spec = {"deviceSelector": {"pool": f"{name}-gpu"}, "taint": taint_of}
        control_plane.api.request("POST", rules, {"metadata": {"name": name}, "spec": spec})
    until_known(known, "devicetaintrules", 2)
    gpus = gpu_pods(control_plane, namespace)
    found = placed(control_plane, namespace, {name: gpus[name] for name in ("claim", "both")})
    assert set(found.values()) == {"driven-open"}
    for name in broken:
        control_plane.api.request("DELETE", f"{rules}/{name}")
    until_known(known, "devicetaintrules", 0)


ASKING: dict[str, JSON] = {
    "nodeName": {"nodeName": "driven-open"},
    "nodeName of a fenced node": {"nodeName": "driven-1"},
    "host name": {"nodeSelector": {"kubernetes.io/hostname": "driven-open"}},
    "instance type": {"nodeSelector": {INSTANCE_TYPE: "p5.48xlarge"}},
    "toleration": {"tolerations": [TOLERATION]},
}


@pytest.mark.usefixtures("known")
def test_a_pod_without_a_request_is_denied_however_it_asks_for_a_gpu_node(
    control_plane: ControlPlane, namespace: str
) -> None:
    def is_denied(way: str) -> None:
        assert "pool-trespass" in refusal(control_plane, namespace, pod(**ASKING[way]))

    each(ASKING, is_denied)


ELSEWHERE: JSON = {"nodeSelector": {INSTANCE_TYPE: "m7i.8xlarge"}}
EVERY_TERM = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
OF_A_NETWORK: dict[str, JSON] = {
    "all nodes": {"allNodes": True},
    "a selector of all nodes": {"nodeSelector": {"nodeSelectorTerms": [EVERY_TERM]}},
}


@pytest.mark.parametrize("way", OF_A_NETWORK)
def test_devices_of_a_network_fence_no_node_and_are_reached_from_it(
    control_plane: ControlPlane, known: Server, namespace: str, way: str, tmp_path: Path
) -> None:
    """Neither does a slice of another account, and three commands name it."""
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(fence_policy(default_spec())))
    of_policy = ["--policy", str(tmp_path / "policy.yaml")]
    commands = (["policy", "discover"], ["audit", *of_policy], ["doctor", *of_policy])
    ordinary = pod(**ELSEWHERE, tolerations=[TOLERATION])
    claimed = {**gpu_pods(control_plane, namespace)["claim"], **ELSEWHERE}
    with driver_devices(control_plane, "network", 8, **OF_A_NETWORK[way]):
        until_known(known, "resourceslices", len(DEVICES) + 1)
        assert refusal(control_plane, namespace, ordinary) == ""
        assert "pool-trespass" in refusal(control_plane, namespace, pod(nodeName="driven-open"))
        assert placed(control_plane, namespace, {way: claimed}) == {way: "plain"}
        for command in commands:
            done = run_here(*command, "--kubeconfig", control_plane.kubeconfig)
            assert "of that kind (plain), in ResourceSlice network-gpu" in done.out + done.err
    until_known(known, "resourceslices", len(DEVICES))


@pytest.mark.usefixtures("published")
def test_a_kubelet_publishes_devices_for_its_own_node_only(control_plane: ControlPlane) -> None:
    """And a tenant publishes none: only drivers and administrators do for other nodes."""
    kubelet = replace(control_plane.api, user="system:node:plain", group="system:nodes")
    placements = ({"nodeName": "plain"}, {"nodeName": "driven-1"}, *OF_A_NETWORK.values())
    for number, placement in enumerate(placements):
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "devices": [{"name": "gpu-0"}], **placement}
        found = kubelet.refusal(
            f"{DRA}/resourceslices", {"metadata": {"name": f"own-{number}"}, "spec": spec}
        )
        assert ("can only create ResourceSlice" in found) == bool(number), found
    tenant = replace(control_plane.api, user="alice", group="system:authenticated")
    slices = {"metadata": {"name": "own"}, "spec": spec}
    assert "cannot create resource" in tenant.refusal(f"{DRA}/resourceslices", slices)


@pytest.mark.usefixtures("known")
def test_a_pod_that_bypasses_the_scheduler_gets_no_claim(
    control_plane: ControlPlane, namespace: str
) -> None:
    message = refusal(control_plane, namespace, pod({GPU: 1}, nodeName="driven-1"))
    assert "missing-device" in message
    assert f"a DRA driver offers {GPU} on node driven-1" in message
    message = refusal(control_plane, namespace, pod({GPU: 1}, nodeName="plain"))
    assert "node plain does not belong to that pool" in message


def refusal(cluster: ControlPlane, namespace: str, obj: JSON) -> str:
    return cluster.api.refusal(f"/api/v1/namespaces/{namespace}/pods", obj)


@pytest.mark.usefixtures("published")
def test_a_quota_of_a_resource_counts_claims_on_the_class_that_provides_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    """`gpufence adopt` and the page on DRA say so; claims on other classes have no limit."""
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {f"requests.{GPU}": "1"}
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    control_plane.api.request("POST", quotas, quota)
    until(
        lambda: control_plane.api.request("GET", f"{quotas}/gpus").get("status"),
        "the quota to be counted",
    )

    def request(device_class: str) -> None:
        exactly = {"deviceClassName": device_class, "count": 2}
        spec = {"devices": {"requests": [{"name": "two", "exactly": exactly}]}}
        path = f"{DRA}/namespaces/{namespace}/resourceclaims?dryRun=All"
        control_plane.api.request("POST", path, {"metadata": {"name": "two"}, "spec": spec})

    request(MIG_CLASS)
    with pytest.raises(ApiError, match="exceeded quota: gpus"):
        request(DRIVER)
    control_plane.api.request("DELETE", f"{quotas}/gpus")  # `gpufence adopt` reads every quota.
