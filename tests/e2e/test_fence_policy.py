"""FencePolicy as an object of a real API server: what its definition accepts, and who reads it."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases.loading import HERE
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.objects import TOLERATION, pod
from controlplane.policies import DEFINITION, PATH, define, use, used
from controlplane.poll import until
from paths import PROJECT
from policies.shipped import DEFAULT, PRESETS
from release.release import release
from specs import default_spec, fence_policy

JSON = dict[str, Any]

FILES = [
    DEFAULT,
    *sorted(PRESETS.glob("*.yaml")),
    *sorted((HERE / "policies").glob("*.yaml")),
    *sorted((PROJECT / "docs" / "examples" / "suites").glob("*policy.yaml")),
]


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    define(control_plane)
    return control_plane


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
    with pytest.raises(ApiError) as caught:
        cluster.api.request("POST", path, fence_policy(spec))
    assert caught.value.status in (400, 422)
    assert "spec" in str(caught.value)


def test_replicas_and_controller_follow_the_object(cluster: ControlPlane, tmp_path: Path) -> None:
    """Prints how soon a change counts, what kubectl shows, and what an invalid policy says."""
    api, kubectl = cluster.api, cluster.kubectl
    pods = f"/api/v1/namespaces/{cluster.create_namespace('follow-')}/pods"
    with release(cluster, tmp_path) as released, released.replicas(1) as running:
        [replica] = running.replicas

        def accepted(generation: int) -> str:
            status = api.request("GET", f"{PATH}/gpufence").get("status", {})
            [value] = [
                each["status"]
                for each in status.get("conditions", ())
                if each["type"] == "Accepted" and each["observedGeneration"] == generation
            ] or [""]
            return str(value)

        until(lambda: accepted(1) == "True", "the status")
        trespasser = pod()
        trespasser["spec"]["tolerations"] = [TOLERATION]
        assert "pool-trespass" in api.refusal(pods, trespasser)
        began = time.monotonic()
        patch = json.dumps({"spec": {"mode": "audit"}})
        kubectl("patch", "fencepolicy", "gpufence", "--type", "merge", "-p", patch)
        until(lambda: not api.refusal(pods, trespasser), "the trespasser to be admitted")
        print(f"\nmode audit counts after {time.monotonic() - began:.2f} s")
        began = time.monotonic()
        patch = json.dumps({"spec": {"mode": "enforce"}})
        kubectl("patch", "fencepolicy", "gpufence", "--type", "merge", "-p", patch)
        until(lambda: api.refusal(pods, trespasser), "the trespasser to be denied")
        print(f"mode enforce counts after {time.monotonic() - began:.2f} s")

        twin = default_spec()["pools"][0] | {"name": "twin"}
        use(api, default_spec() | {"pools": [*default_spec()["pools"], twin]})
        until(lambda: accepted(4) == "False", "the status of an invalid policy")
        assert "pool-trespass" in api.refusal(pods, trespasser)
        assert replica.get("/readyz")[1].startswith("ok\npolicy: FencePolicy gpufence: spec: has")
        use(api, default_spec())
        until(lambda: accepted(5) == "True", "the status of the cure")
        print(kubectl("get", "fencepolicy").stdout)
        print(kubectl("get", "fencepolicy", "gpufence", "-o", "jsonpath={.status}").stdout)


def test_a_replica_without_a_policy_is_not_ready_and_says_why(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--fence-policy", "late"]
    server = Server(tmp_path, flags)
    server.start()
    try:
        missing = "no valid policy: the cluster has no FencePolicy late: create it with kubectl"
        until(lambda: missing in server.unready(), "the reason")
        assert server.get("/healthz")[0] == 200
        with used(cluster, default_spec(), "late"):
            server.wait()
    finally:
        server.stop()
