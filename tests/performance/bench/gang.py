"""A gang of GPU Pods, created by many writers at once: `python -m bench.gang NODES PODS WRITERS`.

A real API server has the nodes, which the webhooks know.
"""

from __future__ import annotations

import sys

from bench.apiserver import PATH, registered, started
from bench.fleet import NODES, cluster
from bench.report import table


def main() -> None:
    nodes, pods, writers = map(int, sys.argv[1:])
    collection, path = cluster(nodes, 0)[NODES], PATH.partition("?")[0]
    rows, known = [], set[str]()
    with started("--node-facts") as (site, objects_of):
        api = site.cluster.api
        for number in range(nodes):
            api.request("POST", NODES, collection.render(number, 0))
        for name, objects in objects_of.items():
            with registered(site.cluster, objects):
                report = site.create("gpu-pod", writers, path, requests=pods, seconds=600)
                items = {
                    each["metadata"]["name"]: each for each in api.request("GET", path)["items"]
                }
            created = [items[name] for name in items.keys() - known]
            known = {*items}
            unmutated = sum("affinity" not in pod["spec"] for pod in created)
            times = (f"{report[each]:.1f}" for each in ("seconds", "p50", "p99"))
            rows.append((name, str(len(created)), *times, str(unmutated)))
    print(table(("admission", "Pods", "s", "p50 ms", "p99 ms", "unmutated"), rows))


if __name__ == "__main__":
    main()
