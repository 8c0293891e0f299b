"""Measures dry-run creates on a real API server: rate and latency by kind of admission."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from bench import kyverno, pods
from bench.contestants import GO, GPUFENCE, Contestant, cpu_seconds, load, running
from controlplane.api import ApiError
from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from policies.shipped import DEFAULT
from reviewing import default_policy
from webhook.controller.text.objects import Registration, configurations

JSON = dict[str, Any]
PodKind = Literal["gpu-pod", "plain-pod", "selecting-pod"]
TITLES: dict[PodKind, str] = {
    "gpu-pod": "a GPU Pod",
    "plain-pod": "a plain Pod",
    "selecting-pod": "a Pod with a node selection",
}

NOTHING = "no policy"
CONNECTIONS = 8
WARM_UP = 300
"""Creates before each measurement, to open connections and compile match conditions."""
PATH = "/api/v1/namespaces/default/pods?dryRun=All"
_SENT: dict[PodKind, JSON] = {
    "gpu-pod": pods.gpu_pod(),
    "plain-pod": pods.plain_pod(),
    "selecting-pod": pods.selecting_pod(),
}


class Created(NamedTuple):
    """Creates per second on 8 connections, and the milliseconds of one without concurrency.

    `server_cpu` and `webhook_cpu` are milliseconds of CPU for each create; `total_cpu` adds etcd.
    Other load on the machine affects them less than the rate. `memory` is the webhook's, in MiB.
    """

    rate: float
    alone: float
    p50: float = 0.0
    p99: float = 0.0
    server_cpu: float = 0.0
    webhook_cpu: float = 0.0
    total_cpu: float = 0.0
    memory: float = 0.0


def measure(seconds: float, rounds: int) -> dict[PodKind, dict[str, Created]]:
    """Return the medians by Pod and kind of admission.

    Every other round reverses the order, so that no kind always follows the same one.
    """
    results: dict[PodKind, dict[str, list[Created]]] = {kind: {} for kind in _SENT}
    with started() as (site, objects_of):
        # A ready API server still builds discovery and OpenAPI.
        site.round("plain-pod", NOTHING, seconds)
        outcomes: dict[str, JSON] = {}
        for number in range(rounds):
            for name in list(objects_of)[:: -1 if number % 2 else 1]:
                with registered(site.cluster, objects_of[name]) as outcomes[name]:
                    for kind in _SENT:
                        created = site.round(kind, name, seconds)
                        results[kind].setdefault(name, []).append(created)
    for name in outcomes.keys() - {NOTHING}:
        if outcomes[name] != outcomes[GPUFENCE]:
            raise RuntimeError(f"{name} makes another Pod: {outcomes[name]}, {outcomes[GPUFENCE]}")
    return {
        kind: {
            name: Created(*map(median, zip(*samples, strict=True)))
            for name, samples in by_name.items()
        }
        for kind, by_name in results.items()
    }


@contextmanager
def started(*flags: str) -> Iterator[tuple[Site, dict[str, list[JSON]]]]:
    """Run a control plane and all webhooks. Yield them, and what to register of each."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(ControlPlane(directory / "cluster", binaries()))
        # Dry runs store nothing: these have no work, but use CPU.
        cluster.manager.stop()
        cluster.scheduler.stop()
        flags = (f"--kubeconfig={cluster.kubeconfig}", f"--policy={DEFAULT}", *flags)
        contestants = stack.enter_context(running(directory, flags=flags))
        objects_of = admissions(contestants, (directory / "certs" / "ca.crt").read_bytes())
        if kyverno.WANTED:
            contestants.append(stack.enter_context(kyverno.running(cluster, directory)))
            objects_of[kyverno.KYVERNO] = kyverno.policies()
        yield Site(cluster, directory, {each.name: each for each in contestants}), objects_of


def admissions(contestants: list[Contestant], ca: bytes) -> dict[str, list[JSON]]:
    """Return the objects to register with the API server, by kind of admission."""
    policy = default_policy()
    bundle = base64.b64encode(ca).decode()
    objects: dict[str, list[JSON]] = {NOTHING: []}
    for contestant in contestants:
        registration = Registration(name="bench", url=contestant.url, ca_bundle=bundle)
        objects[contestant.name] = list(configurations(policy, registration))
    return {name: objects[name] for name in (NOTHING, GPUFENCE, GO)}


@contextmanager
def registered(
    cluster: ControlPlane, objects: list[JSON], acts: Callable[[], set[bool]] | None = None
) -> Iterator[JSON]:
    """Keep the objects registered inside the block. Yield what a GPU Pod becomes."""
    titles = [f"{obj['kind']}/{obj['metadata']['name']}" for obj in objects]
    acts = acts or (lambda: {_mutates(cluster), denies(cluster)})
    try:
        if objects:
            cluster.kubectl.apply(*objects)
        until(lambda: acts() == {bool(objects)}, "the registered objects to be active")
        yield _gpu_pod(cluster)
    finally:
        if objects:
            cluster.kubectl("delete", *titles)
        until(lambda: acts() == {False}, "the registered objects to be gone")


def denies(cluster: ControlPlane) -> bool:
    """Return whether a Pod that trespasses is denied."""
    trespasser = pods.plain_pod()
    trespasser["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    return bool(cluster.api.refusal(PATH.partition("?")[0], trespasser))


def _mutates(cluster: ControlPlane) -> bool:
    try:
        return "affinity" in _gpu_pod(cluster)
    except ApiError:
        # Only validation is active.
        return False


def _gpu_pod(cluster: ControlPlane) -> JSON:
    """Return the spec of a GPU Pod that is created now."""
    created = cluster.api.request("POST", PATH, _SENT["gpu-pod"])
    spec: JSON = json.loads(re.sub(r"kube-api-access-\w+", "token", json.dumps(created["spec"])))
    return spec


@dataclass(frozen=True)
class Site:
    """The control plane that receives the creates, and the webhooks."""

    cluster: ControlPlane
    directory: Path
    contestants: Mapping[str, Contestant]

    def round(self, kind: PodKind, name: str, seconds: float) -> Created:
        self.create(kind, CONNECTIONS, requests=WARM_UP)
        before = self._cpu(name)
        report = self.create(kind, CONNECTIONS, seconds=seconds)
        used = [after - own for after, own in zip(self._cpu(name), before, strict=True)]
        server, webhook, total = (
            each * 1000 / report["requests"] for each in (*used[:2], sum(used))
        )
        return Created(
            rate=report["rate"],
            alone=self.create(kind, 1, seconds=seconds)["p50"],
            p50=report["p50"],
            p99=report["p99"],
            server_cpu=server,
            webhook_cpu=webhook,
            total_cpu=total,
            memory=self.contestants[name].memory() if name in self.contestants else 0.0,
        )

    def create(self, kind: PodKind, connections: int, path: str = PATH, **limit: float) -> JSON:
        body = self.directory / f"{kind}.pod"
        body.write_text(json.dumps(_SENT[kind]))
        api = self.cluster.api
        assert api.client is not None
        certificate, key = api.client
        url, tls = f"{self.cluster.url}{path}", {"cert": certificate, "key": key}
        return load(url, api.authority, body, connections=connections, **tls, **limit)

    def _cpu(self, name: str) -> tuple[float, float, float]:
        """Return the seconds of CPU of API server, the webhook of this name, and etcd."""
        webhook = self.contestants.get(name)
        used = webhook.cpu_seconds() if webhook else 0.0
        return cpu_seconds(self.cluster.apiserver), used, cpu_seconds(self.cluster.etcd)
