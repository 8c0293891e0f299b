"""What is kept of Nodes and DeviceClasses."""

from __future__ import annotations

import json

import msgspec
import pytest

from clusters import gpu_node, node, policy
from dumped import node_pool
from policies.kubernetes.nodes import Node, Room
from policies.kubernetes.quantity import NANOS
from policies.kubernetes.scheduling import Taint
from specs import JSON
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState
from webhook.cluster.templates import NODE_CLAIMS, NODE_POOLS
from webhook.devices.classes import DeviceClassObject, DeviceClassSpec
from webhook.devices.nodes import NodeObject, NodeStore
from webhook.devices.published import PublishedDevices
from webhook.kube.collection import LabeledMetadata


def node_of(obj: JSON) -> Node | None:
    state = ClusterState(policy())
    put(state, {"apiVersion": "v1", "kind": "Node", **obj})
    return next(iter(state.nodes.index), None)


def test_a_node_keeps_labels_taints_and_devices_of_pools() -> None:
    obj = gpu_node("a")
    obj["status"]["allocatable"] |= {
        "nvidia.com/mig-1g.10gb": "7k",
        "example.com/nic": "4",
        "hugepages-2Mi": "0",
        "cpu": "15890m",
        "memory": "67000000Ki",
    }
    assert node_of(obj) == Node(
        "a",
        {"kubernetes.io/hostname": "a", "nvidia.com/gpu.present": "true"},
        (Taint("nvidia.com/gpu", "NoSchedule", "present"),),
        {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 7000},
        room=Room(16 * NANOS, 64 * 2**30 * NANOS),
    )


def test_an_invalid_node_is_reported(subtests: pytest.Subtests) -> None:
    nodes: list[tuple[JSON, str]] = [
        ({}, "missing required field `metadata`"),
        ({"metadata": {}}, "it has no name"),
        ({"metadata": {"name": 1}}, r"Expected `str`, got `int` - at `\$.metadata.name`"),
        ({"metadata": {"name": "a", "labels": {"a": 1}}}, "Expected `str`, got `int`"),
        ({"metadata": {"name": "a"}, "spec": {"taints": [{}]}}, "required field `key`"),
        (node("a", allocatable={"nvidia.com/gpu": "many"}), "'many' is not a quantity"),
    ]
    for obj, problem in nodes:
        with subtests.test(obj=obj), pytest.raises(ValueError, match=problem):
            node_of(obj)


def device_class(name: str, created: str, resource: str | None) -> DeviceClassObject:
    metadata = LabeledMetadata(name=name, creation_timestamp=created)
    return DeviceClassObject(metadata, DeviceClassSpec(resource))


def test_the_newest_device_class_of_a_resource_wins_then_the_lower_name() -> None:
    offers = ClusterState(policy()).offers
    store = offers.device_classes
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    store.put(device_class("b", late, "example.com/gpu"))
    assert offers.by_resource == {"example.com/gpu": "b"}
    store.put(device_class("a", early, "example.com/gpu"))
    assert offers.by_resource == {"example.com/gpu": "b"}, "the newer one"
    store.put(device_class("c", late, "example.com/gpu"))
    assert offers.by_resource == {"example.com/gpu": "b"}, "the lower name of two as new"
    store.remove("b")
    assert offers.by_resource == {"example.com/gpu": "c"}
    store.put(device_class("c", late, None))
    store.put(device_class("d", late, "example.com/nic"))
    assert offers.by_resource == {"example.com/gpu": "a", "example.com/nic": "d"}


def test_node_templates_follow_each_change() -> None:
    state = ClusterState(policy())
    store = state.template_stores[NODE_POOLS]
    for labels in ({"a": "b"}, {"a": "c"}):
        put(state, node_pool("gpu", labels))
        [found] = state.templates
        assert found.labels == {**labels, "karpenter.sh/nodepool": "gpu"}
        assert state.facts(()).templates == (found,)
    store.remove("gpu")
    assert state.templates == state.facts(()).templates == ()


def test_decisions_look_once_at_equal_node_templates() -> None:
    state = ClusterState(policy())

    def order(name: str, zone: str) -> None:
        metadata = {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}
        put(state, {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata})

    def zones() -> list[str]:
        return [value for each in state.facts(()).templates for value in each.labels.values()]

    for number in range(100):
        order(f"c{number}", f"z{number % 2}")
    assert zones() == ["z0", "z1"]
    unchanged = state.facts(()).templates
    order("c100", "z0")
    state.template_stores[NODE_CLAIMS].remove("c98")
    order("c0", "z1")
    assert state.facts(()).templates is unchanged
    for number in range(0, 101, 2):
        state.template_stores[NODE_CLAIMS].remove(f"c{number}")
    assert zones() == ["z1"]


def test_common_label_strings_are_stored_once() -> None:
    store = NodeStore(policy(), PublishedDevices())
    for name in ("a", "b"):
        line = json.dumps(node(name, {"example.com/rack-of-the-node": "rack-number-7"}))
        store.put(msgspec.json.decode(line, type=NodeObject))
    first, second = (store.index.get(name) for name in ("a", "b"))
    assert first is not None
    assert second is not None
    for one, other in zip(first.labels.items(), second.labels.items(), strict=True):
        assert one[0] is other[0]
    key = "example.com/rack-of-the-node"
    assert first.labels[key] is second.labels[key]
