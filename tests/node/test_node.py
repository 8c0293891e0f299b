"""gpufence's image and chart on a real kubelet, and what fails while replicas come and go."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.kubectl import KubectlError
from controlplane.poll import until
from deploy.chart import NAMESPACE, RELEASE
from node.image import TOOLS
from node.installed import SECOND, THREADS, Disrupt, Installed
from node.machine import NAME, Node

RESTARTS = int(os.environ.get("GPUFENCE_RESTARTS", "3"))
TAINT = "nvidia.com/gpu=present:NoSchedule"


@pytest.fixture
def fenced(installed: Installed) -> Iterator[Installed]:
    """The node behind its taint: it is the only one, so replicas that run stay on it."""
    installed.kubectl("taint", "node", NAME, TAINT, "--overwrite")
    yield installed
    installed.kubectl("taint", "node", NAME, f"{TAINT}-")


def container(name: str, command: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": TOOLS, "command": ["/bin/sh", "-c", command], **more}


def logs(installed: Installed, pod: str, name: str) -> str:
    return installed.node.cluster.kubectl("logs", pod, "-c", name).stdout


@contextmanager
def busy_disk(path: Path) -> Iterator[None]:
    """Write and read a file of 1 GiB again and again, for at most five minutes."""
    loop = 'while dd if=/dev/zero of="$0" bs=1M count=1024 conv=fsync && cat "$0"; do :; done'
    command = ["timeout", "300", "sh", "-c", f"({loop}) >/dev/null 2>&1", str(path)]
    with subprocess.Popen(command) as process:
        yield
        process.terminate()
    path.unlink(missing_ok=True)


# What runs


def test_the_replicas_run_as_the_chart_says(installed: Installed) -> None:
    for replica in installed.replicas():
        statuses = replica["status"]["containerStatuses"]
        assert [(each["ready"], each["restartCount"]) for each in statuses] == [(True, 0)]
        pid = installed.node.pid(installed.node.containers(replica["metadata"]["name"])[0])
        status = dict(
            line.split(":\t", 1)
            for line in (pid / "status").read_text().splitlines()
            if ":\t" in line
        )
        assert set(status["Uid"].split()) == {"65532"}
        assert int(status["CapEff"], 16) == 0
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        mounts = [line.split() for line in (pid / "mounts").read_text().splitlines()]
        [root] = [options for _, place, _, options, *_ in mounts if place == "/"]
        assert "ro" in root.split(",")


def test_doctor_finds_nothing_wrong(fenced: Installed) -> None:
    done = fenced.gpufence("doctor", "--namespace", NAMESPACE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_gpu_job_runs_with_its_devices_and_the_sidecar_sees_none(fenced: Installed) -> None:
    show = 'echo "uid=$(busybox id -u) devices=$NVIDIA_VISIBLE_DEVICES"'
    pod = {
        "restartPolicy": "Never",
        "containers": [
            container("main", show, resources={"limits": {"nvidia.com/gpu": 2}}),
            container("sidecar", show),
        ],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    cluster = fenced.node.cluster
    cluster.kubectl.create(job)
    cluster.kubectl("wait", "--for=condition=complete", "job/train", "--timeout=60s", timeout=70)
    found = cluster.kubectl.json("get", "pods", "-l", "job-name=train")["items"]
    name = found[0]["metadata"]["name"]
    main, sidecar = logs(fenced, name, "main").strip(), logs(fenced, name, "sidecar").strip()
    uid, _, devices = main.partition(" devices=")
    assert uid == "uid=65532"
    assert len(devices.split(",")) == 2
    assert sidecar == "uid=65532 devices=void"
    cluster.kubectl("delete", "job", "train")


def test_a_trespasser_is_denied(fenced: Installed) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trespasser"},
        "spec": {
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [container("main", "true")],
        },
    }
    with pytest.raises(KubectlError, match="pool-trespass"):
        fenced.node.cluster.kubectl.create(pod)


# What fails while replicas come and go


@pytest.mark.parametrize("number", range(RESTARTS))
def test_a_rolling_restart_fails_no_admission(
    installed: Installed, under_load: Disrupt, tmp_path: Path, number: int
) -> None:
    def restart() -> None:
        installed.kubectl("rollout", "restart", f"deployment/{RELEASE}")
        installed.wait()

    # Connections are idle for a while before every second restart. The disk is busy during every
    # third one: the machine then takes the pages of idle programs.
    time.sleep(5 * (number % 2))
    if number % 3 == 2:
        with busy_disk(tmp_path / "written"):
            under_load(f"rolling restart {number + 1}, busy disk", restart)
    else:
        under_load(f"rolling restart {number + 1}", restart)


def test_an_upgrade_of_the_image_fails_no_admission(
    installed: Installed, under_load: Disrupt
) -> None:
    image = {"image": {"tag": SECOND}}
    under_load("image upgrade", lambda: installed.upgrade(image))


def test_a_deleted_pod_fails_no_admission(installed: Installed, under_load: Disrupt) -> None:
    def delete() -> None:
        installed.kubectl("delete", "pod", installed.names()[0])
        installed.wait()

    under_load("kubectl delete pod", delete)


def test_a_pod_deleted_by_force_fails_only_what_it_was_answering(
    installed: Installed, under_load: Disrupt
) -> None:
    def delete() -> None:
        installed.kubectl("delete", "pod", installed.names()[0], "--force", "--grace-period=0")
        installed.wait()

    under_load("kubectl delete pod --force", delete, tolerated=THREADS)


def test_a_killed_container_fails_only_what_is_sent_to_it(
    installed: Installed, under_load: Disrupt
) -> None:
    """Its address stays in the Service until the kubelet reports that the container ended."""
    [victim, _] = installed.replicas()
    name, address = victim["metadata"]["name"], victim["status"]["podIP"]

    def restarted() -> bool:
        for replica in installed.replicas():
            if replica["metadata"]["name"] == name:
                [status] = replica["status"]["containerStatuses"]
                return bool(status["ready"] and status["restartCount"] == 1)
        return False

    def crash() -> None:
        installed.node.crash(name)
        until(restarted, "the container to run again", 120)

    refused = f"{address}:9443: connect: connection refused"
    under_load("SIGKILL of a container", crash, tolerated=THREADS, gone=refused)


def test_an_evicted_pod_fails_no_admission(installed: Installed, under_load: Disrupt) -> None:
    """The eviction that a drain requests, one Pod at a time, as the disruption budget allows."""

    def evict() -> None:
        name = installed.names()[0]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        installed.node.cluster.api.request("POST", path, eviction)
        until(lambda: name not in installed.names(), "the evicted Pod to be gone", 60)
        installed.wait()

    under_load("eviction", evict)


def test_a_drain_of_the_only_node_keeps_the_last_replica(
    installed: Installed, under_load: Disrupt
) -> None:
    """The replacement has no other node, so the disruption budget stops the drain."""

    def drain() -> None:
        selector = f"--pod-selector=app.kubernetes.io/name={RELEASE}"
        node = installed.node.cluster.kubectl
        drained = node("drain", NAME, selector, "--timeout=20s", check=False, timeout=60)
        node("uncordon", NAME)
        assert drained.returncode, drained.stdout
        assert "disruption budget" in drained.stderr, drained.stderr
        installed.wait()

    under_load("node drain", drain)


def test_a_rotation_of_the_ca_fails_no_admission(installed: Installed, under_load: Disrupt) -> None:
    """The kubelet refreshes the mounted Secret in its own time."""
    secret = ("get", "secret", "gpufence-serving", "-o", "json")

    def served() -> dict[str, str]:
        data: dict[str, str] = json.loads(installed.kubectl(*secret))["data"]
        return data

    def rotate() -> None:
        before = served()["ca.crt"]
        empty = ("--type", "merge", "--patch", '{"data": null}')
        installed.kubectl("patch", "secret", "gpufence-ca", *empty)
        until(lambda: served()["ca.crt"] != before, "the next CA to sign", 120)
        until(lambda: installed.serve(served()["tls.crt"]), "replicas to serve its pair", 180)

    under_load("CA rotation", rotate)


def test_a_new_policy_fails_no_admission(installed: Installed, under_load: Disrupt) -> None:
    warn = {"policy": {"rules": {"pool-trespass": "warn"}}}
    under_load("policy change", lambda: installed.upgrade({**warn, "image": {"tag": SECOND}}))


def test_nothing_is_left_after_an_uninstall(installed: Installed) -> None:
    installed.helm("uninstall", RELEASE, "--namespace", NAMESPACE)
    until(lambda: not installed.replicas(), "the Pods to be gone", 120)
    configurations = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    left = installed.kubectl("get", configurations, "-o", "name")
    assert RELEASE not in left


def test_the_node_is_ready_at_the_end(node: Node) -> None:
    assert node.ready()
