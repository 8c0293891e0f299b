"""What a remediation says, applied literally, is accepted by a real API server (dry run)."""

from __future__ import annotations

import pytest

from cases.loading import cases_of_check
from controlplane.cluster import ControlPlane
from laws.test_remediation_laws import POLICY_AT_FAULT
from policies.registry import CHECKS
from remediations import Trial

OF_NO_AUTHOR = {"pool-trespass/fail/a-forged-static-pod"}
"""Attacks: only a kubelet creates such a Pod."""


@pytest.mark.slow("creates the object of every case")
def test_an_object_that_follows_its_remediations_is_accepted(
    control_plane: ControlPlane, namespace: str
) -> None:
    trial = Trial(control_plane, namespace)
    for case in (case for check in CHECKS for case in cases_of_check(check.id)):
        if not (case.passes or case.is_update or str(case) in OF_NO_AUTHOR | POLICY_AT_FAULT):
            trial.follow(str(case), case.object, case.decide)
    print(*trial.report(), sep="\n")
    assert not trial.wrong, trial.wrong
    assert trial.outcomes["accepted"] > 400, trial.outcomes
