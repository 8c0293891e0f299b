"""What a replica knows of its cluster, and exports."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from clusters import gpu_node, node, policy
from fake_apiserver import NODES, FakeApiServer, eventually
from webhook.cluster.facts import ClusterFacts
from webhook.kube.client import KubeApi
from webhook.kube.kubeconfig import kubeconfig
from webhook.kube.reflector import Watches, WatchTiming
from webhook.serve.metrics.cluster import ClusterMetrics

FAST = WatchTiming(first_delay=0.01, longest_delay=0.05, quiet_seconds=0.5, steady_seconds=1)


async def test_nodes_without_the_labels_of_a_pool_are_counted(tmp_path: Path) -> None:
    api = FakeApiServer(NODES, "/apis/resource.k8s.io/v1/deviceclasses")
    api.put(NODES, gpu_node("labeled"))
    await api.start()
    load = kubeconfig(api.kubeconfig(tmp_path / "kubeconfig"))
    facts = ClusterFacts(Watches(KubeApi(load), timing=FAST), policy())
    registry = CollectorRegistry()
    ClusterMetrics(registry).track(facts)

    def exported(pool: str) -> float | None:
        return registry.get_sample_value("gpufence_pool_nodes_without_labels", {"pool": pool})

    assert exported("nvidia") is None, "the nodes are not listed"
    await facts.start()
    await eventually(lambda: exported("nvidia") == 0, "the list of nodes")
    await eventually(lambda: api.watching(NODES), "a watch")
    api.put(NODES, node("unlabeled", {}, [], {"nvidia.com/gpu": "8"}))
    await eventually(lambda: exported("nvidia") == 1, "the node without labels")
    facts.use(policy(name="renamed"))
    assert (exported("nvidia"), exported("renamed")) == (None, 1)
    await facts.stop()
    await api.stop()
