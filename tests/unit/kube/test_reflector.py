"""Nodes are listed, watched, and known again after whatever befalls the connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from clusters import (
    FAST,
    Clock,
    Counts,
    facts_of,
    gpu_node,
    known,
    named,
    node,
    node_names,
    policy,
)
from fake_apiserver import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    RUNTIME_CLASSES,
    FakeApiServer,
    eventually,
)
from webhook.cluster.facts import ClusterFacts
from webhook.cluster.templates import MACHINE_DEPLOYMENTS, NODE_CLAIMS, NODE_POOLS
from webhook.kube.client import KubeApi
from webhook.kube.credentials import kubeconfig
from webhook.kube.errors import ApiError, UnreachableError
from webhook.kube.reflector import Watches, WatchTiming

COLLECTIONS = (NODES, NAMESPACES, RUNTIME_CLASSES, DEVICE_CLASSES)
TEMPLATES = ("nodepools", "nodeclaims", "machinedeployments")


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    """A cluster of seven nodes, three pages full."""
    api = FakeApiServer(*COLLECTIONS)
    for number in range(7):
        api.put(NODES, node(f"n{number}"))
    await api.start()
    yield api
    await api.stop()


ALL = {f"n{number}" for number in range(7)}


async def wait_for_nodes(cluster: ClusterFacts, names: set[str]) -> None:
    """Wait until the cluster's nodes are these."""
    for _ in range(12_000):
        if await node_names(cluster) == names:
            return
        await asyncio.sleep(0.005)
    assert await node_names(cluster) == names


@asynccontextmanager
async def watched(
    api: FakeApiServer, directory: Path, **options: Any
) -> AsyncIterator[ClusterFacts]:
    """Provide cluster facts that have all nodes, and watch them."""
    async with facts_of(api, directory, **options) as cluster:
        await wait_for_nodes(cluster, ALL)
        await eventually(lambda: api.watching(NODES), "a watch")
        yield cluster


async def test_a_watch_starts_from_the_version_of_the_paginated_list(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with watched(api, tmp_path) as cluster:
        version = api.version
        api.put(NODES, gpu_node("n7"))
        api.remove(NODES, "n0")
        api.put(NODES, gpu_node("n1"))
        await wait_for_nodes(cluster, ALL - {"n0"} | {"n7"})
        nodes = (await known(cluster)).nodes
        assert nodes is not None
        changed = nodes.get("n1")
        assert changed is not None
        assert changed.labels["nvidia.com/gpu.present"] == "true"
        assert [str(taint) for taint in changed.taints] == ["nvidia.com/gpu=present:NoSchedule"]
        assert changed.allocatable == {"nvidia.com/gpu": 8}
    assert [asked.query.get("continue") for asked in api.lists(NODES)] == [
        None,
        f"{version}/3",
        f"{version}/6",
    ]
    [watch] = api.watches(NODES)
    assert watch.query["resourceVersion"] == version
    assert watch.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(watch.query["timeoutSeconds"]) <= 600
    assert watch.authorization == "Bearer first"


async def test_nodes_are_unknown_until_the_first_list_is_complete(
    api: FakeApiServer, tmp_path: Path
) -> None:
    seen: list[bool] = []
    api.before_page = lambda _path, offset: seen.append(offset == 6)
    async with facts_of(api, tmp_path) as cluster:
        assert await node_names(cluster) is None
        assert cluster.unready() == "waiting for the cluster's nodes, deviceclasses"
        while not any(seen):
            assert await node_names(cluster) is None
            await asyncio.sleep(0)
        await wait_for_nodes(cluster, ALL)
        await eventually(lambda: not cluster.unready(), "everything to be known")


async def test_a_change_irrelevant_to_placement_keeps_the_same_node_object(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with facts_of(api, tmp_path) as cluster:
        await wait_for_nodes(cluster, ALL)
        nodes = (await known(cluster)).nodes
        assert nodes is not None
        before = nodes.get("n1")
        heartbeat = node("n1")
        heartbeat["status"]["conditions"][0]["lastHeartbeatTime"] = "later"
        heartbeat["status"]["allocatable"]["cpu"] = "15"
        await eventually(lambda: api.watching(NODES), "a watch")
        api.put(NODES, heartbeat)
        api.put(NODES, gpu_node("after"))
        await wait_for_nodes(cluster, ALL | {"after"})
        assert nodes.get("n1") is before


async def test_a_lost_watch_resumes_from_the_last_event_without_a_relist(
    api: FakeApiServer, tmp_path: Path
) -> None:
    counts = Counts()
    async with watched(api, tmp_path, observer=counts) as cluster:
        api.put(NODES, node("n7"))
        await wait_for_nodes(cluster, ALL | {"n7"})
        version = api.version
        lists = len(api.lists(NODES))
        api.abort_watches()
        await eventually(lambda: len(api.watches(NODES)) > 1, "another watch")
        assert api.watches(NODES)[-1].query["resourceVersion"] == version
        api.put(NODES, node("n8"))
        await wait_for_nodes(cluster, ALL | {"n7", "n8"})
    assert len(api.lists(NODES)) == lists
    assert counts.restarts["nodes"] == 1


async def test_changes_made_during_an_outage_arrive_after_reconnect(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with facts_of(api, tmp_path) as cluster:
        await wait_for_nodes(cluster, ALL)
        await api.stop()
        api.remove(NODES, "n3")
        api.put(NODES, node("n9"))
        assert await node_names(cluster) == ALL, "until then, what was known stands"
        await api.start()
        await wait_for_nodes(cluster, ALL - {"n3"} | {"n9"})


@pytest.mark.parametrize("as_event", [True, False], ids=["as an event", "as a status"])
async def test_an_expired_version_causes_a_relist_that_drops_deleted_nodes(
    api: FakeApiServer, tmp_path: Path, as_event: bool
) -> None:
    api.gone_as_event = as_event
    counts = Counts()
    async with watched(api, tmp_path, observer=counts) as cluster:
        await api.stop()
        api.remove(NODES, "n3")
        api.put(NODES, node("n9"))
        api.compact()
        await api.start()
        await wait_for_nodes(cluster, ALL - {"n3"} | {"n9"})
    assert len(api.lists(NODES)) >= 6
    assert counts.restarts["nodes"] >= 2


@pytest.mark.parametrize("collection", [NODES, RUNTIME_CLASSES], ids=["nodes", "runtimeclasses"])
@pytest.mark.parametrize("as_event", [True, False], ids=["as an event", "as a status"])
async def test_a_watch_from_an_expired_version_is_not_retried(
    api: FakeApiServer, tmp_path: Path, collection: str, as_event: bool
) -> None:
    api.gone_as_event = as_event
    counts = Counts()
    async with facts_of(api, tmp_path, policy(runtimeClass="x"), observer=counts) as cluster:
        await eventually(lambda: not cluster.unready(), "everything to be known")
        await eventually(lambda: api.watching(collection), "a watch")
        lists = len(api.lists(collection))
        api.compact()
        api.abort_watches()
        await eventually(lambda: len(api.lists(collection)) > lists, "a new list")
        await eventually(lambda: api.watching(collection), "another watch")
    assert counts.restarts[collection.rpartition("/")[2]] == 2, "the cut, and the old version"


async def test_watch_losses_with_events_in_between_cause_no_relist(
    api: FakeApiServer, tmp_path: Path
) -> None:
    counts = Counts()
    async with facts_of(api, tmp_path, observer=counts) as cluster:
        await wait_for_nodes(cluster, ALL)
        for number in range(7, 15):
            await eventually(lambda: api.watching(NODES), "a watch")
            api.put(NODES, node(f"n{number}"))
            await wait_for_nodes(cluster, {f"n{known}" for known in range(number + 1)})
            api.abort_watches()
        await eventually(lambda: counts.restarts["nodes"] == 8, "the losses to count")
    assert len(api.lists(NODES)) == 3


async def test_a_collection_that_is_no_longer_served_is_empty(
    api: FakeApiServer, tmp_path: Path
) -> None:
    spec = {"extendedResourceName": "example.com/gpu"}
    api.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": spec})
    async with facts_of(api, tmp_path) as cluster:
        await eventually(
            lambda: cluster.watches.objects()["deviceclasses"] == 1, "the class to be known"
        )
        await eventually(lambda: api.watching(DEVICE_CLASSES), "a watch")
        api.errors[DEVICE_CLASSES] = (404, "the server could not find the requested resource")
        api.abort_watches()
        await eventually(
            lambda: cluster.watches.objects()["deviceclasses"] == 0, "the class to be gone"
        )
        assert (await known(cluster)).extended_resource_classes == {}


async def test_a_list_with_an_expired_page_is_restarted(api: FakeApiServer, tmp_path: Path) -> None:
    forgotten: list[bool] = []

    def forget_once(path: str, offset: int) -> None:
        if (path, offset) == (NODES, 3) and not forgotten:
            forgotten.append(True)
            api.compact()

    api.before_page = forget_once
    async with facts_of(api, tmp_path) as cluster:
        await wait_for_nodes(cluster, ALL)
    assert [asked.query.get("continue", "").rpartition("/")[2] for asked in api.lists(NODES)] == [
        "",
        "3",
        "",
        "3",
        "6",
    ]


async def test_a_watch_without_events_counts_as_lost_after_quiet_seconds(
    api: FakeApiServer, tmp_path: Path
) -> None:
    counts = Counts()
    timing = WatchTiming(page=3, quiet_seconds=0.05, first_delay=0.01, longest_delay=0.05)
    async with facts_of(api, tmp_path, timing=timing, observer=counts) as cluster:
        await wait_for_nodes(cluster, ALL)
        await eventually(lambda: len(api.watches(NODES)) > 2, "watches after the first")
        api.put(NODES, node("n7"))
        await wait_for_nodes(cluster, ALL | {"n7"})
    assert counts.restarts["nodes"] >= 2
    assert len(api.lists(NODES)) == 3


async def test_a_lost_watch_resumes_from_the_last_bookmark(
    api: FakeApiServer, tmp_path: Path
) -> None:
    clock = Clock()
    async with watched(api, tmp_path, clock=clock) as cluster:
        clock.now += 30
        assert cluster.watches.staleness()["nodes"] == 30
        api.bookmark(NODES)
        await eventually(
            lambda: cluster.watches.staleness()["nodes"] == 0, "the bookmark to arrive"
        )
        version = api.version
        api.abort_watches()
        await eventually(lambda: len(api.watches(NODES)) > 1, "another watch")
        assert api.watches(NODES)[-1].query["resourceVersion"] == version
        assert await node_names(cluster) == ALL


async def test_a_watch_that_ends_at_its_timeout_is_not_counted_as_lost(
    api: FakeApiServer, tmp_path: Path
) -> None:
    counts = Counts()
    timing = WatchTiming(page=3, watch_seconds=0.6, first_delay=0.01, longest_delay=0.05)
    async with facts_of(api, tmp_path, timing=timing, observer=counts) as cluster:
        await wait_for_nodes(cluster, ALL)
        await eventually(lambda: len(api.watches(NODES)) > 1, "another watch")
        await eventually(lambda: api.watching(NODES), "it to be served")
    assert counts.restarts["nodes"] == 0
    assert len(api.lists(NODES)) == 3


async def test_a_watch_that_ends_before_its_timeout_is_counted_as_lost(
    api: FakeApiServer, tmp_path: Path
) -> None:
    counts = Counts()
    async with watched(api, tmp_path, observer=counts):
        api.end(NODES)
        await eventually(lambda: counts.restarts["nodes"] == 1, "it to be counted")


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "MODIFIED", "object": {"meta',
        b"\xff\xfe\n",
        b'{"type": "MODIFIED", "object": {"metadata": {"name": 5}}}\n',
        b'{"type": "ERROR", "object": {"code": 500, "message": "etcd has a bad day"}}\n',
        b'{"type": "ERROR", "object": {"status": "Failure", "metadata": {}, "code": 500}}\n',
        b"[]\n",
    ],
    ids=["truncated", "not JSON", "a wrong type", "an error", "a whole Status", "not an object"],
)
async def test_an_invalid_watch_event_counts_as_a_lost_watch(
    api: FakeApiServer, tmp_path: Path, line: bytes
) -> None:
    counts = Counts()
    async with watched(api, tmp_path, observer=counts) as cluster:
        api.send(NODES, line)
        api.end(NODES)
        await eventually(lambda: counts.restarts["nodes"] == 1, "it to be counted")
        await eventually(lambda: api.watching(NODES), "another watch")
        api.put(NODES, node("n7"))
        await wait_for_nodes(cluster, ALL | {"n7"})


async def test_an_event_of_any_size_is_applied_without_a_relist(
    api: FakeApiServer, tmp_path: Path
) -> None:
    counts = Counts()
    async with watched(api, tmp_path, observer=counts) as cluster:
        large = node("n7")
        large["metadata"]["annotations"] = {"a": "<" * 9_000_000}
        api.put(NODES, large)
        await wait_for_nodes(cluster, ALL | {"n7"})
    assert not counts.restarts
    assert len(api.lists(NODES)) == 3


async def test_an_event_above_32_mib_counts_as_a_lost_watch(
    api: FakeApiServer, tmp_path: Path
) -> None:
    """Its object is neither known nor forgotten: nothing is decided on half of the cluster."""
    counts = Counts()
    async with watched(api, tmp_path, observer=counts) as cluster:
        api.send(NODES, b'{"type": "MODIFIED", "object": "' + b"x" * 33 * 1024 * 1024)
        await eventually(lambda: counts.restarts["nodes"], "the watch to be lost")
        assert await node_names(cluster) == ALL


async def test_an_event_of_an_unknown_type_is_ignored(api: FakeApiServer, tmp_path: Path) -> None:
    counts = Counts()
    async with watched(api, tmp_path, observer=counts) as cluster:
        api.send(NODES, b'{"type": "SPLIT", "object": {"metadata": {"name": "n1"}}}\n')
        api.put(NODES, node("n7"))
        await wait_for_nodes(cluster, ALL | {"n7"})
    assert not counts.restarts


async def test_repeated_watch_failures_from_one_version_cause_a_relist(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with watched(api, tmp_path) as cluster:
        api.watch_errors[NODES] = (504, "Too large resource version")
        api.abort_watches()
        await eventually(lambda: len(api.lists(NODES)) > 3, "a new list")
        api.watch_errors.clear()
        api.put(NODES, node("n7"))
        await wait_for_nodes(cluster, ALL | {"n7"})


async def test_a_forbidden_collection_is_reported_once(
    api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gpufence")
    message = 'nodes is forbidden: User "fence" cannot list resource "nodes"'
    api.errors[NODES] = (403, message)
    of = policy(allowedNamespaces={"matchLabels": {"team": "ml"}})
    api.put(NAMESPACES, named("ml", {"team": "ml"}))
    clock, counts = Clock(), Counts()
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
    assert records[0].__dict__["gpufence_fields"] == {
        "resource": "nodes",
        "problem": f"{message} (HTTP 403)",
    }


async def test_cluster_facts_start_while_the_api_server_is_unreachable(
    api: FakeApiServer, tmp_path: Path
) -> None:
    await api.stop()
    counts = Counts()
    async with facts_of(api, tmp_path, observer=counts) as cluster:
        await eventually(lambda: counts.restarts["nodes"] > 1, "some attempts")
        assert await node_names(cluster) is None
        await api.start()
        await wait_for_nodes(cluster, ALL)


async def test_credentials_are_reloaded_after_they_are_rejected(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.accepted_bearer = "first"
    async with watched(api, tmp_path) as cluster:
        api.accepted_bearer = "newer"
        api.kubeconfig(tmp_path / "kubeconfig", "newer")
        api.abort_watches()
        api.put(NODES, node("n7"))
        await wait_for_nodes(cluster, ALL | {"n7"})
    assert {asked.authorization for asked in api.requests} == {"Bearer first", "Bearer newer"}


async def test_cluster_facts_become_ready_without_dynamic_resource_allocation(
    tmp_path: Path,
) -> None:
    api = FakeApiServer(NODES)
    await api.start()
    counts = Counts()
    try:
        async with facts_of(api, tmp_path, observer=counts) as cluster:
            await eventually(lambda: not cluster.unready(), "everything to be known")
            assert (await known(cluster)).extended_resource_classes == {}
            await eventually(lambda: len(api.lists(DEVICE_CLASSES)) > 2, "it to be asked again")
        assert not counts.restarts
    finally:
        await api.stop()


async def test_nodes_stay_unknown_if_the_api_server_returns_404_for_nodes(
    tmp_path: Path,
) -> None:
    api = FakeApiServer(DEVICE_CLASSES)
    await api.start()
    counts = Counts()
    try:
        async with facts_of(api, tmp_path, observer=counts) as cluster:
            await eventually(lambda: counts.restarts["nodes"] > 1, "some attempts")
            assert await node_names(cluster) is None
    finally:
        await api.stop()


async def test_unneeded_collections_are_not_watched(api: FakeApiServer, tmp_path: Path) -> None:
    async with facts_of(api, tmp_path, policy(deviceClasses=[])) as cluster:
        await eventually(lambda: not cluster.unready(), "everything to be known")
        assert set(cluster.watches.objects()) == {"nodes", *TEMPLATES}
        facts = await known(cluster)
        assert facts.runtime_classes is None
        assert facts.namespace_labels is None
    watched_templates = {NODE_POOLS.path, NODE_CLAIMS.path, MACHINE_DEPLOYMENTS.path}
    assert {asked.path for asked in api.requests} - watched_templates == {NODES}


async def test_collections_that_the_policy_needs_are_watched(
    api: FakeApiServer, tmp_path: Path
) -> None:
    of = policy(runtimeClass="nvidia", allowedNamespaces={"matchLabels": {"team": "ml"}})
    api.put(NAMESPACES, named("ml", {"team": "ml"}))
    api.put(RUNTIME_CLASSES, named("nvidia"))
    gpu_class = {"metadata": {"name": "gpu.nvidia.com"}, "spec": {}}
    api.put(DEVICE_CLASSES, gpu_class)
    async with facts_of(api, tmp_path, of) as cluster:
        await eventually(lambda: not cluster.unready(), "everything to be known")
        facts = await known(cluster)
        assert facts.runtime_classes == frozenset({"nvidia"})
        assert facts.namespace_labels == {"team": "ml"}
        assert facts.extended_resource_classes == {}
        assert (await known(cluster, "unheard-of")).namespace_labels is None
        await eventually(lambda: api.watching(DEVICE_CLASSES), "a watch")
        assert cluster.watches.objects() == {
            **dict.fromkeys(TEMPLATES, 0),
            "nodes": 7,
            "namespaces": 1,
            "runtimeclasses": 1,
            "deviceclasses": 1,
        }
        await eventually(
            lambda: api.watching(RUNTIME_CLASSES) and api.watching(NAMESPACES), "watches"
        )
        api.remove(RUNTIME_CLASSES, "nvidia")
        api.put(NAMESPACES, named("ml"))
        gpu_class["spec"] = {"extendedResourceName": "example.com/gpu"}
        api.put(DEVICE_CLASSES, gpu_class)
        await eventually(lambda: cluster.watches.objects()["runtimeclasses"] == 0, "it to go")
        for _ in range(1000):
            facts = await known(cluster)
            if facts.extended_resource_classes and not facts.namespace_labels:
                break
            await asyncio.sleep(0.005)
        assert facts.runtime_classes == frozenset()
        assert facts.namespace_labels == {}
        assert facts.extended_resource_classes == {"example.com/gpu": "gpu.nvidia.com"}


async def test_a_new_policy_changes_watched_collections_and_device_resources(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.put(RUNTIME_CLASSES, named("nvidia"))
    spec = {"extendedResourceName": "example.com/any"}
    api.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": spec})
    api.put(NODES, node("n1", allocatable={"example.com/gpu": "4"}))
    async with facts_of(api, tmp_path) as cluster:
        await wait_for_nodes(cluster, ALL)
        await eventually(lambda: api.watching(NODES) and api.watching(DEVICE_CLASSES), "watches")
        cluster.use(policy(runtimeClass="nvidia"))
        await eventually(lambda: api.watching(RUNTIME_CLASSES), "another watch")
        assert (await known(cluster)).runtime_classes == frozenset({"nvidia"})
        assert len(api.watches(NODES)) == 1, "the nodes are the same"

        cluster.use(policy(resources=["example.com/gpu"], sharedResources=[], deviceClasses=[]))
        assert await node_names(cluster) == ALL, "what was known stands until all is listed again"
        assert (await known(cluster)).runtime_classes is None
        assert (await known(cluster)).extended_resource_classes == {}
        assert set(cluster.watches.objects()) == {"nodes", *TEMPLATES}
        nodes = (await known(cluster)).nodes
        assert nodes is not None
        changed = nodes.get("n1")
        assert changed is not None
        assert changed.allocatable == {}
        await eventually(lambda: changed is not nodes.get("n1"), "the nodes to be listed again")
        changed = nodes.get("n1")
        assert changed is not None
        assert changed.allocatable == {"example.com/gpu": 4}
        await eventually(lambda: len(api.watches(NODES)) == 2, "another watch")
    assert {
        task.get_name() for task in asyncio.all_tasks() if "watch of" in task.get_name()
    } == set()


async def test_load_lists_once_without_a_watch(api: FakeApiServer, tmp_path: Path) -> None:
    cluster = ClusterFacts(
        Watches(KubeApi(kubeconfig(api.kubeconfig(tmp_path / "kubeconfig"))), timing=FAST),
        policy(),
    )
    try:
        await cluster.load()
        assert await node_names(cluster) == ALL
        api.errors[NODES] = (403, "no")
        with pytest.raises(ApiError, match=r"^no \(HTTP 403\)$"):
            await cluster.load()
        await api.stop()
        with pytest.raises(
            UnreachableError, match=r"the API server at http://127.0.0.1:\d+ is out"
        ):
            await cluster.load()
    finally:
        await cluster.stop()
    assert not api.watches(NODES)


async def test_node_templates_are_watched_if_the_cluster_serves_them(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async def templates(cluster: ClusterFacts) -> list[str]:
        return [template.name for template in (await known(cluster)).templates]

    async def wait_for_templates(cluster: ClusterFacts, names: list[str]) -> None:
        for _ in range(12_000):
            if await templates(cluster) == names:
                return
            await asyncio.sleep(0.005)
        assert await templates(cluster) == names

    async with watched(api, tmp_path) as cluster:
        assert await templates(cluster) == []
    with_karpenter = FakeApiServer(*COLLECTIONS, NODE_POOLS.path)
    for number in range(7):
        with_karpenter.put(NODES, node(f"n{number}"))
    with_karpenter.put(NODE_POOLS.path, {"metadata": {"name": "gpu"}, "spec": {}})
    await with_karpenter.start()
    try:
        async with watched(with_karpenter, tmp_path) as cluster:
            await wait_for_templates(cluster, ["NodePool gpu"])
            with_karpenter.remove(NODE_POOLS.path, "gpu")
            await wait_for_templates(cluster, [])
    finally:
        await with_karpenter.stop()
