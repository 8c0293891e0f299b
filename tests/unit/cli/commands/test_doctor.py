"""The doctor on manual installations, without an API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clusters import node
from fake_apiserver import NODES, FakeApiServer, FakeKubeApi
from policies.kubernetes.objects import JSONObject
from policies.shipped import DEFAULT
from specs import default_spec, fence_policy
from webhook.active_policy import PATH
from webhook.controller.text.objects import FENCE_POLICY
from webhook.registered import KINDS
from webhook.tools.cli.commands.doctor import read_arguments, read_replica
from webhook.tools.doctor import DoctorLine, checks, trials
from webhook.tools.doctor.installation import examine

SERVE = ["serve", "--tls-cert=/certs/tls.crt", "--tls-key=/certs/tls.key"]
DEPLOYMENTS = "/apis/apps/v1/namespaces/fence/deployments"
CONTROL = ["controller", "--service=fence/web"]
DAEMON_SETS = "/apis/apps/v1/daemonsets"
SIDECAR = {"name": "proxy", "command": ["proxy"], "args": ["--service=mesh/proxy", "--port=15001"]}


REPLICA, CONTROLLER = ({"name": "gpufence", "args": arguments} for arguments in (SERVE, CONTROL))


def diagnose(
    replica: JSONObject = REPLICA,
    controller: JSONObject | None = CONTROLLER,
    **options: Any,
) -> list[DoctorLine]:
    containers = None if controller is None else [controller]
    return diagnose_containers([replica], containers, **options)


def diagnose_containers(
    replica: list[JSONObject],
    controller: list[JSONObject] | None = None,
    try_in: str = "default",
) -> list[DoctorLine]:
    api = FakeKubeApi(FakeApiServer(NODES))
    for name, containers in (("gpufence", replica), ("gpufence-controller", controller)):
        if containers is not None:
            api.objects[f"{DEPLOYMENTS}/{name}"] = {
                "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}},
                "status": {"readyReplicas": 2},
            }
    return asyncio.run(diagnose_release(api, try_in))


async def diagnose_release(
    api: FakeKubeApi,
    try_in: str = "default",
    policy: str | None = str(DEFAULT),
    fence_policy: str | None = None,
) -> list[DoctorLine]:
    installed = await examine(
        api, "fence", "gpufence", policy, fence_policy, read_replica, read_arguments
    )
    tried = [line async for line in trials.check(api, installed, try_in)]
    return [*checks.diagnosis(installed), *tried]


def found(lines: list[DoctorLine], check: str) -> str:
    return next(line.detail for line in lines if line.check == check)


def test_an_unknown_address_is_reported_without_an_error(subtests: pytest.Subtests) -> None:
    for arguments in ([], ["controller", "--help"]):
        with subtests.test(arguments=arguments):
            lines = diagnose(controller={"name": "gpufence", "args": arguments})
            assert found(lines, "endpoints") == "the address of gpufence is unknown"


def test_an_installation_without_a_controller_is_no_failure() -> None:
    [line] = [line for line in diagnose(controller=None) if line.check == "controller"]
    assert line.status == "skip"
    assert line.detail.startswith("Deployment fence/gpufence-controller does not exist: others")
    assert found(diagnose(), "controller") == "it is ready"


def test_a_cluster_without_access_reviews_ends_no_other_check() -> None:
    api = FakeKubeApi(FakeApiServer(NODES))
    spec = {"template": {"spec": {"containers": [{"name": "gpufence", "args": SERVE}]}}}
    api.objects["/apis/apps/v1/namespaces/fence/deployments/gpufence"] = {"spec": spec}
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    api.server.errors[reviews] = (404, "the server could not find the requested resource")
    lines = asyncio.run(diagnose_release(api, "default"))
    [line] = [line for line in lines if line.check == "rights"]
    assert line.status == "unknown"
    assert "could not find the requested resource" in line.detail


def test_disabled_cluster_facts_fail() -> None:
    lines = diagnose({"name": "gpufence", "args": [*SERVE, "--no-node-facts"]})
    [line] = [line for line in lines if line.check == "cluster facts"]
    assert line.status == "fail"
    assert line.detail.startswith("they are off: Pods with spec.nodeName are denied")
    assert "clusterFacts: true" in line.remediation


def test_a_daemon_set_of_the_gpu_stack_that_a_taint_keeps_off_is_reported() -> None:
    server = FakeApiServer(NODES, DAEMON_SETS)
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    server.put(NODES, node("gpu-1", taints=[taint]))
    plugin = {"containers": [{"name": "c", "image": "mirror.example/k8s-device-plugin:1"}]}
    metadata = {"name": "plugin", "namespace": "gpu"}
    server.put(DAEMON_SETS, {"metadata": metadata, "spec": {"template": {"spec": plugin}}})
    lines = asyncio.run(diagnose_release(FakeKubeApi(server), "default"))
    [line] = [line for line in lines if line.check == "GPU stack"]
    assert (line.status, line.remediation[:5]) == ("warn", "Add {")
    assert line.detail.startswith("DaemonSet gpu/plugin does not tolerate nvidia.com/gpu=true")


def test_a_malformed_node_is_named_and_ends_no_other_check() -> None:
    server = FakeApiServer(NODES)
    server.put(NODES, node("gpu-1", allocatable={"nvidia.com/gpu": "lots"}))
    lines = asyncio.run(diagnose_release(FakeKubeApi(server), "default"))
    assert found(lines, "nodes").startswith("nodes gpu-1 cannot be read: ")


def test_the_arguments_are_read_from_the_gpufence_container() -> None:
    of_gpufence: list[JSONObject] = [
        {"name": "gpufence", "args": CONTROL},
        {"name": "gpufence", "command": ["python", "-m", "webhook"], "args": CONTROL},
        {"name": "webhook", "args": CONTROL},
        {"name": "webhook", "command": ["/usr/local/bin/gpufence"], "args": CONTROL},
        {"name": "webhook", "command": ["/sbin/tini", "--", "gpufence", *CONTROL]},
    ]
    pods = [each for own in of_gpufence for each in ([own], [SIDECAR, own], [own, SIDECAR])]
    ends = [found(diagnose_containers([REPLICA], each), "endpoints") for each in pods]
    known = "Service fence/web has no ready endpoint"
    assert not [pair for pair in zip(pods, ends, strict=True) if not pair[1].startswith(known)]


def test_a_deployment_without_a_container_of_gpufence_is_reported() -> None:
    line = next(each for each in diagnose_containers([SIDECAR]) if each.check == "command line")
    assert line.status == "warn"
    assert line.detail == (
        "Deployment fence/gpufence has no container named gpufence or with the command gpufence "
        "serve; its containers: proxy"
    )


def test_no_trial_runs_in_an_excluded_namespace(subtests: pytest.Subtests) -> None:
    controller = {"name": "gpufence", "args": [*CONTROL, "--exclude-namespace=storage"]}
    for try_in in ("kube-flannel", "fence", "storage"):
        with subtests.test(try_in=try_in):
            lines = diagnose(controller=controller, try_in=try_in)
            [tried] = [line for line in lines if line.check == "trials"]
            reason = f"API servers do not call gpufence for namespace {try_in}"
            assert (tried.status, tried.detail) == ("unknown", reason)
            assert tried.remediation == "Set --try-in NAME"


FOLLOWED = "FencePolicy {} is valid; its pools: nvidia"
EXISTING = "FencePolicies in the cluster: a, b"


def test_the_policy_is_the_one_that_replicas_follow(subtests: pytest.Subtests) -> None:
    """Their command line says it, or else the webhook configurations do."""
    a, c, file = "--fence-policy=a", "--fence-policy=c", "--policy=/etc/policy.yaml"
    for replica, controller, named, option, expected in (
        (a, a, "b", None, [("ok", FOLLOWED.format("a"))]),
        (a, a, "b", "b", [("ok", FOLLOWED.format("b"))]),
        (c, c, "b", None, [("fail", f"the cluster has no FencePolicy c. {EXISTING}")]),
        (file, file, "b", None, [("unknown", "replicas read it from a file")]),
        (None, a, "b", None, [("ok", FOLLOWED.format("b"))]),
        (a, file, "b", None, [("ok", FOLLOWED.format("a")), ("fail", "the controller a file")]),
        (None, None, "", None, [("unknown", "replicas read it from a file")]),
        (None, None, None, None, [("unknown", f"replicas follow is unknown. {EXISTING}")]),
    ):
        with subtests.test(replica=replica, controller=controller, named=named, option=option):
            api = FakeKubeApi(FakeApiServer(NODES))
            api.server.follow("a")
            api.server.follow("b")
            for path in KINDS.values():
                annotations = {} if named is None else {FENCE_POLICY: named}
                metadata = {"name": "gpufence", "annotations": annotations}
                api.server.put(path, {"metadata": metadata})
            for name, given, flag in (
                ("gpufence", SERVE, replica),
                ("gpufence-controller", CONTROL, controller),
            ):
                if flag is not None:
                    containers = [{"name": "gpufence", "args": [*given, flag]}]
                    api.objects[f"{DEPLOYMENTS}/{name}"] = {
                        "spec": {"template": {"spec": {"containers": containers}}}
                    }
            lines = asyncio.run(diagnose_release(api, policy=None, fence_policy=option))
            made = [line for line in lines if line.check == "policy"]
            assert [line.status for line in made] == [status for status, _ in expected]
            for line, (_, text) in zip(made, expected, strict=True):
                assert text in line.detail


def test_an_invalid_policy_fails_and_is_not_tried() -> None:
    api = FakeKubeApi(FakeApiServer(NODES))
    spec = default_spec()
    api.server.serve(PATH)
    api.server.put(PATH, fence_policy(spec | {"pools": spec["pools"] * 2}, "a"))
    lines = asyncio.run(diagnose_release(api, policy=None, fence_policy="a"))
    [line] = [line for line in lines if line.check == "policy"]
    assert line.status == "fail"
    assert line.detail.startswith("FencePolicy a: spec: has two pools named 'nvidia'")
    assert line.remediation.startswith("Run kubectl edit fencepolicy a, and correct it")
    assert [line.status for line in lines if line.check == "trials"] == ["skip"]
