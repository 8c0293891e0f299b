"""The checks of replicas and controller: Deployments, accounts, Service and certificates."""

from __future__ import annotations

from collections.abc import Iterator

from certs.handshake import is_trusted_by, server_of
from certs.keypair import KeyPair, certificates_in, is_overdue, leaf_problem, renewal_due
from certs.secret import authority_problem, read_authority
from policies.kubernetes.objects import JSONObject, mapping, mappings
from webhook.cluster.needs import needed_facts
from webhook.registered import bundles
from webhook.tools.doctor import DoctorLine, fail, ok, skip, unknown, warn
from webhook.tools.doctor.installation import RESTORE, Installation, containers_of
from webhook.wording import counted

_PLACEHOLDER = "gpufence"
"""The image's name in a checkout. The chart of a release names the published image."""


def replicas(installed: Installation) -> Iterator[DoctorLine]:
    where = f"Deployment {installed.namespace}/{installed.name}"
    if installed.deployment is None:
        if "replicas" in installed.accounts:
            yield fail(f"{where} does not exist, and its service account does", RESTORE)
        else:
            others = ", ".join(installed.namesakes) or "none"
            yield warn(
                f"{where} does not exist. Deployments of gpufence in the cluster: {others}",
                "Set --namespace and --name to the release, unless the replicas run outside of the "
                "cluster",
            )
        return
    desired, ready = _counts(installed.deployment)
    if not desired:
        yield fail(f"{where} is scaled to 0", _scale(installed, installed.name, 2))
    elif ready < desired:
        problem, cure = _unready(installed, installed.deployment)
        line = warn if ready else fail
        yield line(f"{where}: {ready} of {desired} are ready{problem}", cure)
    elif desired == 1:
        cure = _scale(installed, installed.name, 2)
        yield warn(f"{where} has one replica, and a node can be lost", cure)
    else:
        yield ok(f"all {desired} are ready")


def controller(installed: Installation) -> Iterator[DoctorLine]:
    name = f"{installed.name}-controller"
    where = f"Deployment {installed.namespace}/{name}"
    lost = "nothing renews certificates or repairs configurations"
    if installed.controller is None:
        if "the controller" in installed.accounts:
            yield fail(f"{where} does not exist, and its service account does: {lost}", RESTORE)
        else:
            yield skip(f"{where} does not exist: others keep certificates and configurations")
    elif installed.is_controlled:
        yield ok("it is ready")
    elif not _counts(installed.controller)[0]:
        yield warn(f"{where} is scaled to 0: {lost}", _scale(installed, name, 1))
    else:
        problem, cure = _unready(installed, installed.controller)
        yield warn(f"{where} is not ready: {lost}{problem}", cure)


def _counts(deployment: JSONObject) -> tuple[int, int]:
    """Return how many Pods of a Deployment there should be, and how many are ready."""
    ready = mapping(deployment.get("status")).get("readyReplicas")
    return deployment["spec"].get("replicas", 1), ready or 0


def _scale(installed: Installation, name: str, count: int) -> str:
    kubectl = f"kubectl --namespace {installed.namespace}"
    return f"Run {kubectl} scale deployment {name} --replicas={count}"


def _unready(installed: Installation, deployment: JSONObject) -> tuple[str, str]:
    """Return why Pods of a Deployment are not ready, if it is known, and what to do."""
    labels = mapping(mapping(deployment["spec"].get("selector")).get("matchLabels"))
    pods = [
        mapping(pod.get("status"))
        for pod in installed.pods
        if labels.items() <= mapping(pod["metadata"].get("labels")).items()
    ]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    kubectl = f"kubectl --namespace {installed.namespace}"
    reads = (
        f"Look at the events of its Pods ({kubectl} describe pods --selector {selector}), and at "
        f"their log ({kubectl} logs --selector {selector})"
    )
    problem = next(_reasons(mapping(deployment.get("status")), pods), "")
    if problem.startswith(("ImagePull", "ErrImagePull")) or not any("phase" in pod for pod in pods):
        reads = _image_hint(deployment) or reads
    return f"; {problem}" if problem else "", reads


def _reasons(status: JSONObject, pods: list[JSONObject]) -> Iterator[str]:
    """Yield what the controllers of Kubernetes say of the Pods that are not ready."""
    for _, condition in mappings(status.get("conditions")):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            yield str(condition.get("message"))
    for pod in pods:
        for _, condition in mappings(pod.get("conditions")):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                yield f"Unschedulable: {condition.get('message')}"
        for _, container in mappings(pod.get("containerStatuses")):
            waiting = mapping(mapping(container.get("state")).get("waiting"))
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                yield f"{waiting['reason']}: {waiting.get('message') or 'see the log'}"


def _image_hint(deployment: JSONObject) -> str:
    """Return what to do about an image without a registry: no node can pull it."""
    for container in containers_of(deployment):
        image = str(container.get("image") or "")
        if image.partition(":")[0] == _PLACEHOLDER:
            return (
                f"The image {image} is the placeholder of a chart from a checkout. Build "
                "deploy/Dockerfile, push the image, and set image.repository to its name"
            )
    return ""


def command_line(installed: Installation) -> Iterator[DoctorLine]:
    """Report a Deployment whose Pods have no container of gpufence."""
    if installed.deployment is not None and installed.uses_facts is None:
        names = ", ".join(container["name"] for container in containers_of(installed.deployment))
        yield warn(
            f"Deployment {installed.namespace}/{installed.name} has no container named gpufence "
            f"or with the command gpufence serve; its containers: {names}",
            "Name the container gpufence, or set --namespace and --name to another release",
        )


def may(installed: Installation) -> Iterator[DoctorLine]:
    """Check the service accounts of replicas and controller, and what RBAC lets them do."""
    for name in installed.missing_accounts:
        pods = f"kubectl --namespace {installed.namespace} rollout restart deployment"
        names = [installed.name] + [f"{installed.name}-controller"] * bool(installed.controller)
        yield fail(
            f"ServiceAccount {installed.namespace}/{name} does not exist",
            f"{RESTORE}. Then run {pods} {' '.join(names)}",
        )
    for account, denied, lost in installed.lacking:
        yield fail(f"{account} may not {denied}: {lost}", RESTORE)
    if installed.accounts and not installed.missing_accounts and not installed.lacking:
        yield ok(f"{' and '.join(installed.accounts)} may do what they need")


def service(installed: Installation) -> Iterator[DoctorLine]:
    """Check that the Service leads from the port that API servers call to the replicas."""
    address = installed.address
    if address is None or address.service is None:
        return
    namespace, name, port = address.service
    if installed.service is None:
        yield fail(f"Service {namespace}/{name} does not exist", RESTORE)
    elif problem := _misled(installed, installed.service, port):
        cure = f"Run kubectl --namespace {namespace} delete service {name}. {RESTORE}"
        yield fail(f"Service {namespace}/{name} {problem}", cure)


def _misled(installed: Installation, found: JSONObject, port: int) -> str:
    """Return why the Service does not lead to the replicas; empty if it does."""
    spec = mapping(found.get("spec"))
    ports = {each.get("port"): each.get("targetPort") for _, each in mappings(spec.get("ports"))}
    if port not in ports:
        known = ", ".join(map(str, ports))
        return f"has no port {port}, which API servers call; its ports: {known}"
    if installed.deployment is None:
        return ""
    template = installed.deployment["spec"]["template"]
    labels, selector = mapping(template["metadata"].get("labels")), mapping(spec.get("selector"))
    if not selector.items() <= labels.items():
        return f"does not select the replicas; its selector: {selector}"
    declared = [p for c in containers_of(installed.deployment) for _, p in mappings(c.get("ports"))]
    served = {each.get(key) for each in declared for key in ("name", "containerPort")}
    if declared and ports[port] not in served:
        return f"sends port {port} to port {ports[port]}, on which no replica listens"
    return ""


def endpoints(installed: Installation) -> Iterator[DoctorLine]:
    address = installed.address
    if address is None:
        yield unknown("the address of gpufence is unknown", "Set --name to the release")
    elif address.service is None:
        yield skip(f"API servers use {address.url}, without a Service")
    else:
        namespace, name, _ = address.service
        if installed.endpoints:
            ready = counted(installed.endpoints, "ready endpoint")
            yield ok(f"Service {namespace}/{name} has {ready}")
        else:
            yield fail(
                f"Service {namespace}/{name} has no ready endpoint, so API servers cannot call "
                "gpufence",
                "See the lines about replicas and Service",
            )


def facts(installed: Installation) -> Iterator[DoctorLine]:
    """Check that replicas use what the policy needs to know about the cluster."""
    if installed.policy is None or installed.uses_facts is None:
        yield skip("the policy or the command line of the replicas is unknown")
        return
    needed = needed_facts(installed.policy)
    if needed and not installed.uses_facts:
        cure = "Set clusterFacts: true in the chart, or run serve with --node-facts"
        yield fail(f"they are off: {'; '.join(needed.values())}", cure)
    else:
        yield ok(f"replicas use {', '.join(needed)}" if needed else "none are needed")


def certificate(installed: Installation) -> Iterator[DoctorLine]:
    if installed.deployed is None:
        yield skip("the Secret that replicas mount is unknown; see the trials below")
    elif installed.secret is None:
        name = installed.deployed.serving_secret
        problem = f"Secret {installed.namespace}/{name} does not exist"
        yield fail(problem, f"{RESTORE}: the controller fills the Secret of the chart")
    elif installed.leaf is None:
        yield fail("the Secret has no serving certificate", _renewal(installed))
    else:
        authorities = [installed.signer] if certificates_in(installed.signer) else []
        problem = leaf_problem(installed.leaf, authorities, installed.called, installed.now)
        if problem:
            yield fail(f"the {problem}", _renewal(installed))
            return
        leaf = installed.leaf.certificate
        due, end = renewal_due(leaf).isoformat(), leaf.not_valid_after_utc.isoformat()
        if is_overdue(leaf, installed.now):
            problem = f"the renewal was due at {due}; the certificate expires at {end}"
            yield warn(problem, _renewal(installed))
        else:
            yield ok(f"valid until {end}; renewal is due at {due}")


def authority(installed: Installation) -> Iterator[DoctorLine]:
    """Check the Secret of the built-in CA."""
    if installed.deployed is None or not installed.deployed.ca_secret:
        return
    where = f"Secret {installed.namespace}/{installed.deployed.ca_secret}"
    if installed.authority is None:
        problem = f"{where} does not exist, and the controller may not create it"
        yield fail(problem, f"{RESTORE}: the controller makes another CA")
    elif problem := authority_problem(read_authority(installed.authority), installed.now):
        yield fail(f"{where}: {problem}", _renewal(installed))
    else:
        yield ok(f"{where} has a valid CA")


def ca_bundle(installed: Installation) -> Iterator[DoctorLine]:
    """Check that every webhook trusts the certificate in the Secret."""
    if installed.leaf is None:
        return
    existing = {kind: each for kind, each in installed.configurations.items() if each}
    wrong = [
        f"{kind}, webhook {name}"
        for kind, each in existing.items()
        for name, bundle in bundles(each).items()
        if not _trusts(bundle, installed.leaf)
    ]
    if not existing:
        yield skip("there is no webhook configuration")
    elif wrong:
        problem = f"does not contain the CA of the Secret in {'; '.join(wrong)}"
        yield fail(problem, installed.repair or _renewal(installed))
    else:
        yield ok("every webhook trusts the serving certificate")


def _trusts(bundle: bytes, leaf: KeyPair) -> bool:
    """Return whether API servers with this caBundle (PEM) trust the pair; time does not count."""
    try:
        return is_trusted_by(server_of(leaf.certificate_pem, leaf.key_pem), bundle)
    except OSError:  # The pair is unusable.
        return False


def _renewal(installed: Installation) -> str:
    if installed.registers:
        return installed.repair
    return "Renew it, or have the controller that issues it do so"
