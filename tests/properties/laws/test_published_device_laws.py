"""Nodes offer what kube-scheduler's allocator finds there, and selectors mean what it evaluates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from laws.profile import law
from oracle.driver import Oracle
from policies.kubernetes.claims import implicit_resource
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState

pytestmark = pytest.mark.timeout(3600)

JSON = dict[str, Any]

DRIVERS = ("gpu.nvidia.com", "other.example.com")
OWN = "device.attributes['gpu.nvidia.com']"
NODES = {"a": {"zone": "1"}, "b": {"zone": "2"}, "c": {}}
API = {"apiVersion": "resource.k8s.io/v1"}


def selectors(*, may_fail: bool) -> st.SearchStrategy[str]:
    """Return expressions of a selector; others fail for some devices."""
    certain = [
        "device.driver == 'gpu.nvidia.com'",
        "device.driver != 'gpu.nvidia.com'",
        f"has({OWN}.type)",
        f"{OWN}.?type.orValue('none') in ['gpu', 'none']",
        f"has({OWN}.type) && {OWN}.type == 'mig'",
        "'gpu.nvidia.com' in device.attributes",
        f"cel.bind(own, {OWN}, has(own.index) ? own.index > 1 : false)",
        "true",
    ]
    failing = [
        f"{OWN}.type == 'gpu'",
        f"{OWN}.type.lowerAscii().matches('^g.*u$')",
        f"{OWN}.index <= 1",
        f"{OWN}.index == '1'",
        f"{OWN}.version == '1.0.0'",
        f"'1.0.0' == {OWN}.version",
        f"{OWN}.isWhole",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
        "device.attributes['example.com'].rack.startsWith('r')",
    ]
    terms = st.sampled_from([*certain, *failing] if may_fail else certain)
    return st.recursive(
        terms,
        lambda each: st.one_of(
            st.builds("({} && {})".format, each, each),
            st.builds("({} || {})".format, each, each),
            st.builds("!({})".format, each),
            st.builds("({} ? {} : {})".format, each, each, each),
        ),
        max_leaves=4,
    )


ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["gpu", "mig", "GPU"]).map(lambda text: {"string": text}),
        "index": st.integers(0, 3).map(lambda number: {"int": number}),
        "isWhole": st.booleans().map(lambda flag: {"bool": flag}),
        "version": st.just({"version": "1.0.0"}),
        "example.com/rack": st.sampled_from(["r1", "s"]).map(lambda text: {"string": text}),
        "gpu.nvidia.com/model": st.just({"string": "gpu"}),
    },
)
CAPACITY = st.fixed_dictionaries(
    {}, optional={"memory": st.sampled_from(["80Gi", "10Gi"]).map(lambda text: {"value": text})}
)


def shared(device: JSON, default: str | None) -> JSON:
    """Return the device as one that several requests share, each with a part of its memory."""
    policy = {"default": default, "validValues": [default, "80Gi"]}
    capacity = {
        name: {**amount, **({"requestPolicy": policy} if default else {})}
        for name, amount in device["capacity"].items()
    }
    return {**device, "capacity": capacity, "allowMultipleAllocations": True}


TERMS = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}]
PLACEMENTS = st.one_of(
    st.sampled_from([*NODES, "gone"]).map(lambda name: {"nodeName": name}),
    st.just({"allNodes": True}),
    st.just({"nodeSelector": {"nodeSelectorTerms": TERMS}}),
)
TAINTS = st.sampled_from(
    [[], [], [], [{"key": "k", "effect": "NoSchedule"}], [{"key": "k", "effect": "NoExecute"}]]
)


@st.composite
def pools(draw: st.DrawFn, name: str, *, alone: bool) -> list[JSON]:
    """Return the slices of a pool, which may be changing at the moment.

    Devices that are not ``alone`` may share counters, and requests may share a device. No pool has
    more slices than it declares: Kubernetes 1.36 counts those with counters for every node, and
    1.37 does not.
    """
    driver = draw(st.sampled_from(DRIVERS))
    shares = not alone and draw(st.booleans())
    parts = draw(st.integers(1, 3))
    declared = parts + shares + draw(st.sampled_from([0, 0, 0, 0, 1]))
    newest = draw(st.integers(1, 2))
    found, number = [], 0

    def part(own: str, **spec: Any) -> JSON:
        generation = draw(st.sampled_from([newest] * 5 + [1, 2]))
        pool = {"name": name, "generation": generation, "resourceSliceCount": declared}
        spec = {"driver": driver, "pool": pool, **spec}
        return {"metadata": {"name": f"{name}-{own}"}, "spec": spec}

    if shares:
        amount = {"value": str(draw(st.integers(1, 4)))}
        sets = [{"name": "set", "counters": {"memory": amount}}]
        found.append(part("counters", nodeName="a", sharedCounters=sets))
    for index in range(parts):
        by_device = draw(st.booleans())
        devices = []
        for _ in range(draw(st.integers(0, 3))):
            # A name that a device has already makes the pool invalid.
            number += draw(st.sampled_from([1, 1, 1, 1, 1, 1, 0]))
            device: JSON = {
                "name": f"device-{number}",
                "attributes": draw(ATTRIBUTES),
                "capacity": draw(CAPACITY),
                "taints": draw(TAINTS),
            }
            if not alone and draw(st.integers(0, 3)) == 0:
                device = shared(device, draw(st.sampled_from([None, "5Gi", "10Gi", "40Gi"])))
            if shares:
                consumed = {"memory": {"value": str(draw(st.integers(1, 3)))}}
                device["consumesCounters"] = [{"counterSet": "set", "counters": consumed}]
            devices.append({**device, **(draw(PLACEMENTS) if by_device else {})})
        placed = {"perDeviceNodeSelection": True} if by_device else draw(PLACEMENTS)
        found.append(part(str(index), devices=devices, **placed))
    return found


def slices(*, alone: bool = False) -> st.SearchStrategy[list[JSON]]:
    """Return the slices of one or two pools."""
    one, two = (pools(name, alone=alone) for name in ("pool-1", "pool-2"))
    return st.one_of(one, st.builds(lambda first, second: [*first, *second], one, two))


def objects(expression: str, given: list[JSON]) -> tuple[JSON, list[JSON], list[JSON]]:
    """Return the DeviceClass, the nodes and the slices."""
    selector = [{"cel": {"expression": expression}}]
    device_class = {"metadata": {"name": "c"}, "spec": {"selectors": selector}}
    nodes = [{"metadata": {"name": name, "labels": each}} for name, each in NODES.items()]
    return device_class, nodes, given


def counted(device_class: JSON, nodes: list[JSON], given: list[JSON]) -> list[int | None]:
    """Return how many devices each node offers; ``None`` if it has none."""
    state = ClusterState(None)
    put(state, {**API, "kind": "DeviceClass", **device_class})
    for obj in nodes:
        put(state, {"apiVersion": "v1", "kind": "Node", **obj})
    for obj in given:
        put(state, {**API, "kind": "ResourceSlice", **obj})
    assert not state.offers.problems
    offers = [state.nodes.index.get(each["metadata"]["name"]) for each in nodes]
    return [each.published.get(implicit_resource("c")) if each else None for each in offers]


@law
@given(selectors(may_fail=False), slices())
def test_a_node_offers_a_device_exactly_if_the_scheduler_can_allocate_it(
    oracle: Oracle, expression: str, given: list[JSON]
) -> None:
    device_class, nodes, given = objects(expression, given)
    for count in (1, 2, 3):
        found = counted(device_class, nodes, given)
        verdicts = oracle.allocatable(nodes, given, device_class, count)
        for offered, verdict in zip(found, verdicts, strict=True):
            event(f"{count}: {verdict.allocatable}, {verdict.failure[:40]}")
            if count == 1:
                assert verdict.allocatable is bool(offered)
            elif verdict.allocatable:
                # How many fit several counters at once is the scheduler's to find out. One request
                # gets a shared device once, and several get a share each.
                assert (offered or 0) >= count


@law
@given(selectors(may_fail=False), slices(alone=True))
def test_devices_that_stand_alone_are_counted_as_the_scheduler_does(
    oracle: Oracle, expression: str, given: list[JSON]
) -> None:
    device_class, nodes, given = objects(expression, given)
    found = counted(device_class, nodes, given)
    for count in (1, 2, 3, 5):
        verdicts = oracle.allocatable(nodes, given, device_class, count)
        for offered, verdict in zip(found, verdicts, strict=True):
            assert verdict.allocatable is ((offered or 0) >= count)


@law
@given(selectors(may_fail=True), ATTRIBUTES, CAPACITY, st.sampled_from(DRIVERS))
def test_a_selector_matches_a_device_exactly_if_the_scheduler_agrees(
    oracle: Oracle, expression: str, attributes: JSON, capacity: JSON, driver: str
) -> None:
    device = {"name": "device", "attributes": attributes, "capacity": capacity}
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "allNodes": True, "devices": [device]}
    device_class, nodes, given = objects(expression, [{"metadata": {"name": "s"}, "spec": spec}])
    found = counted(device_class, nodes[:1], given)
    [verdict] = oracle.allocatable(nodes[:1], given, device_class, 1)
    event("fails" if "runtime error" in verdict.failure else str(verdict.allocatable))
    assert "compile error" not in verdict.failure
    assert [verdict.allocatable] == [bool(offered) for offered in found]
