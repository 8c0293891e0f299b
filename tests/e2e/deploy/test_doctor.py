"""The doctor at an installation: well, and with one fault after the other.

Each fault of the table is named, and its cure works as it is written.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from certs.authority import create_authority, issue_leaf
from certs.secret import serving_data, with_data
from controlplane import policies
from controlplane.cluster import ControlPlane
from controlplane.objects import node
from controlplane.poll import until
from deploy import kubelet
from deploy.chart import NAMESPACE, RELEASE, Object
from deploy.installation import CONTROLLERS, KINDS, Installation
from running import run_here
from specs import default_spec, fence_policy

pytestmark = [
    pytest.mark.skipif(
        bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
    ),
]

VALUES = {"webhook": {"drainSeconds": 1}}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = (f"{ADMISSION}/{kind}/{RELEASE}" for kind in KINDS)
IN_TREE = f"{ADMISSION}/validatingadmissionpolicies"
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
SERVICE = f"{CORE}/services/{RELEASE}"
SECRET, CA_SECRET = (f"{CORE}/secrets/{RELEASE}-{name}" for name in ("serving", "ca"))
ACCOUNT = f"{CORE}/serviceaccounts/{RELEASE}"
POLICY = f"{policies.PATH}/{RELEASE}"
DEPLOYMENT, CONTROLLER = (
    f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}"
    for name in (RELEASE, f"{RELEASE}-controller")
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE, CONTROLLER_ROLE = (f"{RBAC}/clusterroles/{RELEASE}{end}" for end in ("", "-controller"))
SECRETS_ROLE = f"{RBAC}/namespaces/{NAMESPACE}/roles/{RELEASE}-controller"
DEPLOY = ("create", "deployment", "operator", "--image=a", "--replicas=0")


class DoctorRun(NamedTuple):
    """What a run of the doctor came to: its status, and what it found, by check and status."""

    status: int
    lines: list[dict[str, str]]

    def detail(self, status: str, check: str) -> str:
        """Return what was found under a check, if that was of this status."""
        lines = [x for x in self.lines if (x["status"], x["check"]) == (status, check)]
        return "; ".join(line["detail"] for line in lines)

    @property
    def faults(self) -> list[dict[str, str]]:
        return [line for line in self.lines if line["status"] not in ("ok", "skip")]


def doctor(installed: Installation, *options: str, kubeconfig: Path | None = None) -> DoctorRun:
    """Run the doctor as an administrator, or with another kubeconfig."""
    path = kubeconfig or installed.cluster.kubeconfig
    done = run_here("doctor", "--kubeconfig", path, *options, "--output", "json")
    assert done.status in (0, 1), done.err
    lines: list[dict[str, str]] = done.report["lines"]
    assert all(line["remediation"] for line in lines if line["status"] not in ("ok", "skip"))
    return DoctorRun(done.status, lines)


@pytest.fixture(scope="module")
def installed(installable: Installation) -> Iterator[Installation]:
    with installable.cluster.checks_policy_types():
        installable.install(VALUES)
        yield installable


class Fault(NamedTuple):
    """A fault, and the line that names it: its check, and a part of what it says."""

    plant: Callable[[ControlPlane], object]
    check: str
    detail: str

    def is_in(self, line: dict[str, str]) -> bool:
        return line["check"] == self.check and self.detail in line["detail"]


def deleted(path: str) -> Callable[[ControlPlane], object]:
    return lambda cluster: cluster.api.request("DELETE", path)


def changed(path: str, change: Callable[[Object], object]) -> Callable[[ControlPlane], object]:
    """Return what changes an object in place."""

    def plant(cluster: ControlPlane) -> None:
        before = cluster.api.request("GET", path)
        after = deepcopy(before)
        change(after)
        patch: list[Object] = [
            {"op": "add", "path": f"/{key}", "value": after[key]}
            if key in after
            else {"op": "remove", "path": f"/{key}"}
            for key in before
            if before[key] != after.get(key)
        ]
        cluster.api.request("PATCH", path, patch, "application/json-patch+json")

    return plant


def created(collection: str, *objects: Object) -> Callable[[ControlPlane], object]:
    return lambda cluster: [cluster.api.request("POST", collection, each) for each in objects]


def scaled(deployment: str, replicas: int) -> Callable[[ControlPlane], object]:
    return changed(deployment, lambda obj: obj["spec"].update(replicas=replicas))


def denied(role: str, resource: str, verb: str) -> Callable[[ControlPlane], object]:
    """Return what takes a verb on a resource from a role."""

    def change(obj: Object) -> None:
        for rule in obj["rules"]:
            if resource in rule["resources"]:
                rule["verbs"] = [each for each in rule["verbs"] if each != verb] or ["list"]

    return changed(role, change)


def with_webhook(change: Callable[[Object], object]) -> Callable[[ControlPlane], object]:
    return changed(VALIDATING, lambda obj: change(obj["webhooks"][0]))


def foreign_bundle(webhook: Object) -> None:
    foreign = create_authority(datetime.now(UTC), timedelta(days=1)).certificate_pem
    webhook["clientConfig"]["caBundle"] = base64.b64encode(foreign).decode()


def expire(secret: Object) -> None:
    """Fill it with a certificate of another CA, which has expired."""
    past = datetime.now(UTC) - timedelta(days=30)
    old = create_authority(past, timedelta(days=60))
    names = [f"{RELEASE}.{NAMESPACE}.svc"]
    leaf = issue_leaf(old, names, past, timedelta(days=29))
    secret.update(with_data(secret, serving_data(leaf, old)))


def another_webhook(kind: str, name: str, webhook: str, service: str) -> Object:
    """Return a configuration with a webhook that fails closed for Pods."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": webhook,
                "clientConfig": {"service": {"namespace": "default", "name": service}},
                "rules": [{**rule, "resources": ["pods"]}],
                # Not the Pods of the installation itself.
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "default"},
                },
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def another_policy(name: str, **metadata: object) -> Callable[[ControlPlane], object]:
    """Return what creates an admission policy that denies every Pod in a namespace."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [{**rule, "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        },
        "validations": [{"expression": "false", "message": "pool-trespass: stale"}],
    }
    named = {"metadata": {"name": name, **metadata}}

    def plant(cluster: ControlPlane) -> None:
        cluster.api.request("POST", IN_TREE, {**named, "spec": spec})
        binding = {"policyName": name, "validationActions": ["Deny"]}
        cluster.api.request("POST", BINDINGS, {**named, "spec": binding})

    return plant


def excepted(**entry: object) -> Callable[[ControlPlane], object]:
    """Return what adds an exception to the policy."""
    return changed(POLICY, lambda obj: obj["spec"].setdefault("exceptions", []).append(entry))


def with_argument(deployment: str, before: str, after: str) -> Callable[[ControlPlane], object]:
    """Return what changes an argument of a Deployment's container."""

    def change(obj: Object) -> None:
        [container] = obj["spec"]["template"]["spec"]["containers"]
        assert before in container["args"]
        container["args"] = [after if each == before else each for each in container["args"]]

    return changed(deployment, change)


def guard(name: str) -> str:
    return f"{IN_TREE}/{RELEASE}-{name}-guard"


def guard_binding(name: str) -> str:
    return f"{BINDINGS}/{RELEASE}-{name}-guard"


OFF = Fault(scaled(CONTROLLER, 0), "controller", "gpufence-controller is scaled to 0")
VALIDATED = "ValidatingWebhookConfiguration"
FAULTS: dict[str, tuple[Fault, ...]] = {
    "what-the-controller-keeps-while-it-is-off": (
        OFF,
        Fault(
            deleted(MUTATING),
            "MutatingWebhookConfiguration",
            "gpufence does not exist. Configurations of that kind: ",
        ),
        Fault(with_webhook(foreign_bundle), "caBundle", f"in {VALIDATED}, webhook pods"),
        Fault(
            with_webhook(lambda webhook: webhook.update(failurePolicy="Ignore")),
            VALIDATED,
            "is Ignore, but must be Fail",
        ),
        Fault(
            with_webhook(lambda webhook: webhook["rules"].pop()),
            VALIDATED,
            "rules of webhook pods.gpufence.dev",
        ),
        Fault(
            deleted(f"{IN_TREE}/{RELEASE}-pool-trespass"),
            "admission policies",
            "gpufence-pool-trespass: it does not exist",
        ),
        Fault(changed(SECRET, expire), "certificate", "the serving certificate expired at"),
    ),
    "more-of-it": (
        OFF,
        Fault(deleted(VALIDATING), VALIDATED, "gpufence does not exist"),
        Fault(
            changed(
                MUTATING,
                lambda obj: obj["webhooks"][0]["namespaceSelector"]["matchExpressions"][0][
                    "values"
                ].append("default"),
            ),
            "MutatingWebhookConfiguration",
            "excludes default, where gpufence therefore has no effect",
        ),
        Fault(
            changed(MUTATING, lambda obj: obj["webhooks"][0]["clientConfig"].pop("caBundle")),
            "caBundle",
            "in MutatingWebhookConfiguration, webhook pods",
        ),
        Fault(
            changed(
                f"{IN_TREE}/{RELEASE}-device-leak",
                lambda obj: obj["spec"]["validations"][0].update(expression="true"),
            ),
            "admission policies",
            "validations of the spec does not match the policy",
        ),
        Fault(changed(CA_SECRET, lambda obj: obj.pop("data")), "CA", "the Secret contains no CA"),
    ),
    "no-pair": (
        OFF,
        Fault(
            changed(SECRET, lambda obj: obj.pop("data")), "certificate", "no serving certificate"
        ),
        Fault(
            changed(
                VALIDATING,
                lambda obj: obj["webhooks"].append(
                    {**obj["webhooks"][0], "name": "old.gpufence.dev"}
                ),
            ),
            VALIDATED,
            "webhook old.gpufence.dev is not needed",
        ),
    ),
    "rights": (
        Fault(denied(CONTROLLER_ROLE, "nodes", "watch"), "rights", "may not watch nodes"),
        Fault(
            denied(CONTROLLER_ROLE, "mutatingwebhookconfigurations", "update"),
            "rights",
            "may not update mutatingwebhookconfigurations gpufence",
        ),
        Fault(
            denied(SECRETS_ROLE, "secrets", "update"), "rights", "may not update secrets gpufence"
        ),
        Fault(
            denied(CONTROLLER_ROLE, "fencepolicies/status", "patch"),
            "rights",
            "may not patch fencepolicies/status gpufence",
        ),
        Fault(denied(ROLE, "nodes", "list"), "rights", "gpufence may not list nodes: Pods with"),
        Fault(denied(ROLE, "resourceclaims", "get"), "rights", "may not get resourceclaims"),
    ),
    "bindings-of-roles": (
        Fault(
            deleted(f"{RBAC}/clusterrolebindings/{RELEASE}"),
            "rights",
            ":gpufence may not list and watch fencepolicies",
        ),
        Fault(
            deleted(f"{RBAC}/clusterrolebindings/{RELEASE}-controller"),
            "rights",
            ":gpufence-controller may not list and watch fencepolicies",
        ),
        Fault(
            deleted(f"{RBAC}/namespaces/{NAMESPACE}/rolebindings/{RELEASE}-controller"),
            "rights",
            "may not list, watch and update secrets",
        ),
    ),
    "guards": (
        Fault(deleted(guard("registration")), "guards", "gpufence-registration-guard has no Val"),
        Fault(deleted(guard_binding("secret")), "guards", "gpufence-secret-guard has no Valid"),
        Fault(
            changed(guard("namespace"), lambda obj: obj["spec"].update(failurePolicy="Ignore")),
            "guards",
            "gpufence-namespace-guard fails open",
        ),
    ),
    "binding-of-a-guard": (
        Fault(
            changed(
                guard_binding("namespace"), lambda o: o["spec"].update(validationActions=["Audit"])
            ),
            "guards",
            "gpufence-namespace-guard has a binding without Deny",
        ),
    ),
    "no-service": (Fault(deleted(SERVICE), "Service", "gpufence does not exist"),),
    "service-port": (
        Fault(
            changed(SERVICE, lambda obj: obj["spec"]["ports"][0].update(port=8443)),
            "Service",
            "has no port 443, which API servers call; its ports: 8443",
        ),
    ),
    "service-selector": (
        Fault(
            changed(SERVICE, lambda obj: obj["spec"]["selector"].update(a="b")),
            "Service",
            "does not select the replicas",
        ),
    ),
    "service-target": (
        Fault(
            changed(SERVICE, lambda obj: obj["spec"]["ports"][0].update(targetPort=9)),
            "Service",
            "sends port 443 to port 9, on which no replica listens",
        ),
    ),
    "no-secrets": (
        Fault(deleted(CA_SECRET), "CA", "gpufence-ca does not exist"),
        Fault(deleted(SECRET), "certificate", "gpufence-serving does not exist"),
    ),
    "exceptions": (
        Fault(
            excepted(namespaces=["a"], reason="old", expires="2024-01-01"),
            "exceptions",
            "(old) expired on 2024-01-01",
        ),
        Fault(
            excepted(namespaces=["gpu-operator"], reason="exempt"),
            "exceptions",
            "(exempt) covers nothing: its namespaces are exempt",
        ),
        Fault(
            excepted(namespaces=["*"], reason="hurry"),
            "exceptions",
            "(hurry) covers every Pod in every namespace, for every rule",
        ),
        Fault(
            created(policies.PATH, fence_policy(default_spec(), "draft")),
            "other policies",
            "FencePolicy draft has no effect: replicas follow gpufence",
        ),
    ),
    "audit": (
        Fault(
            changed(POLICY, lambda obj: obj["spec"].update(mode="audit")),
            "mode",
            "the policy's mode is audit",
        ),
    ),
    "webhook-without-service": (
        Fault(
            created(
                f"{ADMISSION}/{KINDS[1]}", another_webhook(VALIDATED, "old", "a.example.com", "no")
            ),
            "other webhooks",
            f"webhook a.example.com of {VALIDATED} old fails closed for Pods, and Service default",
        ),
    ),
    "webhook-without-endpoints": (
        Fault(
            created(
                f"{ADMISSION}/{KINDS[0]}",
                another_webhook(
                    "MutatingWebhookConfiguration", "mesh", "a.example.com", "kubernetes"
                ),
            ),
            "GPU Pod, pool nvidia",
            "rejected by webhook a.example.com",
        ),
    ),
    "stale-policy-of-another-release": (
        Fault(
            another_policy("fleet-pool-trespass", labels={"app.kubernetes.io/name": "gpufence"}),
            "other releases",
            "ValidatingAdmissionPolicy fleet-pool-trespass is of another release",
        ),
    ),
    "stale-policy-without-labels": (
        Fault(
            another_policy("fleet-gpufence-device-leak"),
            "other releases",
            "ValidatingAdmissionPolicy fleet-gpufence-device-leak is of another release",
        ),
    ),
    "policy-of-others": (
        Fault(
            another_policy("no-pods"),
            "GPU Pod, pool nvidia",
            "rejected by ValidatingAdmissionPolicy no-pods",
        ),
    ),
    "webhooks-of-another-release": (
        Fault(
            created(
                f"{ADMISSION}/{KINDS[0]}",
                another_webhook(
                    "MutatingWebhookConfiguration", "fleet", "pods.gpufence.dev", "fleet"
                ),
            ),
            "other releases",
            "MutatingWebhookConfiguration fleet is of another release",
        ),
    ),
    "no-replicas": (Fault(scaled(DEPLOYMENT, 0), "replicas", "is scaled to 0"),),
    "one-replica": (Fault(scaled(DEPLOYMENT, 1), "replicas", "has one replica"),),
    "controller-off": (OFF,),
    "no-deployments": (
        Fault(deleted(DEPLOYMENT), "replicas", "does not exist, and its service account does"),
        Fault(deleted(CONTROLLER), "controller", "does not exist, and its service account does"),
    ),
    "no-account": (Fault(deleted(ACCOUNT), "rights", "gpufence does not exist"),),
    "no-policy": (
        Fault(deleted(POLICY), "policy", "the cluster has no FencePolicy gpufence. FencePolic"),
    ),
    "command-lines": (
        Fault(
            with_argument(DEPLOYMENT, "--node-facts", "--no-node-facts"),
            "cluster facts",
            "they are off: Pods with spec.nodeName",
        ),
        Fault(
            with_argument(CONTROLLER, "--admission-policies", "--no-admission-policies"),
            "admission policies",
            "none found",
        ),
    ),
    "another-policy-in-the-command-line": (
        Fault(
            with_argument(CONTROLLER, "--fence-policy=gpufence", "--fence-policy=other"),
            "policy",
            "replicas follow gpufence, and the controller other",
        ),
    ),
}


def commands_of(cure: str) -> list[str]:
    """Return what a remediation says to run, as it is written; `helm` is an upgrade."""
    commands = []
    for sentence in re.split(r"[.:] (?=[A-Z])", cure):
        if match := re.search(r"\b[Rr]un kubectl (.+?)(?:, or .*)?$", sentence):
            commands.append(match[1])
        elif re.match(r"Restore the release|Set \S+( true)? in the chart", sentence):
            commands.append("helm")
    return commands


def unnamed(faults: tuple[Fault, ...], found: DoctorRun) -> list[Fault]:
    return [fault for fault in faults if not any(map(fault.is_in, found.faults))]


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_and_its_cure_works(
    installed: Installation, faults: tuple[Fault, ...]
) -> None:
    cluster = installed.cluster
    for fault in faults:
        fault.plant(cluster)
        if fault is OFF:
            until(lambda: not installed.pods(CONTROLLERS), "the controller to be gone")
    with suppress(TimeoutError):
        # API servers and controllers act on a fault with a delay.
        until(lambda: not unnamed(faults, doctor(installed)), "each to be named", within=40)
    found = doctor(installed)
    assert not unnamed(faults, found), found.faults
    assert found.status == int(any(line["status"] != "warn" for line in found.faults))
    steps: dict[str, None] = {}
    for line in found.faults:
        commands = commands_of(line["remediation"])
        steps |= dict.fromkeys(commands)
        is_planted = any(fault.is_in(line) for fault in faults)
        assert not is_planted or commands or "it repairs this" in line["remediation"], line
    # Helm creates again what the others delete.
    for step in sorted(steps, key="helm".__eq__):
        if step == "helm":
            installed.upgrade(VALUES)
        else:
            cluster.kubectl(*shlex.split(step))
    until(
        lambda: not (now := doctor(installed)).faults and not now.status,
        "the doctor to be content",
    )


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


def test_checks_without_permissions_are_unknown(installed: Installation) -> None:
    directory = installed.cluster.directory
    path = installed.cluster.as_account("default", "default", directory / "stranger")
    output = doctor(installed, kubeconfig=path)
    assert output.status == 1
    statuses = {line["status"] for line in output.lines}
    assert "fail" not in statuses
    assert "unknown" in statuses
