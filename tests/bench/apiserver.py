"""A real API server: creations (dry-run) a second, and their latency, by kind of admission."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bench import pods
from bench.admission_policies import admission_policies
from bench.contestants import CONSTANT, GO, GPUFENCE, Contestant, load, running
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from reviewing import default_policy
from webhook.configurations import Registration, configurations

JSON = dict[str, Any]
PodKind = Literal["gpu-pod", "plain-pod"]

NOTHING, POLICIES = "no policy", "MAP and VAP"
UNCONDITIONAL = f"{CONSTANT}, no conditions"
CONNECTIONS = 8
PATH = "/api/v1/namespaces/default/pods?dryRun=All"
_SENT: dict[PodKind, JSON] = {"gpu-pod": pods.gpu_pod(), "plain-pod": pods.plain_pod()}


@dataclass(frozen=True)
class Created:
    """Creations a second with 8 connections, and the milliseconds of one alone."""

    rate: float
    alone: float


def measure(seconds: float, rounds: int) -> dict[PodKind, dict[str, Created]]:
    """Return the medians by Pod and kind of admission, alternating these."""
    found: dict[PodKind, dict[str, list[Created]]] = {kind: {} for kind in _SENT}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ControlPlane(folder / "cluster") as cluster:
            # Nothing is stored, so that these have nothing to do but to disturb.
            cluster.manager.stop()
            cluster.scheduler.stop()
            flags = ["--kubeconfig", str(cluster.kubeconfig), "--register=false"]
            with running(folder, flags=flags) as contestants:
                arms = admissions(contestants, (folder / "certs" / "ca.crt").read_bytes())
                for _ in range(rounds):
                    for name, objects in arms.items():
                        with in_force(cluster, objects):
                            for kind in _SENT:
                                created = _round(cluster, folder, kind, seconds)
                                found[kind].setdefault(name, []).append(created)
    return {
        kind: {name: _middle(created) for name, created in by_name.items()}
        for kind, by_name in found.items()
    }


def admissions(contestants: list[Contestant], authority: bytes) -> dict[str, list[JSON]]:
    """Return what is registered with the API server, by name; of webhooks, both kinds."""
    policy = default_policy()
    bundle = base64.b64encode(authority).decode()
    found: dict[str, list[JSON]] = {NOTHING: [], POLICIES: admission_policies(policy)}
    for each in contestants:
        registration = Registration(name="bench", url=each.url, ca_bundle=bundle)
        found[each.name] = list(configurations(policy, registration))
    bare: list[JSON] = json.loads(json.dumps(found[CONSTANT]))
    for configuration in bare:
        for webhook in configuration["webhooks"]:
            del webhook["matchConditions"]
    order = (NOTHING, UNCONDITIONAL, CONSTANT, GPUFENCE, GO, POLICIES)
    found[UNCONDITIONAL] = bare
    return {name: found[name] for name in order}


@contextmanager
def in_force(cluster: ControlPlane, objects: list[JSON]) -> Iterator[None]:
    """Have the objects in force inside the block."""
    try:
        if objects:
            cluster.kubectl.apply(*objects)
        wanted = "changed" if objects else "left"
        until(lambda: _gpu_pod(cluster) == wanted, "the admission to be in force")
        yield
    finally:
        if objects:
            names = [f"{each['kind']}/{each['metadata']['name']}" for each in objects]
            cluster.kubectl("delete", *names)
        until(lambda: _gpu_pod(cluster) == "left", "the admission to be gone")


def _gpu_pod(cluster: ControlPlane) -> Literal["changed", "left", "refused"]:
    """Return what becomes of a GPU Pod now."""
    try:
        made = cluster.api.request("POST", PATH, _SENT["gpu-pod"])
    except ApiError:
        # Only one of the two is in force yet, or still.
        return "refused"
    return "changed" if "affinity" in made["spec"] else "left"


def _round(cluster: ControlPlane, folder: Path, kind: PodKind, seconds: float) -> Created:
    body = folder / f"{kind}.pod"
    body.write_text(json.dumps(_SENT[kind]))
    api = cluster.api
    assert api.client is not None
    certificate, key = api.client

    def create(connections: int) -> JSON:
        url, tls = f"{cluster.url}{PATH}", {"cert": certificate, "key": key}
        return load(url, api.authority, body, connections=connections, seconds=seconds, **tls)

    return Created(create(CONNECTIONS)["rate"], create(1)["p50"])


def _middle(created: list[Created]) -> Created:
    return Created(median(c.rate for c in created), median(c.alone for c in created))
