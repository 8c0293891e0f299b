"""The candidate pools of a GPU Pod, where several pools offer the same devices."""

from __future__ import annotations

from typing import Any

import pytest

from cases.loading import compiled, policy_spec
from deciding import pod, required
from policies.context import Context, missing_facts
from policies.decision import Decision
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.scheduling import REQUIRED
from policies.policy import Policy
from strategies import JSON
from typed import pod_of

MODELS = compiled(policy_spec("models"))
BY_SEVERAL_LABELS = compiled(policy_spec("models-by-several-labels"))
PRODUCT = "nvidia.com/gpu.product"
ZONES = [f"zone In z{n}" for n in range(101)]


def limits(**counts: int) -> JSON:
    return {"resources": {"limits": {f"nvidia.com/{name}": n for name, n in counts.items()}}}


def candidates(
    obj: JSON, namespace: str = "research", facts: Facts | None = None, policy: Policy = MODELS
) -> list[tuple[tuple[str, ...], dict[str, str]]]:
    """Return for each request the names of its candidate pools, and why others are excluded."""
    context = Context.of(pod_of(obj), policy, Request(namespace), facts or Facts())
    return [
        (
            tuple(pool.name for pool in request.pools),
            {exclusion.pool.name: exclusion.condition for exclusion in request.excluded},
        )
        for request in context.device_requests
    ]


@pytest.mark.parametrize(
    ("namespace", "count", "selected", "pools", "excluded"),
    [
        ("lab", 1, None, ("a100", "h100", "l4"), {}),
        ("research", 1, None, ("a100", "h100"), {"l4": "namespace"}),
        ("default", 1, None, ("a100",), {"h100": "namespace", "l4": "namespace"}),
        ("lab", 2, None, ("a100", "h100"), {"l4": "shares"}),
        ("lab", 9, None, ("h100",), {"a100": "size", "l4": "shares"}),
        ("lab", 1, "L4", ("l4",), {"a100": "selection", "h100": "selection"}),
        # If no pool meets a condition, the next conditions still choose.
        ("default", 1, "H100", ("h100",), {"a100": "selection", "l4": "selection"}),
        ("default", 1, "V100", ("a100",), {"h100": "namespace", "l4": "namespace"}),
        ("research", 17, None, ("a100", "h100"), {"l4": "namespace"}),
    ],
)
def test_a_condition_excludes_pools_unless_no_pool_meets_it(
    namespace: str,
    count: int,
    selected: str | None,
    pools: tuple[str, ...],
    excluded: dict[str, str],
) -> None:
    spec = {"nodeSelector": {PRODUCT: selected}} if selected else {}
    assert candidates(pod(limits(gpu=count), **spec), namespace) == [(pools, excluded)]


def test_a_candidate_pool_must_offer_all_requested_devices_on_one_node() -> None:
    whole, slices = candidates(pod(limits(gpu=1), limits(**{"mig-1g.10gb": 1})), "lab")
    assert whole == (("h100",), {"a100": "devices", "l4": "devices"})
    assert slices == (("h100-slices",), {})


@pytest.mark.parametrize(
    ("devices", "pools"), [((2, 1), ("a100", "h100")), ((1, 1), ("a100", "h100", "l4"))]
)
def test_a_pool_of_shares_is_no_candidate_if_either_side_has_several_devices(
    devices: tuple[int, int], pools: tuple[str, ...]
) -> None:
    sides = zip(("limits", "requests"), devices, strict=True)
    resources = {side: {"nvidia.com/gpu": count} for side, count in sides}
    assert candidates(pod({"resources": resources}), "lab")[0][0] == pools


def test_conditions_exclude_pools_for_a_claim_by_device_class() -> None:
    claim = Claim((frozenset({"gpu.nvidia.com"}),))
    facts = Facts(claims={(name, "one"): claim for name in ("research", "default")})
    container = {"resources": {"claims": [{"name": "gpu"}]}}
    obj = pod(container, resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])
    assert candidates(obj, "research", facts) == [(("a100", "h100"), {})]
    assert candidates(obj, "default", facts) == [(("a100",), {"h100": "namespace"})]


def test_each_request_must_be_met_by_the_nodes_of_those_before() -> None:
    pools = [
        {"name": f"n{n}", "resources": resources, "nodeSelector": {"model": f"m{n}"}}
        for n, resources in enumerate((["x.io/a"], ["x.io/a", "x.io/b"], ["x.io/b", "x.io/c"]))
    ]
    own = compiled(policy_spec("default") | {"pools": pools})
    made = pod({"resources": {"limits": {f"x.io/{name}": 1 for name in "abc"}}})
    found = [each for each in decide(made, own).findings if each.rule == "unschedulable-gpu-pod"]
    assert [finding.path for finding in found] == ["spec.containers[0].resources.limits[x.io/c]"]


@pytest.mark.parametrize(
    ("unknown", "fail_closed", "pools"),
    [
        ("allow", False, ["a100", "h100"]),
        ("allow", True, ["a100"]),
        ("deny", False, ["a100"]),
    ],
)
def test_unknown_namespace_labels_are_missing_facts_for_candidate_pools(
    unknown: str, fail_closed: bool, pools: list[str]
) -> None:
    spec = policy_spec("models")
    allowed = {"matchLabels": {"tier": "gold"}, "unknown": unknown}
    spec["pools"][1]["allowedNamespaces"] = allowed
    policy, request = compiled(spec), Request("default", fail_closed=fail_closed)
    context = Context.of(pod_of(pod(limits(gpu=1))), policy, request, Facts())
    assert [pool.name for pool in context.requested_pools] == pools
    assert list(missing_facts(pod_of(pod(limits(gpu=1))), context)) == ["namespaces"]


@pytest.mark.parametrize(
    ("labels", "allowed"),
    [
        ({"tier": "gold"}, True),
        ({"tier": "gold", "paused": ""}, False),
        ({"tier": "iron"}, False),
        ({"tier": "gold", "region": "north"}, False),
        ({}, False),
    ],
)
def test_namespace_match_expressions_follow_label_selector_semantics(
    labels: dict[str, str], allowed: bool
) -> None:
    spec = policy_spec("models")
    spec["pools"][1]["allowedNamespaces"] = {
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["gold", "silver"]},
            {"key": "region", "operator": "NotIn", "values": ["north"]},
            {"key": "tier", "operator": "Exists"},
            {"key": "paused", "operator": "DoesNotExist"},
        ]
    }
    facts = Facts(namespace_labels=labels)
    context = Context.of(pod_of(pod(limits(gpu=1))), compiled(spec), Request("default"), facts)
    assert ("h100" in {pool.name for pool in context.requested_pools}) is allowed


@pytest.mark.parametrize(("count", "found"), [(100, 0), (101, 1)])
def test_node_selector_terms_above_the_limit_are_reported_and_not_added(
    count: int, found: int
) -> None:
    obj = pod(limits(gpu=1), **required(*ZONES[:count]))
    decision = decide(obj, BY_SEVERAL_LABELS)
    assert [finding.rule for finding in decision.findings] == ["ambiguous-pool"] * found
    assert all(each.remediation.endswith(". Or use fewer terms") for each in decision.findings)
    assert len(terms_of(decision)) == (count if found else 2 * count)


MODELS_OF_A_CLASS = compiled(
    policy_spec("default")
    | {
        "pools": [
            {"name": "nic", "resources": ["x.io/nic"], "nodeSelector": {"nic": "true"}},
            *(
                {
                    "name": name,
                    "deviceClasses": ["gpu"],
                    "nodeSelector": {"model": name, "nodes": f"of-{name}"},
                    "runtimeClass": name,
                }
                for name in ("a", "b")
            ),
        ]
    }
)


def with_claim(classes: set[str], resources: JSON, **spec: Any) -> list[tuple[str, str]]:
    """Return path and detail of the findings about a Pod with a claim on one of the classes."""
    facts = Facts(claims={("default", "c"): Claim((frozenset(classes),))})
    container = {"resources": {"claims": [{"name": "gpu"}], **resources}}
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    findings = decide(pod(container, resourceClaims=claims, **spec), MODELS_OF_A_CLASS, facts=facts)
    return [(f.path, f.detail) for f in findings.findings if f.rule == "ambiguous-pool"]


@pytest.mark.parametrize(
    ("classes", "paths"), [({"gpu"}, ["spec.resourceClaims[0]"]), ({"gpu", "unknown"}, [])]
)
def test_different_runtime_classes_are_reported_of_pools_that_the_pod_needs(
    classes: set[str], paths: list[str]
) -> None:
    assert [path for path, _ in with_claim(classes, {})] == paths


def test_the_finding_about_too_many_terms_is_about_the_request_with_several_pools() -> None:
    found = with_claim(
        {"gpu"},
        {"limits": {"x.io/nic": 1}},
        **required(*ZONES),
        runtimeClassName="nvidia",
    )
    assert [detail.partition(";")[0] for _, detail in found] == [
        "pools a and b offer claim c on device class gpu"
    ]


def terms_of(decision: Decision) -> list[JSON]:
    affinity = decision.mutated["spec"]["affinity"]["nodeAffinity"]
    terms: list[JSON] = affinity[REQUIRED]["nodeSelectorTerms"]
    return terms
