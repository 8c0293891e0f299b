"""GPU Pods that the API server mutates, while replicas restart and their certificates are bad."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs.authority import create_authority, issue_leaf
from certs.keypair import Names
from certs.secret import serving_data
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Replica
from controlplane.poll import until
from controlplane.versions import MUTATING_POLICIES
from release.load import GPU_POD, Load
from release.release import CA, SERVING, Release, release
from release.volume import Volume

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
        running = stack.enter_context(released.replicas(1, controller=["--mutating-policy"]))
        until(released.mutates, "the policy that mutates")
        running.replicas[0].kill()
        until(lambda: not api.refusal(pods, GPU_POD), "the API server to mutate")
        with Load(api, namespace) as load:
            for _ in range(2):
                run(released, stack).kill()
            load.check("two restarts")

            lost = released.secret(CA)["ca.crt"]
            for name in (CA, SERVING):
                released.cluster.kubectl("delete", "secret", name, "-n", released.namespace)
            until(lambda: CA in released.secrets(), "another CA")
            trusted = released.secret(CA)["ca.crt"]
            assert trusted != lost
            until(lambda: trusts(released, trusted), "the new CA to be trusted")
            run(released, stack).kill()
            load.check("lost Secrets")

            expiring = start_with_an_expired_certificate(released, stack, tmp_path)
            released.service.select([expiring])
            assert "failed calling webhook" in api.refusal(pods, BOUND_POD)
            status, problems = expiring.get("/readyz")
            assert (status, "expired" in problems) == (503, True), problems
            before = load.created
            until(lambda: load.created > before + 20, "more GPU Pods")
            load.check("an expired certificate")


def trusts(released: Release, ca: bytes) -> bool:
    """Return whether API servers trust this CA, and maybe others."""
    return all(ca in bundle for bundle in released.bundles())


def run(released: Release, stack: ExitStack) -> Replica:
    """Start a replica behind the Service, and wait until it answers."""
    replica = released.replica()
    released.start([replica], stack)
    return replica


def start_with_an_expired_certificate(
    released: Release, stack: ExitStack, directory: Path
) -> Replica:
    """Start a replica outside of the Service."""
    past = datetime.now(UTC) - timedelta(days=30)
    ca = create_authority(past, timedelta(days=60))
    pair = issue_leaf(ca, Names.parse(["localhost"]), past, timedelta(days=1))
    volume = Volume(directory / "expired")
    volume.write(serving_data(pair, ca))
    replica = released.replica(volume=volume)
    stack.callback(replica.stop)
    replica.start()
    until(lambda: "expired" in replica.unready(), "the replica to say that it has expired")
    return replica
