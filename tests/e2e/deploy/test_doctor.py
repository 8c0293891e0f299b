"""The doctor at an installation: well, and broken in one way after the other."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
import yaml

import junit_schema
from certs.authority import create_authority, issue_leaf
from certs.keypair import Names
from certs.secret import serving_data, with_data
from controlplane import policies
from controlplane.api import ApiError
from controlplane.objects import node
from controlplane.poll import until
from deploy import kubelet
from deploy.chart import NAMESPACE, RELEASE, Object
from deploy.installation import CONTROLLERS, KINDS, Installation
from running import run_here
from specs import fence_policy

pytestmark = [
    pytest.mark.skipif(
        bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
    ),
]

MUTATING, VALIDATING = (f"/apis/admissionregistration.k8s.io/v1/{kind}/{RELEASE}" for kind in KINDS)
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{RELEASE}-serving"
POLICY = f"{policies.PATH}/{RELEASE}"
DEPLOYMENT, CONTROLLER = (
    f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}"
    for name in (RELEASE, f"{RELEASE}-controller")
)
DEPLOY = ("create", "deployment", "operator", "--image=a", "--replicas=0")
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


class DoctorRun(NamedTuple):
    """What a run of the doctor came to: its status, and what it found, by check and status."""

    status: int
    lines: list[dict[str, str]]

    def detail(self, status: str, check: str) -> str:
        """Return what was found under a check, if that was of this status."""
        lines = [x for x in self.lines if (x["status"], x["check"]) == (status, check)]
        return "; ".join(line["detail"] for line in lines)


def doctor(installed: Installation, *options: str, kubeconfig: Path | None = None) -> DoctorRun:
    """Run the doctor as an administrator, or with another kubeconfig."""
    path = kubeconfig or installed.cluster.kubeconfig
    done = run_here("doctor", "--kubeconfig", path, *options, "--output", "json")
    assert done.status in (0, 1), done.err
    lines: list[dict[str, str]] = done.report["lines"]
    assert all(line["remediation"] for line in lines if line["status"] in ("warn", "fail"))
    return DoctorRun(done.status, lines)


@pytest.fixture(scope="module")
def installed(installable: Installation) -> Iterator[Installation]:
    with installable.cluster.checks_policy_types():
        installable.install({"webhook": {"drainSeconds": 1}})
        yield installable


@contextmanager
def restored(installed: Installation, path: str) -> Iterator[Object]:
    """Provide an object, and have it as it was after the block, whatever became of it there."""
    api = installed.cluster.api
    before = api.request("GET", path)
    yield before
    metadata = {k: v for k, v in before["metadata"].items() if k not in ("resourceVersion", "uid")}
    with suppress(ApiError):
        api.request("DELETE", path)
    api.request("POST", path.rpartition("/")[0], {**before, "metadata": metadata})


@pytest.fixture(scope="module")
def paused(installed: Installation) -> Iterator[Installation]:
    """An installation without its controller, so that nothing repairs the configurations."""
    api = installed.cluster.api
    api.request("PATCH", CONTROLLER, {"spec": {"replicas": 0}}, MERGE)
    until(lambda: not installed.pods(CONTROLLERS), "the controller to be gone")
    yield installed
    api.request("PATCH", CONTROLLER, {"spec": {"replicas": 1}}, MERGE)
    until(lambda: installed.is_controlled(), "the controller to be ready")


def test_all_checks_of_a_healthy_installation_are_ok(installed: Installation) -> None:
    output = doctor(installed)
    assert output.status == 0
    assert [line for line in output.lines if line["status"] != "ok"] == []
    assert output.detail("ok", "GPU Pod, pool nvidia") == "gpufence changes it, in default"
    by_webhook = output.detail("ok", "trespasser, pool nvidia")
    assert by_webhook == "the webhook denies it, in default"
    in_tree = output.detail("ok", "trespasser, pool nvidia, by admission policy")
    assert in_tree == "the admission policy denies it, in default"
    assert "all 2 and their bindings" in output.detail("ok", "admission policies")


def test_the_text_report_of_a_healthy_installation_has_only_ok_lines(
    installed: Installation,
) -> None:
    lines = run_here("doctor", "--kubeconfig", installed.cluster.kubeconfig).out.splitlines()
    assert [line for line in lines[:-2] if not line.startswith("ok  ")] == []
    assert lines[-1] == f"{len(lines) - 2} ok"


def test_evidence_names_what_needs_a_gpu_and_runs_no_pod(
    installed: Installation, tmp_path: Path
) -> None:
    directory = tmp_path / "v1.36" / "cloud"
    output = doctor(installed, "--evidence", str(directory))
    assert output.status == 0
    leak = output.detail("ok", "device leak")
    assert re.fullmatch("the (webhook|admission policy) denies it, in default", leak)
    assert output.detail("skip", "device access without a request") == "it runs a Pod on a node"
    assert (
        output.detail("skip", "device access, pool nvidia") == "it runs two Pods, each with a GPU"
    )
    entry = yaml.safe_load((directory / "secure_accelerator_access.yaml").read_text())
    [requirement] = entry["spec"]["security"]
    assert (requirement["level"], requirement["status"]) == ("MUST", "Partially Implemented")
    assert "skip: device access, pool nvidia" in requirement["notes"]
    [report] = requirement["evidence"]
    text = (directory / report).read_text()
    junit_schema.validate(text)
    suite = ET.fromstring(text)  # noqa: S314 - the tests' own output
    skipped = [case.get("name") for case in suite if case.find("skipped") is not None]
    assert skipped == ["device access without a request", "device access, pool nvidia"]


def test_pods_that_cannot_run_are_no_evidence_and_are_not_left(
    installed: Installation, tmp_path: Path
) -> None:
    api = installed.cluster.api
    installed.cluster.create_namespace("full")
    quota = {"metadata": {"name": "one"}, "spec": {"hard": {"pods": "0"}}}
    path = "/api/v1/namespaces/full"
    api.request("POST", f"{path}/resourcequotas", quota)
    options = ("--try-in", "full", "--evidence", str(tmp_path), "--run-image", "busybox:1")
    until(
        lambda: (
            "exceeded quota"
            in doctor(installed, *options).detail("skip", "device access, pool nvidia")
        ),
        "the quota to be in force",
    )
    assert not api.request("GET", f"{path}/pods")["items"]


def test_missing_and_foreign_configurations_fail(paused: Installation) -> None:
    foreign = create_authority(datetime.now(UTC), timedelta(days=1)).certificate_pem
    patch = {
        "op": "replace",
        "path": "/webhooks/0/clientConfig/caBundle",
        "value": base64.b64encode(foreign).decode(),
    }
    api = paused.cluster.api
    with restored(paused, MUTATING), restored(paused, VALIDATING):
        api.request("DELETE", MUTATING)
        until(
            lambda: doctor(paused).detail("fail", "GPU Pod, pool nvidia"),
            "the API server to forget the webhook",
        )
        api.request("PATCH", VALIDATING, [patch], JSON_PATCH)
        output = doctor(paused)
    assert output.status == 1
    missing = "MutatingWebhookConfiguration gpufence does not exist"
    assert missing in output.detail("fail", "MutatingWebhookConfiguration")
    other = "does not contain the CA of the Secret in ValidatingWebhookConfiguration, webhook pods"
    assert other in output.detail("fail", "caBundle")
    assert "nothing renews certificates" in output.detail("warn", "controller")


def test_an_admitted_trespasser_fails_the_trial(paused: Installation) -> None:
    patch = {
        "op": "add",
        "path": "/webhooks/0/namespaceSelector/matchExpressions/0/values/-",
        "value": "default",
    }
    with restored(paused, VALIDATING):
        paused.cluster.api.request("PATCH", VALIDATING, [patch], JSON_PATCH)
        until(
            lambda: doctor(paused).detail("fail", "trespasser, pool nvidia"),
            "the API server to heed the selector",
        )


def test_an_exempt_namespace_without_workloads_causes_a_warning(installed: Installation) -> None:
    """The cluster also has a GPU node without the taint, which fails."""
    check, kubectl = "exempt namespaces", installed.cluster.kubectl
    kubectl("create", "namespace", "gpu-operator-resources")
    with installed.cluster.nodes(node("bare", resources={"nvidia.com/gpu": "4"})):
        output = doctor(installed)
    assert "runs in gpu-operator-resources" in output.detail("warn", check)
    kubectl(*DEPLOY, "--namespace=gpu-operator-resources")
    # The installation deletes the namespace at its end.
    assert doctor(installed).detail("ok", check) == "each has a workload: gpu-operator-resources"
    assert output.status == 1
    assert "node bare: a GPU node lacks the taint of its pool" in output.detail("fail", "nodes")
    cures = [line["remediation"] for line in output.lines if line["check"] == "nodes"]
    assert "Run kubectl taint node bare nvidia.com/gpu=present:NoSchedule" in cures


def test_an_invalid_policy_is_reported_and_trials_are_skipped(paused: Installation) -> None:
    api = paused.cluster.api
    [pool] = api.request("GET", POLICY)["spec"]["pools"]

    def is_stored(*pools: Object) -> bool:
        with suppress(ApiError):
            return bool(api.request("PATCH", POLICY, {"spec": {"pools": pools}}, MERGE))
        return False

    with restored(paused, MUTATING):
        # The webhook denies it, and the definition of the kind cannot compare pools.
        assert not is_stored(pool, pool)
        api.request("DELETE", MUTATING)
        until(lambda: is_stored(pool, pool), "the API server to forget the webhook")
        output = doctor(paused)
        assert is_stored(pool)
    assert output.status == 1
    assert "gpufence: spec: has two pools named 'nvidia'" in output.detail("fail", "policy")
    assert output.detail("skip", "trials")


def test_a_policy_that_differs_from_the_installed_policy_is_reported(
    installed: Installation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = installed.cluster.api.request("GET", POLICY)["spec"]
    spec["pools"][0]["taints"][0]["key"] = "example.com/gpu"
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(yaml.safe_dump(fence_policy(spec)))
    output = doctor(installed, "--policy", str(path))
    assert "does not match the policy" in output.detail("fail", "ValidatingWebhookConfiguration")
    assert output.status == 1


@pytest.fixture(scope="module")
def idle(installed: Installation) -> Installation:
    """An installation without any Pod; the last tests of the module, for it takes a while."""
    api = installed.cluster.api
    for deployment in (CONTROLLER, DEPLOYMENT):
        api.request("PATCH", deployment, {"spec": {"replicas": 0}}, MERGE)
    until(lambda: not installed.pods("gpufence,gpufence-controller"), "the Pods to be gone")
    return installed


def expired() -> dict[str, bytes]:
    """Return another CA and a serving certificate that has expired."""
    past = datetime.now(UTC) - timedelta(days=30)
    names = Names.parse([f"{RELEASE}.{NAMESPACE}.svc"])
    old = create_authority(past, timedelta(days=60))
    return serving_data(issue_leaf(old, names, past, timedelta(days=29)), old)


def test_missing_replicas_and_an_expired_certificate_fail(idle: Installation) -> None:
    with restored(idle, SECRET):
        idle.cluster.api.request("PATCH", SECRET, with_data({}, expired()), MERGE)
        # The EndpointSlices follow the Pods.
        until(lambda: doctor(idle).detail("fail", "endpoints"), "the endpoints to be gone")
        output = doctor(idle)
    assert "0 of 0 are ready" in output.detail("fail", "replicas")
    assert "has no ready endpoint" in output.detail("fail", "endpoints")
    assert "cannot call gpufence" in output.detail("fail", "GPU Pod, pool nvidia")
    assert "the serving certificate expired at" in output.detail("fail", "certificate")
    assert output.detail("fail", "caBundle")


def test_a_missing_secret_is_reported(idle: Installation) -> None:
    with restored(idle, SECRET):
        idle.cluster.api.request("DELETE", SECRET)
        output = doctor(idle)
    assert "gpufence-serving does not exist" in output.detail("fail", "certificate")


def test_checks_without_permissions_are_skipped(installed: Installation) -> None:
    directory = installed.cluster.directory
    path = installed.cluster.as_account("default", "default", directory / "stranger")
    output = doctor(installed, kubeconfig=path)
    assert output.status == 0
    statuses = {line["status"] for line in output.lines}
    assert "fail" not in statuses
    assert "skip" in statuses
