"""ResourceClaims, templates and DeviceClasses become facts."""

from __future__ import annotations

from typing import Any

import pytest

from policies.kubernetes.claims import Claim
from webhook.cluster.manifests import read_claims
from webhook.devices.claims import read_claim

JSON = dict[str, Any]


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
