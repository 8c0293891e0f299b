"""Nodes offer what kube-scheduler's allocator finds there, and selectors mean what it evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from laws.profile import law
from oracle.driver import Oracle
from policies.kubernetes.claims import implicit_resource
from specs import JSON
from webhook.cluster.files import put
from webhook.cluster.state import ClusterState

pytestmark = pytest.mark.timeout(3600)

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
    [[], [], [], *([{"key": "k", "effect": e}] for e in ("None", "NoSchedule", "NoExecute"))]
)
GROUPS = st.sampled_from([None, None, ["a"], ["b"], ["a", "b"]])
UNRELATED: st.SearchStrategy[JSON] = st.sampled_from(
    [
        {},
        {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]},
        {"bindingConditions": ["Attached"], "bindsToNode": True},
        {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "8"}}}},
        {"nodeAllocatableResources": {"memory": {"overhead": {"perPod": "2Gi"}}}},
    ]
)
"""Fields that do not decide whether a device can be allocated."""


def counters(most: int, names: Sequence[str]) -> st.SearchStrategy[JSON]:
    """Return amounts of the counters."""
    amount = st.integers(1, most).map(lambda number: {"value": str(number)})
    return st.fixed_dictionaries(dict.fromkeys(names, amount))


@st.composite
def pools(draw: st.DrawFn, name: str, *, simple: bool) -> list[JSON]:
    """Return the slices of a pool, which may be changing at the moment.

    Devices may share a counter. Others than ``simple`` ones may share two counters in each of two
    sets, and requests may share a device. No pool has more slices than it declares: Kubernetes 1.36
    counts those with counters for every node, and 1.37 does not.
    """
    driver = draw(st.sampled_from(DRIVERS))
    shares = draw(st.booleans())
    amounts = ["memory"] if simple else ["memory", "engines"]
    sets = [["one"], []] if simple else [["one"], ["two"], ["one", "two"], []]
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
        shared_sets = [
            {"name": own, "counters": draw(counters(4, amounts))} for own in ("one", "two")
        ]
        found.append(part("counters", nodeName="a", sharedCounters=shared_sets))
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
                **draw(UNRELATED),
            }
            if not simple and draw(st.integers(0, 3)) == 0:
                device = shared(device, draw(st.sampled_from([None, "5Gi", "10Gi", "40Gi"])))
            if shares:
                device["consumesCounters"] = [
                    {
                        "counterSet": own,
                        "counters": draw(counters(3, amounts)),
                        "compatibilityGroups": draw(GROUPS),
                    }
                    for own in draw(st.sampled_from(sets))
                ]
            devices.append({**device, **(draw(PLACEMENTS) if by_device else {})})
        placed = {"perDeviceNodeSelection": True} if by_device else draw(PLACEMENTS)
        found.append(part(str(index), devices=devices, **placed))
    return found


def slices(*, simple: bool = False) -> st.SearchStrategy[list[JSON]]:
    """Return the slices of one or two pools."""
    one, two = (pools(name, simple=simple) for name in ("pool-1", "pool-2"))
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
                # How many fit several counters and groups at once, the scheduler finds out. One
                # request gets a shared device once, and several get a share each.
                assert (offered or 0) >= count


@law
@given(selectors(may_fail=False), slices(simple=True))
def test_devices_that_share_at_most_one_counter_are_counted_as_the_scheduler_does(
    oracle: Oracle, expression: str, given: list[JSON]
) -> None:
    device_class, nodes, given = objects(expression, given)
    found = counted(device_class, nodes, given)
    for count in (1, 2, 3, 5):
        verdicts = oracle.allocatable(nodes, given, device_class, count)
        for offered, verdict in zip(found, verdicts, strict=True):
            assert verdict.allocatable is ((offered or 0) >= count)


@pytest.mark.parametrize(
    "groups",
    [
        [["a"], ["b"]],
        [["a"], ["a", "b"]],
        [["a"], None],
        [None, None],
        [["a", "b"], ["b", "c"], ["a", "c"]],
        [["a"], ["a"], ["b"], None],
    ],
    ids=str,
)
def test_devices_on_one_set_of_counters_share_a_compatibility_group(
    oracle: Oracle, groups: list[list[str] | None]
) -> None:
    amount = {"memory": {"value": "1"}}
    devices = [
        {
            "name": f"device-{number}",
            "consumesCounters": [
                {"counterSet": "set", "counters": amount, "compatibilityGroups": own}
            ],
        }
        for number, own in enumerate(groups)
    ]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 2}
    shared_set = {"name": "set", "counters": {"memory": {"value": "9"}}}
    specs: list[JSON] = [{"sharedCounters": [shared_set]}, {"devices": devices}]
    given = [
        {
            "metadata": {"name": f"slice-{number}"},
            "spec": {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": "a", **spec},
        }
        for number, spec in enumerate(specs)
    ]
    device_class, nodes, given = objects("true", given)
    [offered] = counted(device_class, nodes[:1], given)
    for count in range(1, len(groups) + 1):
        [verdict] = oracle.allocatable(nodes[:1], given, device_class, count)
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
