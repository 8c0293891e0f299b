"""Replicas on nodes whose clocks are wrong, next to one whose clock is right."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.webhooks import wait_until_called
from release.load import Load
from release.release import WEBHOOKS, release

# More than the lifetime of a serving certificate: whatever is issued is invalid by this clock.
YEARS = timedelta(days=800)
FLAGS = ("--ca-propagation-delay", "2s", "--ca-overlap", "3s")


def test_replicas_with_wrong_clocks_serve_each_new_certificate(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    with release(control_plane, tmp_path) as released, ExitStack() as stack:
        behind = released.replica(*FLAGS, clock_ahead=-YEARS)
        released.start([behind], stack)
        wait_until_called(released.cluster)
        issued = behind.certificate(released.secret()["ca.crt"])
        now = datetime.now(UTC)
        assert issued.not_valid_before_utc < now < issued.not_valid_after_utc

        others = [released.replica(*FLAGS, clock_ahead=YEARS), released.replica(*FLAGS)]
        released.start(others, stack)
        replicas = [behind, *others]
        released.service.select(replicas)
        with Load(released.cluster.api, namespace) as load:
            before = released.secret()["ca.crt"]
            released.run("certs", "rotate", "--namespace", released.namespace)
            until(lambda: released.secret()["ca.crt"] != before, "the next CA to sign")
            until(lambda: "old-ca.crt" not in released.secret(), "the retired CA to go")
            after = released.secret()["ca.crt"]
            until(lambda: released.bundles() == [after] * WEBHOOKS, "the bundle to follow")
            for _ in load.seconds(2):
                pass
            new = x509.load_pem_x509_certificate(released.secret()["tls.crt"])
            assert [each.certificate(after) for each in replicas] == [new] * 3
        load.check("a rotation with wrong clocks")
        assert [each.get("/readyz") for each in replicas] == [(200, "ok\n")] * 3
