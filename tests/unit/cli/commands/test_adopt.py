"""``adopt --dump``: a dump of a cluster answers what an audit reads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fake_apiserver import NAMESPACES, NODES, FakeApiServer
from policies.policy import Hardening
from running import Run
from webhook.kube.kubeconfig import kubeconfig
from webhook.tools.cli.cluster_facts import state_of_cluster
from webhook.tools.cli.commands.adopt import Cluster, Dump
from webhook.tools.cli.node_files import PATHS
from webhook.tools.documents.document import InputError
from webhook.tools.documents.policy_files import read_policy

JSON = dict[str, Any]


def obj(kind: str, name: str, version: str = "v1", namespace: str = "", **fields: Any) -> JSON:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


CLUSTER = [obj("Node", "gpu-1"), obj("Namespace", "ml")]


def dump(path: Path, *objects: JSON) -> Dump:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return Dump(str(path))


async def test_a_live_cluster_is_listed_once(tmp_path: Path) -> None:
    api = FakeApiServer(NODES, NAMESPACES)
    api.put(
        NODES, {"metadata": {"name": "gpu"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    )
    await api.start()
    load = kubeconfig(api.kubeconfig(tmp_path / "kubeconfig"))
    for number, cluster in enumerate((Cluster(load), Cluster(load, PATHS)), start=1):
        states = await asyncio.gather(state_of_cluster(cluster), state_of_cluster(cluster))
        await cluster.close()
        assert [len(state.nodes) for state in states] == [1, 1]
        assert [len(api.lists(path)) for path in (NODES, NAMESPACES)] == [number, number]
    await api.stop()


async def test_pods_that_have_ended_are_left_out(tmp_path: Path) -> None:
    pods = [
        obj("Pod", phase, "v1", "ml", status={"phase": phase})
        for phase in ("Running", "Succeeded", "Failed")
    ]
    listed = json.loads(await dump(tmp_path / "d.json", *CLUSTER, *pods).get("/api/v1/pods"))
    assert [pod["metadata"]["name"] for pod in listed["items"]] == ["Running"]


@pytest.mark.parametrize("missing", [0, 1], ids=["nodes", "namespaces"])
def test_a_dump_needs_nodes_and_namespaces(tmp_path: Path, missing: int) -> None:
    objects = [each for number, each in enumerate(CLUSTER) if number != missing]
    with pytest.raises(
        InputError, match=r"contains no (nodes|namespaces)\. Create it with kubectl"
    ):
        dump(tmp_path / "d.json", *objects)


GPU_NODE = obj(
    "Node",
    "gpu-1",
    status={"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}},
    spec={"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
)
GPU_NODE["metadata"]["labels"] = {"nvidia.com/gpu.present": "true"}
HOME, USER, ROOT = "{home: 20Gi}", "{runAsUser: 1000, fsGroup: 100}", "{level: baseline}"
WORKLOADS = {
    ("home", "vllm"): ("vllm/vllm-openai", "", HOME),
    ("home", "pip"): ("registry.example/a", "pip install a", HOME),
    ("user", "ray"): ("rayproject/ray-ml", "", USER),
    ("both", "ray"): (
        "rayproject/ray-ml",
        "pip install a",
        "{runAsUser: 1000, fsGroup: 100, home: 20Gi}",
    ),
    ("root", "apt"): ("registry.example/a", "apt-get install a", ROOT),
    ("root", "vllm"): ("vllm/vllm-openai", "", HOME),
    ("none", "train"): ("registry.example/a", "", ""),
}
"""By namespace and name: image, command, and what the workload needs."""


def workload(namespace: str, name: str) -> JSON:
    image, command, _ = WORKLOADS[namespace, name]
    container: JSON = {"name": "a", "image": image, "args": [command]}
    container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    template = {"spec": {"containers": [container]}}
    made = obj("Deployment", name, "apps/v1", namespace, spec={"template": template})
    made["metadata"]["uid"] = f"{namespace}-{name}"
    return made


def test_workloads_that_likely_fail_get_settings_by_namespace(gpufence: Run) -> None:
    namespaces = sorted({namespace for namespace, _ in WORKLOADS})
    objects = [GPU_NODE, *(obj("Namespace", each) for each in namespaces)]
    objects += [workload(*key) for key in WORKLOADS]
    Path("dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    lines = gpufence("adopt", "--dump", "dump.json", "--out", "out").out.splitlines()
    for (namespace, name), (_, _, setting) in WORKLOADS.items():
        outlook = f"; likely to fail: policy.yaml has hardening: {setting}" if setting else ""
        assert f"  {namespace}/deployments.apps/{name}: user 65532{outlook}" in lines
    policy = read_policy("policy.yaml", Path("out/policy.yaml").read_text())
    written = {namespace: policy.actions_in(namespace).hardening for namespace in namespaces}
    assert written == {
        "home": Hardening(home="20Gi"),
        "user": Hardening(run_as_user=1000, fs_group=100),
        "both": Hardening(run_as_user=1000, fs_group=100, home="20Gi"),
        "root": Hardening("baseline"),
        "none": None,
    }
    given = ("adopt", "--dump", "dump.json", "--policy", "out/policy.yaml", "--out", "again")
    again = gpufence(*given).out.splitlines()
    assert "  home/deployments.apps/vllm: user 65532" in again, "the policy has its home directory"
    policy_text = Path("out/policy.yaml").read_text()
    Path("bare.yaml").write_text(policy_text.replace("[home]", "[other]").replace("- home", "- x"))
    bare = gpufence("adopt", "--dump", "dump.json", "--policy", "bare.yaml", "--out", "bare").out
    assert (
        f"  home/deployments.apps/vllm: user 65532; likely to fail: set hardening: {HOME}" in bare
    )


def test_each_workload_that_gpufence_changes_is_listed_once(gpufence: Run) -> None:
    own, everywhere = workload("home", "vllm"), workload("none", "train")
    own["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": 1000}
    spec = everywhere["spec"]["template"]["spec"]
    spec["tolerations"] = [{"operator": "Exists"}]
    del spec["containers"][0]["resources"]
    objects = [GPU_NODE, obj("Namespace", "home"), obj("Namespace", "none"), own, everywhere]
    Path("dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    lines = gpufence("adopt", "--dump", "dump.json", "--out", "out").out.splitlines()
    at = lines.index("Changed in other ways from their next start: 2 workloads")
    changed = dict(line.strip().split(": ") for line in lines[at + 1 : at + 3])
    assert changed["none/deployments.apps/train"] == "pool-exclusion"
    assert "pool-toleration" in changed["home/deployments.apps/vllm"]
    assert "Run as another user from their next start: 0 workloads" in lines


def test_namespaces_of_platforms_are_exempt(gpufence: Run) -> None:
    container = {"name": "a", "image": "rancher/local-path-provisioner:v0.0.31"}
    spec = {"template": {"spec": {"containers": [container]}}}
    objects = [
        GPU_NODE,
        obj("Namespace", "storage"),
        obj("Namespace", "velero"),
        obj("Deployment", "local-path", "apps/v1", "storage", spec=spec),
        obj("StorageClass", "disk", "storage.k8s.io/v1", provisioner="openebs.io/local"),
    ]
    Path("dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    done = gpufence("adopt", "--dump", "dump.json", "--out", "out")
    assert "  StorageClass disk is of OpenEBS, " in done.out
    listed = done.out.partition("Exempt from the policy: 2 namespaces\n")[2].splitlines()[:2]
    assert listed == [
        "  storage: volume helpers of Local Path Provisioner",
        "  velero: data movers of Velero",
    ]
    for text in (Path("out/policy.yaml").read_text(), discovered(gpufence)):
        exempt = read_policy("policy.yaml", text).exemptions.namespaces
        assert "storage" in exempt
    assert "velero" in read_policy("", Path("out/policy.yaml").read_text()).exemptions.namespaces


def discovered(gpufence: Run) -> str:
    return gpufence("policy", "discover", "--nodes", "dump.json").out
