"""Nodes are listed, watched, and known again after any failure of the connection."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters import FAST, Clock, Counts, facts_of, gpu_node, known, named, node, policy
from fake_apiserver import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    RESOURCE_SLICES,
    RUNTIME_CLASSES,
    FakeApiServer,
    eventually,
)
from policies.kubernetes.nodes import Node
from policies.policy import Policy
from webhook.cluster.facts import ClusterFacts
from webhook.cluster.templates import MACHINE_DEPLOYMENTS, NODE_CLAIMS, NODE_POOLS
from webhook.devices.nodes import NodeObject
from webhook.devices.slices import TAINT_RULES
from webhook.kube.client import KubeApi
from webhook.kube.errors import ApiError, UnreachableError
from webhook.kube.kubeconfig import kubeconfig
from webhook.kube.reflector import Watches

TEMPLATES = ("nodepools", "nodeclaims", "machinedeployments")
DRA = ("deviceclasses", "resourceslices", "devicetaintrules")

ALL = {f"n{number}" for number in range(60)}
PAGES = 2
"""The pages of a list of all nodes: the first has 50."""


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer(NODES, NAMESPACES, RUNTIME_CLASSES, DEVICE_CLASSES)
    for name in sorted(ALL):
        api.put(NODES, node(name))
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
async def cluster(
    api: FakeApiServer, tmp_path: Path, counts: Counts
) -> AsyncIterator[ClusterFacts]:
    """Cluster facts that have all nodes, and watch them."""
    async with facts_of(api, tmp_path, observer=counts) as cluster:
        await wait_for_nodes(cluster, ALL)
        await eventually(lambda: api.watching(NODES), "a watch")
        yield cluster


def node_names(cluster: ClusterFacts) -> set[str] | None:
    """Return the names of the nodes that facts have; None while they are unknown."""
    nodes = cluster.state.facts(cluster.watches.listed).nodes
    return None if nodes is None else {each.name for each in nodes}


async def wait_for_nodes(cluster: ClusterFacts, names: set[str]) -> None:
    await eventually(lambda: node_names(cluster) == names, "the nodes")


async def wait_for_facts(cluster: ClusterFacts) -> None:
    await eventually(lambda: not cluster.unready(), "everything to be known")


async def test_a_watch_starts_from_the_version_of_the_paginated_list(
    api: FakeApiServer, cluster: ClusterFacts
) -> None:
    version = api.version
    api.put(NODES, gpu_node("new"))
    api.remove(NODES, "n0")
    api.put(NODES, gpu_node("n1"))
    await wait_for_nodes(cluster, ALL - {"n0"} | {"new"})
    changed = cluster.state.nodes.index.get("n1")
    assert changed is not None
    assert changed.labels["nvidia.com/gpu.present"] == "true"
    assert [str(taint) for taint in changed.taints] == ["nvidia.com/gpu=present:NoSchedule"]
    assert changed.allocatable == {"nvidia.com/gpu": 8}
    tokens = [asked.query.get("continue") for asked in api.lists(NODES)]
    assert tokens == [None, f"{version}/50"]
    [watch] = api.watches(NODES)
    assert watch.query["resourceVersion"] == version
    assert watch.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(watch.query["timeoutSeconds"]) <= 600
    assert watch.authorization == "Bearer first"


async def test_nodes_are_unknown_until_the_first_list_is_complete(
    api: FakeApiServer, tmp_path: Path
) -> None:
    seen: list[bool] = []
    api.before_page = lambda _path, offset: seen.append(offset == 50)
    async with facts_of(api, tmp_path) as cluster:
        assert (
            cluster.unready()
            == "waiting for the cluster's nodes, deviceclasses, resourceslices, runtimeclasses"
        )
        while not any(seen):
            assert node_names(cluster) is None
            await asyncio.sleep(0)
        await wait_for_nodes(cluster, ALL)
        await wait_for_facts(cluster)


async def test_a_change_irrelevant_to_placement_keeps_the_same_node_object(
    api: FakeApiServer, cluster: ClusterFacts
) -> None:
    before = cluster.state.nodes.index.get("n1")
    heartbeat = node("n1")
    heartbeat["status"]["conditions"][0]["lastHeartbeatTime"] = "later"
    api.put(NODES, heartbeat)
    api.put(NODES, gpu_node("after"))
    await wait_for_nodes(cluster, ALL | {"after"})
    assert cluster.state.nodes.index.get("n1") is before


async def test_a_lost_watch_resumes_from_the_last_event_without_a_relist(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    names = set(ALL)
    # More losses than one version may have: each event in between is progress.
    for number in range(1, 9):
        names.add(f"new-{number}")
        api.put(NODES, node(f"new-{number}"))
        await wait_for_nodes(cluster, names)
        version = api.version
        api.abort_watches()
        await eventually(lambda: api.watching(NODES), "another watch")
        assert api.watches(NODES)[-1].query["resourceVersion"] == version
    assert len(api.lists(NODES)) == PAGES
    assert counts.restarts["nodes"] == 8


@pytest.mark.parametrize("as_event", [True, False], ids=["as an event", "as a status"])
async def test_an_expired_version_causes_a_relist_that_drops_deleted_nodes(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts, as_event: bool
) -> None:
    api.gone_as_event = as_event
    api.abort_watches()
    api.remove(NODES, "n3")
    api.put(NODES, node("new"))
    api.compact()
    await wait_for_nodes(cluster, ALL - {"n3"} | {"new"})
    await eventually(lambda: api.watching(NODES), "another watch")
    assert len(api.lists(NODES)) == 2 * PAGES
    assert counts.restarts["nodes"] == 2, "the loss, and the old version, which is not retried"


async def test_a_collection_that_is_no_longer_served_is_empty(
    api: FakeApiServer, cluster: ClusterFacts
) -> None:
    spec = {"extendedResourceName": "example.com/gpu"}
    await eventually(lambda: api.watching(DEVICE_CLASSES), "a watch")
    api.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": spec})
    await eventually(lambda: cluster.watches.objects()["deviceclasses"] == 1, "the class")
    api.errors[DEVICE_CLASSES] = (404, "the server could not find the requested resource")
    api.abort_watches()
    await eventually(lambda: cluster.watches.objects()["deviceclasses"] == 0, "it to be gone")
    assert (await known(cluster)).extended_resource_classes == {}


async def test_a_watch_without_events_counts_as_lost_after_quiet_seconds(
    api: FakeApiServer, tmp_path: Path, counts: Counts
) -> None:
    timing = replace(FAST, quiet_seconds=0.05)
    async with facts_of(api, tmp_path, timing=timing, observer=counts) as cluster:
        await eventually(lambda: len(api.watches(NODES)) > 2, "watches after the first")
        api.put(NODES, node("new"))
        await wait_for_nodes(cluster, ALL | {"new"})
    assert counts.restarts["nodes"] >= 2
    assert len(api.lists(NODES)) == PAGES


async def test_a_lost_watch_resumes_from_the_last_bookmark(
    api: FakeApiServer, tmp_path: Path
) -> None:
    clock = Clock()
    async with facts_of(api, tmp_path, clock=clock) as cluster:
        await eventually(lambda: api.watching(NODES), "a watch")
        clock.now += 30
        assert cluster.watches.staleness()["nodes"] == 30
        api.bookmark(NODES)
        await eventually(lambda: cluster.watches.staleness()["nodes"] == 0, "the bookmark")
        version = api.version
        api.abort_watches()
        await eventually(lambda: len(api.watches(NODES)) > 1, "another watch")
        assert api.watches(NODES)[-1].query["resourceVersion"] == version
        assert node_names(cluster) == ALL


async def test_a_watch_that_ends_at_its_timeout_is_not_counted_as_lost(
    api: FakeApiServer, tmp_path: Path, counts: Counts
) -> None:
    timing = replace(FAST, watch_seconds=0.6)
    async with facts_of(api, tmp_path, timing=timing, observer=counts):
        await eventually(lambda: len(api.watches(NODES)) > 1, "another watch")
        await eventually(lambda: api.watching(NODES), "it to be served")
    assert counts.restarts["nodes"] == 0
    assert len(api.lists(NODES)) == PAGES


EVENTS_THAT_LOSE_A_WATCH = {
    "none, before its time": b"",
    "truncated": b'{"type": "MODIFIED", "object": {"meta',
    "not JSON": b"\xff\xfe\n",
    "a wrong type": b'{"type": "MODIFIED", "object": {"metadata": {"name": 5}}}\n',
    "an error": b'{"type": "ERROR", "object": {"code": 500, "message": "etcd has a bad day"}}\n',
    "a whole Status": b'{"type": "ERROR", "object": {"status": "Failure", "metadata": {}}}\n',
    "not an object": b"[]\n",
    "above 32 MiB": b'{"type": "MODIFIED", "object": "' + b"x" * 33 * 1024 * 1024,
}


@pytest.mark.parametrize("name", EVENTS_THAT_LOSE_A_WATCH)
async def test_an_invalid_watch_event_counts_as_a_lost_watch(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts, name: str
) -> None:
    """Its object is not stored, and no stored object is removed: a new list follows."""
    api.send(NODES, EVENTS_THAT_LOSE_A_WATCH[name])
    api.end(NODES)
    await eventually(lambda: counts.restarts["nodes"] == 1, "it to be counted")
    assert node_names(cluster) == ALL
    await eventually(lambda: api.watching(NODES), "another watch")
    api.put(NODES, node("new"))
    await wait_for_nodes(cluster, ALL | {"new"})


async def test_an_event_of_any_size_is_applied_without_a_relist(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    large = node("new")
    large["metadata"]["annotations"] = {"a": "<" * 9_000_000}
    api.put(NODES, large)
    await wait_for_nodes(cluster, ALL | {"new"})
    assert not counts.restarts
    assert len(api.lists(NODES)) == PAGES


async def test_an_event_of_an_unknown_type_is_ignored(
    api: FakeApiServer, cluster: ClusterFacts, counts: Counts
) -> None:
    api.send(NODES, b'{"type": "SPLIT", "object": {"metadata": {"name": "n1"}}}\n')
    api.put(NODES, node("new"))
    await wait_for_nodes(cluster, ALL | {"new"})
    assert not counts.restarts


async def test_repeated_watch_failures_from_one_version_cause_a_relist(
    api: FakeApiServer, cluster: ClusterFacts
) -> None:
    api.watch_errors[NODES] = (504, "Too large resource version")
    api.abort_watches()
    await eventually(lambda: len(api.lists(NODES)) > PAGES, "a new list")
    api.watch_errors.clear()
    api.put(NODES, node("new"))
    await wait_for_nodes(cluster, ALL | {"new"})


async def test_a_forbidden_collection_is_reported_once(
    api: FakeApiServer, tmp_path: Path, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gpufence")
    message = 'nodes is forbidden: User "fence" cannot list resource "nodes"'
    api.errors[NODES] = (403, message)
    of = policy(allowedNamespaces={"matchLabels": {"team": "ml"}})
    api.put(NAMESPACES, named("ml", {"team": "ml"}))
    clock = Clock()
    async with facts_of(api, tmp_path, of, clock=clock, observer=counts) as cluster:
        await eventually(lambda: counts.restarts["nodes"] > 3, "some attempts")
        facts = await known(cluster)
        assert facts.nodes is None
        assert facts.namespace_labels == {"team": "ml"}
        assert cluster.unready() == "waiting for the cluster's nodes"
        clock.now += 16
        assert cluster.unready() == "", "better without nodes than not at all"
        assert cluster.watches.staleness()["nodes"] is None
        api.errors.clear()
        await wait_for_nodes(cluster, ALL)
        await eventually(lambda: "watch restored" in caplog.messages, "the watch to be restored")
    records = [record for record in caplog.records if record.message.startswith("watch")]
    assert [record.message for record in records] == ["watch lost", "watch restored"]
    fields = {"resource": "nodes", "problem": f"{message} (HTTP 403)"}
    assert records[0].__dict__["gpufence_fields"] == fields


async def test_credentials_are_reloaded_after_they_are_rejected(
    api: FakeApiServer, tmp_path: Path, cluster: ClusterFacts
) -> None:
    api.accepted_bearer = "newer"
    api.kubeconfig(tmp_path / "kubeconfig", "newer")
    api.abort_watches()
    api.put(NODES, node("new"))
    await wait_for_nodes(cluster, ALL | {"new"})
    assert {asked.authorization for asked in api.requests} == {"Bearer first", "Bearer newer"}


async def test_cluster_facts_become_ready_without_dynamic_resource_allocation(
    api: FakeApiServer, tmp_path: Path, counts: Counts
) -> None:
    api.errors[DEVICE_CLASSES] = (404, "the server could not find the requested resource")
    async with facts_of(api, tmp_path, observer=counts) as cluster:
        await wait_for_facts(cluster)
        assert (await known(cluster)).extended_resource_classes == {}
        await eventually(lambda: len(api.lists(DEVICE_CLASSES)) > 2, "it to be asked again")
    assert not counts.restarts


async def test_nodes_stay_unknown_if_the_api_server_returns_404_for_nodes(
    api: FakeApiServer, tmp_path: Path, counts: Counts
) -> None:
    api.errors[NODES] = (404, "the server could not find the requested resource")
    async with facts_of(api, tmp_path, observer=counts) as cluster:
        await eventually(lambda: counts.restarts["nodes"] > 1, "some attempts")
        assert node_names(cluster) is None


def unwatched(**pool: Any) -> Policy:
    """A policy that needs no RuntimeClasses."""
    own = policy(**pool)
    return replace(own, rules={**own.rules, "unrequested-gpu-runtime": "off"})


async def test_unneeded_collections_are_not_watched(api: FakeApiServer, tmp_path: Path) -> None:
    async with facts_of(api, tmp_path, unwatched(deviceClasses=[])) as cluster:
        await wait_for_facts(cluster)
        assert set(cluster.watches.objects()) == {"nodes", *DRA, *TEMPLATES}
        facts = await known(cluster)
        assert facts.runtime_classes == {}
        assert facts.namespace_labels is None
    optional = (NODE_POOLS, NODE_CLAIMS, MACHINE_DEPLOYMENTS, TAINT_RULES)
    watched = {asked.path for asked in api.requests} - {each.path for each in optional}
    assert watched == {NODES, DEVICE_CLASSES, RESOURCE_SLICES}


async def test_a_new_policy_changes_watched_collections_and_device_resources(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.put(RUNTIME_CLASSES, named("nvidia"))
    spec = {"extendedResourceName": "example.com/any"}
    api.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": spec})
    api.put(NODES, node("n1", allocatable={"example.com/gpu": "4"}))
    async with facts_of(api, tmp_path) as cluster:

        def devices() -> object:
            changed = cluster.state.nodes.index.get("n1")
            return changed and changed.allocatable

        await eventually(lambda: api.watching(NODES) and api.watching(DEVICE_CLASSES), "watches")
        cluster.use(policy(runtimeClass="nvidia"))
        await eventually(lambda: api.watching(RUNTIME_CLASSES), "another watch")
        assert (await known(cluster)).runtime_classes == {"nvidia": ""}
        assert len(api.watches(NODES)) == 1, "the nodes are the same"

        other = {"resources": ["example.com/gpu"], "sharedResources": [], "deviceClasses": []}
        cluster.use(unwatched(**other))
        assert node_names(cluster) == ALL, "what was known stands until all is listed again"
        assert (await known(cluster)).runtime_classes == {}
        assert set(cluster.watches.objects()) == {"nodes", *DRA, *TEMPLATES}
        assert devices() == {}
        await eventually(lambda: devices() == {"example.com/gpu": 4}, "another list")
        await eventually(lambda: len(api.watches(NODES)) == 2, "another watch")
    assert not [task for task in asyncio.all_tasks() if "watch of" in task.get_name()]


async def test_load_lists_once_without_a_watch(api: FakeApiServer, tmp_path: Path) -> None:
    connection = KubeApi(kubeconfig(api.kubeconfig(tmp_path / "kubeconfig")))
    cluster = ClusterFacts(Watches(connection, timing=FAST), policy())
    try:
        await cluster.watches.load()
        assert node_names(cluster) == ALL
        api.errors[NODES] = (403, "no")
        with pytest.raises(ApiError, match=r"^no \(HTTP 403\)$"):
            await cluster.watches.load()
        await api.stop()
        with pytest.raises(
            UnreachableError, match=r"the API server at http://127.0.0.1:\d+ is out"
        ):
            await cluster.watches.load()
    finally:
        await cluster.stop()
    assert not api.watches(NODES)


async def test_node_templates_are_watched_if_the_cluster_serves_them(
    api: FakeApiServer, cluster: ClusterFacts
) -> None:
    def templates() -> list[str]:
        return [template.name for template in cluster.state.templates]

    assert templates() == []
    api.serve(NODE_POOLS.path)
    api.put(NODE_POOLS.path, {"metadata": {"name": "gpu"}, "spec": {}})
    await eventually(lambda: templates() == ["NodePool gpu"], "the template")
    await eventually(lambda: api.watching(NODE_POOLS.path), "a watch")
    api.remove(NODE_POOLS.path, "gpu")
    await eventually(lambda: templates() == [], "the template to go")


@pytest.mark.parametrize("status", [403, 404])
async def test_a_starting_api_server_takes_nothing_away_and_an_uninstalled_autoscaler_ages_not(
    api: FakeApiServer, tmp_path: Path, counts: Counts, status: int
) -> None:
    """An API server rejects requests until it has read all roles and definitions."""
    clock, path = Clock(), NODE_POOLS.path
    timing = replace(FAST, missing_seconds=60)
    api.serve(path)
    api.put(path, {"metadata": {"name": "gpu"}, "spec": {}})
    async with facts_of(api, tmp_path, clock=clock, timing=timing, observer=counts) as cluster:
        await eventually(lambda: api.watching(path), "a watch")

        async def is_rejected() -> None:
            before = counts.restarts["nodepools"]
            api.errors[path] = api.watch_errors[path] = (status, "no")
            api.abort_watches()
            await eventually(lambda: counts.restarts["nodepools"] > before + 2, "attempts")

        await is_rejected()
        clock.now += 59
        assert cluster.watches.lost() == [
            f"nodepools are as they were 59 s ago: no (HTTP {status})"
        ]
        assert [each.name for each in cluster.state.templates] == ["NodePool gpu"]
        api.errors.clear()
        api.watch_errors.clear()
        await eventually(lambda: api.watching(path), "a watch without a delay of a minute")
        assert cluster.watches.lost() == []

        await is_rejected()
        clock.now += 61
        await eventually(lambda: not cluster.state.templates, "the templates to be forgotten")
        assert cluster.watches.staleness()["nodepools"] is None, "no alert for what is gone"
        assert cluster.watches.lost() == []


async def test_what_a_watch_stores_is_excluded_from_the_search_for_garbage(
    api: FakeApiServer, cluster: ClusterFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searching the nodes since the list stopped the event loop of replicas for 160 ms."""
    monkeypatch.setattr("webhook.kube.reflector._LINES_TO_SETTLE", 10)
    for number in range(20):
        api.put(NODES, node(f"new{number}", {"changed": "yes"}))
    await wait_for_nodes(cluster, ALL | {f"new{number}" for number in range(20)})
    searched = {each.name for each in gc.get_objects() if isinstance(each, Node)}
    assert "new0" not in searched


async def test_reviews_are_answered_between_the_items_of_a_page_and_the_lines_of_a_watch(
    api: FakeApiServer, cluster: ClusterFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.kube.reflector._ITEMS_IN_TURN", 5)
    turns, seen = 0, list[int]()
    put = cluster.state.nodes.put

    def note(item: NodeObject) -> None:
        seen.append(turns)
        put(item)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(cluster.state.nodes, "put", note)
    counting = asyncio.create_task(count())
    for number in range(60):
        api.put(NODES, node(f"n{number}", {"changed": "yes"}))
    await eventually(lambda: len(seen) == 60, "the changes")
    api.compact()
    api.end(NODES)
    await eventually(lambda: len(seen) == 120, "another list")
    counting.cancel()
    for start in range(0, 120, 10):
        assert seen[start] < seen[start + 9]
