"""Measures dry-run creates on a real API server: rate and latency by kind of admission."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from bench import pods
from bench.contestants import GO, GPUFENCE, Contestant, cpu_seconds, load, running
from controlplane.api import ApiError
from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.poll import until
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

    `server_cpu` is the API server's milliseconds of CPU for each create; `total_cpu` adds etcd and
    the webhooks. Other load on the machine affects them less than the rate.
    """

    rate: float
    alone: float
    server_cpu: float
    total_cpu: float


def measure(seconds: float, rounds: int) -> dict[PodKind, dict[str, Created]]:
    """Return the medians by Pod and kind of admission.

    Every other round reverses the order, so that no kind always follows the same one.
    """
    results: dict[PodKind, dict[str, list[Created]]] = {kind: {} for kind in _SENT}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with ControlPlane(directory / "cluster", binaries()) as cluster:
            # Dry runs store nothing: these have no work, but use CPU.
            cluster.manager.stop()
            cluster.scheduler.stop()
            flags = ["--kubeconfig", str(cluster.kubeconfig)]
            with running(directory, flags=flags) as contestants:
                site = _Site(cluster, directory, contestants)
                objects_of = admissions(contestants, (directory / "certs" / "ca.crt").read_bytes())
                # A ready API server still builds discovery and OpenAPI.
                site.round("plain-pod", seconds)
                for number in range(rounds):
                    for name in list(objects_of)[:: -1 if number % 2 else 1]:
                        with registered(cluster, objects_of[name]):
                            for kind in _SENT:
                                results[kind].setdefault(name, []).append(site.round(kind, seconds))
    return {
        kind: {
            name: Created(*map(median, zip(*samples, strict=True)))
            for name, samples in by_name.items()
        }
        for kind, by_name in results.items()
    }


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
def registered(cluster: ControlPlane, objects: list[JSON]) -> Iterator[None]:
    """Keep the objects registered inside the block."""
    titles = [f"{obj['kind']}/{obj['metadata']['name']}" for obj in objects]
    expected = "mutated" if objects else "unchanged"
    try:
        if objects:
            cluster.kubectl.apply(*objects)
        until(lambda: _gpu_pod(cluster) == expected, "the registered objects to be active")
        yield
    finally:
        if objects:
            cluster.kubectl("delete", *titles)
        until(lambda: _gpu_pod(cluster) == "unchanged", "the registered objects to be gone")


def _gpu_pod(cluster: ControlPlane) -> Literal["mutated", "unchanged", "denied"]:
    """Return the outcome for a GPU Pod now."""
    try:
        pod = cluster.api.request("POST", PATH, _SENT["gpu-pod"])
    except ApiError:
        # Only one of mutation and validation is active.
        return "denied"
    return "mutated" if "affinity" in pod["spec"] else "unchanged"


@dataclass(frozen=True)
class _Site:
    """The control plane that receives the creates, and the webhooks."""

    cluster: ControlPlane
    directory: Path
    contestants: list[Contestant]

    def round(self, kind: PodKind, seconds: float) -> Created:
        self._create(kind, CONNECTIONS, requests=WARM_UP)
        server, total = self._cpu()
        report = self._create(kind, CONNECTIONS, seconds=seconds)
        server_after, total_after = self._cpu()
        per_create = 1000 / report["requests"]
        return Created(
            rate=report["rate"],
            alone=self._create(kind, 1, seconds=seconds)["p50"],
            server_cpu=(server_after - server) * per_create,
            total_cpu=(total_after - total) * per_create,
        )

    def _create(self, kind: PodKind, connections: int, **limit: float) -> JSON:
        body = self.directory / f"{kind}.pod"
        body.write_text(json.dumps(_SENT[kind]))
        api = self.cluster.api
        assert api.client is not None
        certificate, key = api.client
        url, tls = f"{self.cluster.url}{PATH}", {"cert": certificate, "key": key}
        return load(url, api.authority, body, connections=connections, **tls, **limit)

    def _cpu(self) -> tuple[float, float]:
        """Return the seconds of CPU of the API server, and of all processes."""
        server = cpu_seconds(self.cluster.apiserver)
        # Webhooks that receive no requests use no measurable CPU.
        webhooks = sum(contestant.cpu_seconds() for contestant in self.contestants)
        return server, server + cpu_seconds(self.cluster.etcd) + webhooks
