"""Measures what gpufence's expressions cost an API server: `make bench-expressions`.

Milliseconds of CPU of the API server for a dry run, by Pod and number of pools, without any call of
a webhook: a last condition is false, and the API server still evaluates the others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.apiserver import PATH, denies, registered
from bench.contestants import cpu_seconds
from bench.pods import gpu_pod, plain_pod, pod
from bench.report import table
from controlplane import binaries
from controlplane.cluster import ControlPlane
from in_tree import of_pools
from policies.policy import Policy
from webhook.controller.text.objects import Registration, admission_policies, configurations

JSON = dict[str, Any]

POOLS = (1, 10, 100)
ROUNDS = 3
CONNECTIONS = 4

_LABEL, _KEY = "nvidia.com/gpu.present", "nvidia.com/gpu"
_NEVER = {"name": "never", "expression": "false"}


def subjects() -> dict[str, tuple[JSON, int]]:
    """Return the Pods, and how often each is created in a round."""
    return {
        "plain": (plain_pod(), 60),
        "GPU Pod": (gpu_pod(), 60),
        **{name: (each, 5) for name, each in dense().items()},
    }


def dense() -> dict[str, JSON]:
    """Return the Pods that a search over all expressions found to cost the most for their size.

    They have the shortest entries, of a number below or above what is searched.
    """
    shows = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    labels = {_LABEL: "true", **{f"l-{n}": "a" for n in range(98)}}
    term = [{"key": "m", "operator": "Exists"}]

    def of(count: int, **fields: Any) -> JSON:
        return pod([{"name": f"c-{n}", "image": "a", **fields} for n in range(count)])

    def placed(**spec: Any) -> JSON:
        return pod([{"name": "c", "image": "a"}], **spec)

    return {
        "30 terms with 99 labels": placed(nodeSelector=labels, affinity=_affinity(*[term] * 30)),
        "900 terms with 99 labels": placed(nodeSelector=labels, affinity=_affinity(*[term] * 900)),
        "1,000 terms that select a pool": placed(
            affinity=_affinity(*[[{"key": _LABEL, "operator": "Exists"}]] * 1000)
        ),
        # The API server adds two.
        "198 tolerations of a pool": placed(tolerations=[_exists(_KEY)] * 198),
        "200 containers that show devices": of(200, env=shows),
        "1,000 containers that show devices": of(1000, env=shows),
        "200 containers with 10 variables": of(200, env=[{"name": "A"}] * 10),
        "1,000 containers": of(1000),
        "1,000 containers with a quantity": of(1000, resources={"limits": {_KEY: "0"}}),
        "200 of most things": pod(
            [{"name": f"c-{n}", "image": "a", "env": [{"name": "A"}] * 9} for n in range(200)],
            tolerations=[_exists(_KEY)] * 198,
            nodeSelector={f"l-{n}": "a" for n in range(50)},
            affinity=_affinity(*[term * 10] * 150),
            volumes=[{"name": f"v-{n}", "hostPath": {"path": "/dev/./x"}} for n in range(200)],
        ),
        "110,000 variables": of(1, env=[{"name": "A"}] * 110_000),
    }


def _exists(key: str) -> JSON:
    return {"key": key, "operator": "Exists"}


def _affinity(*terms: Sequence[JSON]) -> JSON:
    required = {"nodeSelectorTerms": [{"matchExpressions": [*each]} for each in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def objects(policy: Policy) -> list[JSON]:
    """Return what gpufence registers, with conditions that are false in the end."""
    registration = Registration(name="bench", url="https://127.0.0.1:1")
    found = [*configurations(policy, registration), *admission_policies(policy, registration)]
    for configuration in found[:2]:
        for webhook in configuration["webhooks"]:
            webhook["matchConditions"] = [*webhook["matchConditions"], _NEVER]
    return found


def measure(cluster: ControlPlane, forms: dict[str, list[JSON]]) -> dict[str, dict[str, float]]:
    """Return the milliseconds by Pod and form: the least of the rounds, which alternate."""
    found: dict[str, dict[str, float]] = {name: {} for name in subjects()}
    for number in range(ROUNDS):
        for form in [*forms][:: -1 if number % 2 else 1]:
            with registered(cluster, forms[form], lambda: {denies(cluster)}):
                for name, (subject, times) in subjects().items():
                    cost = _cost(cluster, subject, times)
                    found[name][form] = min(cost, found[name].get(form, cost))
    return found


def _cost(cluster: ControlPlane, subject: JSON, times: int) -> float:
    def create(_: int) -> None:
        cluster.api.request("POST", PATH, subject)

    with ThreadPoolExecutor(min(CONNECTIONS, times)) as threads:
        list(threads.map(create, range(min(CONNECTIONS, times))))
        before = cpu_seconds(cluster.apiserver)
        list(threads.map(create, range(times)))
        return (cpu_seconds(cluster.apiserver) - before) * 1000 / times


def main() -> None:
    """Print a table."""
    forms = {"no policy": [], **{f"{n} pools": objects(of_pools(n)) for n in POOLS}}
    paths = binaries.binaries()
    with (
        tempfile.TemporaryDirectory() as directory,
        ControlPlane(Path(directory), paths, checks_policy_types=False) as cluster,
    ):
        # Dry runs store nothing: these have no work, but use CPU.
        cluster.manager.stop()
        cluster.scheduler.stop()
        costs = measure(cluster, forms).items()
    print(binaries.version_of(paths["kube-apiserver"]))
    rows = ((name, *(f"{own[form]:.3g}" for form in forms)) for name, own in costs)
    print(table(("Pod", *forms), rows))


if __name__ == "__main__":
    main()
