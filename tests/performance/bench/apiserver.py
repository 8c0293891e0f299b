"""A real API server: creations (dry-run) a second, and their latency, by kind of admission."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bench import pods
from bench.admission_policies import admission_policies
from bench.contestants import CONSTANT, GO, GPUFENCE, Contestant, cpu_seconds, load, running
from controlplane.api import ApiError
from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.webhooks import in_tree_denial
from reviewing import default_policy
from webhook.registration.admission_policies.objects import Target
from webhook.registration.admission_policies.objects import admission_policies as in_tree
from webhook.registration.configurations import Registration, configurations

JSON = dict[str, Any]
PodKind = Literal["gpu-pod", "plain-pod", "selecting-pod"]
TITLES: dict[PodKind, str] = {
    "gpu-pod": "a GPU Pod",
    "plain-pod": "a plain Pod",
    "selecting-pod": "a Pod with a node selection",
}

NOTHING, POLICIES = "no policy", "MAP and VAP"
SECOND_LINE, BOTH_LINES = "second line", f"{GPUFENCE}, second line"
"""gpufence's in-tree policies without its webhook, and with it."""
NO_FACTS = f"{GPUFENCE}, no cluster facts"
"""Registered without cluster facts: the API server keeps Pods that only select nodes to itself."""
UNCONDITIONAL = f"{CONSTANT}, no conditions"
CONNECTIONS = 8
WARM_UP = 300
"""Creations before each measurement: what a rule of admission costs at first is not its price."""
PATH = "/api/v1/namespaces/default/pods?dryRun=All"
_SENT: dict[PodKind, JSON] = {
    "gpu-pod": pods.gpu_pod(),
    "plain-pod": pods.plain_pod(),
    "selecting-pod": pods.selecting_pod(),
}


@dataclass(frozen=True)
class Created:
    """Creations a second with 8 connections, and the milliseconds of one alone.

    With the milliseconds of CPU for one of the 8: the API server's, and those of all but the load
    (API server, etcd, webhook). They depend less than the rate on what else the machine does.
    """

    rate: float
    alone: float
    server_cpu: float
    whole_cpu: float


def measure(seconds: float, rounds: int) -> dict[PodKind, dict[str, Created]]:
    """Return the medians by Pod and kind of admission, alternating these.

    Every other round goes backwards, so that none always follows the same.
    """
    found: dict[PodKind, dict[str, list[Created]]] = {kind: {} for kind in _SENT}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ControlPlane(folder / "cluster", binaries()) as cluster:
            # Nothing is stored, so that these have nothing to do but to disturb.
            cluster.manager.stop()
            cluster.scheduler.stop()
            flags = ["--kubeconfig", str(cluster.kubeconfig), "--register=false"]
            with running(folder, flags=flags) as contestants:
                site = _Site(cluster, folder, contestants)
                arms = admissions(contestants, (folder / "certs" / "ca.crt").read_bytes())
                # An API server goes on starting, discovery and OpenAPI, after it is ready.
                site.round("plain-pod", seconds)
                for number in range(rounds):
                    for name in list(arms)[:: -1 if number % 2 else 1]:
                        with in_force(cluster, arms[name]):
                            for kind in _SENT:
                                found[kind].setdefault(name, []).append(site.round(kind, seconds))
    return {kind: {name: _middle(found[kind][name]) for name in found[kind]} for kind in _SENT}


def admissions(contestants: list[Contestant], authority: bytes) -> dict[str, list[JSON]]:
    """Return what is registered with the API server, by name; of webhooks, both kinds."""
    policy = default_policy()
    bundle = base64.b64encode(authority).decode()
    found: dict[str, list[JSON]] = {NOTHING: [], POLICIES: admission_policies(policy)}
    for each in contestants:
        registration = Registration(name="bench", url=each.url, ca_bundle=bundle)
        found[each.name] = list(configurations(policy, registration))
        if each.name == GPUFENCE:
            without = replace(registration, with_nodes=False)
            found[NO_FACTS] = list(configurations(policy, without))
    bare: list[JSON] = json.loads(json.dumps(found[CONSTANT]))
    for configuration in bare:
        for webhook in configuration["webhooks"]:
            del webhook["matchConditions"]
    found[UNCONDITIONAL] = bare
    found[SECOND_LINE] = list(in_tree(policy, Target(name="bench")))
    found[BOTH_LINES] = [*found[GPUFENCE], *found[SECOND_LINE]]
    ours = (NO_FACTS, GPUFENCE, BOTH_LINES)
    order = (NOTHING, SECOND_LINE, UNCONDITIONAL, CONSTANT, *ours, GO, POLICIES)
    return {name: found[name] for name in order}


@contextmanager
def in_force(cluster: ControlPlane, objects: list[JSON]) -> Iterator[None]:
    """Keep the objects registered inside the block."""
    try:
        if objects:
            cluster.kubectl.apply(*objects)
        mutating = any(each["kind"].startswith("Mutating") for each in objects)
        wanted = "changed" if mutating else "left"
        until(lambda: _gpu_pod(cluster) == wanted, "the admission to be in force")
        if any(each["metadata"]["name"] == "bench-pods-deny" for each in objects):
            until(lambda: "bench-pods-deny" in in_tree_denial(cluster.api), "the second line")
        yield
    finally:
        if objects:
            names = [f"{each['kind']}/{each['metadata']['name']}" for each in objects]
            cluster.kubectl("delete", *names)
        until(lambda: _gpu_pod(cluster) == "left", "the admission to be gone")


def _gpu_pod(cluster: ControlPlane) -> Literal["changed", "left", "refused"]:
    """Return the outcome for a GPU Pod now."""
    try:
        made = cluster.api.request("POST", PATH, _SENT["gpu-pod"])
    except ApiError:
        # Only one of the two is active yet, or still.
        return "refused"
    return "changed" if "affinity" in made["spec"] else "left"


@dataclass(frozen=True)
class _Site:
    """Where creations are sent, and who has to do with them."""

    cluster: ControlPlane
    folder: Path
    contestants: list[Contestant]

    def round(self, kind: PodKind, seconds: float) -> Created:
        # Connections are opened and conditions compiled at the first that need them.
        self._create(kind, CONNECTIONS, requests=WARM_UP)
        server, whole = self._cpu()
        report = self._create(kind, CONNECTIONS, seconds=seconds)
        server_after, whole_after = self._cpu()
        each = 1000 / report["requests"]
        alone = self._create(kind, 1, seconds=seconds)["p50"]
        return Created(
            report["rate"], alone, (server_after - server) * each, (whole_after - whole) * each
        )

    def _create(self, kind: PodKind, connections: int, **limit: float) -> JSON:
        body = self.folder / f"{kind}.pod"
        body.write_text(json.dumps(_SENT[kind]))
        api = self.cluster.api
        assert api.client is not None
        certificate, key = api.client
        url, tls = f"{self.cluster.url}{PATH}", {"cert": certificate, "key": key}
        return load(url, api.authority, body, connections=connections, **tls, **limit)

    def _cpu(self) -> tuple[float, float]:
        """Return the seconds of CPU of the API server, and of all processes."""
        server = cpu_seconds(self.cluster.apiserver)
        # Contestants that receive no requests cost nothing that can be measured.
        webhooks = sum(each.cpu_seconds() for each in self.contestants)
        return server, server + cpu_seconds(self.cluster.etcd) + webhooks


def _middle(created: list[Created]) -> Created:
    fields = ("rate", "alone", "server_cpu", "whole_cpu")
    return Created(*(median(getattr(each, field) for each in created) for field in fields))
