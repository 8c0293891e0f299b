"""A controller and replicas on nodes whose clocks are wrong, next to one whose clock is right."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.webhooks import wait_until_called
from release.load import Load
from release.release import CA, WEBHOOKS, release
from release.wrong_clock import shift

# More than the lifetime of a serving certificate: whatever is issued is invalid by this clock.
YEARS = timedelta(days=800)
FLAGS = ("--ca-propagation-delay", "2s", "--ca-overlap", "3s")


@pytest.mark.slow("waits for renewals")
def test_replicas_with_wrong_clocks_serve_each_new_certificate(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    with release(control_plane, tmp_path) as released, ExitStack() as stack:
        controller = released.controller(*FLAGS, enter=partial(shift, -YEARS))
        stack.callback(controller.kill)
        controller.start()
        stack.enter_context(released.mounted())
        until(released.volume.file("tls.crt").exists, "the serving certificate")
        now = datetime.now(UTC)
        issued = x509.load_pem_x509_certificate(released.secret()["tls.crt"])
        assert issued.not_valid_before_utc < now < issued.not_valid_after_utc
        clocks = (partial(shift, -YEARS), partial(shift, YEARS), None)
        replicas = [released.replica(enter=clock) for clock in clocks]
        released.start(replicas, stack)
        wait_until_called(released.cluster)
        with Load(released.cluster.api, namespace) as load:
            before = released.secret()["ca.crt"]
            released.delete_secret(CA)
            until(lambda: released.secret()["ca.crt"] != before, "the next CA to sign")
            after = released.secret()["ca.crt"]
            until(lambda: released.bundles() == [after] * WEBHOOKS, "the bundle to follow")
            new = x509.load_pem_x509_certificate(released.secret()["tls.crt"])
            until(lambda: [each.certificate(after) for each in replicas] == [new] * 3, "the pair")
        load.check("a rotation with wrong clocks")
        assert [each.get("/readyz") for each in replicas] == [(200, "ok\n")] * 3
