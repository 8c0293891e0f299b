"""The devices that ResourceSlices publish for a node."""

from __future__ import annotations

from typing import Any

import pytest

from policies.kubernetes.core_v1 import NodeSelectorTerm, Requirement
from policies.kubernetes.resource_slices import (
    Device,
    Placement,
    PublishedDevices,
    ResourceSlice,
)
from policies.kubernetes.scheduling import term_alternatives

GPU = frozenset({"gpu"})
NAME = "deviceclass.resource.kubernetes.io/gpu"
ON_A = Placement("a")
ZONE = Placement(
    terms=tuple(term_alternatives([NodeSelectorTerm([Requirement("zone", "In", ["1"])])]))
)


def gpus(count: int, first: int = 0, **fields: Any) -> tuple[Device, ...]:
    return tuple(Device(f"gpu-{n}", GPU, **fields) for n in range(first, first + count))


def part(name: str = "s", generation: int = 1, count: int = 1, **fields: Any) -> ResourceSlice:
    given = {"placement": ON_A, "devices": gpus(2), **fields}
    return ResourceSlice(name, "driver", "pool", generation, count, **given)


def offers(*slices: ResourceSlice, labels: dict[str, str] | None = None) -> dict[str, int]:
    published = PublishedDevices()
    for each in slices:
        published.put(each)
    return published.offers_of("a", labels or {})


def counters(amount: int) -> tuple[tuple[str, str, int], ...]:
    return (("set", "memory", amount),)


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([part()], {NAME: 2}, id="complete"),
        pytest.param([part(count=2)], {NAME: 0}, id="incomplete"),
        pytest.param(
            [part(count=2), part("t", count=2, devices=gpus(2, 2))], {NAME: 4}, id="two slices"
        ),
        pytest.param([part(), part("t", 2, devices=gpus(1))], {NAME: 1}, id="older generation"),
        pytest.param([part(), part("t", 2, devices=())], {}, id="all devices are gone"),
        pytest.param(
            [part(count=2), part("t", 2, placement=Placement("b"))],
            {},
            id="obsolete: the newer generation has no slice of the node yet",
        ),
        pytest.param(
            [part(count=2), part("t", count=2, placement=Placement("b"), devices=gpus(2, 2))],
            {NAME: 2},
            id="the other slice is about another node",
        ),
        pytest.param([part(count=2), part("t", count=2)], {NAME: 0}, id="names twice"),
        pytest.param([part(placement=Placement("b"))], {}, id="another node"),
        pytest.param([part(placement=Placement(all_nodes=True))], {NAME: 2}, id="all nodes"),
        pytest.param([part(placement=ZONE)], {NAME: 2}, id="by labels"),
        pytest.param(
            [part(placement=None, devices=(*gpus(1, placement=ON_A), *gpus(1, 1, placement=ZONE)))],
            {NAME: 2},
            id="each device its own",
        ),
        pytest.param([part(devices=gpus(2, is_tainted=True))], {NAME: 0}, id="tainted"),
        pytest.param([part(devices=(Device("nic", frozenset()),))], {}, id="of no class"),
        pytest.param(
            [
                part(count=2, devices=gpus(7, consumes=counters(10))),
                part("t", count=2, devices=(), counters=counters(40)),
            ],
            {NAME: 4},
            id="shared counters",
        ),
        pytest.param(
            [
                part(count=2, devices=gpus(7, consumes=counters(50))),
                part("t", count=2, devices=(), counters=counters(40)),
            ],
            {NAME: 0},
            id="larger than the counter",
        ),
        pytest.param(
            [part(devices=gpus(2, consumes=counters(1)))], {NAME: 0}, id="counters are missing"
        ),
    ],
)
def test_a_node_offers_what_the_scheduler_can_allocate(
    slices: list[ResourceSlice], expected: dict[str, int]
) -> None:
    assert offers(*slices, labels={"zone": "1"}) == expected
    assert offers(*reversed(slices), labels={"zone": "1"}) == expected


def test_a_node_without_the_label_has_no_access() -> None:
    assert offers(part(placement=ZONE), labels={"zone": "2"}) == {}


def test_a_class_provides_extended_resources() -> None:
    published = PublishedDevices()
    published.resources = {"gpu": ("nvidia.com/gpu",)}
    published.put(part())
    assert published.offers_of("a", {}) == {NAME: 2, "nvidia.com/gpu": 2}


def test_what_is_removed_is_gone_and_the_nodes_are_told() -> None:
    published = PublishedDevices()
    assert published.put(part()) == {"a"}
    assert published.put(part()) == frozenset(), "nothing has changed"
    assert published.put(part(placement=Placement("b"))) == {"a", "b"}
    assert published.put(part("t", placement=ZONE)) >= {""}
    assert published.remove("s") == {"b", ""}
    assert published.remove("t") == {""}
    assert published.remove("t") == frozenset()
    assert (len(published), published.offers_of("a", {"zone": "1"})) == (0, {})
