"""The requirements of pools on a real API server, in its own policies and without any webhook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from cases.loading import Case, cases_of_check, compiled, policy_spec
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from in_tree import SETUP_USER, InTree, in_tree, path_of

COMPILED = ("labels", "number-of-devices", "priority")
CASES = {
    case.name: case
    for case in cases_of_check("pool-requirements")
    if case.manifest.stem in COMPILED and path_of(case.object, "default")
}


@pytest.fixture(scope="module")
def line(control_plane: ControlPlane) -> Iterator[InTree]:
    for name in ("low", "middle", "high"):
        with suppress(ApiError):
            priority = {"metadata": {"name": name}, "value": 1}
            path = "/apis/scheduling.k8s.io/v1/priorityclasses"
            control_plane.api.request("POST", path, priority)
    with in_tree(control_plane, compiled(policy_spec("requirements"))) as line:
        yield line


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_api_server_denies_what_the_engine_denies_with_its_text(
    line: InTree, case: Case
) -> None:
    outcome = line.create(case.object)
    findings = case.decide().findings
    assert outcome.verdict == ("accepted" if case.passes else "denied"), outcome.message
    for finding in findings:
        assert f"pool-requirements: {finding.message}" in outcome.message
    print(f"\n{case.name}: {outcome.message or 'accepted'}")


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("a-pod-without-the-labels", "accepted"), ("a-pod-with-the-labels", "denied")],
)
def test_an_update_may_keep_what_was_missing_and_remove_nothing(
    line: InTree, name: str, verdict: str
) -> None:
    pod = CASES[name].object
    path = path_of(pod, "default")
    stored = line.api(SETUP_USER).request("POST", str(path), pod)
    try:
        # The scheduler may have changed its status.
        del stored["metadata"]["resourceVersion"]
        stored["metadata"]["labels"] = {}
        assert line.update(stored).verdict == verdict
    finally:
        line.api(SETUP_USER).request("DELETE", f"{path}/{name}?gracePeriodSeconds=0")
