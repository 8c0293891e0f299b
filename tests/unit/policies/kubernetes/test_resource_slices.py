"""The devices that ResourceSlices publish for a node."""

from __future__ import annotations

from typing import Any

from policies.kubernetes.core_v1 import NodeSelectorTerm, Requirement
from policies.kubernetes.resource_slices import Device, Placement, PublishedDevices, ResourceSlice
from policies.kubernetes.scheduling import term_alternatives

GPU = frozenset({"gpu"})
ON_A = Placement("a")
ZONE = Placement(
    terms=tuple(term_alternatives([NodeSelectorTerm([Requirement("zone", "In", ["1"])])]))
)


def gpus(count: int, first: int = 0, **fields: Any) -> tuple[Device, ...]:
    return tuple(Device(f"gpu-{n}", GPU, **fields) for n in range(first, first + count))


def part(name: str = "s", generation: int = 1, count: int = 1, **fields: Any) -> ResourceSlice:
    given = {"placement": ON_A, "devices": gpus(2), **fields}
    return ResourceSlice(name, "driver", "pool", generation, count, **given)


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
