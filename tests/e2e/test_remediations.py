"""What a remediation says, applied literally, is accepted by a real API server (dry run)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cases.loading import Case, cases_of_check
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from policies.kubernetes.editor import clone
from policies.registry import CHECKS
from remedies import remedies

JSON = dict[str, Any]
MOST_STEPS = 20
OF_NO_AUTHOR = {"pool-trespass/fail/a-forged-static-pod"}
"""Attacks: only a kubelet creates such a Pod."""

PATHS = {
    ("v1", "Pod"): "/api/v1/namespaces/{}/pods",
    ("apps/v1", "DaemonSet"): "/apis/apps/v1/namespaces/{}/daemonsets",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/{}/deployments",
    ("apps/v1", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets",
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/{}/jobs",
}


def test_an_object_that_follows_its_remediations_is_accepted(
    control_plane: ControlPlane, namespace: str
) -> None:
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for check in CHECKS:
        for case in cases_of_check(check.id):
            kind = case.object["apiVersion"], case.object["kind"]
            if case.passes or case.is_update or kind not in PATHS:
                continue
            followed, said = _followed(case)
            if not said:
                outcomes["nothing to apply"] += 1
                continue
            path = PATHS[kind].format(namespace)
            refusal = _refusal(control_plane, path, followed)
            if not refusal:
                outcomes["accepted"] += 1
                outcomes["remedies applied"] += len(said)
            elif refusal == _refusal(control_plane, path, case.object):
                outcomes["rejected for another reason, as before"] += 1
            elif str(case) not in OF_NO_AUTHOR:
                wrong.append(f"{case}: {said}: {refusal}")
    print(dict(sorted(outcomes.items())))
    assert not wrong, wrong
    assert outcomes["accepted"] > 100, outcomes


def _followed(case: Case) -> tuple[JSON, list[str]]:
    """Return the object after what the remediations say, one after the other, and these."""
    obj, said = case.object, []
    for _ in range(MOST_STEPS):
        findings = case.decide(obj).findings
        step = next((each for finding in findings for each in remedies(obj, finding)), None)
        if step is None:
            break
        kind, obj = step
        said.append(kind)
    return obj, said


def _refusal(control_plane: ControlPlane, path: str, obj: JSON) -> str:
    """Return why the API server rejects a new object with this content; empty if it does not."""
    sent = clone(obj)
    sent["metadata"] = {
        "name": "followed",
        **{k: v for k, v in sent.get("metadata", {}).items() if k in ("labels", "annotations")},
    }
    sent.get("spec", {}).pop("ephemeralContainers", None)
    try:
        control_plane.api.request("POST", f"{path}?dryRun=All", sent)
    except ApiError as error:
        return str(error)
    return ""
