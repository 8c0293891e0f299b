"""GPU Pods that the API server mutates, while replicas restart and their certificates are bad."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs.authority import create_authority, issue_leaf
from certs.keypair import Names
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Replica
from controlplane.poll import until
from controlplane.versions import MUTATING_POLICIES
from release.load import GPU_POD, Load
from release.release import SECRET, Release, release

pytestmark = MUTATING_POLICIES

NODE = {"metadata": {"name": "gpu", "labels": {"nvidia.com/gpu.present": "true"}}}
"""The API server does not mutate the Pods of a pool without nodes."""
BOUND_POD = {**GPU_POD, "spec": {**GPU_POD["spec"], "nodeName": "none"}}
"""A Pod that the webhook must answer for."""


def test_no_gpu_pod_fails_while_replicas_restart_and_certificates_are_bad(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Each replica is killed before the next one starts."""
    api, pods = control_plane.api, f"/api/v1/namespaces/{namespace}/pods"
    with release(control_plane, tmp_path) as released, ExitStack() as stack:
        api.request("POST", "/api/v1/nodes", NODE)
        stack.callback(api.request, "DELETE", "/api/v1/nodes/gpu")
        replica = run(released, stack)
        until(released.mutates, "the policy that mutates")
        replica.kill()
        until(lambda: not api.refusal(pods, GPU_POD), "the API server to mutate")
        with Load(api, namespace) as load:
            for _ in range(2):
                run(released, stack).kill()
            load.check("two restarts")

            lost = released.secret()["ca.crt"]
            path = f"/api/v1/namespaces/{released.namespace}/secrets/{SECRET}"
            api.request("DELETE", path)
            start = time.monotonic()
            replica = run(released, stack)
            trusted = released.secret()["ca.crt"]
            assert trusted != lost
            until(lambda: trusts(released, trusted), "the new CA to be trusted")
            # Longer than this machine now takes to start a replica that registers its CA.
            lifetime = timedelta(seconds=15 + 2 * (time.monotonic() - start))
            replica.kill()
            load.check("a lost Secret")

            expiring = start_with_an_expiring_ca(released, stack, tmp_path, lifetime)
            released.service.select([expiring])
            assert "failed calling webhook" in api.refusal(pods, BOUND_POD)
            status, problems = expiring.get("/readyz")
            assert (status, "expired" in problems) == (503, True), problems
            before = load.created
            until(lambda: load.created > before + 20, "more GPU Pods")
            load.check("an expired CA")


def trusts(released: Release, ca: bytes) -> bool:
    """Return whether API servers trust this CA, and maybe others."""
    return all(ca in bundle for bundle in released.bundles())


def run(released: Release, stack: ExitStack) -> Replica:
    """Start a replica behind the Service, and wait until it answers."""
    replica = released.replica("--mutating-policy")
    released.start([replica], stack)
    return replica


def start_with_an_expiring_ca(
    released: Release, stack: ExitStack, directory: Path, lifetime: timedelta
) -> Replica:
    """Start a replica outside of the Service, and wait until its registered CA has expired."""
    now = datetime.now(UTC)
    ca = create_authority(now, lifetime)
    pair = issue_leaf(ca, Names.parse(["localhost"]), now)
    parts = {
        "--ca-file": ca.certificate_pem,
        "--tls-cert": pair.certificate_pem,
        "--tls-key": pair.key_pem,
    }
    flags = []
    for flag, pem in parts.items():
        file = directory / flag.strip("-")
        file.write_bytes(pem)
        flags.append(f"{flag}={file}")
    replica = released.replica("--mutating-policy", *flags)
    stack.callback(replica.stop)
    replica.start()
    replica.wait()
    until(lambda: trusts(released, ca.certificate_pem), "its CA to be registered")
    end = now + lifetime + timedelta(seconds=1)
    until(lambda: datetime.now(UTC) > end, "its CA to expire", within=lifetime.total_seconds() + 60)
    return replica
