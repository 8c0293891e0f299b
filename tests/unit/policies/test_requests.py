"""Which Pods are GPU Pods, and the pools that they request."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import given

import strategies
from cases.loading import policy_spec
from policies.context import Context
from policies.facts import Facts, Operation, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.pod import Pod, host_peaks
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.kubernetes.template import Template
from policies.policy import Policy
from policies.requests import (
    Scope,
    device_peaks,
    device_requests,
    devices_in_pool,
    named_claims,
    needed_devices,
    offered_by,
)
from specs import policy_of
from strategies import JSON
from typed import pod_of
from webhook.devices.claims import read_claim

TWO_POOLS = strategies.policies()["two pools"]
IMPLICIT = "deviceclass.resource.kubernetes.io/"


SHARED = policy_of(policy_spec("fractions"))


def scope(own: Policy = SHARED, **request: Any) -> Scope:
    return Scope(own, Request(**request), Facts())


def pod_with(annotations: JSON | None, kind: str = "Pod", **spec: Any) -> Pod:
    """Return a Pod with these annotations for the scheduler KAI, and one container."""
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "a"}]} | spec
    raw = {"metadata": {"annotations": annotations}, "spec": spec}
    return pod_of(raw, Template({}, ("spec",), kind))


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        ("0.5", True),
        (".5", True),
        ("2000", True),
        ("010", True),
        ("0", False),
        ("0.000", False),
        ("", False),
        ("-1", False),
        ("half", False),
        ("1" * 40, False),
        (None, False),
    ],
)
def test_an_annotation_is_a_request_if_it_is_a_number_above_zero(
    value: str | None, counts: bool
) -> None:
    assert bool(device_requests(pod_with({"gpu-memory": value}), scope())) == counts


@pytest.mark.parametrize(
    ("annotations", "scheduler", "count"),
    [
        ({"gpu-fraction": "0.5"}, "kai-scheduler", 1),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "3"}, "kai-scheduler", 3),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "many"}, "kai-scheduler", 1),
        ({"gpu-fraction-num-devices": "3"}, "kai-scheduler", 0),
        ({"gpu-fraction": "0.5"}, "default-scheduler", 0),
        (None, "kai-scheduler", 0),
    ],
)
def test_a_fraction_of_a_device_counts_as_one_device(
    annotations: dict[str, str] | None, scheduler: str, count: int
) -> None:
    pod = pod_with(annotations, schedulerName=scheduler)
    assert devices_in_pool(pod, SHARED.pools[0], scope()) == count


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, ("containers", 0)),
        ("train", ("containers", 1)),
        ("load", ("initContainers", 0)),
        ("debug", None),
        ("other", None),
    ],
)
def test_the_container_that_an_annotation_names_gets_the_device(
    named: str | None, found: tuple[str, int] | None
) -> None:
    annotations = {"gpu-fraction": "0.5", "gpu-fraction-container-name": named}
    pod = pod_with(
        annotations,
        initContainers=[{"name": "load"}],
        containers=[{"name": "web"}, {"name": "train"}],
        ephemeralContainers=[{"name": "debug"}],
    )
    (request,) = device_requests(pod, scope())
    assert request.container == found


@pytest.mark.parametrize(
    ("kind", "operation", "counts"),
    [("Pod", "CREATE", False), ("Pod", "UPDATE", True), ("Job", "UPDATE", False)],
)
def test_an_annotation_is_a_request_of_a_bound_pod_only_if_it_exists(
    kind: str, operation: Operation, counts: bool
) -> None:
    pod = pod_with({"gpu-fraction": "0.5"}, kind, nodeName="gpu-1")
    assert bool(device_requests(pod, scope(operation=operation))) is counts


@pytest.mark.parametrize(
    ("quantities", "peaks"),
    [
        ({"nvidia.com/gpu": 2, "amd.com/gpu": 1}, {"nvidia": 2, "amd": 1}),
        ({"nvidia.com/gpu": 2, "example.com/nic": 1}, {"nvidia": 2, "amd": 0}),
    ],
)
def test_the_peak_in_a_pool_counts_the_devices_of_the_pool(
    quantities: dict[str, int], peaks: dict[str, int]
) -> None:
    pod = pod_of({"spec": {"containers": [{"name": "a", "resources": {"limits": quantities}}]}})
    assert {
        pool.name: devices_in_pool(pod, pool, scope(TWO_POOLS)) for pool in TWO_POOLS.pools
    } == peaks


GPU = "gpu.nvidia.com"
ALL = {"deviceClassName": GPU, "allocationMode": "All"}
OF_EIGHT, OF_TWO = (
    Node(f"n{count}", {"gpu": "yes"}, (), {}, {f"{IMPLICIT}{GPU}": count}) for count in (8, 2)
)
EITHER = {
    "name": "g",
    "firstAvailable": [{"name": n, "deviceClassName": GPU, "count": int(n)} for n in "418"],
}


@pytest.mark.parametrize(
    ("requests", "allocated", "nodes", "most", "least"),
    [
        ([{"exactly": {"deviceClassName": GPU}}], (), None, 1, 1),
        ([{"deviceClassName": GPU, "count": 8}], (), None, 8, 8),
        ([{"exactly": {"deviceClassName": GPU, "count": 3}}] * 2, (), None, 6, 6),
        ([{"exactly": ALL}], (), None, inf, inf),
        ([{"exactly": ALL}], (), NodeIndex(), inf, inf),
        ([{"exactly": ALL}], (), NodeIndex([OF_EIGHT, OF_TWO]), 8, 8),
        ([{"name": "g", "exactly": ALL}], ("g", "g"), None, 2, 2),
        ([{"exactly": {**ALL, "adminAccess": True}}], (), None, 0, 0),
        ([EITHER], (), None, 8, 1),
        ([EITHER], ("g/4",) * 4, None, 4, 4),
        ([{"exactly": {"deviceClassName": "nic.example", "count": 4}}], (), None, 0, 0),
    ],
)
def test_the_devices_of_claims_count(
    requests: list[JSON],
    allocated: Sequence[str],
    nodes: NodeIndex | None,
    most: float,
    least: float,
) -> None:
    pool = {"name": "a", "deviceClasses": [GPU], "nodeSelector": {"gpu": "yes"}}
    policy = policy_of({"pools": [pool]})
    results = [{"request": name} for name in allocated]
    status = {"allocation": {"devices": {"results": results}}} if results else None
    claim = read_claim({"devices": {"requests": requests}}, status)
    facts = Facts(claims={("default", "one"): claim}, nodes=nodes)
    # The second entry is about the same claim, and nothing is known of the third.
    named = [
        {"name": f"{n}", "resourceClaimName": name} for n, name in enumerate(["one", "one", "new"])
    ]
    pod = pod_of({"spec": {"resourceClaims": named, "containers": [{"name": "a"}]}})
    own = Scope(policy, Request(), facts)
    assert devices_in_pool(pod, policy.pools[0], own) == most
    assert devices_in_pool(pod, policy.pools[0], own, min) == least


@pytest.mark.parametrize(
    ("request_of_claim", "group", "needed"),
    [
        ({"deviceClassName": GPU, "count": 2}, None, 4),
        ({"deviceClassName": GPU, "count": 2}, {"podGroupName": "g"}, 0),
        ({"deviceClassName": GPU, "adminAccess": True}, None, 0),
        ({"deviceClassName": GPU, "capacity": {"requests": {"memory": "1Gi"}}}, None, 0),
        ({"deviceClassName": "nic.example"}, None, 0),
        (EITHER, None, 0),
    ],
)
def test_a_pod_needs_what_it_alone_gets_from_claim_templates(
    request_of_claim: JSON, group: JSON | None, needed: int
) -> None:
    pool = {"name": "a", "deviceClasses": [GPU], "nodeSelector": {"gpu": "yes"}}
    claim = read_claim({"devices": {"requests": [request_of_claim]}})
    known = {("default", "one"): claim}
    own = Scope(policy_of({"pools": [pool]}), Request(), Facts(claims=known, claim_templates=known))
    entries = [{"name": f"{n}", "resourceClaimTemplateName": "one"} for n in range(2)]
    entries.append({"name": "shared", "resourceClaimName": "one"})
    spec = {"resourceClaims": entries, "containers": [{"name": "a"}], "schedulingGroup": group}
    made = pod_of({"spec": spec})
    assert needed_devices(made, own) == ({f"{IMPLICIT}{GPU}": needed} if needed else {})
    if needed:
        assert devices_in_pool(made, own.policy.pools[0], own) == needed + 2


def test_a_pool_offers_what_its_nodes_offer_if_they_are_known() -> None:
    names = ["nvidia.com/gpu", "nvidia.com/mig-*"]
    own = policy_of({"pools": [{"name": "a", "resources": names, "nodeSelector": {"gpu": "yes"}}]})
    for devices, offered in (({}, names), ({names[0]: 8}, names[:1])):
        nodes = NodeIndex([Node("n", {"gpu": "yes"}, (), devices)])
        assert offered_by(own.pools[0], Scope(own, Request(), Facts(nodes=nodes))) == offered


def test_a_pod_needs_devices_whose_quantity_is_above_zero() -> None:
    limits = {"nvidia.com/gpu": 2, "amd.com/gpu": 0, "example.com/nic": 1}
    pod = pod_of({"spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}})
    assert device_peaks(pod, TWO_POOLS) == {"nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        ({"containers": [{}]}, 0, 0),
        ({"containers": [{}, {"resources": {"limits": {"cpu": "4"}}}]}, 4, 0),
        ({"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}, 0.5, 1),
        (
            {
                "initContainers": [
                    {"restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}},
                    {"resources": {"requests": {"cpu": 4, "memory": "2Gi"}}},
                ],
                "containers": [{"resources": {"requests": {"cpu": 2, "memory": "1Gi"}}}],
            },
            1 + 4,
            2,
        ),
        (
            {
                "resources": {"requests": {"cpu": "8"}},
                "containers": [{"resources": {"requests": {"cpu": 2, "memory": "1Gi"}}}],
            },
            8,
            1,
        ),
        (
            {
                "resources": {"limits": {"cpu": "8", "memory": "8Gi"}},
                "containers": [{"resources": {"requests": {"memory": "1Gi"}}}],
            },
            8,
            1,
        ),
        (
            {
                "overhead": {"cpu": "250m", "memory": "1Gi"},
                "containers": [{"resources": {"requests": {"cpu": "2"}}}],
            },
            2.25,
            1,
        ),
    ],
    ids=[
        *("none", "a limit alone", "a container", "init containers and sidecars"),
        *("requests of the Pod", "limits of the Pod", "overhead"),
    ],
)
def test_the_peak_of_cpu_and_memory_is_what_the_scheduler_reserves(
    spec: JSON, cpu: float, memory: int
) -> None:
    assert host_peaks(pod_of({"spec": spec}).spec) == (cpu * NANOS, memory * 2**30 * NANOS)


GENERATED = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "one"}]}


def claim(*requests: set[str]) -> Claim:
    return Claim(tuple(frozenset(classes) for classes in requests))


def requests(
    spec: JSON, facts: Facts | None = None, namespace: str = "default"
) -> list[tuple[str, str, str, bool]]:
    """Return the device requests of a Pod with a container that uses every claim."""
    entries = [{"name": f"c-{n}", **e} for n, e in enumerate(spec.get("resourceClaims", ()))]
    if entries:
        user = {"resources": {"claims": [{"name": entry["name"]} for entry in entries]}}
        containers = [*spec.get("containers", ()), user]
        spec = {**spec, "resourceClaims": entries, "containers": containers}
    given = device_requests(
        pod_of({"spec": spec}), Scope(TWO_POOLS, Request(namespace), facts or Facts())
    )
    return [
        (request.pools[0].name, request.path, request.what, request.certain) for request in given
    ]


def container(name: str, quantity: Any, side: str = "limits") -> JSON:
    return {"name": "c", "resources": {side: {name: quantity}}}


class TestByResource:
    @pytest.mark.parametrize("kind", ["containers", "initContainers"])
    @pytest.mark.parametrize("side", ["limits", "requests"])
    def test_limits_and_requests_of_containers_count(self, kind: str, side: str) -> None:
        found = requests({kind: [{}, container("nvidia.com/gpu", 2, side)]})
        path = f"spec.{kind}[1].resources.{side}[nvidia.com/gpu]"
        assert found == [("nvidia", path, "nvidia.com/gpu: 2", True)]

    def test_debug_container_and_pod_level_resources_do_not_count(self) -> None:
        gpu = container("nvidia.com/gpu", 1)
        assert requests({"ephemeralContainers": [gpu], "resources": gpu["resources"]}) == []

    def test_equal_limits_and_requests_count_once(self) -> None:
        both = {"resources": {"limits": {"amd.com/gpu": 1}, "requests": {"amd.com/gpu": 1}}}
        assert [what for _, _, what, _ in requests({"containers": [both]})] == ["amd.com/gpu: 1"]

    @pytest.mark.parametrize("quantity", [0, "0", "0.0", None, "-1", -1, "-0", "0e9"])
    def test_a_quantity_of_zero_or_less_does_not_count(self, quantity: Any) -> None:
        assert requests({"containers": [container("nvidia.com/gpu", quantity)]}) == []

    @pytest.mark.parametrize("quantity", [1, "1", "1n", 0.5, "1000m", "1Ei"])
    @pytest.mark.parametrize("name", ["nvidia.com/gpu", f"{IMPLICIT}gpu.nvidia.com"])
    def test_a_positive_quantity_counts(self, name: str, quantity: Any) -> None:
        assert len(requests({"containers": [container(name, quantity)]})) == 1

    @pytest.mark.parametrize(
        ("name", "pool"),
        [
            ("nvidia.com/gpu", "nvidia"),
            ("nvidia.com/gpu.shared", "nvidia"),
            ("nvidia.com/mig-1g.10gb", "nvidia"),
            ("nvidia.com/mig-", None),
            ("nvidia.com/gpu.other", None),
            ("amd.com/gpu", "amd"),
            ("amd.com/gpus", None),
            ("gpu", None),
            (f"{IMPLICIT}gpu.nvidia.com", "nvidia"),
            (f"{IMPLICIT}gpu.amd.com", "amd"),
            (f"{IMPLICIT}rdma.example.com", None),
            (IMPLICIT, None),
            ("example.com/accelerator", "nvidia"),
            ("example.com/nic", None),
        ],
    )
    def test_a_resource_belongs_to_the_pool_that_offers_it(
        self, name: str, pool: str | None
    ) -> None:
        classes = {
            "example.com/accelerator": "gpu.nvidia.com",
            "example.com/nic": "rdma.example.com",
        }
        facts = Facts(extended_resource_classes=classes)
        found = Scope(TWO_POOLS, Request(), facts).pools_of_resource(name)
        assert [candidate.name for candidate in found] == ([pool] if pool else [])

    @given(strategies.pods(claims=False))
    def test_requested_pools_are_those_of_positive_container_quantities(self, pod: JSON) -> None:
        spec = pod["spec"]
        asked = {
            pool.name
            for kind in ("containers", "initContainers")
            for container in spec.get(kind) or ()
            for quantities in (container.get("resources") or {}).values()
            if isinstance(quantities, dict)
            for name, quantity in quantities.items()
            for pool in scope(TWO_POOLS).pools_of_resource(name)
            if parse_quantity(quantity) > 0
        }
        assert {
            pool.name
            for request in device_requests(pod_of(pod), scope(TWO_POOLS))
            for pool in request.pools
        } == asked


class TestByClaim:
    FACTS = Facts(
        claims={("ml", "one"): claim({"gpu.nvidia.com"}), ("web", "two"): claim({"gpu.amd.com"})},
        claim_templates={("ml", "one"): claim({"gpu.amd.com"})},
    )

    @pytest.mark.parametrize(
        ("source", "pools"),
        [
            ({"resourceClaimName": "one"}, ["nvidia"]),
            ({"resourceClaimTemplateName": "one"}, ["amd"]),
            ({"resourceClaimName": "two"}, []),
            ({"resourceClaimTemplateName": "two"}, []),
            ({}, []),
        ],
    )
    def test_claims_are_resolved_by_kind_namespace_and_name(
        self, source: JSON, pools: list[str]
    ) -> None:
        found = requests({"resourceClaims": [{"name": "x", **source}]}, self.FACTS, "ml")
        assert [pool for pool, *_ in found] == pools

    def test_a_pod_without_claims_names_none(self) -> None:
        assert list(named_claims(pod_of({"spec": {}}), Request())) == []

    def test_a_claim_request_has_a_path_and_a_description(self) -> None:
        entries = [{"name": "x"}, {"name": "y", "resourceClaimName": "one"}]
        assert requests({"resourceClaims": entries}, self.FACTS, "ml") == [
            ("nvidia", "spec.resourceClaims[1]", "claim one on device class gpu.nvidia.com", True)
        ]

    @pytest.mark.parametrize(
        ("classes", "found"),
        [
            ({"gpu.nvidia.com"}, [("nvidia", True)]),
            ({"gpu.nvidia.com", "mig.nvidia.com"}, [("nvidia", True)]),
            ({"gpu.nvidia.com", "rdma.example.com"}, [("nvidia", False)]),
            ({"gpu.nvidia.com", "gpu.amd.com"}, [("amd", False), ("nvidia", False)]),
            ({"rdma.example.com"}, []),
            (set(), []),
        ],
    )
    def test_a_claim_is_certain_if_all_alternatives_are_of_one_pool(
        self, classes: set[str], found: list[tuple[str, bool]]
    ) -> None:
        facts = Facts(claims={("default", "c"): claim(classes)})
        given = requests({"resourceClaims": [{"resourceClaimName": "c"}]}, facts)
        assert [(pool, certain) for pool, _, _, certain in given] == found

    def test_each_request_of_a_claim_counts_separately(self) -> None:
        facts = Facts(claims={("default", "c"): claim({"gpu.nvidia.com"}, {"gpu.amd.com"})})
        found = requests({"resourceClaims": [{"resourceClaimName": "c"}]}, facts)
        assert [(pool, certain) for pool, _, _, certain in found] == [
            ("nvidia", True),
            ("amd", True),
        ]

    def test_unknown_claims_are_listed_as_unresolved(self) -> None:
        sources = [
            {"resourceClaimName": "one"},
            {"resourceClaimTemplateName": "two"},
            {"name": "x"},
            {"name": "y", "source": {"resourceClaimName": "one"}},
        ]
        pod = pod_of(
            {"spec": {"resourceClaims": sources}},
            Template({}, ("spec", "template", "spec"), "Deployment"),
        )
        unresolved = Context.of(pod, TWO_POOLS, Request("ml"), self.FACTS).unresolved_claims(pod)
        assert [
            (unresolved_claim.path, unresolved_claim.claim_name) for unresolved_claim in unresolved
        ] == [
            ("spec.template.spec.resourceClaims[1]", "two"),
            (
                "spec.template.spec.resourceClaims[2]",
                "x (from a source that gpufence does not know)",
            ),
            (
                "spec.template.spec.resourceClaims[3]",
                "y (under source, which Kubernetes 1.31 removed)",
            ),
        ]

    @pytest.mark.parametrize(
        ("claim_of_pod", "used", "count"),
        [
            ({"name": "gpu"}, None, 0),
            ({"name": "gpu"}, [{"name": "gpu"}], 1),
            # A claim whose requests have no names is used as a whole.
            ({"name": "gpu"}, [{"name": "gpu", "request": "r"}], 1),
            ({"name": "gpu"}, [{"name": "other"}], 0),
            ({}, [{}], 0),
        ],
    )
    def test_a_claim_counts_only_if_a_container_uses_it(
        self, claim_of_pod: JSON, used: list[JSON] | None, count: int
    ) -> None:
        entry = {**claim_of_pod, "resourceClaimName": "one"}
        user = {"resources": {"claims": used}}
        pod = pod_of({"spec": {"resourceClaims": [entry], "initContainers": [user]}})
        assert len(device_requests(pod, Scope(TWO_POOLS, Request("ml"), self.FACTS))) == count

    @pytest.mark.parametrize(
        ("kind", "operation", "status", "claims"),
        [
            ("Pod", "UPDATE", GENERATED, ["one"]),
            ("Pod", "CREATE", GENERATED, []),
            ("TrainJob", "UPDATE", GENERATED, []),
            ("Pod", "UPDATE", None, []),
            ("Pod", "UPDATE", {"resourceClaimStatuses": "malformed"}, []),
        ],
    )
    def test_an_update_of_a_pod_uses_the_generated_claim_in_its_status(
        self, kind: str, operation: Operation, status: Any, claims: list[str]
    ) -> None:
        entry = {"name": "gpu", "resourceClaimTemplateName": "deleted"}
        user = {"resources": {"claims": [{"name": "gpu"}]}}
        spec = {"resourceClaims": [entry], "containers": [user]}
        pod = pod_of({"spec": spec}, Template({}, ("spec",), kind))
        old = {"apiVersion": "v1", "kind": "Pod", "status": status} if status else None
        request = Request("ml", operation=operation, old=old)
        found = device_requests(pod, Scope(TWO_POOLS, request, self.FACTS))
        assert [each.what for each in found] == [
            f"claim {name} on device class gpu.nvidia.com" for name in claims
        ]
