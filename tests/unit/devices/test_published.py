"""What is kept of DeviceClasses and ResourceSlices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import dumped
from clusters import facts_of, node
from fake_apiserver import DEVICE_CLASSES, NODES, RESOURCE_SLICES, FakeApiServer, eventually
from policies.kubernetes.claims import implicit_resource
from policies.shipped import shipped_policy
from specs import JSON
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState
from webhook.devices.cel import Expression, Scope
from webhook.devices.published import PublishedDevices
from webhook.devices.slices import TAINT_RULES
from webhook.tools.audit.stack import of_a_network

DRIVER = "gpu.nvidia.com"
GPU, CLASS = "nvidia.com/gpu", f"deviceclass.resource.kubernetes.io/{DRIVER}"


def device_class(*expressions: str, resource: str | None = GPU, name: str = DRIVER) -> JSON:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return dumped.device_class(name, DRIVER, extendedResourceName=resource, selectors=selectors)


def gpu(number: int, **fields: Any) -> JSON:
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{number}"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci{number}"},
    }
    capacity = {"memory": {"value": "80Gi"}}
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": capacity, **fields}


def resource_slice(node_name: str = "n", count: int = 8, **spec: Any) -> JSON:
    devices = [gpu(number) for number in range(count)]
    given = {"nodeName": node_name, "devices": devices, **spec}
    return dumped.resource_slice(DRIVER, node_name, **given)


def state_of(*objects: JSON) -> ClusterState:
    state = ClusterState(None)
    for obj in objects:
        put(state, {"apiVersion": "v1", **obj})
    return state


def published(state: ClusterState, name: str = "n") -> dict[str, int]:
    known = state.nodes.index.get(name)
    assert known is not None
    return dict(known.published)


RULE = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "rule"}}
OWN = f"device.attributes['{DRIVER}']"
SELECTOR = f"device.driver == '{DRIVER}' && {OWN}.type == 'gpu'"


def test_a_node_offers_devices_by_class_and_extended_resource_whatever_comes_first() -> None:
    objects = [device_class(SELECTOR), resource_slice()]
    for order in ([*objects, node("n")], [node("n"), *objects]):
        assert published(state_of(*order)) == {GPU: 8, CLASS: 8}


def test_what_a_node_offers_is_in_the_order_of_the_names() -> None:
    names = ["a.example.com", DRIVER, "z.example.com"]
    classes = [device_class(SELECTOR, name=name, resource=None) for name in names]
    state = state_of(*classes, resource_slice(), node("n"))
    assert [*published(state)] == [implicit_resource(name) for name in names]


def test_a_slice_that_moves_or_goes_takes_its_devices_along() -> None:
    state = state_of(device_class(SELECTOR), node("n"), node("m"), resource_slice(), node("o"))
    name, store = f"n-{DRIVER}", state.offers.slices
    placements: tuple[tuple[JSON, str], ...] = (
        ({"nodeName": "m"}, "m"),
        ({"nodeName": None, "allNodes": True}, "nmo"),
        ({"nodeName": "o", "pool": {"name": "other", "generation": 1}}, "o"),
        ({}, "n"),
    )
    for placement, expected in placements:
        put(state, resource_slice(**placement))
        assert "".join(node for node in "nmo" if published(state, node)) == expected
        assert list(store.names()) == [name]
    for _ in range(2):
        store.remove(name)
        assert not any(published(state, node) for node in "nmo")


def test_the_slice_of_one_node_is_read_once_for_the_others_of_its_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts for them when it completes the pool, or replaces its generation."""
    names = [f"n{number}" for number in range(30)]
    state = state_of(device_class(SELECTOR), *map(node, names))
    asked: list[str] = []
    offered_by = PublishedDevices.offered_by

    def counted(self: PublishedDevices, name: str, labels: Mapping[str, str]) -> Any:
        asked.append(name)
        return offered_by(self, name, labels)

    monkeypatch.setattr(PublishedDevices, "offered_by", counted)
    for generation, offered in ((1, 1), (2, 2)):
        pool = {"name": "all", "generation": generation, "resourceSliceCount": len(names)}
        for position, name in enumerate(names):
            devices = [{**gpu(n), "name": f"{name}-{n}"} for n in range(offered)]
            put(state, resource_slice(name, pool=pool, devices=devices))
            is_complete = position == len(names) - 1
            assert published(state, name).get(GPU) == (offered if is_complete else 0), name
        assert {published(state, name)[GPU] for name in names} == {offered}
    assert len(asked) <= 6 * len(names)


def test_a_device_with_a_taint_is_the_node_s_and_cannot_be_allocated() -> None:
    devices = [gpu(0), gpu(1, taints=[{"key": "broken", "effect": "NoExecute"}])]
    state = state_of(device_class(SELECTOR), node("n"), resource_slice(devices=devices))
    assert published(state) == {GPU: 1, CLASS: 1}
    devices = [gpu(0, taints=[{"key": "old", "effect": "None"}]), gpu(1)]
    put(state, resource_slice(devices=devices))
    assert published(state) == {GPU: 2, CLASS: 2}


def test_a_rule_taints_devices_until_it_is_deleted() -> None:
    state = state_of(device_class(SELECTOR), node("n"), resource_slice(), node("m"))
    put(state, resource_slice("m"))
    rules = state.offers.of_drivers[TAINT_RULES]
    for selector, of_n, of_m in (
        ({"driver": DRIVER, "pool": "n", "device": "gpu-3"}, 7, 8),
        ({"pool": "n"}, 0, 8),
        ({"device": "gpu-3"}, 7, 7),
        ({"driver": "other"}, 8, 8),
        ({}, 0, 0),
        (None, 8, 8),
    ):
        for effect in ("NoExecute", "None"):
            spec = {"deviceSelector": selector, "taint": {"key": "broken", "effect": effect}}
            put(state, {**RULE, "spec": spec})
            expected = (of_n, of_m) if effect == "NoExecute" else (8, 8)
            assert (published(state)[GPU], published(state, "m")[GPU]) == expected, spec
        put(state, {**RULE, "spec": {**spec, "taint": {"key": "broken", "effect": "NoSchedule"}}})
        assert list(rules.names()) == (["rule"] if selector is not None else [])
        rules.remove("rule")
        assert (published(state)[GPU], published(state, "m")[GPU]) == (8, 8), selector


def test_devices_that_many_nodes_have_access_to_follow_the_labels_of_nodes() -> None:
    """No node has them itself, except by its name."""

    def had() -> tuple[bool, bool]:
        nodes = [state.nodes.index.get(name) for name in "nm"]
        one, other = ({GPU, CLASS} <= each.devices for each in nodes if each)
        return one, other

    terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["7"]}]}]
    selector = {"nodeSelectorTerms": terms}
    fabric = resource_slice(nodeName=None, nodeSelector=selector)
    state = state_of(device_class(SELECTOR), fabric, node("n", {"rack": "7"}), node("m"))
    assert (published(state), published(state, "m")) == ({GPU: 8, CLASS: 8}, {})
    put(state, {"apiVersion": "v1", **node("m", {"rack": "7"})})
    assert published(state, "m") == {GPU: 8, CLASS: 8}
    assert had() == (False, False)
    put(state, resource_slice(nodeName=None, allNodes=True, count=2))
    assert (published(state), published(state, "m")) == ({GPU: 2, CLASS: 2},) * 2
    assert had() == (False, False)
    each = [gpu(0, nodeName="m"), gpu(1, nodeSelector=selector)]
    put(state, resource_slice(nodeName=None, perDeviceNodeSelection=True, devices=each))
    assert (published(state), published(state, "m")) == ({GPU: 1, CLASS: 1}, {GPU: 2, CLASS: 2})
    assert had() == (False, True)


def test_no_slice_for_all_nodes_makes_a_gpu_node_an_ordinary_one() -> None:
    """It takes the name of the node's pool, or of the resource of its device plugin."""
    pool = {"name": "n", "generation": 9, "resourceSliceCount": 1}
    for devices in ([], [gpu(0)]):
        everywhere = resource_slice("m", nodeName=None, allNodes=True, pool=pool, devices=devices)
        plugged = node("p", allocatable={GPU: 8})
        state = state_of(device_class(SELECTOR), resource_slice(), everywhere, node("n"), plugged)
        of_slice, of_plugin = (state.nodes.index.get(name) for name in "np")
        assert of_slice is not None
        assert of_plugin is not None
        assert of_slice.devices == {GPU, CLASS}
        assert of_plugin.devices == {GPU}
        assert (of_slice.offers[GPU], of_plugin.offers[GPU]) == (len(devices), 8)


def test_a_driver_that_publishes_devices_for_nodes_without_any_is_found() -> None:
    state = state_of(device_class(SELECTOR), node("plain"), node("gpu", allocatable={GPU: "8"}))
    known = shipped_policy().pools_of_device
    placements: tuple[JSON, ...] = ({}, {"nodeName": "gpu"}, {"nodeName": None, "allNodes": True})
    for placement in placements:
        put(state, resource_slice(**placement))
        found = [*of_a_network(known, state)]
        assert bool(found) == ("allNodes" in placement), placement
    [problem] = map(str, found)
    assert problem == (
        "DRA driver gpu.nvidia.com publishes devices for 1 node without devices of that kind "
        "(plain), in ResourceSlice n-gpu.nvidia.com: gpufence fences no node for them. If the "
        "devices are not attached over a network, delete the ResourceSlice, and restrict who may "
        "create ResourceSlices"
    )
    assert [*of_a_network("nic".__eq__, state)] == []


def test_equal_devices_are_evaluated_once_and_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What identifies a device makes it no other, unless a selector reads it."""
    evaluated: list[str] = []
    evaluate = Expression.evaluate

    def counted(expression: Expression, scope: Scope) -> Any:
        evaluated.append(scope["device"]["driver"])
        return evaluate(expression, scope)

    monkeypatch.setattr(Expression, "evaluate", counted)
    nodes = [node(name, allocatable={"nvidia.com/mig-1g.10gb": 7}) for name in "ab"]
    state = state_of(device_class(SELECTOR), *map(resource_slice, "ab"), *nodes)
    assert evaluated == [DRIVER]
    one, other = (state.nodes.index.get(name) for name in "ab")
    assert one is not None
    assert other is not None
    assert one.published is other.published
    assert one.allocatable is other.allocatable
    evaluated.clear()
    state_of(device_class(f"{SELECTOR} && has({OWN}.uuid)"), *map(resource_slice, "ab"))
    assert len(evaluated) == 8


def test_a_slice_in_a_file_whose_quantity_is_none_is_invalid() -> None:
    state = state_of(device_class(f"device.capacity['{DRIVER}'].memory != quantity('1')"))
    with pytest.raises(ValueError, match="got `array`"):
        put(state, resource_slice(devices=[gpu(0, capacity={"memory": {"value": ["80Gi"]}})]))


async def test_a_replica_reads_slices_again_when_a_class_selects_other_devices(
    tmp_path: Path,
) -> None:
    api = FakeApiServer(NODES, DEVICE_CLASSES, RESOURCE_SLICES)
    api.put(NODES, node("n"))
    api.put(RESOURCE_SLICES, resource_slice())
    await api.start()
    async with facts_of(api, tmp_path) as cluster:
        await eventually(lambda: not cluster.unready(), "the facts")
        assert published(cluster.state) == {}
        api.put(DEVICE_CLASSES, device_class(SELECTOR, resource=None))
        await eventually(lambda: published(cluster.state) == {CLASS: 8}, "the class")
        api.put(DEVICE_CLASSES, device_class(SELECTOR))
        await eventually(lambda: published(cluster.state) == {GPU: 8, CLASS: 8}, "the name")
        api.put(DEVICE_CLASSES, device_class("device.driver == 'other'"))
        await eventually(lambda: published(cluster.state) == {}, "the selector")
        api.put(DEVICE_CLASSES, device_class("semver('1') == semver('1')"))
        await eventually(lambda: published(cluster.state) == {GPU: 8, CLASS: 8}, "the doubt")
        assert any("cannot evaluate" in line for line in cluster.problems())
        api.remove(RESOURCE_SLICES, f"n-{DRIVER}")
        await eventually(lambda: published(cluster.state) == {}, "the slice to go")
    await api.stop()
