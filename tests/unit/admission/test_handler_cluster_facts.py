"""Reviews are answered with what is known of the cluster, and in time whatever the cluster does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from clusters import facts_of, gpu_node, named, node, policy
from controlplane.objects import claim_template
from fake_apiserver import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    RUNTIME_CLASSES,
    FakeApiServer,
    eventually,
)
from policies.facts import Facts, Request
from policies.kubernetes.workload import Workload
from reviewing import plain_pod, review
from served import Hook, serve_policy
from specs import JSON
from webhook.serve.metrics.cluster import ClusterMetrics


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer(NODES, DEVICE_CLASSES, RUNTIME_CLASSES, CLAIM_TEMPLATES)
    api.put(NODES, gpu_node("gpu-1"))
    api.put(NODES, node("plain-1"))
    api.put(CLAIM_TEMPLATES, claim_template("one-gpu", "gpu.nvidia.com"))
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def hook(api: FakeApiServer, tmp_path: Path) -> AsyncIterator[Hook]:
    async with AsyncExitStack() as stack:
        registry = CollectorRegistry()
        metrics = ClusterMetrics(registry)
        cluster = await stack.enter_async_context(facts_of(api, tmp_path, observer=metrics))
        metrics.track(cluster)
        hook = await serve_policy(stack, policy(), cluster)
        hook.metrics.registry.register(registry)
        await eventually(lambda: not cluster.unready(), "the cluster to be known")
        yield hook


def pod(**spec: Any) -> JSON:
    obj = plain_pod()
    obj["metadata"]["namespace"] = "ml"
    obj["spec"] |= spec
    return obj


def pod_with_claim(name: str, **spec: Any) -> JSON:
    entry = {"name": "gpu", "resourceClaimTemplateName": name}
    main = {"name": "main", "image": "app", "resources": {"claims": [{"name": "gpu"}]}}
    return pod(resourceClaims=[entry], containers=[main], **spec)


def ml_review(obj: JSON) -> JSON:
    return review(obj, namespace="ml")


GPU = {"limits": {"nvidia.com/gpu": "1"}}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


FORBIDDEN = (403, 'nodes is forbidden: User "gpufence" cannot list resource "nodes"')


async def test_a_pod_with_a_node_name_is_denied_while_listing_nodes_is_forbidden(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.errors[NODES] = FORBIDDEN
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(facts_of(api, tmp_path))
        hook = await serve_policy(stack, policy(), cluster)
        await eventually(lambda: "forbidden" in " ".join(cluster.problems()), "the problem")
        answer = await hook.response("/validate", ml_review(pod(nodeName="plain-1")))
        assert "does not know the nodes" in answer["status"]["message"]
        assert (await hook.response("/validate", ml_review(pod(nodeSelector={"a": "b"}))))[
            "allowed"
        ]
        [problem] = [text for text in cluster.problems() if "nodes are unknown" in text]
        assert problem.startswith("the cluster's nodes are unknown (nodes is forbidden")
        del api.errors[NODES]
        await eventually(lambda: cluster.problems() == [], "the nodes")
        assert (await hook.response("/validate", ml_review(pod(nodeName="plain-1"))))["allowed"]


async def test_a_namespace_missing_from_the_watch_cache_is_read(tmp_path: Path) -> None:
    api = FakeApiServer(NODES, NAMESPACES, DEVICE_CLASSES, RUNTIME_CLASSES)
    await api.start()
    of = policy(allowedNamespaces={"matchLabels": {"team": "ml"}})
    gpu = pod(containers=[{"name": "a", "image": "a", "resources": GPU}])
    async with AsyncExitStack() as stack:
        stack.push_async_callback(api.stop)
        cluster = await stack.enter_async_context(facts_of(api, tmp_path, of))
        hook = await serve_policy(stack, of, cluster)
        await eventually(lambda: not cluster.unready(), "the cluster to be known")
        answer = await hook.response("/validate", ml_review(gpu))
        assert "pool-not-allowed" in answer["status"]["message"]
        # Without an event, as if the watch were late.
        api.objects[f"{NAMESPACES}/ml"] = named("ml", {"team": "ml"})
        answer = await hook.response("/validate", ml_review(gpu))
        assert "pool-not-allowed" not in answer["status"]["message"]


async def test_a_pod_with_an_unknown_claim_is_denied_only_with_a_pool_toleration(
    hook: Hook,
) -> None:
    answer = await hook.response("/mutate", ml_review(pod_with_claim("none")))
    assert answer["allowed"]
    assert "patch" not in answer
    assert (await hook.response("/validate", ml_review(pod_with_claim("none"))))["allowed"]
    denied = await hook.response(
        "/validate", ml_review(pod_with_claim("none", tolerations=[TOLERATION]))
    )
    assert not denied["allowed"]
    assert "(unknown resource claims: none)" in denied["status"]["message"]


async def test_a_pending_claim_lookup_delays_a_response_only_briefly(
    api: FakeApiServer, hook: Hook
) -> None:
    held = api.blocked[f"{CLAIM_TEMPLATES}/one-gpu"] = asyncio.Event()
    start = time.monotonic()
    status, answer = await hook.post("/mutate?timeout=10s", ml_review(pod_with_claim("one-gpu")))
    # A second, whereas its caller would wait for nine, and the request goes on for five.
    assert time.monotonic() - start < 4
    held.set()
    assert status == 200
    assert answer["response"]["allowed"]
    assert "patch" not in answer["response"]


async def test_cluster_facts_and_lookups_are_exported(hook: Hook) -> None:
    await hook.response("/mutate", ml_review(pod_with_claim("one-gpu")))
    await hook.response("/validate", ml_review(pod_with_claim("one-gpu")))
    await hook.response("/validate", ml_review(pod_with_claim("none")))
    lookups = await hook.metric("gpufence_claim_lookups_total")
    assert lookups == {
        '{result="found"}': 2.0,
        '{result="missing"}': 1.0,
        '{result="failed"}': 0.0,
        '{result="late"}': 0.0,
    }
    kinds = ("nodepools", "nodeclaims", "machinedeployments", "devicetaintrules")
    templates = {f'{{resource="{kind}"}}': 0.0 for kind in kinds}
    assert await hook.metric("gpufence_cluster_objects") == {
        '{resource="nodes"}': 2.0,
        '{resource="resourceslices"}': 0.0,
        '{resource="deviceclasses"}': 0.0,
        '{resource="runtimeclasses"}': 0.0,
        **templates,
    }
    assert await hook.metric("gpufence_cluster_watch_restarts_total") == {
        '{resource="nodes"}': 0.0,
        '{resource="resourceslices"}': 0.0,
        '{resource="deviceclasses"}': 0.0,
        '{resource="runtimeclasses"}': 0.0,
        **templates,
    }
    heard = await hook.metric("gpufence_cluster_last_event_timestamp_seconds")
    followed = ("nodes", "deviceclasses", "runtimeclasses")
    assert set(heard) == {f'{{resource="{kind}"}}' for kind in followed}
    assert all(0 <= time.time() - at < 60 for at in heard.values())


class BrokenCluster:
    async def facts_for(self, request: Request, obj: Workload, seconds: float) -> Facts:
        raise RuntimeError("a bug")


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_a_bug_in_cluster_facts_is_reported_as_an_internal_error(path: str) -> None:
    async with AsyncExitStack() as stack:
        hook = await serve_policy(stack, policy(), BrokenCluster())
        response = await hook.response(path, ml_review(pod()))
        assert not response["allowed"]
        assert (
            "an internal error of gpufence prevents the check of this Pod"
            in response["status"]["message"]
        )
        assert await hook.metric("gpufence_internal_errors_total") == {"": 1.0}


async def test_claims_of_a_workload_are_looked_up_only_for_validation(hook: Hook) -> None:
    template = {"spec": pod_with_claim("one-gpu")["spec"]}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ml"},
        "spec": {"template": template},
    }
    assert (await hook.response("/mutate", ml_review(workload)))["allowed"]
    assert sum((await hook.metric("gpufence_claim_lookups_total")).values()) == 0
    template["spec"]["tolerations"] = [TOLERATION]
    assert (await hook.response("/validate", ml_review(workload)))["allowed"]
    assert sum((await hook.metric("gpufence_claim_lookups_total")).values()) == 1


class RecordingCluster:
    def __init__(self) -> None:
        self.given: list[float] = []

    async def facts_for(self, request: Request, obj: Workload, seconds: float) -> Facts:
        self.given.append(seconds)
        return Facts()


async def test_cluster_facts_get_the_remaining_time_of_the_request() -> None:
    cluster = RecordingCluster()
    async with AsyncExitStack() as stack:
        hook = await serve_policy(stack, policy(), cluster)
        for path in ("/mutate?timeout=3s", "/validate?timeout=30s", "/validate"):
            await hook.response(path, ml_review(pod()))
    for given, least, most in zip(cluster.given, (0.0, 2.7, 2.7), (2.7, 9.0, 9.0), strict=True):
        assert least < given < most
