"""A replica on a node whose clock is wrong, next to one whose clock is right."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.webhooks import wait_until_called
from release.load import Load
from release.release import WEBHOOKS, release

# More than the lifetime of a serving certificate: whatever is issued is invalid by this clock.
YEARS = timedelta(days=800)
FLAGS = ("--ca-propagation-delay", "2s", "--ca-overlap", "3s")


@pytest.mark.parametrize("ahead", [-YEARS, YEARS], ids=["behind", "ahead"])
def test_a_replica_with_a_wrong_clock_serves_each_new_certificate(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, ahead: timedelta
) -> None:
    with release(control_plane, tmp_path) as released, ExitStack() as stack:
        wrong = released.replica(*FLAGS, clock_ahead=ahead)
        released.start([wrong], stack)
        wait_until_called(released.cluster)
        issued = wrong.certificate(released.secret()["ca.crt"])
        now = datetime.now(UTC)
        assert issued.not_valid_before_utc < now < issued.not_valid_after_utc

        right = released.replica(*FLAGS)
        right.start()
        stack.callback(right.stop)
        right.wait()
        released.service.select([wrong, right])
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
            assert [each.certificate(after) for each in (wrong, right)] == [new, new]
        assert load.failures == []
        assert load.created > 20
        assert [wrong.get("/readyz"), right.get("/readyz")] == [(200, "ok\n")] * 2
