"""The objects of an installation in its cluster, as far as the doctor may read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from certs.keypair import KeyPair
from certs.secret import read_certificate, read_leaf
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject
from policies.policy import ALWAYS_EXCLUDED, Policy
from webhook.active_policy import PATH
from webhook.cluster.needs import needed_facts
from webhook.cluster.objects import LiveObjects, Reader
from webhook.cluster.state import NAMESPACES, ClusterState
from webhook.controller.certificates import SecretName, name_of
from webhook.controller.registrar import POLICY_KINDS, ready_endpoints
from webhook.controller.text.objects import FENCE_POLICY, Registration, all_names
from webhook.devices.nodes import NODES
from webhook.documents.document import InputError
from webhook.documents.policy_files import live_policy, load_policy
from webhook.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from webhook.kube.listing import list_all
from webhook.kube.writer import KubeWriter
from webhook.registered import KINDS, is_own
from webhook.tools.audit.stack import (
    DAEMON_SETS,
    StackProblem,
    classes_of_no_pool,
    of_a_network,
    unreached_by,
)
from webhook.tools.doctor import rights
from webhook.tools.followed_policy import fence_policies
from webhook.tools.platforms import Found, platforms_of

_PROGRAM = "gpufence"
_DAEMON_SET_CONTROLLER = "/api/v1/namespaces/kube-system/serviceaccounts/daemon-set-controller"
"""The service account that kube-controller-manager creates if its controllers have their own."""
_SERVICE = "/api/v1/namespaces/{}/services/{}"
_WORKLOADS = ("daemonsets", "deployments", "statefulsets")

AdmissionObjects = dict[str, dict[str, JSONObject]]
"""What API servers evaluate or call to admit an object: the objects of each kind by name.

Webhook configurations, admission policies and their bindings. A kind that is not served, or that
the account may not list, is left out.
"""
RESTORE = "Restore the release (helm upgrade) with the same chart and values"


@dataclass(frozen=True, slots=True)
class Deployed:
    """The options on the command line of the controller.

    ``serving_secret`` is the name of the Secret that replicas mount, and ``ca_secret`` that of the
    built-in CA, empty where another controller issues certificates. ``admission_policies`` says
    whether the controller writes those.
    """

    registration: Registration
    serving_secret: str
    ca_secret: str = ""
    admission_policies: bool = True


@dataclass(slots=True)
class Installation:
    """The objects that were read.

    ``forbidden`` has the API server's error for each check whose object is unreadable. ``policy``
    is None if there is no valid policy; ``policy_problem`` then has the reason.
    """

    namespace: str
    name: str
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    version: str = ""
    """The version of the API server, such as v1.36.3; empty if it is unknown."""
    claim_versions: tuple[str, ...] = ()
    """The versions of the API group resource.k8s.io that the API server serves."""
    has_shared_account: bool = False
    """Whether the controllers of Kubernetes have no service accounts of their own."""
    policy: Policy | None = None
    policy_source: str = ""
    policy_problem: str = ""
    follows: str | None = None
    """The FencePolicy that replicas follow; empty where they read a file, None if unknown."""
    deployment: JSONObject | None = None
    """The Deployment of the replicas."""
    uses_facts: bool | None = None
    """Whether replicas decide with cluster facts; None if their command line is unknown."""
    controller: JSONObject | None = None
    """The Deployment of the controller. A release need not have one."""
    deployed: Deployed | None = None
    pods: list[JSONObject] = field(default_factory=list)
    """The Pods of the namespace."""
    namesakes: list[str] = field(default_factory=list)
    """The Deployments of gpufence in all namespaces, if this release has none: NAMESPACE/NAME."""
    accounts: dict[str, str] = field(default_factory=dict)
    """The service accounts of replicas and controller: what runs as it, and its user."""
    missing_accounts: list[str] = field(default_factory=list)
    lacking: list[tuple[str, str, str]] = field(default_factory=list)
    """What an account may not do, and what fails without: user, verbs and resources, failure."""
    live: AdmissionObjects = field(default_factory=dict)
    secret: JSONObject | None = None
    """The Secret that replicas mount."""
    authority: JSONObject | None = None
    """The Secret of the built-in CA."""
    leaf: KeyPair | None = None
    signer: bytes = b""
    """The CA of the serving certificate (PEM)."""
    called: str = ""
    """The name that the serving certificate must have; empty if it is unknown."""
    service: JSONObject | None = None
    endpoints: int = 0
    """The ready endpoints of the Service."""
    unserved: list[tuple[str, JSONObject, str]] = field(default_factory=list)
    """Webhooks of others for Pods that fail closed and do not answer: configuration, webhook, why.
    """
    fence_policy: JSONObject | None = None
    """The FencePolicy that was checked."""
    fence_policies: list[str] = field(default_factory=list)
    """The names of all."""
    nodes: NodeIndex | None = None
    templates: tuple[NodeTemplate, ...] = ()
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """The nodes, and what offers devices on them, that are malformed: title and problem."""
    stack: tuple[StackProblem, ...] = ()
    exempt_namespaces: dict[str, bool] = field(default_factory=dict)
    """Whether each exempt namespace that exists has a workload.

    Without ``kube-system`` and the namespaces of gpufence, which are always needed.
    """
    platforms: list[Found] = field(default_factory=list)
    """The platforms whose Pods are bound to nodes, and whose namespace is not exempt."""
    forbidden: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def permitted(self, check: str) -> Iterator[None]:
        """Record a missing permission, or a missing API, as the reason to skip the check."""
        try:
            yield
        except ApiError as error:
            if error.status not in (FORBIDDEN, NOT_FOUND):
                raise
            self.forbidden[check] = str(error)

    @property
    def configurations(self) -> dict[str, JSONObject | None]:
        """The webhook configurations of the release, by kind."""
        return {kind: self.live[kind].get(self.name) for kind in KINDS if kind in self.live}

    @property
    def admission_policies(self) -> AdmissionObjects:
        """The admission policies of the release and their bindings."""
        names = all_names(self.name)
        return {
            kind: {each: self.live[kind][each] for each in names if each in self.live[kind]}
            for kind in POLICY_KINDS
            if kind in self.live
        }

    @property
    def is_controlled(self) -> bool:
        """Whether a controller is ready, and repairs what differs."""
        return bool(((self.controller or {}).get("status") or {}).get("readyReplicas"))

    @property
    def registers(self) -> bool:
        """Whether a controller writes what API servers know of the release."""
        return self.deployed is not None

    @property
    def repair(self) -> str:
        """What to do about an object that the controller keeps; empty without a controller."""
        if not self.registers:
            return ""
        if not self.is_controlled:
            return "Have the controller ready (see the line about it): it repairs this"
        logs = f"kubectl --namespace {self.namespace} logs deployment/{self.name}-controller"
        return (
            "The controller repairs this within seconds. If it does not, its log has the reason "
            f"({logs}), and metadata.managedFields name other writers"
        )

    @property
    def excluded_namespaces(self) -> frozenset[str]:
        """The namespaces for which API servers do not call gpufence."""
        if self.deployed is None:
            return ALWAYS_EXCLUDED
        return ALWAYS_EXCLUDED | self.deployed.registration.excluded_namespaces

    @property
    def address(self) -> Registration | None:
        """The address of gpufence: from the options of the controller, or from a configuration."""
        if self.deployed is not None and self.deployed.registration.is_addressed:
            return self.deployed.registration
        for configuration in self.configurations.values():
            for webhook in (configuration or {}).get("webhooks") or ():
                return _registered(webhook, self.name)
        return None


async def examine(
    api: KubeWriter,
    namespace: str,
    name: str,
    policy_path: str | None,
    fence_policy: str | None,
    read_replica: Callable[[list[str]], tuple[bool, str]],
    read_arguments: Callable[[list[str]], Deployed],
) -> Installation:
    """Read the objects of the installation.

    The policy is that of the file or of the FencePolicy, by default of the one that replicas
    follow. ``read_replica`` reads the command line of a replica: whether it uses cluster facts, and
    the FencePolicy that it follows. ``read_arguments`` reads that of the controller.

    Raises:
        ClusterError: a request failed. A missing permission is not an error.
        CertificateError: the address of the release is invalid.
        InputError: the policy file is not a valid policy.
    """
    installed = Installation(namespace, name)
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    with installed.permitted("Kubernetes"):
        installed.version = (await api.read("/version") or {}).get("gitVersion", "")
    with installed.permitted("API groups"):
        claims = await api.read("/apis/resource.k8s.io") or {}
        installed.claim_versions = tuple(each["version"] for each in claims.get("versions") or ())
    with installed.permitted("controller manager"):
        installed.has_shared_account = await api.read(_DAEMON_SET_CONTROLLER) is None
    with installed.permitted("replicas"):
        installed.deployment = await api.read(f"{apps}/deployments/{name}")
    arguments = _arguments(installed.deployment, "serve") if installed.deployment else None
    if arguments is not None:
        installed.uses_facts, installed.follows = read_replica(arguments)
    with installed.permitted("controller"):
        installed.controller = await api.read(f"{apps}/deployments/{name}-controller")
        if installed.controller is not None:
            arguments = _arguments(installed.controller, "controller")
            installed.deployed = None if arguments is None else read_arguments(arguments)
    with installed.permitted("rights"):
        await _accounts(api, installed)
    with installed.permitted("Pods"):
        await _pods(api, installed)
    for kind, path in (KINDS | POLICY_KINDS).items():
        with installed.permitted(kind if kind in KINDS else "admission policies"):
            if (listed := await api.read(path)) is not None:
                items = listed.get("items") or ()
                installed.live[kind] = {each["metadata"]["name"]: each for each in items}
    for live in installed.configurations.values():
        if installed.follows is None and live is not None:
            annotations = live["metadata"].get("annotations") or {}
            installed.follows = annotations.get(FENCE_POLICY)
    with installed.permitted("other webhooks"):
        await _other_webhooks(api, installed)
    if policy_path is not None:
        installed.policy, installed.policy_source = load_policy(policy_path), policy_path
    elif fence_policy := fence_policy or installed.follows:
        with installed.permitted("FencePolicy"):
            await _fence_policy(api, installed, fence_policy)
    elif installed.follows is None:
        installed.policy_problem, _ = await fence_policies(api)
    with installed.permitted("rights"):
        await _rights(api, installed)
    if installed.deployed is not None:
        with installed.permitted("certificate"):
            secret = SecretName(namespace, installed.deployed.serving_secret)
            installed.secret = await api.read(secret.path)
            installed.leaf = read_leaf(installed.secret)
            installed.signer = read_certificate(installed.secret)
        with installed.permitted("CA"):
            secret = SecretName(namespace, installed.deployed.ca_secret)
            installed.authority = await api.read(secret.path) if secret.name else None
    address = installed.address
    installed.called = name_of(address) if address is not None else ""
    if address is not None and address.service is not None:
        with installed.permitted("Service"):
            installed.service = await api.read(_SERVICE.format(*address.service))
        with installed.permitted("endpoints"):
            installed.endpoints = await ready_endpoints(api, *address.service[:2])
    if installed.policy is not None:
        with installed.permitted("nodes"):
            await _nodes(api, installed, installed.policy)
        with installed.permitted("GPU stack"):
            await _stack(api, installed, installed.policy)
        with installed.permitted("exempt namespaces"):
            await _exempt_namespaces(api, installed, installed.policy)
    installed.now = api.clock.now()
    return installed


async def _accounts(api: KubeWriter, installed: Installation) -> None:
    """Find the service accounts of replicas and controller."""
    for title, deployment, name in (
        ("replicas", installed.deployment, installed.name),
        ("the controller", installed.controller, f"{installed.name}-controller"),
    ):
        if deployment is not None:
            name = deployment["spec"]["template"]["spec"].get("serviceAccountName") or "default"
        path = f"/api/v1/namespaces/{installed.namespace}/serviceaccounts/{name}"
        exists = await api.read(path) is not None
        if deployment is not None or exists:
            installed.accounts[title] = f"system:serviceaccount:{installed.namespace}:{name}"
        if deployment is not None and not exists:
            installed.missing_accounts.append(name)


async def _pods(api: KubeWriter, installed: Installation) -> None:
    """Read the Pods of the release; without one, find the releases that there are."""
    if installed.deployment or installed.controller:
        found = await api.read(f"/api/v1/namespaces/{installed.namespace}/pods")
        installed.pods = (found or {}).get("items") or []
    if installed.deployment is None:
        labels = {"labelSelector": "app.kubernetes.io/name=gpufence"}
        found = await api.read("/apis/apps/v1/deployments", labels)
        installed.namesakes = [
            f"{each['metadata']['namespace']}/{each['metadata']['name']}"
            for each in (found or {}).get("items") or ()
        ]


async def _rights(api: KubeWriter, installed: Installation) -> None:
    needed: dict[str, Iterable[rights.Right]] = {}
    facts = needed_facts(installed.policy) if installed.policy and installed.uses_facts else {}
    if installed.follows:
        needed["replicas"] = rights.of_replicas(installed.name, installed.follows, facts)
    if (deployed := installed.deployed) is not None:
        needed["the controller"] = rights.of_controller(
            deployed.registration,
            installed.namespace,
            tuple(filter(None, (deployed.serving_secret, deployed.ca_secret))),
            admission_policies=deployed.admission_policies,
        )
    for title, each in needed.items():
        for right in each if title in installed.accounts else ():
            if denied := await rights.lacking(api, installed.accounts[title], right):
                installed.lacking.append((installed.accounts[title], denied, right.lost))


async def _other_webhooks(api: KubeWriter, installed: Installation) -> None:
    """Find the webhooks of others that reject Pods, because nothing answers."""
    for kind in KINDS:
        for name, configuration in installed.live.get(kind, {}).items():
            for webhook in configuration.get("webhooks") or ():
                service = (webhook.get("clientConfig") or {}).get("service")
                if not service or is_own(webhook.get("name")) or not _rejects_pods(webhook):
                    continue
                address = service["namespace"], service["name"]
                if await ready_endpoints(api, *address):
                    continue
                service = await api.read(_SERVICE.format(*address))
                problem = "does not exist" if service is None else "has no ready endpoint"
                why = f"Service {'/'.join(address)} {problem}"
                installed.unserved.append((f"{kind} {name}", webhook, why))


def _rejects_pods(webhook: JSONObject) -> bool:
    """Return whether API servers reject new Pods if the webhook does not answer."""
    return webhook.get("failurePolicy") != "Ignore" and any(
        {"", "*"} & {*rule.get("apiGroups", ())}
        and {"pods", "*", "*/*"} & {*rule.get("resources", ())}
        and {"CREATE", "*"} & {*rule.get("operations", ())}
        for rule in webhook.get("rules") or ()
    )


async def _fence_policy(api: KubeWriter, installed: Installation, name: str) -> None:
    installed.policy_source = f"FencePolicy {name}"
    listed = await api.read(PATH)
    if listed is None:
        installed.policy_problem = "the API server does not serve FencePolicies"
        return
    found = {each["metadata"]["name"]: each for each in listed.get("items") or ()}
    installed.fence_policies = sorted(found)
    if name not in found:
        existing = ", ".join(installed.fence_policies) or "none"
        problem = f"the cluster has no FencePolicy {name}. FencePolicies in the cluster: {existing}"
        installed.policy_problem = problem
        return
    installed.fence_policy = live = found[name]
    try:
        installed.policy = live_policy(name, live)
    except InputError as error:
        installed.policy_problem = " ".join(error.lines)


async def _nodes(api: KubeWriter, installed: Installation, policy: Policy) -> None:
    state, reader = ClusterState(policy), Reader(LiveObjects(api))
    await reader.need(NODES, state.nodes.put)
    for collection, store in {**state.offers.of_drivers, **state.template_stores}.items():
        await reader.read(collection, store.put)
    installed.unreadable = [*reader.malformed, *reader.bugs]
    installed.nodes, installed.templates = state.nodes.index, state.templates
    problems = (of_a_network(policy.pools_of_device, state), classes_of_no_pool(policy, state))
    installed.stack = tuple(chain(*problems))


async def _stack(api: KubeWriter, installed: Installation, policy: Policy) -> None:
    if installed.nodes is not None:
        sets = await list_all(api, DAEMON_SETS.path, DAEMON_SETS.item, lambda item: item)
        installed.stack += tuple(unreached_by(policy, sets, installed.nodes))


async def _exempt_namespaces(api: KubeWriter, installed: Installation, policy: Policy) -> None:
    exempt = policy.exemptions.namespaces | installed.excluded_namespaces
    needed = {"kube-system", installed.namespace}
    for name in sorted(exempt - needed):
        if await api.read(f"/api/v1/namespaces/{name}") is None:
            continue
        lists = [
            await api.read(f"/apis/apps/v1/namespaces/{name}/{kind}", {"limit": "1"})
            for kind in _WORKLOADS
        ]
        installed.exempt_namespaces[name] = any((each or {}).get("items") for each in lists)
    namespaces = await list_all(api, NAMESPACES.path, NAMESPACES.item, lambda item: item)
    names = [each.metadata.name for each in namespaces]
    platforms = await platforms_of(Reader(LiveObjects(api)), names)
    installed.platforms = [each for each in platforms if each.namespace not in exempt]


def containers_of(deployment: JSONObject) -> list[JSONObject]:
    containers: list[JSONObject] = deployment["spec"]["template"]["spec"]["containers"]
    return containers


def _arguments(deployment: JSONObject, command: str) -> list[str] | None:
    """Return the arguments of a command of gpufence in a Deployment; None if it runs none.

    It is that of the container named gpufence, as in the chart, or of one that runs the command.
    Injected sidecars can come before it.
    """
    containers = containers_of(deployment)
    named = [container for container in containers if container["name"] == _PROGRAM]
    running = [container for container in containers if _runs(container, command)]
    for container in (*named, *running):
        words = _words(container)
        return words[words.index(command) + 1 :] if command in words else words
    return None


def _runs(container: JSONObject, command: str) -> bool:
    """Return whether it runs ``gpufence COMMAND``, or the command with its image's entrypoint."""
    words = _words(container)
    if command not in words:
        return False
    program = words[: words.index(command)][-1:]
    return not program or program[0].rpartition("/")[2] == _PROGRAM


def _words(container: JSONObject) -> list[str]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _registered(webhook: JSONObject, name: str) -> Registration:
    config: dict[str, Any] = webhook.get("clientConfig") or {}
    if service := config.get("service"):
        address = service["namespace"], service["name"], service.get("port") or 443
        return Registration(name=name, service=address)
    url = urlsplit(str(config.get("url") or ""))
    return Registration(name=name, url=f"{url.scheme}://{url.netloc}" if url.netloc else "")
