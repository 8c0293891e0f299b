"""What remediations say and mutations make is accepted by a real API server (dry run)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from cases.loading import Case, cases_of_check, cases_of_mutation
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.versions import CLAIMS
from in_tree import path_of
from policies.kubernetes.editor import clone
from policies.kubernetes.objects import MalformedObjectError
from policies.registry import CHECKS, MUTATIONS
from remedies import FORMS, follow
from specs import JSON


class Trial:
    """Follows remediations, and counts the outcomes."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self.outcomes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        """The remedies that were applied, by kind."""
        self.wrong: list[str] = []
        self._found: dict[str, set[str]] = {}
        """By what was sent, why the API server rejects it: many cases lead to the same object."""

    def follow(self, case: Case) -> None:
        """Follow the remediations of an object, each on its own and then those of the rest."""
        try:
            for followed in follow(case):
                self.kinds.update(followed.kinds)
                self.change(f"{case}: {followed.kinds}", case.object, followed.object)
        except (AssertionError, MalformedObjectError) as error:
            self.outcomes["denied again"] += 1
            self.wrong.append(f"{case}: {error}")

    def change(self, name: str, before: JSON, after: JSON) -> None:
        """Create the changed object, and count what the API server makes of it."""
        path = path_of(before, self._namespace)
        outcome, problem = "kind is not served", ""
        if path is not None:
            outcome, problem = self._create(path, before, after)
        self.outcomes[outcome] += 1
        if problem:
            self.wrong.append(f"{name}: {problem}")

    def _create(self, path: str, before: JSON, after: JSON) -> tuple[str, str]:
        """Return the outcome, and what the API server rejects because of the changes."""
        problems = self._problems(path, after)
        if not problems:
            return "accepted", ""
        if new := problems - self._problems(path, before):
            return "rejected", "; ".join(sorted(new))
        return "rejected for another reason, as before", ""

    def _problems(self, path: str, obj: JSON) -> set[str]:
        """Return why the API server rejects a new object with this content."""
        sent = clone(obj)
        metadata = sent.get("metadata") or {}
        kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
        sent["metadata"] = {"name": "followed", **kept}
        (sent.get("spec") or {}).pop("ephemeralContainers", None)
        what = f"{path} {sent}"
        if what not in self._found:
            self._found[what] = self._rejected(path, sent)
        return self._found[what]

    def _rejected(self, path: str, obj: JSON) -> set[str]:
        url = f"{path}?dryRun=All&fieldValidation=Strict"
        try:
            self._cluster.api.request("POST", url, obj)
        except ApiError as error:
            causes = (error.body.get("details") or {}).get("causes") or ()
            return {f"{c.get('field')}: {c.get('message')}" for c in causes} or {str(error)}
        return set()

    def report(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield from (f"{count:4} {name}" for name, count in self.kinds.most_common())
        yield from (f"{name}: {count}" for name, count in sorted(self.outcomes.items()))
        yield from (f"WRONG {each}" for each in self.wrong)


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
