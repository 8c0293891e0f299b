"""``gpufence policy discover``: the policies for nodes as platforms set them up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dumped import device_class, node_pool, resource_slice
from each import each
from running import Run, assert_golden
from specs import JSON

HERE = Path(__file__).with_name("platforms")
PLATFORMS = ("aks", "bare-metal", "eks", "gke", "openshift")
GPU, TYPE, GROUP = "nvidia.com/gpu", "node.kubernetes.io/instance-type", "example.com/group"
PRODUCT, MIG = "nvidia.com/gpu.product", "nvidia.com/mig.config"
FENCE, WHOLE = {GPU: "present"}, {GPU: "8"}
PRESENT = {"nvidia.com/gpu.present": "true"}


def test_discover_generates_a_valid_policy_for_the_nodes_of_a_platform(
    gpufence: Run, subtests: pytest.Subtests
) -> None:
    for platform in PLATFORMS:
        with subtests.test(platform=platform):
            done = gpufence("policy", "discover", "--nodes", str(HERE / f"{platform}.nodes.yaml"))
            assert done.status == 0
            assert_golden(HERE / f"{platform}.policy.yaml", done.out)
            # Comments are wrapped.
            comments = " ".join(line.removeprefix("#").strip() for line in done.out.splitlines())
            for warning in done.err.splitlines():
                assert warning.removeprefix("Warning: ") in comments
            validated = gpufence("policy", "validate", "-", stdin=done.out)
            assert validated.status == 0
            assert "Warning" not in validated.err


def listed(
    name: str, labels: JSON, taints: JSON, devices: JSON, effect: str = "NoSchedule"
) -> JSON:
    """Return a node with taints by key and value."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"taints": [{"key": k, "value": v, "effect": effect} for k, v in taints.items()]},
        "status": {"allocatable": {"cpu": "8", **devices}},
    }


def discovered(gpufence: Run, *objects: JSON) -> tuple[JSON, str]:
    """Return the spec of the discovered policy, and its comments and warnings."""
    text = "\n---\n".join(map(json.dumps, objects))
    done = gpufence("policy", "discover", "--nodes", "-", stdin=text)
    assert done.status == 0, done.err
    comments = " ".join(line.strip(" #") for line in done.out.splitlines())
    return yaml.safe_load(done.out)["spec"], f"{comments}\n{done.err}"


def keys(spec: JSON) -> list[str]:
    """Return the keys of the pools' taints."""
    return [taint["key"] for pool in spec["pools"] for taint in pool["taints"]]


def selectors(spec: JSON) -> list[JSON]:
    return [pool.get("nodeSelector") for pool in spec["pools"]]


def test_nodes_without_devices_get_no_policy(gpufence: Run) -> None:
    node = json.dumps(listed("gpu-1", PRESENT, {}, {}))
    done = gpufence("policy", "discover", "--nodes", "-", stdin=node)
    assert (done.status, done.out) == (2, "")
    warning, error = done.err.splitlines()
    assert warning.startswith(
        "Warning: 1 node with nvidia labels and without nvidia.com/gpu: gpu-1."
    )
    assert error.startswith("Error: no node offers devices of a known vendor.")


VENDORS = {
    "nvidia": ("nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/gpu.present"),
    "amd": ("amd.com/gpu", "amd.com/gpu", "feature.node.kubernetes.io/amd-gpu"),
    "intel": ("gpu.intel.com/xe", "gpu.intel.com/gpu", "intel.feature.node.kubernetes.io/gpu"),
    "gaudi": ("habana.ai/gaudi", "habana.ai/gaudi", "intel.feature.node.kubernetes.io/gaudi"),
    "tpu": ("google.com/tpu", "google.com/tpu", "cloud.google.com/gke-tpu-accelerator"),
    "neuron": (
        *["aws.amazon.com/neuron"] * 2,
        "karpenter.k8s.aws/instance-accelerator-manufacturer",
    ),
}
"""By vendor, the resource, the key of the taint, and the key of the label of a node."""
QUARANTINE = (
    "readiness.k8s.io/GPUReady",
    "startup-taint.cluster-autoscaler.kubernetes.io/drivers",
    "ignore-taint.cluster-autoscaler.kubernetes.io/drivers",
    "node.cluster.x-k8s.io/uninitialized",
    "node.cilium.io/agent-not-ready",
    "amd-gpu-unhealthy",
    "medik8s.io/remediation",
    "example.com/gpu-quarantine",
    "example.com/driver-not-ready",
    "example.com/gpu-health",
    "example.com/broken-gpu",
    "GPUBootstrapPending",
    "skyhook.nvidia.com",
    "example.com/gpu-error",
    "nvidia-xid-79",
    "weave.works/kured-node-reboot",
    "gke.io/driver-not-installed",
)
OTHERS = (
    "node.kubernetes.io/unschedulable",
    "node-role.kubernetes.io/control-plane",
    "karpenter.sh/unregistered",
    "example.com/of-one-node",
)
"""Taints that Pods may have to tolerate, and that are not part of a pool either."""


def of(vendor: str, name: str, *taints: str) -> JSON:
    """Return a node of a vendor, with its taint and others."""
    resource, own, label = VENDORS[vendor]
    value = {"tpu": "v5", "neuron": "aws"}.get(vendor, "true")
    return listed(name, {label: value}, dict.fromkeys((own, *taints), ""), {resource: "4"})


def test_the_taints_of_a_node_that_starts_or_is_under_repair_are_no_part_of_a_pool(
    gpufence: Run,
) -> None:
    def are_no_part(vendor: str) -> None:
        own, others = VENDORS[vendor][1], [of(vendor, name) for name in ("n2", "n3")]
        for states, named in ((QUARANTINE, QUARANTINE), (OTHERS, ())):
            spec, _ = discovered(gpufence, of(vendor, "n1", *states), *others)
            assert keys(spec) == [own]
            assert {each["key"] for each in spec.get("quarantineTaints", ())} == {*named}
        for state in (*QUARANTINE, *OTHERS):
            assert keys(discovered(gpufence, of(vendor, "n1", state))[0]) == [own]

    each(VENDORS, are_no_part)


def test_a_taint_of_most_nodes_is_part_of_the_pool(gpufence: Run) -> None:
    tainted = [of("nvidia", f"n{number}", "example.com/default") for number in range(3)]
    others = [of("nvidia", f"n{number}") for number in range(4, 8)]
    for nodes in (tainted, [*tainted, others[0]]):
        spec, _ = discovered(gpufence, *nodes)
        assert keys(spec) == ["example.com/default", GPU]
        assert "quarantineTaints" not in spec, "a word within another is no state"
    spec, said = discovered(gpufence, *tainted, *others)
    assert keys(spec) == [GPU]
    assert "example.com/default=:NoSchedule on 3 nodes of 7, in addition to another one" in said
    _, said = discovered(gpufence, of("amd", "n1", "example.com/odd"), of("amd", "n2"))
    assert "n1 has the taint example.com/odd=:NoSchedule, and no other node with amd" in said


def test_the_startup_taints_of_a_node_pool_are_no_part_of_a_pool(gpufence: Run) -> None:
    starting = {"key": "example.com/images", "effect": "NoExecute"}
    pool = node_pool(
        "gpu",
        {},
        taints=[{"key": GPU, "effect": "NoSchedule"}],
        startupTaints=[starting],
        requirements=[{"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"}],
    )
    started = listed("n1", PRESENT, {GPU: "", "example.com/images": ""}, WHOLE, "NoExecute")
    for node in (started, of("nvidia", "n1")):
        spec, _ = discovered(gpufence, node, pool)
        assert {*keys(spec)} == {GPU}
        assert spec["quarantineTaints"] == [starting]


def test_templates(gpufence: Run) -> None:
    capacity = "capacity.cluster-autoscaler.kubernetes.io"
    annotations = {f"{capacity}/gpu-type": GPU, f"{capacity}/gpu-count": "8"}
    machines = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineDeployment",
        "metadata": {"name": "gpu", "namespace": "infra", "annotations": annotations},
    }
    _, said = discovered(gpufence, listed("g", PRESENT, {}, WHOLE), machines)
    assert "No label of MachineDeployment infra/gpu identifies nvidia nodes" in said

    name = "karpenter.k8s.aws/instance-gpu-name"
    h100 = listed("a", {name: "h100", PRODUCT: "NVIDIA-H100"}, FENCE, WHOLE)
    spec, said = discovered(gpufence, h100, node_pool("gpu", {name: "h100"}))
    assert selectors(spec) == [{name: "h100"}], "a template names the model by another label"
    assert "differ" not in said

    node = listed("g", {PRODUCT: "H100", "karpenter.sh/nodepool": "gpu"}, FENCE, WHOLE)
    spec, _ = discovered(gpufence, node, node_pool("gpu", {}))
    assert selectors(spec) == [{"karpenter.sh/nodepool": "gpu"}], "its nodes have accelerators"

    others = [listed(f"n{n}", {PRODUCT: "A100"}, FENCE, WHOLE) for n in range(3)]
    spec, _ = discovered(gpufence, h100, *others, node_pool("gpu", {name: "h100"}))
    assert selectors(spec) == [{name: "h100"}, {PRODUCT: "A100"}], "h100 is NVIDIA-H100"

    partitioned = listed("g", PRESENT, {}, {"nvidia.com/mig-1g.10gb": "7"})
    [pool] = discovered(gpufence, partitioned, node_pool("gpu", PRESENT))[0]["pools"]
    assert pool["resources"] == [GPU, "nvidia.com/mig-*"], "a template offers the vendor's"


NODE_GROUPS = """\
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
managedNodeGroups:
- {name: cpu, instanceType: m7i.large}
- name: a100
  instanceType: p4d.24xlarge
  taints: [{key: nvidia.com/gpu, value: "true", effect: NoSchedule}]
nodeGroups:
- name: l4
  taints: {nvidia.com/gpu: "true:NoSchedule"}
  tags:
    k8s.io/cluster-autoscaler/node-template/label/nvidia.com/gpu.product: NVIDIA-L4
    k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/gpu: "1"
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachinePool
metadata:
  name: h100
  annotations:
    capacity.cluster-autoscaler.kubernetes.io/gpu-type: nvidia.com/gpu
    capacity.cluster-autoscaler.kubernetes.io/gpu-count: "8"
    capacity.cluster-autoscaler.kubernetes.io/labels: example.com/pool=h100
    capacity.cluster-autoscaler.kubernetes.io/taints: nvidia.com/gpu=present:NoSchedule
---
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: t4, annotations: {machine.openshift.io/GPU: "1"}}
spec:
  template:
    spec:
      metadata: {labels: {example.com/pool: t4}}
      taints: [{key: nvidia.com/gpu, effect: NoSchedule}]
---
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: worker, annotations: {machine.openshift.io/GPU: "0"}}
spec: {template: {spec: {metadata: {labels: {example.com/pool: worker}}}}}
"""


def test_node_groups_of_the_cluster_autoscaler_are_templates(gpufence: Run) -> None:
    spec, said = discovered(gpufence, *yaml.safe_load_all(NODE_GROUPS))
    assert selectors(spec) == [
        {PRODUCT: "NVIDIA-L4"},
        {TYPE: "p4d.24xlarge"},
        {"example.com/pool": "h100"},
        {"example.com/pool": "t4"},
    ]
    assert {*keys(spec)} == {GPU}
    assert "No label" not in said


DRIVER = "gpu.nvidia.com"
CLASS = device_class(DRIVER, DRIVER, extendedResourceName=GPU)


def driven(name: str = "n1", labels: JSON | None = None, model: str = "") -> list[JSON]:
    """Return a node whose device a driver publishes, maybe with its model."""
    attributes = {"productName": {"string": model}} if model else {}
    devices = [{"name": "gpu-0", "attributes": attributes}]
    node = listed(name, labels or {}, FENCE, {})
    return [node, resource_slice(DRIVER, name, nodeName=name, devices=devices)]


def test_published_devices_of_nodes_without_labels_are_a_pool_that_says_its_price(
    gpufence: Run,
) -> None:
    spec, said = discovered(gpufence, *driven(), CLASS)
    assert spec["pools"] == [
        {
            "name": "nvidia",
            "resources": [GPU],
            "deviceClasses": [DRIVER],
            "taints": [{"key": GPU, "effect": "NoSchedule"}],
        }
    ]
    assert "Pods that tolerate every taint are denied" in said
    assert " gpu.nvidia.com.deviceclass.resource.k8s.io/devices " in said
    [pool] = discovered(gpufence, *driven(), device_class(DRIVER, DRIVER))[0]["pools"]
    assert "resources" not in pool, "no class says that Pods can request it by a resource"
    spec, said = discovered(gpufence, *driven(), CLASS, listed("gpu", PRESENT, {}, WHOLE))
    assert selectors(spec) == [PRESENT, {"kubernetes.io/hostname": "n1"}]
    assert "Add nvidia.com/gpu=present:NoSchedule" in said
    spec, said = discovered(gpufence, *driven("n1", {PRODUCT: "H200"}), CLASS)
    assert selectors(spec) == [{PRODUCT: "H200"}]
    assert "Warning" not in said


def test_a_label_separates_the_models_that_a_driver_publishes(gpufence: Run) -> None:
    for racks, expected, word in (
        (("a", "b"), [{"rack": "a"}, {"rack": "b"}], "for each model"),
        (("a", "a"), [{"rack": "a"}], "models (NVIDIA A100 or NVIDIA H100)"),
        ((None, None), [None], "models (NVIDIA A100 or NVIDIA H100)"),
    ):
        first, second = ({"rack": rack} if rack else {} for rack in racks)
        nodes = [*driven("n1", first, "NVIDIA A100"), *driven("n2", second, "NVIDIA H100")]
        spec, said = discovered(gpufence, *nodes, CLASS)
        assert selectors(spec) == expected
        assert word in said


IDENTIFYING: dict[str, tuple[list[tuple[str, JSON, JSON, JSON]], list[JSON]]] = {
    "a label that other nodes have is none": (
        [("cpu", {TYPE: "k3s"}, {}, {}), ("gpu", {TYPE: "k3s"}, FENCE, WHOLE)],
        [{"kubernetes.io/hostname": "gpu"}],
    ),
    "two labels before host names": (
        [
            ("cpu-1", {TYPE: "n1", GROUP: "a"}, {}, {}),
            ("cpu-2", {TYPE: "n2", GROUP: "b"}, {}, {}),
            ("gpu", {TYPE: "n1", GROUP: "b"}, FENCE, WHOLE),
        ],
        [{TYPE: "n1", GROUP: "b"}],
    ),
    "what the cloud sets before feature discovery": (
        [("gpu", {TYPE: "p5", PRODUCT: "H100"}, FENCE, WHOLE)],
        [{TYPE: "p5"}],
    ),
    "partitions by the model and their configuration": (
        [
            ("a", {PRODUCT: "A100", MIG: "all-disabled"}, FENCE, WHOLE),
            ("b", {PRODUCT: "A100", MIG: "mixed"}, FENCE, {"nvidia.com/mig-1g.10gb": "7"}),
        ],
        [{PRODUCT: "A100", MIG: "all-disabled"}, {PRODUCT: "A100", MIG: "mixed"}],
    ),
    "models that no label tells apart are one pool": (
        [
            ("a", {"gpu.example/present": "true"}, {"gpu": "a"}, WHOLE),
            ("b", {"gpu.example/present": "true"}, {"gpu": "b"}, WHOLE),
        ],
        [{"gpu.example/present": "true"}],
    ),
    "a node that starts takes no pool apart": (
        [
            ("a", {PRODUCT: "A100", "nvidia.com/gpu.present": "true"}, FENCE, WHOLE),
            ("b", {PRODUCT: "H100", "nvidia.com/gpu.present": "true"}, FENCE, WHOLE),
            ("new", {"nvidia.com/gpu.present": "true"}, FENCE, {}),
        ],
        [{PRODUCT: "A100"}, {PRODUCT: "H100"}],
    ),
    "a node of an unknown model joins no models": (
        [
            ("a", {PRODUCT: "A100", **PRESENT}, FENCE, WHOLE),
            ("b", {PRODUCT: "H100", **PRESENT}, FENCE, WHOLE),
            ("c", PRESENT, FENCE, WHOLE),
        ],
        [{PRODUCT: "A100"}, {PRODUCT: "H100"}, {"kubernetes.io/hostname": "c"}],
    ),
    "a label about accelerators before others": (
        [("n1", {"building": "3", "dedicated": "gpu"}, FENCE, WHOLE)],
        [{"dedicated": "gpu"}],
    ),
    "a node group before what feature discovery sets": (
        [
            ("cpu", {"magnum.openstack.org/nodegroup": "default-worker"}, {}, {}),
            ("gpu", {"magnum.openstack.org/nodegroup": "gpus", PRODUCT: "A100"}, FENCE, WHOLE),
        ],
        [{"magnum.openstack.org/nodegroup": "gpus"}],
    ),
    "a node group of any platform": (
        [
            ("cpu", {"vks.example.com/nodepool": "one"}, {}, {}),
            ("gpu", {"vks.example.com/nodepool": "two", PRODUCT: "A100"}, FENCE, WHOLE),
        ],
        [{"vks.example.com/nodepool": "two"}],
    ),
    "a label of your own before a model that changes with the partitions": (
        [("g", {PRODUCT: "H100-MIG-1g.12gb", "team": "gpu"}, FENCE, WHOLE)],
        [{"team": "gpu"}],
    ),
    "virtual GPUs of AMD": (
        [
            ("cpu", {}, {}, {}),
            ("gpu", {"feature.node.kubernetes.io/amd-vgpu": "true"}, {}, {"amd.com/gpu": "8"}),
        ],
        [{"feature.node.kubernetes.io/amd-vgpu": "true"}],
    ),
    "the family, where a labeller names no product": (
        [
            ("cpu", {}, {}, {}),
            ("gpu", {"beta.amd.com/gpu.family.AI": "8"}, {}, {"amd.com/gpu": "8"}),
        ],
        [{"beta.amd.com/gpu.family.AI": "8"}],
    ),
    "addresses identify no group": (
        [("gpu", {"internal_addr": "10.0.0.2", "displayName": "gpu"}, FENCE, WHOLE)],
        [{"kubernetes.io/hostname": "gpu"}],
    ),
}


def test_labels_identify_pools(gpufence: Run) -> None:
    def are_selected(case: str) -> None:
        nodes, expected = IDENTIFYING[case]
        assert selectors(discovered(gpufence, *(listed(*node) for node in nodes))[0]) == expected

    each(IDENTIFYING, are_selected)


def test_the_model_is_that_of_the_label_that_most_nodes_have(gpufence: Run) -> None:
    first, label = {PRODUCT: "NVIDIA-L4"}, {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    labels = {"a": first | label, "b": label, "c": label}
    nodes = [listed(name, own, FENCE, WHOLE) for name, own in labels.items()]
    spec, said = discovered(gpufence, *nodes)
    assert selectors(spec) == [label]
    assert "differ" not in said


def test_taints_that_keep_pods_off_other_nodes_or_no_machines_are_no_part_of_a_pool(
    gpufence: Run,
) -> None:
    product = {PRODUCT: "H100"}
    others = {
        "kwok.x-k8s.io/node": "fake",
        "virtual-kubelet.io/provider": "azure",
        "lifecycle": "spot",
        "preemptible": "true",
    }
    for key, value in others.items():
        nodes = [listed(name, product, {key: value}, WHOLE) for name in ("b", "c")]
        spec, said = discovered(gpufence, listed("a", product, FENCE, WHOLE), *nodes)
        assert keys(spec) == [GPU]
        assert f"the taint {key}={value}:NoSchedule, which is not about accelerators" in said
    nodes = [listed("a", product, {"dedicated": "gpu"}, WHOLE)]
    spec, _ = discovered(gpufence, *nodes, listed("c", {}, {"dedicated": "cpu"}, {}))
    [pool] = spec["pools"]
    assert pool["taints"] == [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]


def test_advice_has_the_value_that_most_nodes_have(gpufence: Run) -> None:
    nodes = [
        listed(f"n{n}", {PRODUCT: "H100"}, {GPU: value} if value else {}, WHOLE)
        for n, value in enumerate(["present", "true", "true", None])
    ]
    _, said = discovered(gpufence, *nodes)
    assert "These have none: n3. Add nvidia.com/gpu=true:NoSchedule" in said


def test_a_taint_is_advised_where_other_pods_have_a_node(gpufence: Run) -> None:
    gpu, control = listed("gpu", PRESENT, {}, WHOLE), {"node-role.kubernetes.io/control-plane": ""}
    for others, is_said in (
        ([], True),
        ([listed("control", {}, control, {})], True),
        ([listed("cpu", {}, {}, {})], False),
    ):
        _, said = discovered(gpufence, gpu, *others)
        assert ("No node without accelerators" in said) is is_said


def test_classes_that_accept_devices_of_a_pool_are_part_of_it(gpufence: Run) -> None:
    classes = [
        device_class("team", DRIVER, extendedResourceName="example.com/h100"),
        device_class("nic", "nic.example.com"),
        device_class("compute-domain-daemon.nvidia.com", "compute-domain.nvidia.com"),
    ]
    spec, said = discovered(gpufence, *driven(), CLASS, *classes)
    [pool] = spec["pools"]
    assert pool["deviceClasses"] == [DRIVER, "team"]
    assert pool["resources"] == ["example.com/h100", GPU]
    assert "1 DeviceClass of no pool: nic" in said
