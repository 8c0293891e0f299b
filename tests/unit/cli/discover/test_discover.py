"""``gpufence policy discover``: the policies for nodes as platforms set them up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases.loading import load_all
from each import each
from running import Run, assert_golden

JSON = dict[str, Any]
HERE = Path(__file__).with_name("platforms")
PLATFORMS = ("aks", "bare-metal", "eks", "gke", "openshift")


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


NODE = """\
apiVersion: v1
kind: Node
metadata: {name: gpu-1, labels: {nvidia.com/gpu.present: "true"}}
status: {allocatable: {cpu: "8"}}
"""


def test_nodes_without_devices_get_no_policy(gpufence: Run) -> None:
    done = gpufence("policy", "discover", "--nodes", "-", stdin=NODE)
    assert (done.status, done.out) == (2, "")
    warning, error = done.err.splitlines()
    assert warning.startswith(
        "Warning: 1 node with nvidia labels and without nvidia.com/gpu: gpu-1."
    )
    assert error.startswith("Error: no node offers devices of a known vendor.")


def test_a_device_class_of_one_pool_gets_a_quota(gpufence: Run) -> None:
    offering = NODE.replace('cpu: "8"', 'nvidia.com/gpu: "8"')
    device_class = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: %s}\n"
    text = f"{offering}---\n{device_class % 'gpu.nvidia.com'}"
    done = gpufence("policy", "discover", "--nodes", "-", stdin=text)
    assert done.status == 0
    assert " gpu.nvidia.com.deviceclass.resource.k8s.io/devices " in done.out


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


def node(vendor: str, name: str, *taints: str) -> dict[str, object]:
    resource, own, label = VENDORS[vendor]
    value = {"tpu": "v5", "neuron": "aws"}.get(vendor, "true")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, label: value}},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in (own, *taints)]},
        "status": {"allocatable": {resource: "4"}},
    }


def discovered(gpufence: Run, *objects: Mapping[str, object]) -> tuple[list[str], list[str], str]:
    """Return the keys of the pools' taints, those of the quarantine taints, and the warnings."""
    text = "\n---\n".join(map(json.dumps, objects))
    done = gpufence("policy", "discover", "--nodes", "-", stdin=text)
    assert done.status == 0, done.err
    spec = load_all(done.out)[0]["spec"]
    keys = [taint["key"] for pool in spec["pools"] for taint in pool["taints"]]
    return keys, [taint["key"] for taint in spec.get("quarantineTaints", ())], done.err


def test_the_taints_of_a_node_that_starts_or_is_under_repair_are_no_part_of_a_pool(
    gpufence: Run,
) -> None:
    def are_no_part(vendor: str) -> None:
        own, others = VENDORS[vendor][1], [node(vendor, name) for name in ("n2", "n3")]
        for states, named in ((QUARANTINE, QUARANTINE), (OTHERS, ())):
            keys, quarantine, _ = discovered(gpufence, node(vendor, "n1", *states), *others)
            assert (keys, sorted(quarantine)) == ([own], sorted(named))
        alone = [*QUARANTINE, *OTHERS]
        found = [discovered(gpufence, node(vendor, "n1", state))[0] for state in alone]
        assert found == [[own]] * len(alone)

    each(VENDORS, are_no_part)


def test_a_word_within_another_is_no_state(gpufence: Run) -> None:
    nodes = [node("nvidia", f"n{number}", "example.com/default") for number in range(3)]
    assert discovered(gpufence, *nodes)[:2] == (["example.com/default", "nvidia.com/gpu"], [])


def test_a_taint_of_one_node_is_reported(gpufence: Run) -> None:
    *_, warnings = discovered(gpufence, node("amd", "n1", "example.com/odd"), node("amd", "n2"))
    assert (
        "n1 has the taint example.com/odd=:NoSchedule, and no other node with amd devices"
        in warnings
    )


def test_a_taint_of_most_nodes_is_part_of_the_pool(gpufence: Run) -> None:
    tainted = [node("nvidia", f"n{number}", "dedicated") for number in range(3)]
    assert discovered(gpufence, *tainted)[0] == ["dedicated", "nvidia.com/gpu"]
    assert discovered(gpufence, *tainted, node("nvidia", "n4"))[0] == [
        "dedicated",
        "nvidia.com/gpu",
    ]
    others = [node("nvidia", f"n{number}") for number in range(4, 8)]
    keys, _, warnings = discovered(gpufence, *tainted, *others)
    assert keys == ["nvidia.com/gpu"]
    assert (
        "have the taint dedicated=:NoSchedule on 3 nodes of 7, in addition to another one"
        in warnings
    )


def test_the_startup_taints_of_a_node_pool_are_no_part_of_a_pool(gpufence: Run) -> None:
    template = {
        "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "example.com/images", "effect": "NoExecute"}],
        "requirements": [{"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"}],
    }
    pool: dict[str, object] = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu"},
        "spec": {"template": {"spec": template}},
    }
    nodes = [node("nvidia", f"n{number}", "example.com/images") for number in range(3)]
    for started in nodes:
        started["spec"]["taints"][1]["effect"] = "NoExecute"  # type: ignore[index]
    for listed in (nodes, [node("nvidia", "n1")]):
        keys, quarantine, _ = discovered(gpufence, *listed, pool)
        assert ({*keys}, quarantine) == ({"nvidia.com/gpu"}, ["example.com/images"])


def test_a_machine_deployment_without_the_pool_label_is_reported(gpufence: Run) -> None:
    template = """\
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata:
  name: gpu
  namespace: infra
  annotations:
    capacity.cluster-autoscaler.kubernetes.io/gpu-type: nvidia.com/gpu
    capacity.cluster-autoscaler.kubernetes.io/gpu-count: "8"
"""
    offering = NODE.replace('cpu: "8"', 'nvidia.com/gpu: "8"')
    done = gpufence("policy", "discover", "--nodes", "-", stdin=f"{offering}---\n{template}")
    assert done.status == 0
    assert "No label of MachineDeployment infra/gpu identifies nvidia nodes" in done.err


def test_a_template_may_name_the_model_by_another_label(gpufence: Run) -> None:
    name = "karpenter.k8s.aws/instance-gpu-name"
    template = TEMPLATE.replace("nvidia.com/gpu.present", name).replace("true", "h100")
    node = listed(("a", {name: "h100", PRODUCT: "NVIDIA-H100"}, FENCE, WHOLE))
    [pool], said = pools_of(gpufence, node + template)
    assert pool["nodeSelector"] == {name: "h100"}
    assert "differ" not in said


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
    found, said = pools_of(gpufence, NODE_GROUPS)
    assert [pool["nodeSelector"] for pool in found] == [
        {"nvidia.com/gpu.product": "NVIDIA-L4"},
        {"node.kubernetes.io/instance-type": "p4d.24xlarge"},
        {"example.com/pool": "h100"},
        {"example.com/pool": "t4"},
    ]
    assert all(pool["taints"][0]["key"] == "nvidia.com/gpu" for pool in found)
    assert "No label" not in said


TEMPLATE = """\
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  template:
    spec:
      requirements:
        - {key: nvidia.com/gpu.present, operator: In, values: ["true"]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""


def test_a_template_without_named_devices_offers_those_of_the_vendor(gpufence: Run) -> None:
    partitioned = NODE.replace('cpu: "8"', 'nvidia.com/mig-1g.10gb: "7"')
    done = gpufence("policy", "discover", "--nodes", "-", stdin=partitioned + TEMPLATE)
    [pool] = yaml.safe_load(done.out)["spec"]["pools"]
    assert pool["resources"] == ["nvidia.com/gpu", "nvidia.com/mig-*"]


DRIVEN = """\
apiVersion: v1
kind: Node
metadata: {name: driven-1, labels: {kubernetes.io/hostname: driven-1}}
spec: {taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]}
status: {allocatable: {cpu: "8"}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: driven-1}
spec:
  driver: gpu.nvidia.com
  nodeName: driven-1
  pool: {name: driven-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {type: {string: gpu}}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  extendedResourceName: nvidia.com/gpu
  selectors: [{cel: {expression: device.driver == 'gpu.nvidia.com'}}]
"""


def pools_of(gpufence: Run, text: str) -> tuple[list[JSON], str]:
    """Return the pools of the discovered policy, and its comments and warnings."""
    done = gpufence("policy", "discover", "--nodes", "-", stdin=text)
    assert done.status == 0, done.err
    comments = " ".join(line.strip(" #") for line in done.out.splitlines())
    return yaml.safe_load(done.out)["spec"]["pools"], f"{comments}\n{done.err}"


def test_published_devices_of_nodes_without_labels_are_a_pool_that_says_its_price(
    gpufence: Run,
) -> None:
    [pool], said = pools_of(gpufence, DRIVEN)
    assert pool == {
        "name": "nvidia",
        "resources": ["nvidia.com/gpu"],
        "deviceClasses": ["gpu.nvidia.com"],
        "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
    }
    assert "Pods that tolerate every taint are denied" in said
    [pool], _ = pools_of(gpufence, DRIVEN.replace("  extendedResourceName: nvidia.com/gpu\n", ""))
    assert "resources" not in pool, "no class says that Pods can request it by a resource"
    labeled = NODE.replace('cpu: "8"', 'nvidia.com/gpu: "8"')
    found, said = pools_of(gpufence, f"{DRIVEN}---\n{labeled}")
    assert [pool["nodeSelector"] for pool in found] == [
        {"nvidia.com/gpu.present": "true"},
        {"kubernetes.io/hostname": "driven-1"},
    ]
    assert "Add nvidia.com/gpu=present:NoSchedule" in said


def test_published_devices_of_nodes_with_labels_are_pools_by_label(gpufence: Run) -> None:
    labeled = DRIVEN.replace("{kubernetes.io", "{nvidia.com/gpu.product: H200, kubernetes.io")
    [pool], said = pools_of(gpufence, labeled)
    assert pool["nodeSelector"] == {"nvidia.com/gpu.product": "H200"}
    assert (pool["deviceClasses"], "Warning" in said) == (["gpu.nvidia.com"], False)


def test_a_label_separates_the_models_that_a_driver_publishes(gpufence: Run) -> None:
    one = DRIVEN.replace("{string: gpu}", "{string: gpu}, productName: {string: NVIDIA A100}")
    for labels, expected, word in (
        (("a", "b"), [{"example.com/rack": "a"}, {"example.com/rack": "b"}], "for each model"),
        (("a", "a"), [{"example.com/rack": "a"}], "models (NVIDIA A100 or NVIDIA H100)"),
        ((None, None), [None], "models (NVIDIA A100 or NVIDIA H100)"),
    ):
        first, second = (
            one.replace(
                "{kubernetes.io",
                f"{{example.com/rack: {each}, kubernetes.io" if each else "{kubernetes.io",
            )
            for each in labels
        )
        second = second.replace("driven-1", "driven-2").replace("A100", "H100")
        found, said = pools_of(gpufence, f"{first}---\n{second}")
        assert [pool.get("nodeSelector") for pool in found] == expected
        assert word in said


def listed(*nodes: tuple[str, JSON, JSON, JSON]) -> str:
    """Return nodes by name, labels, taints by key and value, and devices."""
    return yaml.safe_dump_all(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            "spec": {
                "taints": [
                    {"key": k, "value": v, "effect": "NoSchedule"} for k, v in taints.items()
                ]
            },
            "status": {"allocatable": {"cpu": "8", **devices}},
        }
        for name, labels, taints, devices in nodes
    )


GPU, TYPE, GROUP = "nvidia.com/gpu", "node.kubernetes.io/instance-type", "example.com/group"
PRODUCT, MIG = "nvidia.com/gpu.product", "nvidia.com/mig.config"
FENCE, WHOLE = {GPU: "present"}, {GPU: "8"}
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
    "addresses identify no group": (
        [("gpu", {"internal_addr": "10.0.0.2", "displayName": "gpu"}, FENCE, WHOLE)],
        [{"kubernetes.io/hostname": "gpu"}],
    ),
}


def test_labels_identify_pools(gpufence: Run) -> None:
    def are_selected(case: str) -> None:
        nodes, expected = IDENTIFYING[case]
        found, _ = pools_of(gpufence, listed(*nodes))
        assert [pool["nodeSelector"] for pool in found] == expected

    each(IDENTIFYING, are_selected)


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
        nodes = [("a", product, FENCE, WHOLE), ("b", product, {key: value}, WHOLE)]
        [pool], said = pools_of(gpufence, listed(*nodes, ("c", product, {key: value}, WHOLE)))
        assert [taint["key"] for taint in pool["taints"]] == [GPU]
        assert f"the taint {key}={value}:NoSchedule, which is not about accelerators" in said
    nodes = [("a", product, {"dedicated": "gpu"}, WHOLE), ("c", {}, {"dedicated": "cpu"}, {})]
    [pool], _ = pools_of(gpufence, listed(*nodes))
    assert pool["taints"] == [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]


def test_advice_has_the_value_that_most_nodes_have(gpufence: Run) -> None:
    values = ["present", "true", "true", None]
    nodes = [
        (f"n{n}", {PRODUCT: "H100"}, {GPU: value} if value else {}, WHOLE)
        for n, value in enumerate(values)
    ]
    _, said = pools_of(gpufence, listed(*nodes))
    assert "These have none: n3. Add nvidia.com/gpu=true:NoSchedule" in said


def test_a_taint_is_advised_where_other_pods_have_a_node(gpufence: Run) -> None:
    gpu, control = ("gpu", {PRODUCT: "H100"}, {}, WHOLE), "node-role.kubernetes.io/control-plane"
    for others, word in (
        ([], "before the GPU nodes get their taint"),
        ([("control", {}, {control: ""}, {})], "before the GPU nodes get their taint"),
        ([("cpu", {}, {}, {})], ""),
    ):
        _, said = pools_of(gpufence, listed(gpu, *others))
        assert ("before the GPU nodes get their taint" in said) is bool(word)


def test_classes_that_accept_devices_of_a_pool_are_part_of_it(gpufence: Run) -> None:
    own = """\
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: %s}
spec: {extendedResourceName: example.com/%s, selectors: [{cel: {expression: %s}}]}
"""
    classes = own % ("team", "h100", "device.driver == 'gpu.nvidia.com'")
    classes += own % ("nic", "nic", "device.driver == 'nic.example.com'")
    classes += own % ("compute-domain-daemon.nvidia.com", "cd", "device.driver == 'cd'")
    [pool], said = pools_of(gpufence, DRIVEN + classes)
    assert pool["deviceClasses"] == ["gpu.nvidia.com", "team"]
    assert pool["resources"] == ["example.com/h100", "nvidia.com/gpu"]
    assert "1 DeviceClass of no pool: nic" in said
