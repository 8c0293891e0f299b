"""The simulated fleet, audited: what the pictures and the measurements are of."""

from __future__ import annotations

from pathlib import Path

from audit.simulated import Cluster


async def test_the_simulated_fleet_has_trespassers_and_every_verdict(tmp_path: Path) -> None:
    cluster = Cluster()
    await cluster.api.start()
    try:
        assert cluster.fill(20, 6, 100) == 100
        audit = await cluster.audit(tmp_path)
    finally:
        await cluster.api.stop()
    [pool] = audit.pools
    assert audit.pods == 100
    assert pool.allocatable == 6 * 8
    assert pool.waiting == 3 * 8
    assert pool.trespassers == 4
    assert {each.name for each in audit.nodes} == {"gpu-1", "gpu-2"}
    verdicts = {each.decision.verdict for each in audit.subjects}
    assert verdicts == {"allowed", "mutated", "denied"}
