"""A replica that starts before the API server does."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from release.release import release


def test_a_replica_is_alive_and_unready_until_the_api_server_starts(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with release(control_plane, tmp_path) as released, ExitStack() as stack:
        replica = released.replica()
        stack.callback(replica.stop)
        control_plane.apiserver.kill()
        try:
            replica.start()
            until(lambda: "out of reach" in replica.unready(), "the replica to say what it lacks")
            assert replica.get("/healthz") == (200, "ok\n")
            status, text = replica.get("/readyz")
        finally:
            control_plane.start_apiserver()
            control_plane.start_clients()
        assert status == 503
        assert text.startswith("starting\ncertificates: the API server at https://127.0.0.1:")
        replica.wait()
        until(lambda: len(released.configurations()) == 2, "the replica to register")
