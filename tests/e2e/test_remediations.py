"""What remediations say and mutations make is accepted by a real API server (dry run)."""

from __future__ import annotations

import pytest

from cases.loading import cases_of_check, cases_of_mutation
from controlplane.cluster import ControlPlane
from controlplane.versions import CLAIMS
from policies.registry import CHECKS, MUTATIONS
from remediations import Trial
from remedies import FORMS

LEFT_OUT = {
    # Only a kubelet creates such a Pod.
    "pool-trespass/fail/a-forged-static-pod",
    # unequal-device-limits says to remove the negative number.
    "pool-trespass/fail/a-toleration-and-a-negative-number-of-devices",
    # Without node affinity, the toleration that gpufence adds opens another pool as well.
    "pool-trespass/fail/the-toleration-of-another-tenants-model",
}


@CLAIMS
@pytest.mark.slow("creates the object of every case")
def test_an_object_that_follows_its_remediations_is_accepted(
    control_plane: ControlPlane, namespace: str
) -> None:
    trial = Trial(control_plane, namespace)
    for case in (case for check in CHECKS for case in cases_of_check(check.id)):
        if not (case.passes or case.is_update or str(case) in LEFT_OUT):
            trial.follow(case)
    print(*trial.report(), sep="\n")
    assert not trial.wrong, trial.wrong
    assert trial.outcomes["accepted"] > 400, trial.outcomes
    assert trial.kinds.keys() == {"edits", *FORMS}


def test_an_object_that_mutations_change_is_accepted_as_before(
    control_plane: ControlPlane, namespace: str
) -> None:
    trial = Trial(control_plane, namespace)
    for case in (case for mutation in MUTATIONS for case in cases_of_mutation(mutation.id)):
        # The cluster has no RuntimeClass.
        if not (case.is_update or case.rule == "gpu-runtime-class"):
            trial.change(str(case), case.object, case.decide().mutated)
    print(*trial.report(), sep="\n")
    assert not trial.wrong, trial.wrong
    assert trial.outcomes["accepted"] > 100, trial.outcomes
