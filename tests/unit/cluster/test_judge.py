"""The judgement on an object: the users of its containers, and rules that fail."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from audit.simulated import Cluster, pod, workload
from deciding import policy
from policies import reach
from policies.context import Context
from policies.facts import Facts, Request
from policies.kubernetes.pod import Pod
from policies.rules import check_pool_trespass
from running import Run
from specs import JSON, default_spec, fence_policy
from webhook.cluster.judge import ContainerUser, Judgement, judge
from webhook.tools import custom_resources

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def judged(spec: JSON, **of_policy: Any) -> Judgement:
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    own = policy(**of_policy)
    return judge(partial(custom_resources.workload, obj, own), own, Request(), Facts())


def test_a_judgement_has_the_user_of_each_container_before_and_after() -> None:
    spec = {
        "initContainers": [{"name": "init", "image": "i", "securityContext": {"runAsUser": 7}}],
        "containers": [{"name": "main", "image": "i", **GPU}, {"name": "side", "image": "i"}],
    }
    own = ContainerUser("init", 7, 7)
    changed = ContainerUser("main", None, 65532), ContainerUser("side", None, 65532)
    assert judged(spec).users == (own, *changed)
    assert judged(spec).other_users == changed
    assert not judged(spec, mode="audit").other_users, "a mode that changes nothing"
    assert not judged(spec | {"securityContext": {"runAsUser": 9}}).other_users


NAMES = ("before", "raises", "after")
REACHING = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a rule fail at the Pods whose container is called raises."""
    original = reach.foreign_pools

    def foreign_pools(pod: Pod, context: Context) -> Any:
        if pod.containers[0].name == "raises":
            raise ZeroDivisionError
        return original(pod, context)

    monkeypatch.setattr(check_pool_trespass, "foreign_pools", foreign_pools)


def named(name: str) -> JSON:
    return {"containers": [{"name": name, "image": "i"}], **REACHING}


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("action", ["enforce", "warn"])
def test_a_rule_that_fails_is_named_and_decides_nothing_if_it_enforces(action: str) -> None:
    found = judged(named("raises"), rules={"pool-trespass": action})
    [bug] = found.bugs
    assert bug.startswith("pool-trespass failed with ZeroDivisionError()")
    assert found.is_decided is (action == "warn")


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("command", ["check", "explain", "mutate"])
def test_the_other_objects_of_a_file_are_reported(command: str, gpufence: Run) -> None:
    metadata = {name: {"name": name} for name in NAMES}
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata[name], "spec": named(name)}
        for name in NAMES
    ]
    Path("pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    done = gpufence(command, "pods.json")
    assert done.status == 70
    text = done.out + done.err
    assert "pool-trespass failed with ZeroDivisionError()" in text
    if command == "mutate":
        assert done.out == "", "what is piped into kubectl must be complete"
    else:
        assert all(name in text for name in NAMES)
        assert text.count("tolerates the taint of GPU nodes") == 2


@pytest.mark.usefixtures("failing")
def test_the_other_objects_of_a_dump_are_reported(gpufence: Run) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "gpu", "labels": {"nvidia.com/gpu.present": "true"}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}},
    }
    workloads = [
        {"apiVersion": "apps/v1", "kind": "Deployment", **workload(name, named(name))}
        for name in NAMES
    ]
    dump = {"apiVersion": "v1", "kind": "List", "items": [node, *workloads]}
    Path("dump.json").write_text(json.dumps(dump))
    done = gpufence("adopt", "--dump", "dump.json", "--out", "out", "--output", "json")
    assert done.status == 70
    assert [entry["name"] for entry in done.report["denied"]] == ["after", "before"]
    [entry] = done.report["unjudged"]
    assert entry["name"] == "raises"
    assert entry["why"].startswith("pool-trespass failed with ZeroDivisionError()")
    assert Path("out/report.html").exists()


@pytest.mark.usefixtures("failing")
async def test_the_other_objects_of_a_cluster_are_audited() -> None:
    cluster = Cluster()
    for name in NAMES:
        cluster.add("Deployment", workload(name, named(name)))
    cluster.add("Pod", pod("lone", named("raises")))
    audit = await cluster.audit()
    verdicts = {each.owned.name: each.verdict for each in audit.subjects}
    assert (verdicts["before"], verdicts["after"]) == ("denied", "denied")
    assert len(audit.bugs) == 2


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("source", ["manifests", "dump"])
def test_the_other_workloads_of_a_diff_are_compared(source: str, gpufence: Run) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cpu"}}
    workloads = [
        {"apiVersion": "apps/v1", "kind": "Deployment", **workload(name, named(name))}
        for name in NAMES
    ]
    items = workloads if source == "manifests" else [node, *workloads]
    Path("objects.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    )
    for mode in ("enforce", "audit"):
        Path(f"{mode}.yaml").write_text(json.dumps(fence_policy(default_spec() | {"mode": mode})))
    files = ("enforce.yaml", "audit.yaml", f"--{source}", "objects.json", "--output", "json")
    done = gpufence("policy", "diff", *files)
    assert done.status == 70
    assert "pool-trespass failed with ZeroDivisionError()" in str(done.report["notes"])
    assert "raises" not in str(done.report["consequences"])
    assert all(name in str(done.report["consequences"]) for name in ("before", "after"))
