"""Decision, explanation, audit, adopt and status name the same nodes of a pool."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, date, datetime

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import strategies
from deciding import pod
from dumped import device_class, manifests, resource_slice
from laws.profile import law
from policies.engine import decide
from policies.facts import Facts, Request
from policies.policy import Policy
from specs import JSON, policy_of
from webhook.active_policy import ActivePolicy
from webhook.cluster.files import facts_of_nodes, state_of
from webhook.cluster.objects import Dump, Reader
from webhook.controller.policy_status import registered, status
from webhook.documents.objects import Manifest
from webhook.tools.audit.adoption import lists
from webhook.tools.audit.cluster_audit import audit
from webhook.tools.audit.pools import IN_TWO_POOLS, node_findings
from webhook.tools.cli.evaluate import evaluate
from webhook.tools.cli.explanation import report
from webhook.tools.cli.report.output import Terminal

pytestmark = pytest.mark.timeout(3600)

NODE = re.compile(r"\b[cg]pu-[12]\b")
CLASSES = ("gpu.nvidia.com", "gpu.amd.com")
NVIDIA: JSON = {"taints": [{"key": "nvidia.com/gpu"}], "nodeSelector": {strategies.PRESENT: "true"}}
OTHERS: tuple[list[JSON], ...] = (
    # Two pools with the same labels and taint, and a pool without labels.
    [
        {"name": "whole", "resources": ["nvidia.com/gpu"], **NVIDIA},
        {"name": "slices", "resources": ["nvidia.com/mig-*"], **NVIDIA},
        {"name": "claimed", "deviceClasses": ["gpu.amd.com"], "taints": [{"key": "amd.com/gpu"}]},
    ],
)
policies = (
    st.sampled_from(
        [*strategies.policies().values(), *(policy_of({"pools": pools}) for pools in OTHERS)]
    )
    | strategies.overlapping_policies()
)
devices = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "other.com/x"]),
    st.sampled_from(["0", "2"]),
)
provided = st.sampled_from([{}, {"extendedResourceName": "amd.com/gpu"}])
published = st.lists(st.sampled_from(CLASSES), max_size=2, unique=True)


@st.composite
def clusters(draw: st.DrawFn) -> list[JSON]:
    """Nodes with their devices, and DeviceClasses with ResourceSlices."""
    objects = [device_class(name, name, **draw(provided)) for name in CLASSES]
    for node in draw(strategies.node_sets()):
        offered = {"status": {"allocatable": draw(devices)}}
        objects.append({"apiVersion": "v1", "kind": "Node", **node, **offered})
        name = node["metadata"]["name"]
        objects += (resource_slice(driver, name, nodeName=name) for driver in draw(published))
    return [*objects, *(resource_slice(driver, "net", allNodes=True) for driver in draw(published))]


def plain(node: str) -> JSON:
    """A Pod without requests and tolerations that names the node, with an image of its own."""
    made = pod({}, metadata={"name": f"on-{node}", "namespace": "default"}, nodeName=node)
    made["spec"]["containers"][0]["image"] = f"registry.example/{node}"
    return {"apiVersion": "v1", "kind": "Pod", **made}


def pools_in(text: str, before: str) -> set[str]:
    """Return the pools that a message names after these words."""
    found = re.findall(rf"{before}pools? ([a-z, -]+?)(?:\)|,? but|$)", text)
    return {name for names in found for name in re.split(r", and |, | and ", names)}


Members = set[tuple[str, str]]
"""Pools and nodes by name."""


def denied(names: list[str], policy: Policy, facts: Facts) -> Members:
    request = Request(namespace="default", fail_closed=True)
    findings = {name: decide(plain(name), policy, request, facts).findings for name in names}
    return {
        (pool, name)
        for name in names
        for finding in findings[name]
        if finding.path == "spec.nodeName" and finding.action == "enforce"
        for pool in pools_in(finding.detail, rf"GPU node {name} \(")
    }


def explained(cluster: list[Manifest], policy: Policy) -> Members:
    made = plain("")
    del made["spec"]["nodeName"]
    complete = facts_of_nodes(cluster, policy, lambda _problem: None)
    assert complete is not None
    request = Request(namespace="default")
    results = [*evaluate(manifests([made]), policy, request, complete)]
    text = "".join(report(Terminal(), results, policy)).partition("Scheduling")[2]
    parts = re.split(r"(?=It fits|No known node)", text.partition("Checks")[0])[1:]
    named = {re.findall(r"pool ([\w-]+)", part)[0]: NODE.findall(part) for part in parts}
    assert named.keys() == {pool.name for pool in policy.pools}
    return {(pool, node) for pool, nodes in named.items() for node in nodes}


@law
@given(clusters(), policies)
def test_a_node_is_named_as_one_of_a_pool_exactly_if_a_plain_pod_on_it_is_denied(
    objects: list[JSON], policy: Policy
) -> None:
    cluster = manifests(objects)
    index = state_of(cluster, policy).nodes.index
    names = [node.name for node in index]
    members = denied(names, policy, Facts(nodes=index))
    event(f"memberships: {len(members)} of {len(names)} nodes")
    assert explained(cluster, policy) == members

    running = [{**plain(name), "status": {"phase": "Running"}} for name in names]
    dump = Reader(Dump("cluster", [*cluster, *manifests(running)]))
    found = asyncio.run(audit(dump, policy, date(2026, 11, 21)))
    states = {state.pool.name: state for state in found.pools}
    assert {(pool, node) for pool, state in states.items() for node in state.nodes} == members
    for pool, node in members:
        pods = [each.owned.name for each in states[pool].nodes[node].trespassers]
        assert pods == [f"on-{node}"]
    offered = [
        each
        for state in states.values()
        for node in state.nodes.values()
        for each in ((node.name, name) for name in node.offered)
    ]
    assert len(offered) == len(set(offered)), "a device counts in one pool"

    entries = lists(found.subjects, {})
    both = {
        (node.name, *sorted(pools_in(finding.detail.partition(";")[0], "the labels of ")))
        for node in node_findings(found.pools)
        for finding in node.findings
        if finding.rule == IN_TWO_POOLS
    }
    restricted = [pool.name for pool in policy.pools if pool.is_restricted]
    for name, one, other in both:
        assert {(one, name), (other, name)} <= members
        assert one in restricted or other in restricted

    of_adopt = {
        (pool, entry.subject.owned.name.removeprefix("on-"))
        for entry in entries["runsOnGPUNodes"]
        for why in entry.why.split("; ")
        for pool in pools_in(why, "the nodes belong to ")
    }
    assert of_adopt == members

    active = ActivePolicy("gpufence", policy)
    now = datetime(2026, 11, 21, tzinfo=UTC)
    [fit] = [
        c
        for c in status(active, registered("", "", False), index, {}, now)["conditions"]
        if c["type"] == "NodesFit"
    ]
    in_status = re.findall(r"Nodes of both pools ([\w-]+) and ([\w-]+): ([^.]*)\.", fit["message"])
    assert {
        (name, *sorted(pools)) for *pools, listed in in_status for name in NODE.findall(listed)
    } <= both
    assert bool(in_status) is bool(both)
    bare = re.findall(r"nodes? of pool ([\w-]+) \(([^)]*)\) lacks? its taints\.", fit["message"])
    assert {(pool, node) for pool, nodes in bare for node in NODE.findall(nodes)} <= members
    if fit["status"] == "True":
        empty = {pool.name for pool in policy.pools} - {pool for pool, _ in members}
        assert (
            pools_in(
                fit["message"]
                .replace("belongs to ", "belongs to pool ")
                .replace(" at the moment.", ""),
                "belongs to ",
            )
            == empty
        )
