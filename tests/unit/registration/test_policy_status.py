"""The status of a FencePolicy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Taint
from specs import default_spec
from webhook.active_policy import ActivePolicy, FencePolicyObject, PolicyMetadata
from webhook.controller.policy_status import registered, status

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
LABELS = {"nvidia.com/gpu.present": "true"}
TAINT = Taint("nvidia.com/gpu", "NoSchedule", "")
OFFERED = {"nvidia.com/gpu": 8}
WRITTEN = registered("", "", False)


def active(*specs: Any) -> ActivePolicy:
    policy = ActivePolicy("gpufence")
    for generation, spec in enumerate(specs, 1):
        policy.put(FencePolicyObject(PolicyMetadata(name="gpufence", generation=generation), spec))
    return policy


def conditions(written: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["message"]) for each in written["conditions"]}


def test_the_status_of_a_policy_that_fits_its_nodes() -> None:
    nodes = NodeIndex([Node("gpu-1", LABELS, (TAINT,), OFFERED)])
    written = status(active(default_spec()), WRITTEN, nodes, {}, NOW)
    assert (written["observedGeneration"], written["mode"]) == (1, "enforce")
    assert written["pools"] == ["nvidia"]
    found = conditions(written)
    assert {kind: value for kind, (value, _) in found.items()} == {
        "Accepted": "True",
        "Registered": "True",
        "NodesFit": "True",
    }


def test_an_invalid_policy_is_not_accepted_and_the_message_is_that_of_validate() -> None:
    policy = active(default_spec(), {"pools": []})
    written = status(policy, WRITTEN, None, {}, NOW)
    value, message = conditions(written)["Accepted"]
    assert value == "False"
    assert message == (
        "FencePolicy gpufence: spec.pools: is empty; add at least one entry; the last valid policy "
        "stays active."
    )
    assert written["observedGeneration"] == 2
    assert conditions(written)["NodesFit"][0] == "Unknown"


def test_nodes_without_labels_or_taints_are_named() -> None:
    nodes = NodeIndex([Node("bare", LABELS, (), OFFERED), Node("unlabeled", {}, (TAINT,), OFFERED)])
    value, message = conditions(status(active(default_spec()), WRITTEN, nodes, {}, NOW))["NodesFit"]
    assert value == "False"
    assert message == (
        "1 node with devices of pool nvidia (unlabeled) lacks its labels. "
        "1 node of pool nvidia (bare) lacks its taints."
    )


def test_nodes_of_two_pools_are_named_where_one_is_restricted() -> None:
    spec = default_spec()
    spec["pools"].append(
        spec["pools"][0]
        | {
            "name": "reserved",
            "nodeSelector": {"team": "a"},
            "allowedNamespaces": {"names": ["a"]},
        }
    )
    nodes = NodeIndex(
        [Node("open", LABELS, (TAINT,)), Node("both", LABELS | {"team": "a"}, (TAINT,))]
    )
    value, message = conditions(status(active(spec), WRITTEN, nodes, {}, NOW))["NodesFit"]
    assert value == "True"
    assert message.endswith("Nodes of both pools nvidia and reserved: both.")


def test_nodes_with_a_dra_driver_need_no_labels_and_a_pool_may_be_empty() -> None:
    published = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 8}
    without_labels = default_spec()
    del without_labels["pools"][0]["nodeSelector"]
    fit = "The nodes have the labels and taints of the pools."
    for spec in (default_spec(), without_labels):
        for nodes, value, message in (
            ([], "True", f"{fit} No node belongs to nvidia at the moment."),
            ([Node("cpu", {})], "True", f"{fit} No node belongs to nvidia at the moment."),
            ([Node("dra", {}, (TAINT,), {}, published), Node("cpu", {})], "True", fit),
            (
                [Node("dra", {}, (), {}, published)],
                "False",
                "1 node of pool nvidia (dra) lacks its taints.",
            ),
        ):
            written = status(active(spec), WRITTEN, NodeIndex(nodes), {}, NOW)
            found = conditions(written)["NodesFit"]
            assert found[0] == value, nodes
            assert found[1].endswith(message), nodes


def test_a_failed_registration_and_a_client_that_keeps_changing_it_are_reported() -> None:
    for given, value, expected in (
        (("no endpoint", "1 repair.", False), "False", "no endpoint"),
        (("", "3 repairs.", True), "False", "Another client keeps changing them. 3 repairs."),
        (("", "1 repair.", False), "True", "follow the policy. 1 repair."),
    ):
        written = status(active(default_spec()), registered(*given), None, {}, NOW)
        found = conditions(written)["Registered"]
        assert found[0] == value
        assert found[1].endswith(expected)


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    policy = active(default_spec())
    first = status(policy, registered("no endpoint", "", False), None, {}, NOW)
    second = status(policy, WRITTEN, None, first, NOW + timedelta(minutes=5))
    times = {each["type"]: each["lastTransitionTime"] for each in second["conditions"]}
    assert times["Accepted"] == "2026-11-26T12:00:00Z"
    assert times["Registered"] == "2026-11-26T12:05:00Z"
