"""``gpufence adopt`` on a cluster that runs already, with the labels of a cloud."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.objects import node, taint, workload
from deploy.chart import NAMESPACE, RELEASE, Helm
from paths import PROJECT
from policies.document import parse_policy
from policies.policy import Hardening
from running import run_here
from specs import JSON

GPU = "nvidia.com/gpu"
KINDS = (
    "nodes,namespaces,pods,deployments,statefulsets,daemonsets,replicasets,jobs,cronjobs,"
    "runtimeclasses"
)
NODES = [
    node(
        f"gke-{index}",
        labels={"cloud.google.com/gke-accelerator": "nvidia-l4"},
        taints=[taint(GPU, "present")],
        resources={GPU: "8"},
    )
    for index in (1, 2)
]


def deployment(name: str, **spec: Any) -> JSON:
    return workload("Deployment", name, spec, replicas=0)


@pytest.fixture
def running(control_plane: ControlPlane, namespace: str) -> str:
    """Workloads: one likely fails as another user, one runs, one trespasses, one is an agent."""
    gpu: JSON = {"resources": {"limits": {GPU: 1}}}
    toleration = {"key": GPU, "operator": "Exists"}
    for obj in (
        deployment("vllm", containers=[{"name": "a", "image": "vllm/vllm-openai:v0.20.0", **gpu}]),
        deployment(
            "train",
            containers=[{"name": "a", "image": "registry.example/train", **gpu}],
            securityContext={"runAsUser": 1000},
        ),
        deployment("web", containers=[{"name": "a", "image": "nginx"}], tolerations=[toleration]),
    ):
        control_plane.api.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", obj)
    container = {"name": "a", "image": "quay.io/prometheus/node-exporter:v1.11.1"}
    spec = {"containers": [container], "priorityClassName": "system-cluster-critical"}
    agent = workload(
        "DaemonSet", "node-exporter", {**spec, "tolerations": [{"operator": "Exists"}]}
    )
    control_plane.api.request("POST", f"/apis/apps/v1/namespaces/{namespace}/daemonsets", agent)
    return namespace


def install(printed: str, cluster: ControlPlane, helm: Helm, gpufence: Path) -> None:
    """Run the commands that adopt prints, without docker, and remove the installation.

    The last one compares the policy with the installed one, and finds no difference.
    """
    kubectl, lines = cluster.kubectl, printed.partition("in your registry:\n")[2].splitlines()
    commands = "\n".join(line for line in lines if line.startswith("  "))
    # No Pod runs, so nothing registers the webhooks, which name the policy.
    commands = commands.replace("--cluster", "--cluster --fence-policy gpufence")
    programs = (kubectl.binary, helm.binary, gpufence)
    path = ":".join([*(str(program.parent) for program in programs), os.environ["PATH"]])
    environ = helm.environ() | kubectl.environ() | {"PATH": path}
    bash = ["bash", "-euc", f"docker() {{ :; }}\n{commands}"]
    try:
        done = subprocess.run(
            bash, cwd=PROJECT, env=environ, capture_output=True, text=True, check=False, timeout=90
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        assert kubectl.json("get", "fencepolicy", "gpufence")["spec"]["mode"] == "audit"
        [container] = kubectl.json("get", "-n", NAMESPACE, "deployment/gpufence")["spec"][
            "template"
        ]["spec"]["containers"]
        assert container["image"] == f"registry.example/gpufence:{version('gpufence')}"
    finally:
        uninstall = ("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found")
        replace(helm, kubeconfig=cluster.kubeconfig)(*uninstall)
        cluster.delete_namespaces(NAMESPACE)
        kubectl("delete", "fencepolicy", "--all")


@pytest.mark.slow("installs what it wrote into the cluster")
def test_adopt_says_what_would_change_and_writes_policy_and_report(
    control_plane: ControlPlane, helm: Helm, quick_command: Path, running: str, tmp_path: Path
) -> None:
    out = tmp_path / "adoption"
    with control_plane.nodes(*NODES):
        done = run_here("adopt", "--kubeconfig", control_plane.kubeconfig, "--out", out)
        assert done.status == 0, done.err
        again = run_here("adopt", "--kubeconfig", control_plane.kubeconfig, "--out", out)
        listed = control_plane.kubectl("get", "--all-namespaces", "-o", "json", KINDS)
    lines = done.out.splitlines()
    place = f"{running}/deployments.apps"
    assert f"  {place}/web: pool-trespass: a Pod without a GPU request" in done.out
    assert (
        f"  {place}/vllm: container a: the user of its image -> user 65532; likely to fail (an "
        "image is known to fail as a user that it was not built for): policy.yaml has hardening: "
        "{home: 20Gi}" in lines
    )
    assert not [line for line in lines if line.startswith(f"  {place}/train: container")]
    document = yaml.safe_load((out / "policy.yaml").read_text())
    policy = parse_policy(document)
    assert policy.mode == "audit"
    assert policy.actions_in(running).hardening == Hardening(home="20Gi")
    assert [pool.selector for pool in policy.pools]
    [exception] = policy.exceptions
    assert exception.covers("system-priority", running, "DaemonSet", "node-exporter")
    assert not exception.covers("system-priority", running, "DaemonSet", "another")
    assert not exception.covers("pool-trespass", running, "DaemonSet", "node-exporter")
    assert f"  {running}/daemonsets.apps/node-exporter: system-priority: a node agent" in done.out
    assert "; policy.yaml has an exception" in done.out
    install(done.out, control_plane, helm, quick_command)
    assert f"{running}" in (out / "report.html").read_text()
    assert again.status == 2
    assert f"directory {out} has policy.yaml and report.html already" in again.err
    (tmp_path / "dump.json").write_text(listed.stdout)
    offline = run_here("adopt", "--dump", tmp_path / "dump.json", "--out", tmp_path / "offline")
    assert offline.status == 0, offline.err
    moved = offline.out.replace(str(tmp_path / "offline"), str(out)).splitlines()
    assert moved[1:] == lines[1:]
    assert (tmp_path / "offline" / "policy.yaml").read_text() == (out / "policy.yaml").read_text()
    print(f"\n{done.out}\n{(out / 'policy.yaml').read_text()}")
