"""What a remediation says, applied literally, is accepted by a real API server (dry run)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cases.loading import Case, cases_of_check
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from policies.finding import Finding
from policies.kubernetes.editor import clone
from policies.registry import CHECKS
from remedies import remedies

JSON = dict[str, Any]

PATHS = {
    ("v1", "Pod"): "/api/v1/namespaces/{}/pods",
    ("apps/v1", "DaemonSet"): "/apis/apps/v1/namespaces/{}/daemonsets",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/{}/deployments",
    ("apps/v1", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets",
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/{}/jobs",
}


def test_an_object_that_follows_a_remediation_is_accepted(
    control_plane: ControlPlane, namespace: str
) -> None:
    outcomes: Counter[str] = Counter()
    for case, finding, kind, followed in _remedies():
        path = PATHS[followed["apiVersion"], followed["kind"]].format(namespace)
        before, after = (_refusal(control_plane, path, obj) for obj in (case.object, followed))
        if not after:
            outcomes[f"{kind}: accepted"] += 1
        elif after == before:
            outcomes[f"{kind}: the case is rejected for another reason"] += 1
        else:
            raise AssertionError(f"{case} ({kind}): {finding.remediation}: {after}")
    print(dict(sorted(outcomes.items())))
    accepted = sum(count for outcome, count in outcomes.items() if outcome.endswith("accepted"))
    assert accepted > 100, outcomes


def _remedies() -> Iterator[tuple[Case, Finding, str, JSON]]:
    for check in CHECKS:
        for case in cases_of_check(check.id):
            obj = case.object
            if case.passes or case.is_update or (obj["apiVersion"], obj["kind"]) not in PATHS:
                continue
            for finding in case.decide().findings:
                for kind, followed in remedies(obj, finding):
                    yield case, finding, kind, followed


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
