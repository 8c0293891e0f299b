"""FencePolicy as an object of a real API server: what its definition accepts, and who reads it."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases.loading import HERE
from controlplane.api import Api
from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.objects import TOLERATION, pod
from controlplane.policies import DEFINITION, PATH, define, use, used
from controlplane.poll import until
from controlplane.webhooks import ADMISSION, calls
from each import each
from paths import PROJECT
from policies.document import PolicyError
from policies.shipped import DEFAULT, PRESETS
from release.release import release
from specs import JSON, default_spec, fence_policy, policy_of

FILES = [
    DEFAULT,
    *sorted(PRESETS.glob("*.yaml")),
    *sorted((HERE / "policies").glob("*.yaml")),
    *sorted((PROJECT / "tests" / "released").glob("*.yaml")),
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


def test_the_api_server_stores_each_policy_as_it_is_written(cluster: ControlPlane) -> None:
    files = [part for path in FILES for part in ("-f", str(path))]
    applied = cluster.kubectl.json("apply", "--dry-run=server", *files)["items"]

    def is_stored(case: tuple[Path, JSON]) -> None:
        path, stored = case
        written = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
        assert stored["spec"] == written["spec"]

    each(zip(FILES, applied, strict=True), is_stored)


def _with(change: Any) -> JSON:
    spec = copy.deepcopy(default_spec())
    change(spec)
    return spec


ACCEPTED = {
    "an unquoted off": _with(lambda spec: spec["rules"].update({"device-leak": False})),
    "no user": _with(lambda spec: spec["hardening"].update(runAsUser="none", version="v1.30")),
    "an amount as a number": _with(
        lambda spec: spec["pools"][0].update(requires=[{"maxCPUPerDevice": 16}])
    ),
}


def test_the_api_server_accepts_what_gpufence_accepts(cluster: ControlPlane) -> None:
    def is_accepted(name: str) -> None:
        spec = ACCEPTED[name]
        created = cluster.api.request("POST", f"{PATH}?dryRun=All", fence_policy(spec))
        assert created["spec"] == spec

    each(ACCEPTED, is_accepted)


UNKNOWN = {
    "an unknown rule": _with(lambda spec: spec["rules"].update({"device-leek": "warn"})),
    "an unknown field": _with(lambda spec: spec["pools"][0].update(taint=[])),
    "an override without settings": _with(
        lambda spec: spec.update(overrides=[{"namespaces": ["a"], "rule": {"device-leak": "off"}}])
    ),
    "a pool twice": _with(lambda spec: spec["pools"].append(spec["pools"][0])),
}
"""What a schema cannot say, or say well."""
INVALID = UNKNOWN | {
    "no pools": _with(lambda spec: spec.pop("pools")),
    "an empty list of pools": _with(lambda spec: spec["pools"].clear()),
    "too many pools": _with(lambda spec: spec.update(pools=spec["pools"] * 101)),
    "a group of Kubernetes": _with(
        lambda spec: spec.update(customWorkloads=[{"group": "x.k8s.io", "resources": ["jobs"]}])
    ),
    "an unknown mode": _with(lambda spec: spec.update(mode="deny")),
    "an unknown action": _with(lambda spec: spec["rules"].update({"device-leak": "deny"})),
    "a pool without devices": _with(
        lambda spec: spec["pools"][0].update(
            resource=spec["pools"][0].pop("resources"), deviceClasses=[]
        )
    ),
    "namespaces without names": _with(
        lambda spec: spec["pools"][0].update(allowedNamespaces={"unknown": "deny"})
    ),
    "an empty requirement": _with(lambda spec: spec["pools"][0].update(requires=[{}])),
    "an unknown effect": _with(
        lambda spec: spec["pools"][0].update(taints=[{"key": "a", "effect": "no"}])
    ),
    "a word for a user": _with(lambda spec: spec["hardening"].update(runAsUser="root")),
    "root": _with(lambda spec: spec["hardening"].update(runAsUser=0)),
    "an unknown version": _with(lambda spec: spec["hardening"].update(version="v1.99")),
    "a number as a label": _with(lambda spec: spec["pools"][0]["nodeSelector"].update(a=1)),
    "a name with a space": _with(lambda spec: spec["pools"][0].update(name="a b")),
    "two errors": _with(lambda spec: spec.update(mode="deny", failurePolicy="fail")),
}


def test_without_a_replica_the_schema_rejects_wrong_values(cluster: ControlPlane) -> None:
    refused = {
        name: cluster.api.refusal(f"{PATH}", fence_policy(spec)) for name, spec in INVALID.items()
    }
    assert {name for name, text in refused.items() if "spec" not in text} == {*UNKNOWN}, refused
    assert not [name for name, text in refused.items() if "must validate" in text], refused
    for name, cure in (
        ("a pool without devices", "set resources or deviceClasses"),
        ("namespaces without names", "set names, matchLabels or matchExpressions"),
        ("a group of Kubernetes", "set sparkoperator.k8s.io or a value without "),
        ("an empty requirement", "set labels, maxRuntime, queue, "),
    ):
        assert cure in refused[name], refused[name]


def written_policies(api: Api) -> list[str]:
    """Return the admission policies. Their bindings stay: they have no effect without."""
    kind = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    names = [each["metadata"]["name"] for each in api.request("GET", kind)["items"]]
    return [name for name in names if name.startswith("gpufence-")]


@pytest.mark.slow("waits for replicas, controller and API server after each change")
def test_replicas_and_controller_follow_the_object(cluster: ControlPlane, tmp_path: Path) -> None:
    """Prints how soon a change counts, and what an invalid policy says."""
    api = cluster.api
    pods = f"/api/v1/namespaces/{cluster.create_namespace('follow-')}/pods"
    gpu_pod, trespasser = pod({"nvidia.com/gpu": 1}), pod()
    trespasser["spec"]["tolerations"] = [TOLERATION]
    refusals: set[str] = set()
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

        def is_in_force(enforces: bool) -> bool:
            """Return whether API servers follow the mode. They always create a GPU Pod."""
            refusal = api.refusal(pods, gpu_pod)
            # The replica may change the policy between its two reviews of one Pod.
            refusals.add(
                api.refusal(pods, gpu_pod) if "Send the request again" in refusal else refusal
            )
            refusal = api.refusal(pods, trespasser)
            return "'gpufence-pool-trespass'" in refusal if enforces else not refusal

        def is_observed() -> bool:
            return calls(api.text("/metrics"))["admit", "pods-observed.gpufence.dev"] > observed

        def patch(part: JSON) -> None:
            api.request("PATCH", f"{PATH}/gpufence", part, "application/merge-patch+json")

        def use_mode(mode: str) -> None:
            patch({"spec": {"mode": mode}})
            began, enforces = time.monotonic(), mode == "enforce"
            parts: dict[str, Callable[[], bool]] = {
                "the API server": lambda: is_in_force(enforces),
                "the admission policies": lambda: bool(written_policies(api)) is enforces,
                "the replica": lambda: (
                    replica.metric("gpufence_policy_generation")
                    == api.request("GET", f"{PATH}/gpufence")["metadata"]["generation"]
                ),
            }
            for part, is_reached in parts.items():
                until(is_reached, part, every=0.02)
                print(f"\nmode {mode} reached {part} after {time.monotonic() - began:.2f} s")

        until(lambda: accepted(1) == "True", "the status")
        assert "pool-trespass" in api.refusal(pods, trespasser)
        observed = calls(api.text("/metrics"))["admit", "pods-observed.gpufence.dev"]
        use_mode("audit")
        until(lambda: is_in_force(False) and is_observed(), "the API server to follow mode audit")
        use_mode("enforce")
        assert refusals == {""}

        for name, spec in INVALID.items():
            with pytest.raises(PolicyError) as caught:
                policy_of(spec)
            refused = api.refusal(PATH, fence_policy(spec, "broken"))
            assert all(problem in refused for problem in caught.value.problems), (name, refused)
        print(refused)
        patch({"metadata": {"annotations": {"owner": "team"}}})

        # What is stored while API servers do not call replicas changes nothing.
        running.controller.stop()
        api.request("DELETE", f"{ADMISSION}/mutatingwebhookconfigurations/gpufence")
        invalid = UNKNOWN["a pool twice"]
        until(lambda: not api.refusal(PATH, fence_policy(invalid, "broken")), "it to be forgotten")
        use(api, invalid)
        until(lambda: replica.metric("gpufence_policy_stale"), "the replica to see it")
        assert "pool-trespass" in api.refusal(pods, trespasser)
        assert replica.get("/readyz")[1].startswith("ok\npolicy: FencePolicy gpufence: spec: has")
        running.controller.start()
        until(lambda: accepted(4) == "False", "the status of an invalid policy")
        use(api, default_spec())
        until(lambda: accepted(5) == "True", "the status of the cure")


def test_a_replica_without_a_policy_is_not_ready_and_says_why(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--fence-policy", "late"]
    server = Server(tmp_path, flags)
    server.start()
    try:
        missing = "no policy: the cluster has no FencePolicy late: create it with kubectl"
        until(lambda: missing in server.unready(), "the reason")
        assert server.get("/healthz")[0] == 200
        with used(cluster, default_spec(), "late"):
            server.wait()
    finally:
        server.stop()
