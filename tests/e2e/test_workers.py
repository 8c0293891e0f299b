"""A replica of several workers on a real cluster: one speaks to it, and all serve what it keeps."""

from __future__ import annotations

from pathlib import Path

from controlplane.cluster import ControlPlane
from controlplane.objects import node
from controlplane.poll import until
from release.release import release
from release.replica import Replica

GPU = "nvidia.com/gpu"
WORKERS = (0, 1)


def by_worker(replica: Replica, name: str, labels: str = "") -> list[float]:
    return [replica.metric(f'{name}{{{labels}worker="{worker}"}}') for worker in WORKERS]


def test_one_worker_registers_and_counts_the_estate_and_all_serve_the_secrets_certificate(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    flags = ("--workers", str(len(WORKERS)), "--estate-metrics")
    with (
        control_plane.nodes(node("gpu", resources={GPU: "8"})),
        release(control_plane, tmp_path) as made,
        made.replicas(1, *flags) as [replica],
    ):
        assert len(made.configurations()) == 2
        assert by_worker(replica, "gpufence_leader") == [1, 0]
        writes = 'kind="MutatingWebhookConfiguration",reason="created",'
        assert by_worker(replica, "gpufence_registration_writes_total", writes) == [1, 0]

        offered, of_gpus = "gpufence_pool_devices_allocatable", f'pool="nvidia",resource="{GPU}",'
        until(lambda: by_worker(replica, offered, of_gpus) == [8, 0], "the node's devices, once")

        expiries = by_worker(replica, "gpufence_certificate_expiry_timestamp_seconds")
        assert min(expiries) == max(expiries) > 0
        assert (
            sum(by_worker(replica, "gpufence_certificate_changes_total", 'change="create",')) == 1
        )
