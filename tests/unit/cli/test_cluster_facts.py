"""``check`` and ``mutate`` with a file of nodes, and with a live cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters import gpu_node, named, node
from controlplane.objects import claim_template
from dumped import node_pool
from fake_apiserver import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    RUNTIME_CLASSES,
    FakeApiServer,
)
from running import Outcome, Run
from specs import JSON, default_spec, fence_policy


def as_kubectl_prints(*nodes: JSON) -> JSON:
    return {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", **n} for n in nodes]}


def pod(name: str, **spec: Any) -> JSON:
    containers = [{"name": "web", "image": "nginx:1.29"}]
    metadata = {"name": name, "namespace": "ml"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
    }


def requesting(name: str, limits: JSON) -> JSON:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"limits": limits}
    return made


def claiming(name: str, template: str, **spec: Any) -> JSON:
    entry = {"name": "gpu", "resourceClaimTemplateName": template}
    made = pod(name, resourceClaims=[entry], **spec)
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return made


def template_file(name: str, device_class: str) -> JSON:
    made = claim_template(name, device_class)
    made["metadata"]["namespace"] = "ml"
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", **made}


BOUND = pod("bound", nodeName="gpu-1")


def write(path: Path, *objects: JSON) -> Path:
    path.write_text("---\n".join(yaml.safe_dump(obj) for obj in objects))
    return path


def verdicts(outcome: Outcome) -> dict[str, str]:
    return {r["object"]["name"]: r["verdict"] for r in outcome.report["results"]}


def test_a_pod_bound_to_a_gpu_node_in_the_nodes_file_is_denied(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    listed = as_kubectl_prints(gpu_node("gpu-1"), node("plain-1"))
    other = named("other") | {"apiVersion": "v1", "kind": "Secret"}
    documents = yaml.safe_dump_all([other, *listed["items"]])
    pods = write(tmp_path / "pods.yaml", BOUND, pod("elsewhere", nodeName="plain-1"))
    without = gpufence("check", "-o", "json", pods)
    assert verdicts(without) == {"bound": "allowed", "elsewhere": "allowed"}
    for text in (json.dumps(listed), yaml.safe_dump(listed), documents):
        with subtests.test(text=text):
            (tmp_path / "nodes").write_text(text)
            outcome = gpufence("check", "-o", "json", "--nodes", "nodes", pods)
            assert verdicts(outcome) == {"bound": "denied", "elsewhere": "allowed"}
            assert outcome.status == 1
            [finding] = outcome.report["results"][0]["findings"]
            assert "binds the Pod to GPU node gpu-1" in finding["detail"]


def test_a_request_that_a_node_pool_template_can_satisfy_has_no_finding(
    gpufence: Run, tmp_path: Path
) -> None:
    pods = write(tmp_path / "pods.yaml", requesting("large", {"nvidia.com/gpu": 16}))
    labels = {"nvidia.com/gpu.present": "true"}
    small = {"apiVersion": "v1", **gpu_node("gpu-1")}

    def reasons(*objects: JSON) -> list[str]:
        nodes = write(tmp_path / "nodes.yaml", *objects)
        outcome = gpufence("check", "-o", "json", "--nodes", nodes, pods)
        return [finding["reason"] for finding in outcome.report["results"][0]["findings"]]

    assert "no node has enough devices" in reasons(small)
    assert "no node has enough devices" not in reasons(small, node_pool("gpu", labels))
    # The autoscaler adds no node if the template lacks the label that gpufence requires.
    assert "no node has enough devices" in reasons(small, node_pool("gpu", {}))


def test_nodes_are_read_from_standard_input(gpufence: Run, tmp_path: Path) -> None:
    pods = write(tmp_path / "pods.yaml", BOUND)
    nodes = json.dumps(as_kubectl_prints(gpu_node("gpu-1")))
    for command in ("check", "mutate"):
        done = gpufence(command, "--nodes", "-", pods, stdin=nodes)
        assert done.status == 1
        assert "binds the Pod to GPU node gpu-1" in done.out + done.err


def test_a_nodes_file_without_valid_nodes_is_an_error(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    pods = write(tmp_path / "pods.yaml", BOUND)
    missing = gpufence("check", "--nodes", "nodes", pods)
    assert (missing.status, missing.err) == (2, "Error: nodes: does not exist. Check the path.\n")
    nothing = "nodes contains no nodes. Create it with kubectl get nodes -o json."
    empty = json.dumps({"apiVersion": "v1", "kind": "List", "items": []})
    invalid = "nodes:1: document 1: is not a valid Node: "
    node = "apiVersion: v1\nkind: Node\n"
    wrong = f"{node}metadata: {{name: 5}}\n"
    for text, problem in {
        **dict.fromkeys(("", empty, yaml.safe_dump(BOUND)), nothing),
        wrong: f"{invalid}Expected `str`, got `int` - at `$.metadata.name`.",
        node: f"{invalid}Object missing",
        "apiVersion: [\n": "nodes:",
    }.items():
        with subtests.test(text=text):
            (tmp_path / "nodes").write_text(text)
            outcome = gpufence("check", "--nodes", "nodes", pods)
            assert outcome.status == 2
            assert outcome.err.startswith(f"Error: {problem}")


def test_a_directory_of_nodes_is_not_searched(gpufence: Run, tmp_path: Path) -> None:
    """It may hold anything: the home directory, or /tmp."""
    write(tmp_path / "pods.yaml", BOUND)
    for command in ("check --nodes . pods.yaml", "policy discover --nodes .", "adopt --dump ."):
        outcome = gpufence(*command.split())
        expected = "Error: .: cannot be read (Is a directory). Name a file in it.\n"
        assert (outcome.status, outcome.err) == (2, expected), command


# A live cluster.


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    api = FakeApiServer(NODES, NAMESPACES, RUNTIME_CLASSES, DEVICE_CLASSES, CLAIM_TEMPLATES)
    api.put(NODES, gpu_node("gpu-1"))
    api.put(CLAIM_TEMPLATES, claim_template("one-gpu", "gpu.nvidia.com"))
    api.put(NAMESPACES, named("ml", {"team": "ml"}))
    api.put(RUNTIME_CLASSES, named("nvidia"))
    api.follow("gpufence")
    with api.in_thread():
        yield api


@pytest.fixture
def cluster(api: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options for it."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return ["--cluster", "--kubeconfig", str(api.kubeconfig(tmp_path / "kubeconfig"))]


def test_check_reads_nodes_and_referenced_claim_templates_from_the_cluster(
    gpufence: Run, tmp_path: Path, cluster: list[str], api: FakeApiServer
) -> None:
    pods = write(
        tmp_path / "pods.yaml",
        BOUND,
        claiming("train", "one-gpu"),
        claiming("unknown", "none"),
        claiming("here", "from-file"),
        template_file("from-file", "mig.nvidia.com"),
    )
    outcome = gpufence("check", "-o", "json", *cluster, pods)
    assert verdicts(outcome) == {
        "bound": "denied",
        "train": "mutated",
        "unknown": "unknown",
        "here": "mutated",
        "from-file": "skipped",
    }
    assert not any(asked.is_watch for asked in api.requests)


def test_check_reads_runtime_classes_and_namespaces_from_the_cluster(
    gpufence: Run, tmp_path: Path, cluster: list[str]
) -> None:
    policy = default_spec()
    allowed_namespaces = {"matchLabels": {"team": "ml"}, "unknown": "deny"}
    policy["pools"][0] |= {"runtimeClass": "nvidia", "allowedNamespaces": allowed_namespaces}
    write(tmp_path / "policy.yaml", fence_policy(policy))
    train = requesting("train", {"nvidia.com/gpu": 1})
    elsewhere = train | {"metadata": {"name": "elsewhere", "namespace": "unheard-of"}}
    pods = write(tmp_path / "pods.yaml", train, elsewhere)
    outcome = gpufence("check", "-o", "json", "--policy", "policy.yaml", *cluster, pods)
    assert verdicts(outcome) == {"train": "mutated", "elsewhere": "denied"}
    patch = outcome.report["results"][0]["patch"]
    assert {"op": "add", "path": "/spec/runtimeClassName", "value": "nvidia"} in patch


def test_namespace_labels_are_the_result_of_kubectl_apply(
    gpufence: Run, tmp_path: Path, cluster: list[str], api: FakeApiServer, subtests: pytest.Subtests
) -> None:
    policy = default_spec()
    policy["pools"][0] |= {"allowedNamespaces": {"matchLabels": {"team": "ml"}}}
    write(tmp_path / "policy.yaml", fence_policy(policy))
    options = ("-o", "json", "--policy", "policy.yaml", *cluster)
    for own, applied, verdict in (
        ({"owner": "me"}, None, "mutated"),
        ({"owner": "me"}, {"owner": "you"}, "mutated"),
        ({"owner": "me"}, {"team": "ml"}, "denied"),
        ({"team": "ml"}, {"team": "ml"}, "mutated"),
        ({"team": "web"}, None, "denied"),
    ):
        with subtests.test(own=own, applied=applied):
            present = named("ml", {"team": "ml"})
            if applied is not None:
                last = json.dumps({"metadata": {"name": "ml", "labels": applied}})
                key = "kubectl.kubernetes.io/last-applied-configuration"
                present["metadata"]["annotations"] = {key: last}
            api.put(NAMESPACES, present)
            namespace = {"apiVersion": "v1", "kind": "Namespace", **named("ml", own)}
            train = requesting("train", {"nvidia.com/gpu": 1})
            outcome = gpufence("check", *options, write(tmp_path / "pods.yaml", namespace, train))
            assert verdicts(outcome)["train"] == verdict


def test_pod_security_is_that_of_the_cluster_and_of_the_version_that_the_namespace_pins(
    gpufence: Run, tmp_path: Path, cluster: list[str], api: FakeApiServer
) -> None:
    """Kubernetes 1.37 accepts a sysctl that earlier versions reject."""
    train = requesting("train", {"nvidia.com/gpu": 1})
    sysctl = {"name": "net.ipv4.tcp_notsent_lowat", "value": "1"}
    train["spec"]["securityContext"] = {"sysctls": [sysctl]}
    pods = write(tmp_path / "pods.yaml", train)
    label = "pod-security.kubernetes.io/enforce"
    for version, labels, denied_by in (
        ({"minor": "37"}, {}, ""),
        ({"minor": "38+"}, {label: "restricted", f"{label}-version": "latest"}, ""),
        ({"minor": "36"}, {}, "version v1.36"),
        ({"minor": "37", "emulationMinor": "36"}, {}, "version v1.36"),
        (
            {"minor": "37"},
            {label: "baseline", f"{label}-version": "v1.33"},
            "versions v1.33 and v1.37",
        ),
        ({"minor": "37"}, {label: "privileged", f"{label}-version": "v1.33"}, ""),
        (
            {"minor": "36"},
            {label: "restricted", f"{label}-version": "v1.37"},
            "versions v1.36 and v1.37",
        ),
    ):
        api.objects["/version"] = version
        api.put(NAMESPACES, named("ml", labels))
        outcome = gpufence("check", *cluster, pods)
        assert (outcome.status == 1) == bool(denied_by), (version, labels)
        assert not denied_by or f'"restricted" of {denied_by} accepts' in outcome.out
    assert gpufence("check", "--kubernetes-version", "v1.36.3", pods).status == 1
    assert gpufence("check", "--kubernetes-version", "1.37", pods).status == 0
    assert gpufence("check", pods).status == 0
    for options, problem in (
        (["1.29"], "'1.29' is not a version of Kubernetes from 1.30 on."),
        (["1.37", *cluster], "--kubernetes-version and --cluster exclude each other."),
    ):
        outcome = gpufence("check", pods, "--kubernetes-version", *options)
        assert outcome.status == 2
        assert problem in outcome.err


def test_a_gang_counts_against_nodes_and_the_quota_of_its_namespace(
    gpufence: Run, tmp_path: Path, cluster: list[str], api: FakeApiServer
) -> None:
    template = {"spec": requesting("", {"nvidia.com/gpu": 1})["spec"]}
    metadata = {"name": "train", "namespace": "ml"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}

    def warned(pods: int, *more: JSON) -> str:
        spec = {"parallelism": pods, "template": template}
        path = write(tmp_path / "job.yaml", {**job, "spec": spec}, *more)
        outcome = gpufence("check", *cluster, path)
        assert outcome.status == 0
        return outcome.out

    assert "oversized-gang" not in warned(8)
    assert "have room for 8 of them" in warned(9)
    hard = {"hard": {"requests.nvidia.com/gpu": "4"}}
    assert "the quota of namespace ml allows 4" in warned(8, {**quota, "spec": hard})
    path = f"{NAMESPACES}/ml/resourcequotas"
    items = [{"metadata": metadata, "spec": {"hard": {"requests.nvidia.com/gpu": "5"}}}]
    api.objects[path] = {"kind": "ResourceQuotaList", "metadata": {}, "items": items}
    assert "the quota of namespace ml allows 5" in warned(8)
    api.errors[path] = (403, "resourcequotas is forbidden")
    assert "oversized-gang" not in warned(8)


def test_a_version_that_is_none_is_an_error(
    gpufence: Run, tmp_path: Path, cluster: list[str], api: FakeApiServer
) -> None:
    pods = write(tmp_path / "pods.yaml", BOUND)
    for version in ({"minor": "x"}, {}, {"minor": 37}):
        api.objects["/version"] = version
        outcome = gpufence("check", *cluster, pods)
        assert outcome.status == 2
        assert "Error: /version" in outcome.err


def test_a_cluster_that_cannot_be_read_is_an_error(
    gpufence: Run, tmp_path: Path, cluster: list[str], api: FakeApiServer
) -> None:
    pods = write(tmp_path / "pods.yaml", BOUND)
    api.errors[NODES] = (403, "nodes is forbidden")
    outcome = gpufence("check", *cluster, pods)
    assert outcome.status == 2
    assert outcome.err.endswith("\nError: nodes is forbidden (HTTP 403)\n")
    outcome = gpufence("check", "--cluster", "--kubeconfig", "none", pods)
    assert outcome.status == 2
    assert outcome.err.startswith("Error: none: no such file; set the path of a kubeconfig")
    outcome = gpufence("check", *cluster, "--context", "other", pods)
    assert outcome.status == 2
    assert ": has no context other; it has " in outcome.err


def test_a_missing_kubeconfig_names_the_searched_paths(
    gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    write(tmp_path / "pods.yaml", BOUND)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    cure = "name another kubeconfig with --kubeconfig, or in KUBECONFIG"
    a, b = tmp_path / "a", tmp_path / "b"
    for files, problem in {
        "": f"{tmp_path}/.kube/config: no such file; kubectl looks there; ",
        f"{a}": f"{a}: no such file; KUBECONFIG names it; ",
        f"{a}::{b}": f"{a} and {b}: no such file; KUBECONFIG names it; ",
    }.items():
        monkeypatch.setenv("KUBECONFIG", files)
        for command in (["check", "--cluster", "pods.yaml"], ["audit"]):
            with subtests.test(command=command, files=files):
                assert gpufence(*command) == (2, "", f"Error: {problem}{cure}\n")


def test_a_claim_that_cannot_be_looked_up_causes_a_warning(
    gpufence: Run, tmp_path: Path, cluster: list[str], api: FakeApiServer
) -> None:
    api.errors[f"{CLAIM_TEMPLATES}/one-gpu"] = (403, "not yours")
    pods = write(tmp_path / "pods.yaml", claiming("train", "one-gpu"))
    outcome = gpufence("check", "-o", "json", *cluster, pods)
    assert verdicts(outcome) == {"train": "unknown"}
    # Another test of this process may have set a log up.
    assert "Warning: 1 claim could not be looked up: not yours (HTTP 403)\nNote: " in outcome.err


@pytest.mark.parametrize("with_node", [True, False])
def test_node_pools_answer_like_nodes(gpufence: Run, tmp_path: Path, with_node: bool) -> None:
    """What a NodePool does not say is unknown; a label that it does not promise is not met."""
    gpus = requesting("gpus", {"nvidia.com/gpu": 4})
    selecting = requesting("selecting", {"nvidia.com/gpu": 4})
    selecting["spec"]["nodeSelector"] = {"gpu": "a100x"}
    misspelt = requesting("misspelt", {"nvidia.com/mig-3g.40g": 1})
    nodes = as_kubectl_prints(*([gpu_node("gpu-1")] if with_node else []))
    fenced = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    nodes["items"].append(node_pool("gpu", {"nvidia.com/gpu.present": "true"}, taints=fenced))
    (tmp_path / "nodes.json").write_text(json.dumps(nodes))
    expected = {
        "gpus": [],
        "selecting": ["no known node of the pool meets the node selection"],
        "misspelt": ["no node has enough devices"],
    }
    for made in (gpus, selecting, misspelt):
        options = ("check", "--nodes", str(tmp_path / "nodes.json"), "-o", "json", "-")
        done = gpufence(*options, stdin=json.dumps(made))
        [result] = done.report["results"]
        found = [f["reason"] for f in result["findings"] if f["rule"] == "unschedulable-gpu-pod"]
        assert found == expected[made["metadata"]["name"]]
