"""ResourceClaims, templates and DeviceClasses become facts."""

from __future__ import annotations

from typing import Any

import pytest

from dumped import resource_slice
from policies.kubernetes.claims import Claim, least_of_host
from policies.kubernetes.quantity import NANOS
from specs import JSON
from webhook.cluster.files import put
from webhook.cluster.manifests import read_claims
from webhook.cluster.state import ClusterState
from webhook.devices.claims import read_claim


def spec(*requests: Any) -> JSON:
    return {"devices": {"requests": list(requests)}}


def obj(kind: str, name: Any, spec: Any, version: str = "resource.k8s.io/v1") -> JSON:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


GPU = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}


@pytest.mark.parametrize(
    ("requests", "classes"),
    [
        pytest.param([GPU], [{"gpu.nvidia.com"}], id="exactly"),
        pytest.param([{"deviceClassName": "gpu.nvidia.com"}], [{"gpu.nvidia.com"}], id="v1beta1"),
        pytest.param(
            [{"firstAvailable": [{"deviceClassName": "a"}, {"deviceClassName": "b"}]}],
            [{"a", "b"}],
            id="firstAvailable",
        ),
        pytest.param([GPU, GPU], [{"gpu.nvidia.com"}] * 2, id="two requests"),
        pytest.param([{"name": "gpu"}], [set()], id="no class"),
        pytest.param([{"exactly": None, "firstAvailable": None}], [set()], id="null"),
        pytest.param([{"exactly": {"deviceClassName": 7}}], [set()], id="a class that is a number"),
        pytest.param([None, "gpu", 7], [], id="no requests"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_read_claim_returns_the_device_classes_of_each_request(
    requests: list[Any], classes: list[set[str]]
) -> None:
    assert list(map(set, read_claim(spec(*requests)).requests)) == classes


def test_a_compute_domain_makes_the_template_of_a_claim_for_a_channel() -> None:
    channel = {"channel": {"resourceClaimTemplate": {"name": "imex"}}}
    domain = obj("ComputeDomain", "domain", channel, "resource.nvidia.com/v1beta1")
    _, templates, _ = read_claims([("ml", domain)])
    assert templates == {
        ("ml", "imex"): Claim((frozenset({"compute-domain-default-channel.nvidia.com"}),))
    }


@pytest.mark.parametrize("odd", [None, [], "x", {"devices": None}, {"devices": {"requests": "x"}}])
def test_a_malformed_claim_has_no_requests(odd: Any) -> None:
    assert read_claim(odd).requests == ()


def test_read_claims_indexes_objects_by_kind_namespace_and_name() -> None:
    claims, templates, classes = read_claims(
        [
            ("ml", obj("ResourceClaim", "one", spec(GPU))),
            ("web", obj("ResourceClaim", "one", spec())),
            ("ml", obj("ResourceClaimTemplate", "one", {"spec": spec(GPU, GPU)})),
            ("", obj("DeviceClass", "gpu.nvidia.com", {"extendedResourceName": "nvidia.com/gpu"})),
            ("", obj("DeviceClass", "mig.nvidia.com", {})),
            ("ml", obj("ResourceClaim", "old", spec(GPU), "resource.k8s.io/v1beta2")),
        ]
    )
    assert {key: len(claim.requests) for key, claim in claims.items()} == {
        ("ml", "one"): 1,
        ("web", "one"): 0,
        ("ml", "old"): 1,
    }
    assert {key: len(claim.requests) for key, claim in templates.items()} == {("ml", "one"): 2}
    assert classes == {"nvidia.com/gpu": "gpu.nvidia.com"}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"apiVersion": 7, "kind": None},
        obj("ResourceClaim", None, spec(GPU)),
        obj("ResourceClaim", 7, spec(GPU)),
        obj("ResourceClaim", "one", spec(GPU), "example.com/v1"),
        obj("Pod", "one", spec(GPU), "v1"),
        obj("DeviceClass", "one", {"extendedResourceName": 7}),
        obj("ResourceSlice", "one", spec(GPU)),
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": [], "spec": 1},
    ],
)
def test_read_claims_ignores_malformed_and_other_objects(odd: JSON) -> None:
    assert read_claims([("default", odd)]) == ({}, {}, {})


CPUS: JSON = {"deviceClassName": "cpus"}
EIGHT = {"mapping": {"deviceMultiplier": "8"}}
CORES = {"mapping": {"capacityKey": "cores", "capacityMultiplier": "500m"}}


@pytest.mark.parametrize(
    ("takes", "request_", "cpus"),
    [
        pytest.param([EIGHT], {**CPUS, "count": 2}, 16, id="devices"),
        pytest.param([EIGHT, {"mapping": {"deviceMultiplier": "6"}}], CPUS, 6, id="the least"),
        pytest.param([EIGHT, None], CPUS, 0, id="one takes nothing"),
        pytest.param([CORES], {**CPUS, "capacity": {"requests": {"cores": 10}}}, 5, id="capacity"),
        pytest.param([CORES], CPUS, 32, id="a whole capacity"),
        pytest.param([{"overhead": {"perPod": 1, "perContainer": 2}}], CPUS, 7, id="overhead"),
        pytest.param([EIGHT], {"deviceClassName": "gone"}, 0, id="an unknown class"),
        pytest.param([EIGHT], {"firstAvailable": [CPUS, {**CPUS, "count": 3}]}, 8, id="either"),
        pytest.param([EIGHT], {**CPUS, "allocationMode": "All"}, 8, id="one or more"),
    ],
)
def test_a_claim_takes_cpus_of_its_node_as_its_devices_say(
    takes: list[JSON | None], request_: JSON, cpus: int
) -> None:
    state = ClusterState(None)
    put(state, obj("DeviceClass", "cpus", {}))
    devices = [
        {
            "name": f"device-{number}",
            "allowMultipleAllocations": True,
            "capacity": {"cores": {"value": 64}},
            "nodeAllocatableResources": {"cpu": each} if each else None,
        }
        for number, each in enumerate(takes)
    ]
    put(state, resource_slice("cpus.example", "pool", nodeName="node", devices=devices))
    known = state.offers.published.host_shares
    assert least_of_host(read_claim(spec(request_)), "cpu", 3, known) == cpus * NANOS
