"""FencePolicy as an object of a real API server: what its definition accepts, and who reads it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases.loading import HERE
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from paths import CHART, PROJECT
from policies.document import API_VERSION
from policies.shipped import DEFAULT, PRESETS
from specs import default_spec, fence_policy

JSON = dict[str, Any]

PATH = f"/apis/{API_VERSION}/fencepolicies"
DEFINITION: JSON = yaml.safe_load((CHART / "crds" / "fencepolicies.yaml").read_text())
FILES = [
    DEFAULT,
    *sorted(PRESETS.glob("*.yaml")),
    *sorted((HERE / "policies").glob("*.yaml")),
    *sorted((PROJECT / "docs" / "examples" / "suites").glob("*policy.yaml")),
]


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with control_plane.defined(DEFINITION):
        yield control_plane


def test_the_definition_is_structural_and_established(cluster: ControlPlane) -> None:
    def conditions() -> dict[str, str]:
        crd = cluster.kubectl.json("get", "crd", DEFINITION["metadata"]["name"])
        return {each["type"]: each["status"] for each in crd["status"]["conditions"]}

    until(lambda: conditions().get("Established") == "True", "the definition")
    assert "NonStructuralSchema" not in conditions()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_api_server_stores_each_policy_as_it_is_written(
    cluster: ControlPlane, path: Path
) -> None:
    kubectl = cluster.kubectl
    applied = kubectl("apply", "--dry-run=server", "-o", "json", "-f", str(path)).stdout
    written = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
    assert json.loads(applied)["spec"] == written["spec"]


def _with(change: Any) -> JSON:
    spec = copy.deepcopy(default_spec())
    change(spec)
    return spec


ACCEPTED = {
    "an unquoted off": _with(lambda spec: spec["rules"].update({"device-leak": False})),
    "no user": _with(lambda spec: spec["hardening"].update(runAsUser="none")),
    "an amount as a number": _with(
        lambda spec: spec["pools"][0].update(requires=[{"maxCPUPerDevice": 16}])
    ),
}


@pytest.mark.parametrize("spec", ACCEPTED.values(), ids=ACCEPTED)
def test_the_api_server_accepts_what_gpufence_accepts(cluster: ControlPlane, spec: JSON) -> None:
    created = cluster.api.request("POST", f"{PATH}?dryRun=All", fence_policy(spec))
    assert created["spec"] == spec


REJECTED = {
    "no pools": _with(lambda spec: spec.pop("pools")),
    "an empty list of pools": _with(lambda spec: spec["pools"].clear()),
    "an unknown mode": _with(lambda spec: spec.update(mode="deny")),
    "an unknown action": _with(lambda spec: spec["rules"].update({"device-leak": "deny"})),
    "an unknown rule": _with(lambda spec: spec["rules"].update({"device-leek": "warn"})),
    "an unknown field": _with(lambda spec: spec["pools"][0].update(taint=[])),
    "a pool without labels": _with(lambda spec: spec["pools"][0].pop("nodeSelector")),
    "a pool without devices": _with(
        lambda spec: spec["pools"][0].update(resources=[], deviceClasses=[])
    ),
    "an unknown effect": _with(
        lambda spec: spec["pools"][0].update(taints=[{"key": "a", "effect": "no"}])
    ),
    "a word for a user": _with(lambda spec: spec["hardening"].update(runAsUser="root")),
    "root": _with(lambda spec: spec["hardening"].update(runAsUser=0)),
    "a number as a label": _with(lambda spec: spec["pools"][0]["nodeSelector"].update(a=1)),
    "a name with a space": _with(lambda spec: spec["pools"][0].update(name="a b")),
}


@pytest.mark.parametrize("spec", REJECTED.values(), ids=REJECTED)
def test_the_api_server_rejects_obvious_errors(cluster: ControlPlane, spec: JSON) -> None:
    path = f"{PATH}?dryRun=All&fieldValidation=Strict"
    assert cluster.api.refusal(path, fence_policy(spec))
