"""An installation's whole life: installed by helm, called through its Service, and gone again.

The tests build on each other: one cluster, one release, from its installation to its end.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.authority import create_authority, issue_leaf
from certs.secret import serving_data, with_data
from controlplane import pki
from controlplane.api import Api
from controlplane.objects import definition
from controlplane.poll import until
from controlplane.versions import CLAIMS
from controlplane.webhooks import calls, wait_until_called
from deploy import kubelet
from deploy.chart import NAMESPACE, RELEASE, Object, Values, memory
from deploy.installation import CONTROLLER_USER, KINDS, REPLICA_USER, Installation
from deploy.series import registry, series
from paths import CHART
from release.load import Load
from specs import default_spec
from webhook.active_policy import PATH as FENCE_POLICIES
from webhook.controller.controller import RELEASE as ANNOTATION
from webhook.controller.registrar import POLICY_KINDS as PATHS
from webhook.controller.text.objects import BINDING_KIND, POLICY_KIND, all_names

pytestmark = [
    pytest.mark.skipif(
        bool(REASON := kubelet.unavailable()), reason=f"no network namespaces here: {REASON}"
    ),
]


def pod(**spec: object) -> Object:
    container: Object = {"name": "main", "image": "registry.example/app"}
    if spec.pop("gpu", False):
        container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return {"metadata": {"generateName": "probe-"}, "spec": {"containers": [container], **spec}}


RBAC = "rbac.authorization.k8s.io"
IN_TREE = (PATHS[POLICY_KIND], PATHS[BINDING_KIND])
"""Where the API has the admission policies and their bindings."""
Right = tuple[str, str, str]
"""API group, resource (with a subresource after a slash) and verb."""
MERGE = "application/merge-patch+json"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CA, SERVING = "gpufence-ca", "gpufence-serving"
AS_ACCOUNT = tuple(
    f"--as-group=system:{group}"
    for group in ("serviceaccounts", f"serviceaccounts:{NAMESPACE}", "authenticated")
)
GPU_POD = pod(gpu=True)
TRESPASSER = pod(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])


# Everything that gpufence reads of a cluster is of use to this one.
VALUES: Values = {
    "clusterFacts": True,
    "policy": {
        "pools": [
            {
                **default_spec()["pools"][0],
                "runtimeClass": "nvidia",
                "allowedNamespaces": {"matchLabels": {"gpus": "yes"}, "names": ["default"]},
            }
        ]
    },
}

WITH_CLIENT_CA: Values = {
    **VALUES,
    "webhook": {"clientCA": {"configMap": "api-servers"}, "drainSeconds": 1},
}
"""With replicas that take reviews from API servers only, and that end without a load."""


@pytest.fixture(scope="module")
def others(installable: Installation) -> set[str]:
    """What tests before have left under a name like the release's."""
    return set(named_gpufence(installable))


@pytest.fixture(scope="module")
def installed(installable: Installation, others: set[str]) -> Installation:
    """The release, in a cluster of two nodes without GPUs and one with."""
    installable.install(VALUES)
    return installable


def test_replicas_run_on_separate_nodes_without_gpus(installed: Installation) -> None:
    assert {each["spec"]["nodeName"] for each in installed.pods()} == {"one", "two"}
    assert {each["spec"]["priorityClassName"] for each in installed.pods()} == {
        "system-cluster-critical"
    }


def test_gpu_pods_are_admitted_through_the_service(installed: Installation) -> None:
    for configuration in installed.configurations():
        for webhook in configuration["webhooks"]:
            service = webhook["clientConfig"]["service"]
            assert (service["namespace"], service["name"]) == (NAMESPACE, RELEASE)
    before = calls(installed.cluster.api.text("/metrics"))
    changed = installed.create_pod(GPU_POD)["spec"]
    assert {"key": "nvidia.com/gpu", "effect": "NoSchedule", "operator": "Exists"} in changed[
        "tolerations"
    ]
    assert changed["securityContext"]["runAsNonRoot"] is True
    made = calls(installed.cluster.api.text("/metrics")) - before
    assert {kind for kind, _ in made} == {"admit", "validating"}


def test_replicas_mount_no_key_of_the_ca(installed: Installation) -> None:
    assert secret(installed, CA).keys() == {"ca.crt", "ca.key"}
    assert secret(installed, SERVING).keys() == {"ca.crt", "tls.crt", "tls.key"}
    for each in installed.pods():
        mounted = [volume.get("secret", {}).get("secretName") for volume in each["spec"]["volumes"]]
        assert CA not in mounted
        assert SERVING in mounted


def secret(installed: Installation, name: str) -> dict[str, str]:
    """Return the data of a Secret."""
    found = installed.cluster.api.request("GET", f"{SECRETS}/{name}")
    return found.get("data") or {}


def empty(installed: Installation, *names: str) -> None:
    """Remove the data of Secrets, as the page about certificates says."""
    for name in names:
        patch = ("patch", "secret", name, "--type", "merge", "--patch", '{"data": null}')
        installed.cluster.kubectl(*patch, "--namespace", NAMESPACE)


def test_gitops_finds_no_difference_and_reverts_break_glass_unless_it_is_stopped(
    installed: Installation,
) -> None:
    """Argo CD and Flux apply what the chart renders, and compare it by a dry run with the cluster.

    Nothing that gpufence writes is a difference to the chart.
    """
    kubectl, path = installed.cluster.kubectl, f"{FENCE_POLICIES}/{RELEASE}"
    flags = ("--server-side", "--force-conflicts", "--field-manager=git", "-f", "-")
    definition = (CHART / "crds" / "fencepolicies.yaml").read_text()

    def rendered(mode: str) -> str:
        values = {**VALUES, "policy": {**VALUES["policy"], "mode": mode}}
        return f"{definition}\n---\n{installed.helm.text(values)}"

    def difference(mode: str = "enforce") -> str:
        found = kubectl("diff", *flags, stdin=rendered(mode), check=False)
        assert found.returncode < 2, found.stderr
        return found.stdout

    def sync(mode: str = "enforce") -> None:
        kubectl("apply", *flags, stdin=rendered(mode))

    newest = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/defaultAction"
    older = json.dumps([{"op": "remove", "path": newest}])
    kubectl("patch", "crd", "fencepolicies.gpufence.dev", "--type=json", "--patch", older)
    assert "defaultAction" in difference()
    for _ in range(3):
        sync()
        assert not difference()
        # The controller writes the status, and what others have changed.
        add_what_an_apply_leaves(installed)
        assert not difference()
    assert secret(installed, SERVING).keys() == {"ca.crt", "tls.crt", "tls.key"}

    def break_the_glass() -> None:
        installed.cluster.api.request("PATCH", path, {"spec": {"mode": "audit"}}, MERGE)
        until(lambda: not installed.refusal(TRESPASSER), "the trespasser to be admitted")

    break_the_glass()
    reverted = [line for line in difference().splitlines() if re.match(r"[-+] ", line)]
    assert [line for line in reverted if "generation" not in line] == [
        "-  mode: audit",
        "+  mode: enforce",
    ]
    sync()
    until(lambda: installed.refusal(TRESPASSER), "the patch to be reverted")
    # The page says to stop the tool before the patch, or to commit the mode.
    break_the_glass()
    sync("audit")
    assert not difference("audit")
    assert not installed.refusal(TRESPASSER)
    sync()
    until(lambda: installed.refusal(TRESPASSER), "the fence to be back")
    until(lambda: own_policies(installed), "the admission policies")


def test_a_new_policy_takes_effect_without_a_restart(installed: Installation) -> None:
    before = {each["metadata"]["uid"] for each in installed.pods()}
    old_objects = objects(installed)
    warn = {"policy": {**VALUES["policy"], "rules": {"pool-trespass": "warn"}}}
    installed.upgrade({**VALUES, **warn})
    until(lambda: not installed.refusal(TRESPASSER), "the new policy to be in force")
    installed.upgrade(VALUES)
    until(lambda: installed.refusal(TRESPASSER), "the old policy to be in force again")
    # A replica has the policy before the controller has written the admission policies.
    until(lambda: objects(installed) == old_objects, "the objects of the old policy")
    assert {each["metadata"]["uid"] for each in installed.pods()} == before


@pytest.mark.slow("upgrades and rolls back with Helm")
def test_an_upgrade_to_cert_manager_and_a_rollback_lead_to_the_same_objects(
    installed: Installation,
) -> None:
    """The upgrade deletes the admission policies, and the rollback brings them back.

    cert-manager itself does not run: its account writes the Secrets that it writes.
    """
    with_policies = objects(installed)
    kubectl = installed.cluster.kubectl
    kubectl.create(definition("cert-manager.io", "v1", "Certificate"))
    kubectl("wait", "--for=create", "crd/certificates.cert-manager.io")
    kubectl("create", "clusterrole", "cert-manager", "--verb=*", "--resource=secrets")
    issuer = "system:serviceaccount:cert-manager:cert-manager"
    bound = ("--clusterrole=cert-manager", f"--user={issuer}")
    kubectl("create", "clusterrolebinding", "cert-manager", *bound)
    issued = {"source": "certManager", "issuerRef": {"name": "platform", "kind": "ClusterIssuer"}}
    installed.upgrade({**VALUES, "certificates": issued, "admissionPolicies": {"enabled": False}})
    api = replace(installed.cluster.api, user=issuer, group="system:authenticated")
    authority = issue_as_cert_manager(api)
    until(lambda: not own_policies(installed), "the policies to be deleted")
    installed.wait_rolled_out()
    until(lambda: all(trusted(installed, authority)), "the CA to be in each caBundle")
    assert not installed.refusal(GPU_POD)
    assert all(serve(installed, authority))
    assert objects(installed).keys() < with_policies.keys()
    # A renewal by another issuer.
    authority = issue_as_cert_manager(api)
    until(lambda: all(serve(installed, authority)), "replicas to serve the renewed certificate")
    assert all(trusted(installed, authority))
    assert not installed.refusal(GPU_POD)
    installed.helm("rollback", RELEASE, "--namespace", NAMESPACE)
    until(lambda: objects(installed) == with_policies, "the objects before the upgrade")
    installed.wait_rolled_out()
    kubectl("delete", "clusterrole,clusterrolebinding", "cert-manager")
    kubectl("delete", "crd", "certificates.cert-manager.io")
    # cert-manager keeps the Secret of a deleted Certificate.
    kubectl("delete", "secret", f"{RELEASE}-tls", f"--namespace={NAMESPACE}")


def issue_as_cert_manager(api: Api) -> bytes:
    """Write what cert-manager writes for the Certificate of the chart; return the CA."""
    path = f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates/{RELEASE}"
    certificate = replace(api, user="admin", group="system:masters").request("GET", path)
    spec = certificate["spec"]
    assert spec["usages"] == ["server auth"]
    now = datetime.now(UTC)
    ca = create_authority(now)
    pair = issue_leaf(ca, spec["dnsNames"], now)
    # The private key is first in a Secret of its own.
    key = {"generateName": f"{RELEASE}-", "labels": {"cert-manager.io/next-private-key": "true"}}
    kept = {"tls.key": base64.b64encode(pair.key_pem).decode()}
    made = api.request("POST", SECRETS, {"metadata": key, "data": kept})
    names = {
        "cert-manager.io/certificate-name": RELEASE,
        "cert-manager.io/alt-names": ",".join(spec["dnsNames"]),
        "cert-manager.io/issuer-name": spec["issuerRef"]["name"],
        "cert-manager.io/issuer-kind": spec["issuerRef"]["kind"],
    }
    labels = {"controller.cert-manager.io/fao": "true"}
    applied = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": spec["secretName"], "annotations": names, "labels": labels},
    }
    query = "?fieldManager=cert-manager-certificates-issuing&force=true"
    api.request(
        "PATCH",
        f"{SECRETS}/{spec['secretName']}{query}",
        with_data(applied, serving_data(pair, ca)),
        "application/apply-patch+yaml",
    )
    api.request("DELETE", f"{SECRETS}/{made['metadata']['name']}")
    return ca.certificate_pem


def trusted(installed: Installation, authority: bytes) -> Iterator[bool]:
    """Yield for each webhook whether API servers trust certificates of the CA."""
    for configuration in installed.configurations():
        for webhook in configuration["webhooks"]:
            yield authority.strip() in base64.b64decode(webhook["clientConfig"]["caBundle"])


def serve(installed: Installation, authority: bytes) -> Iterator[bool]:
    """Yield for each replica whether it serves a certificate of the CA."""
    context = ssl.create_default_context(cadata=authority.decode())
    context.check_hostname = False
    for each in installed.pods():
        try:
            with (
                socket.create_connection((each["status"]["podIP"], 9443), 10) as raw,
                context.wrap_socket(raw),
            ):
                yield True
        except ssl.SSLError:
            yield False


def own_policies(installed: Installation) -> list[Object]:
    """Return the admission policies that the controller has written, and their bindings."""
    return [
        {**item, "kind": kind}
        for kind, path in PATHS.items()
        for item in installed.cluster.api.request("GET", path)["items"]
        if item["metadata"]["name"] in all_names(RELEASE)
    ]


_COLLECTIONS = (
    *(f"/apis/{RBAC}/v1/{kind}" for kind in ("clusterroles", "clusterrolebindings")),
    *(f"/apis/{RBAC}/v1/{kind}" for kind in ("roles", "rolebindings")),
    *("/apis/apps/v1/deployments", "/api/v1/configmaps", "/api/v1/services"),
)
_OF_RELEASE = f"?labelSelector=app.kubernetes.io%2Finstance%3D{RELEASE}"
_CHANGES = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


def objects(installed: Installation) -> dict[str, Object]:
    """Return all objects of chart and controller, without what changes with each write."""
    listed = [
        {"kind": path.rpartition("/")[2], **item}
        for path in _COLLECTIONS
        for item in installed.cluster.api.request("GET", path + _OF_RELEASE)["items"]
    ]
    configurations = zip(KINDS, installed.configurations(), strict=True)
    listed += [{"kind": kind, **item} for kind, item in configurations]
    listed += own_policies(installed)
    found = {}
    for item in listed:
        metadata = {k: v for k, v in item["metadata"].items() if k not in _CHANGES}
        (metadata.get("annotations") or {}).pop("deployment.kubernetes.io/revision", None)
        for reference in metadata.get("ownerReferences") or ():
            reference.pop("uid")
        content = {k: v for k, v in item.items() if k not in ("metadata", "status", "webhooks")}
        webhooks = [
            {**webhook, "clientConfig": webhook["clientConfig"]["service"]}
            for webhook in item.get("webhooks") or ()
        ]
        found[f"{item['kind']}/{metadata['name']}"] = {
            **content, "metadata": metadata, "webhooks": webhooks,
        }  # fmt: skip
    return found


@pytest.mark.slow("waits for a rollout under load")
def test_no_gpu_pod_fails_during_an_upgrade_to_client_certificates(installed: Installation) -> None:
    before = {each["metadata"]["uid"] for each in installed.pods()}
    authority = {"ca.crt": installed.settings.clients.certificate.read_text()}
    metadata = {"name": "api-servers", "namespace": NAMESPACE}
    installed.cluster.kubectl.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": authority}
    )
    with Load(installed.cluster.api, "default") as load:
        installed.upgrade(WITH_CLIENT_CA)
        installed.wait_rolled_out()
    assert not before & {each["metadata"]["uid"] for each in installed.pods()}
    load.check("an upgrade to client certificates")


def test_clients_without_a_certificate_of_the_ca_are_rejected(
    installed: Installation, tmp_path: Path
) -> None:
    authority = base64.b64decode(secret(installed, SERVING)["ca.crt"]).decode()
    # Which error a client sees depends on how far it is when the server closes the connection.
    rejected = pytest.raises((ConnectionError, ssl.SSLError))
    outcomes = (
        (installed.settings.clients.client("another"), nullcontext()),
        (pki.Authority(tmp_path).client("foreign"), rejected),
        (None, rejected),
    )
    for each in installed.pods():
        for shown, outcome in outcomes:
            context = ssl.create_default_context(cadata=authority)
            context.check_hostname = False  # the test connects to a replica's address
            if shown:
                context.load_cert_chain(*shown)
            address = each["status"]["podIP"]
            connection = http.client.HTTPSConnection(address, 9443, context=context, timeout=10)
            with closing(connection), outcome:
                connection.request("GET", "/validate")
                assert connection.getresponse().status == 405


def add_what_an_apply_leaves(installed: Installation) -> None:
    """Add a field to each configuration and to an admission policy, and wait until all are gone."""
    api, admission = installed.cluster.api, "/apis/admissionregistration.k8s.io/v1"
    never = {"name": "never", "expression": "false"}
    more = [{"op": "add", "path": "/webhooks/0/matchConditions/-", "value": never}]
    audited = [{"key": "other", "valueExpression": "'other'"}]
    policy = f"{IN_TREE[0]}/{RELEASE}-pool-trespass"
    paths = (*(f"{admission}/{kind}/{RELEASE}" for kind in KINDS), policy)
    before = [content(api.request("GET", path)) for path in paths]
    for path in paths[:2]:
        api.request("PATCH", path, more, "application/json-patch+json")
    api.request("PATCH", policy, {"spec": {"auditAnnotations": audited}}, MERGE)
    until(
        lambda: before == [content(api.request("GET", path)) for path in paths],
        "the additions to be gone",
    )


def content(obj: Object) -> tuple[object, object]:
    # A CA that was replaced leaves the bundles once the certificates of all replicas are new.
    webhooks = [{**each, "clientConfig": None} for each in obj.get("webhooks", ())]
    return webhooks, obj.get("spec")


def test_a_second_release_is_refused_by_helm_and_reported_if_another_tool_applies_it(
    installed: Installation,
) -> None:
    options = ("--namespace", NAMESPACE)
    refused = installed.helm.with_values(("install", "second"), VALUES, *options, check=False)
    assert refused.returncode != 0
    assert 'ClusterRole "fencepolicies-view"' in refused.stderr
    api, role = installed.cluster.api, f"/apis/{RBAC}/v1/clusterroles/fencepolicies-view"
    own = f"{NAMESPACE}/{RELEASE}"

    def claim(release: str) -> None:
        api.request("PATCH", role, {"metadata": {"annotations": {ANNOTATION: release}}}, MERGE)

    claim("other/second-gpufence")
    until(
        lambda: "another release of gpufence, other/second-gpufence" in registered(installed),
        "the status to name the other release",
    )
    claim(own)
    until(lambda: "another release" not in registered(installed), "the status to be as before")


def registered(installed: Installation) -> str:
    """Return the message of the condition in the status of the policy."""
    live = installed.cluster.api.request("GET", f"{FENCE_POLICIES}/{RELEASE}")
    conditions = {each["type"]: each["message"] for each in live["status"]["conditions"]}
    message: str = conditions["Registered"]
    return message


def test_the_memory_of_a_replica_is_below_the_request_of_the_chart(installed: Installation) -> None:
    requested = memory(installed.helm, {})["requests"]
    replicas = installed.replicas()
    assert replicas
    for running in replicas:
        found = re.search(r"(?m)^process_resident_memory_bytes (\S+)$", running.metrics())
        assert found is not None
        mebibytes = float(found[1]) / 2**20
        assert mebibytes < requested


def test_a_replica_exposes_exactly_the_known_metrics(
    installed: Installation,
) -> None:
    [running, _] = installed.replicas()
    exposed = set(re.findall(r"(?m)^# TYPE (gpufence_\w+)", running.metrics()))
    known = {re.sub("_(bucket|sum|count)$", "", name) for name in series(registry())}
    assert exposed == {name for name in known if name.startswith("gpufence_")}


def test_the_api_server_exposes_the_metrics_that_the_alerts_query(installed: Installation) -> None:
    # The admission policies in the API server do not know this check: a webhook rejects the Pod.
    assert "pods.gpufence.dev" in installed.refusal(pod(gpu=True, hostNetwork=True))
    text = installed.cluster.api.text("/metrics")
    assert (
        'apiserver_admission_webhook_rejection_count{error_type="no_error",name="pods.gpu' in text
    )
    assert "apiserver_admission_webhook_admission_duration_seconds_bucket{" in text


def used(installed: Installation, user: str) -> set[Right]:
    """Return the rights that an account has used; none may have been denied, but one."""
    found: set[Right] = set()
    for each in installed.audit():
        if each["user"]["username"] != user:
            continue
        if each["requestURI"] == "/version":
            continue  # Every account may read it.
        target = each.get("objectRef", {})
        parts = (target.get("resource", ""), target.get("subresource"))
        right = (target.get("apiGroup", ""), "/".join(filter(None, parts)), each["verb"])
        if each["responseStatus"]["code"] == 403:
            # An upgrade to cert-manager deletes the Secrets before the controller that fills them.
            assert (user, right) == (CONTROLLER_USER, ("", "secrets", "create"))
            continue
        found.add(right)
    return found


def granted(installed: Installation, role: str) -> set[Right]:
    """Return the rights of a ClusterRole, and of the Role of that name."""
    kubectl = installed.cluster.kubectl
    rules = kubectl.json("get", "clusterrole", role)["rules"]
    found = kubectl("get", "role", role, "-n", NAMESPACE, "-o", "json", check=False)
    rules += json.loads(found.stdout)["rules"] if found.returncode == 0 else []
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@CLAIMS
def test_replicas_have_exactly_the_permissions_that_they_use(installed: Installation) -> None:
    group = {"podGroupName": "none"}
    for claim in ({"resourceClaimName": "none"}, {"resourceClaimTemplateName": "none"}):
        installed.refusal(pod(resourceClaims=[{"name": "gpu", **claim}], schedulingGroup=group))
    rights = granted(installed, RELEASE)
    # A namespace is read only if its first Pod arrives before the watch event. API servers drop
    # the group of a Pod while their feature gate GenericWorkload is off, which is the default.
    rare = {("", "namespaces", "get"), ("scheduling.k8s.io", "podgroups", "get")}
    # Without an autoscaler, the lists answer 404, and nothing is watched.
    autoscalers = {"karpenter.sh", "cluster.x-k8s.io"}
    rare |= {right for right in rights if right[0] in autoscalers and right[2] == "watch"}
    # Before Kubernetes 1.37, the list of DeviceTaintRules answers 404, and nothing is watched.
    rare |= {("resource.k8s.io", "devicetaintrules", "watch")}
    assert used(installed, REPLICA_USER) | rare == rights
    assert {verb for _, _, verb in rights} == {"get", "list", "watch"}


def test_replicas_may_write_nothing_and_read_no_secret(installed: Installation) -> None:
    """As the API server sees it, with what it grants to every account."""
    kubectl = installed.cluster.kubectl
    allowed = ("auth", "can-i", "--list", "--as", REPLICA_USER, "-n", NAMESPACE)
    rows = kubectl(*allowed, *AS_ACCOUNT, "--no-headers").stdout.splitlines()
    verbs = {row.split(" ")[0]: row.rpartition("[")[2].rstrip("]").split() for row in rows}
    # Every account may query what it may do.
    reviews = ("selfsubjectreviews.", "selfsubjectaccessreviews.", "selfsubjectrulesreviews.")
    written = {
        resource: found
        for resource, found in verbs.items()
        if not set(found) <= {"get", "list", "watch"} and not resource.startswith(reviews)
    }
    assert not written
    assert "nodes" in verbs
    assert "secrets" not in verbs


@CLAIMS
@pytest.mark.slow("waits for another CA to sign, and for two upgrades")
def test_the_controller_has_exactly_the_permissions_that_it_uses(
    installed: Installation,
) -> None:
    """Each right is used here, and what others delete, empty or add is as before."""
    before = secret(installed, SERVING)
    empty(installed, SERVING, CA)
    installed.cluster.kubectl("delete", "mutatingwebhookconfiguration", RELEASE)
    until(lambda: len(installed.configurations()) == 2, "the configuration to be back")
    until(lambda: secret(installed, SERVING).get("ca.crt", "") != "", "the pair")
    until(lambda: secret(installed, SERVING)["ca.crt"] != before["ca.crt"], "another CA to sign")
    wait_until_called(installed.cluster, created=True)
    add_what_an_apply_leaves(installed)
    installed.upgrade({**VALUES, "policy": {**VALUES["policy"], "rules": {"device-leak": "warn"}}})
    until(lambda: len(own_policies(installed)) == 3, "a policy to be deleted")
    installed.upgrade(VALUES)
    until(lambda: len(own_policies(installed)) == 4, "the policy to be back")
    rights = granted(installed, f"{RELEASE}-controller")
    # An apply that creates is recorded as a patch, and needs the right to create as well.
    kinds = (*KINDS, "validatingadmissionpolicies")
    hidden = {("admissionregistration.k8s.io", kind, "create") for kind in kinds}
    assert used(installed, CONTROLLER_USER) == rights - hidden
    assert hidden < rights


@pytest.mark.slow("waits for three CAs to sign")
def test_without_replicas_gpu_pods_are_rejected_and_plain_pods_admitted(
    installed: Installation,
) -> None:
    agent = pod(tolerations=[{"operator": "Exists"}])
    for namespace in ("calico-system", "kube-flannel"):
        installed.cluster.create_namespace(namespace)
    kubectl = installed.cluster.kubectl
    kubectl("scale", "deployment", RELEASE, "--replicas=0", "--namespace", NAMESPACE)
    until(lambda: not installed.pods(), "the last replica to be gone")
    assert "pods.gpufence.dev" in installed.refusal(GPU_POD)
    assert not installed.refusal(pod())
    # What a node needs before a replica can run there.
    for namespace in ("kube-system", "calico-system", "kube-flannel"):
        installed.create_pod(agent, namespace)
    # What the controller may not write: it says so, and Helm restores the binding and both Secrets.
    copy = secret(installed, CA)
    kubectl("delete", "secret", CA, SERVING, "-n", NAMESPACE)
    binding = f"{IN_TREE[1]}/{RELEASE}-pool-trespass"
    selector = {"objectSelector": {"matchLabels": {"gpufence": "on"}}}
    narrower = {"spec": {"matchResources": selector}}
    installed.cluster.api.request("PATCH", binding, narrower, MERGE)
    for cure in (
        f"Secret {NAMESPACE}/{CA} does not exist; restore the release (helm upgrade)",
        f"delete {BINDING_KIND} {RELEASE}-pool-trespass, and restore the release (helm upgrade)",
    ):
        until(lambda: cure in installed.kubelet.logs(), "the controller to say what to do")  # noqa: B023
    installed.cluster.api.request("DELETE", binding)
    installed.upgrade(WITH_CLIENT_CA)
    until(lambda: "registration restored" in installed.kubelet.logs(), "the binding")
    kubelet.wait_ready(installed.kubelet, 3)
    until(lambda: not installed.refusal(GPU_POD), "GPU Pods to be created again")
    # A controller that read the old CA just before may have signed with it once more.
    until(lambda: secret(installed, SERVING)["ca.crt"] != copy["ca.crt"], "another CA to sign")
    # An administrator restores the CA from a backup while replicas run.
    backup = json.dumps({"data": copy})
    kubectl("patch", "secret", CA, "-n", NAMESPACE, "--type", "merge", "--patch", backup)
    refusals = set()

    def signs() -> bool:
        refusals.add(installed.refusal(GPU_POD))
        return secret(installed, SERVING)["ca.crt"] == copy["ca.crt"]

    # The CA that replicas serve stays trusted, so that no request fails.
    until(signs, "the restored CA to sign")
    assert refusals == {""}
    assert not installed.refusal(GPU_POD)


def named_gpufence(installed: Installation) -> list[str]:
    """Return the kind and name of each object in the cluster whose name begins as the release's."""
    kubectl = installed.cluster.kubectl
    everywhere = kubectl("api-resources", "--verbs=list,delete", "-o", "name").stdout.split()
    output = kubectl(
        *("get", ",".join(kind for kind in everywhere if not kind.startswith("events"))),
        *("--all-namespaces", "--ignore-not-found", "--no-headers"),
        *("-o", "custom-columns=:kind,:metadata.name"),
    )
    lines = (" ".join(line.split()) for line in output.stdout.splitlines())
    return [line for line in lines if line.split()[1].startswith(RELEASE)]


@pytest.mark.slow("installs and uninstalls the chart")
def test_uninstall_deletes_all_objects_except_the_namespace(
    installed: Installation, others: set[str]
) -> None:
    def left() -> set[str]:
        return set(named_gpufence(installed)) - others

    assert left()
    installed.uninstall()
    until(lambda: not installed.configurations(), "both configurations to be gone")
    until(lambda: not installed.refusal(TRESPASSER), "the API server to forget them")
    until(lambda: not installed.pods("gpufence,gpufence-controller"), "the Pods to be gone")
    until(lambda: left() == {f"Namespace {NAMESPACE}"}, "all else to be gone", every=1)
