"""``adopt --dump``: a dump of a cluster answers what an audit reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deciding import required
from dumped import node_pool
from fake_apiserver import NAMESPACES, NODES, FakeApiServer
from policies.policy import Hardening
from policies.shipped import DEFAULT
from running import Run
from specs import JSON, default_spec, fence_policy
from webhook.cluster.files import PATHS
from webhook.cluster.listed import list_state
from webhook.cluster.objects import Dump, LiveObjects, Reader
from webhook.documents.policy_files import read_policy
from webhook.kube.client import KubeApi
from webhook.kube.kubeconfig import kubeconfig
from webhook.tools.audit.cluster_audit import PODS
from webhook.tools.cli.manifests import read_file


def obj(kind: str, name: str, version: str = "v1", namespace: str = "", **fields: Any) -> JSON:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


CLUSTER = [obj("Node", "gpu-1"), obj("Namespace", "ml")]


def dump(path: Path, *objects: JSON) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


def read(path: Path) -> Reader:
    return Reader(Dump(path.name, read_file(str(path))))


async def test_a_live_cluster_is_listed_once(tmp_path: Path) -> None:
    api = FakeApiServer(NODES, NAMESPACES)
    api.put(
        NODES, {"metadata": {"name": "gpu"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    )
    await api.start()
    client = KubeApi(kubeconfig(api.kubeconfig(tmp_path / "kubeconfig")))
    reader = Reader(LiveObjects(client, PATHS.__contains__))
    states = [await list_state(reader) for _ in range(2)]
    await client.close()
    assert [len(state.nodes) for state in states] == [1, 1]
    assert [len(api.lists(path)) for path in (NODES, NAMESPACES)] == [1, 1]
    await api.stop()


async def test_reading_the_nodes_shows_how_many_are_read(tmp_path: Path) -> None:
    path = dump(tmp_path / "d.json", CLUSTER[1], *(obj("Node", f"n{n}") for n in range(250)))
    shown: list[tuple[str, int]] = []
    objects = Dump(path.name, read_file(str(path)))
    await list_state(Reader(objects, lambda title, count: shown.append((title, count))))
    assert shown == [("nodes", 100), ("nodes", 200)]


def test_the_version_of_a_dump_is_that_of_the_option(gpufence: Run) -> None:
    main = {"name": "main", "image": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    user = {"runAsNonRoot": False, "runAsUser": 0}
    spec = {"containers": [main], "hostUsers": False, "securityContext": user}
    dump(Path("d.json"), *CLUSTER, obj("Pod", "root", "v1", "ml", spec=spec))
    for version, denied in (("1.34", 1), ("1.35", 0)):
        options = ("--dump", "d.json", "--kubernetes-version", version, "--out", version)
        done = gpufence("adopt", *options, "--policy", str(DEFAULT), "--output", "json")
        assert len(json.loads(done.out)["denied"]) == denied
    assert "for a --dump" in gpufence("adopt", "--kubernetes-version", "1.34").err


async def test_pods_that_have_ended_are_left_out(tmp_path: Path) -> None:
    pods = [
        obj("Pod", phase, "v1", "ml", status={"phase": phase})
        for phase in ("Running", "Succeeded", "Failed")
    ]
    reader = read(dump(tmp_path / "d.json", *CLUSTER, *pods))
    listed = await reader.read(PODS, lambda item: json.loads(bytes(item))["metadata"]["name"])
    assert listed == ["Running"]


def test_a_dump_needs_nodes(gpufence: Run) -> None:
    dump(Path("d.json"), CLUSTER[1])
    done = gpufence("adopt", "--dump", "d.json")
    assert done.status == 2
    assert "d.json contains no nodes. Create it with kubectl get" in done.err


def test_two_objects_with_one_identity_are_named(gpufence: Run) -> None:
    dump(Path("d.json"), *CLUSTER, *(obj("Deployment", "web", "apps/v1", "ml") for _ in range(2)))
    done = gpufence("adopt", "--dump", "d.json")
    assert done.status == 2
    assert "Deployment ml/web is in the dump twice" in done.err


ANOTHER_USER = "container a: the user of its image -> user 65532"

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
        line = f"  {namespace}/deployments.apps/{name}: {ANOTHER_USER}"
        [found] = [each for each in lines if each.startswith(line)]
        outlook = f"): policy.yaml has hardening: {setting}" if setting else ANOTHER_USER
        assert found.endswith(outlook)
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
    vllm = f"  home/deployments.apps/vllm: {ANOTHER_USER}"
    assert vllm in again, "the policy has its home directory"
    policy_text = Path("out/policy.yaml").read_text()
    Path("bare.yaml").write_text(policy_text.replace("[home]", "[other]").replace("- home", "- x"))
    bare = gpufence("adopt", "--dump", "dump.json", "--policy", "bare.yaml", "--out", "bare").out
    [line] = [each for each in bare.splitlines() if each.startswith(vllm)]
    assert "; likely to fail (" in line
    assert line.endswith(f"): set hardening: {HOME}")


def test_each_workload_that_gpufence_changes_is_listed_once(gpufence: Run) -> None:
    own, everywhere = workload("home", "vllm"), workload("none", "train")
    own["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": 1000}
    spec = everywhere["spec"]["template"]["spec"]
    spec["tolerations"] = [{"operator": "Exists"}]
    del spec["containers"][0]["resources"]
    objects = [GPU_NODE, obj("Namespace", "home"), obj("Namespace", "none"), own, everywhere]
    Path("dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    lines = gpufence("adopt", "--dump", "dump.json", "--out", "out").out.splitlines()
    at = lines.index("Changed otherwise at their next creation: 2 workloads")
    changed = dict(line.strip().split(": ") for line in lines[at + 1 : at + 3])
    assert changed["none/deployments.apps/train"] == "pool-exclusion"
    assert "pool-toleration" in changed["home/deployments.apps/vllm"]
    assert "Run as another user from their next creation: 0 workloads" in lines


def adopted(gpufence: Run, *objects: JSON, status: int = 0) -> JSON:
    """Return the JSON of adopt for a dump with a GPU node and these objects."""
    dump(Path("d.json"), GPU_NODE, obj("Namespace", "ml"), *objects)
    done = gpufence("adopt", "--dump", "d.json", "--out", "out", "--output", "json")
    assert done.status == status, done.err
    return done.report


def test_a_finding_about_where_a_pod_runs_is_no_denial(gpufence: Run) -> None:
    pod = {"containers": [{"name": "a", "image": "i"}], "tolerations": [{"operator": "Exists"}]}
    proxy = obj("Deployment", "proxy", "apps/v1", "ml", spec={"template": {"spec": pod}})
    running = obj("Pod", "proxy-1", "v1", "ml", spec={**pod, "nodeName": "gpu-1"})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "proxy", "controller": True}
    running["metadata"]["ownerReferences"] = [owner]
    report = adopted(gpufence, proxy, running)
    assert not report["denied"]
    [entry] = report["runsOnGPUNodes"]
    assert (entry["kind"], entry["name"]) == ("Deployment", "proxy")
    assert entry["why"].endswith("the next Pods do not run there")


def test_a_workload_that_selects_a_node_pool_that_is_gone_is_named(gpufence: Run) -> None:
    pool = node_pool("gpu", GPU_NODE["metadata"]["labels"])
    gone = workload("none", "train")
    gone["metadata"]["namespace"] = "ml"
    gone["spec"]["template"]["spec"]["nodeSelector"] = {"karpenter.sh/nodepool": "gone"}
    [line] = adopted(gpufence, pool, gone)["scheduling"]
    assert line.startswith("ml/deployments.apps/train: no known node of the pool meets the node")
    assert "karpenter.sh/nodepool=gone" in line


def test_pods_that_were_made_alike_are_one_line(gpufence: Run) -> None:
    spec = workload("none", "train")["spec"]["template"]["spec"]
    pods = [obj("Pod", f"jupyter-{name}", "v1", "ml", spec=spec) for name in "abc"]
    assert [each["name"] for each in adopted(gpufence, *pods)["anotherUser"]] == [
        "jupyter-a",
        "jupyter-b",
        "jupyter-c",
    ]
    text = gpufence("adopt", "--dump", "d.json", "--out", "text").out
    assert f"  ml/pods/jupyter-a and 2 Pods like it: {ANOTHER_USER}" in text
    assert "Run as another user from their next creation: 3 workloads" in text


def test_a_denied_workload_gets_its_override(gpufence: Run) -> None:
    denied = workload("home", "vllm")
    denied["metadata"]["namespace"] = "ml"
    spec = denied["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "host", "hostPath": {"path": "/data"}}]
    assert [each["name"] for each in adopted(gpufence, denied)["denied"]] == ["vllm"]
    policy = read_policy("policy.yaml", Path("out/policy.yaml").read_text())
    assert policy.actions_in("ml").hardening == Hardening(home="20Gi")


def test_a_claim_that_the_dump_lacks_is_said(gpufence: Run) -> None:
    spec = {
        "containers": [{"name": "a", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}],
    }
    classes = obj("DeviceClass", "gpu.nvidia.com", "resource.k8s.io/v1")
    policy = default_spec()
    policy["pools"][0]["deviceClasses"] = ["gpu.nvidia.com"]
    Path("policy.yaml").write_text(json.dumps(fence_policy(policy)))
    dump(Path("d.json"), GPU_NODE, classes, obj("Pod", "p", "v1", "ml", spec=spec))
    flags = ("--policy", "policy.yaml", "--out", "out", "--output", "json")
    [entry] = gpufence("adopt", "--dump", "d.json", *flags).report["unjudged"]
    assert "it uses resource claims, and they or their templates are unknown" in entry["why"]


def test_odd_objects_of_a_dump_are_named_and_the_others_judged(gpufence: Run) -> None:
    node = {**obj("Node", "odd"), "status": {"allocatable": {"nvidia.com/gpu": "x1"}}}
    pod = {**obj("Pod", "odd", "v1", "ml"), "spec": {"containers": []}, "status": "Running"}
    job = obj("Job", "odd", "batch/v1", "ml", spec="s")
    unnamed = {"apiVersion": "batch/v1", "kind": "Job", "metadata": [], "spec": {}}
    good = workload("none", "train")
    report = adopted(gpufence, node, pod, job, unnamed, good, status=2)
    assert [each["name"] for each in report["anotherUser"]] == ["train"]
    named = [line.partition(": ")[0] for line in report["notRead"]]
    assert sorted(named) == ["jobs ml/odd", "jobs without a name", "nodes odd", "pods ml/odd"]


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


WILDCARD, TAINT = {"operator": "Exists"}, {"key": "nvidia.com/gpu", "operator": "Exists"}
CLUSTER_CRITICAL, NODE_CRITICAL = "system-cluster-critical", "system-node-critical"
AGENTS: dict[str, tuple[bool, JSON]] = {
    "monitoring/node-exporter": (True, {"priorityClassName": CLUSTER_CRITICAL}),
    "monitoring/collector": (True, {"priorityClassName": NODE_CRITICAL, "tolerations": [TAINT]}),
    "istio-system/istio-cni-node": (True, {"priorityClassName": NODE_CRITICAL}),
    "csi-nfs/node": (True, {"priorityClassName": NODE_CRITICAL, "hostNetwork": True}),
    "falco/falco": (False, {}),
    "logging/fluent-bit": (False, {"priorityClassName": "platform"}),
    "kube-system/cilium": (False, {"priorityClassName": NODE_CRITICAL}),
    "gpufence-system/agent": (False, {"priorityClassName": NODE_CRITICAL}),
    "storage/csi": (False, {"priorityClassName": NODE_CRITICAL, "tolerations": []}),
    "web/of-other-nodes": (
        False,
        {
            "priorityClassName": NODE_CRITICAL,
            **required("nvidia.com/gpu.present DoesNotExist"),
        },
    ),
}
"""Agents of nodes, and whether they need an exception from system-priority."""


def test_agents_with_a_system_priority_are_excepted_by_name(gpufence: Run) -> None:
    agents = []
    for place, (_, spec) in AGENTS.items():
        namespace, name = place.split("/")
        own = {"containers": [{"name": "a", "image": "i"}], "tolerations": [WILDCARD], **spec}
        agents.append(
            obj("DaemonSet", name, "apps/v1", namespace, spec={"template": {"spec": own}})
        )
    trainer = workload("none", "train")
    trainer["spec"]["template"]["spec"]["priorityClassName"] = NODE_CRITICAL
    report = adopted(gpufence, *agents, trainer)
    policy = read_policy("", Path("out/policy.yaml").read_text())
    excepted = {
        place
        for place in AGENTS
        for entry in policy.exceptions
        if entry.covers("system-priority", place.split("/")[0], "DaemonSet", place.split("/")[1])
    }
    assert excepted == {place for place, (needs, _) in AGENTS.items() if needs}
    denied = {f"{each['namespace']}/{each['name']}": each["why"] for each in report["denied"]}
    assert denied.keys() == excepted | {"none/train"}
    assert {why.endswith("; policy.yaml has an exception") for why in denied.values()} == {
        True,
        False,
    }
    assert not any(
        entry.covers("system-priority", "none", "Deployment", "train")
        for entry in policy.exceptions
    )
