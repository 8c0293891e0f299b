"""The objects of an installation in its cluster, as far as the doctor may read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from certs.keypair import KeyPair, Names
from certs.secret import read_certificate, read_leaf
from policies.context import Fact
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject, mappings
from policies.kubernetes.paths import text_at
from policies.policy import ALWAYS_EXCLUDED, Policy
from webhook.active_policy import PATH
from webhook.cluster.needs import needed_facts
from webhook.cluster.objects import LiveObjects, Reader
from webhook.cluster.state import NAMESPACES, ClusterState
from webhook.controller.certificates import SecretName, names_of
from webhook.controller.drift import is_own
from webhook.controller.registrar import KINDS, POLICY_KINDS
from webhook.controller.text.objects import FENCE_POLICY, POLICY_KIND, Registration, all_names
from webhook.devices.nodes import NODES
from webhook.documents.document import InputError
from webhook.documents.policy_files import live_policy, load_policy
from webhook.kube.endpoints import slices_query
from webhook.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from webhook.kube.listing import list_all
from webhook.kube.writer import KubeWriter
from webhook.tools.audit.stack import (
    DAEMON_SETS,
    StackProblem,
    classes_of_no_pool,
    of_a_network,
    unreached_by,
)
from webhook.tools.followed_policy import fence_policies
from webhook.tools.platforms import Found, platforms_of

_PROGRAM = "gpufence"
_GROUPS: dict[Fact, str] = {
    "nodes": "",
    "namespaces": "",
    "runtimeclasses": "node.k8s.io",
    "deviceclasses": "resource.k8s.io",
    "resourceslices": "resource.k8s.io",
}
_DAEMON_SET_CONTROLLER = "/api/v1/namespaces/kube-system/serviceaccounts/daemon-set-controller"
"""The service account that kube-controller-manager creates if its controllers have their own."""
_WORKLOADS = ("daemonsets", "deployments", "statefulsets")

AdmissionPolicies = dict[str, dict[str, JSONObject]]
"""By kind, policies before bindings: the objects by name. Kinds that are not served are left out.
"""


@dataclass(frozen=True, slots=True)
class Deployed:
    """The options on the command line of the controller.

    ``serving_secret`` is the name of the Secret that replicas mount; ``admission_policies`` says
    whether the controller writes those.
    """

    registration: Registration
    serving_secret: str
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
    account: str = ""
    """The user as which the replicas read the cluster."""
    configurations: dict[str, JSONObject | None] = field(default_factory=dict)
    admission_policies: AdmissionPolicies = field(default_factory=dict)
    """The policies and bindings in the API server, by kind; of kinds that it serves."""
    other_releases: list[str] = field(default_factory=list)
    """The names of webhook configurations of other releases of gpufence."""
    secret: JSONObject | None = None
    """The Secret that replicas mount."""
    leaf: KeyPair | None = None
    signer: bytes = b""
    """The CA of the serving certificate (PEM)."""
    names: Names | None = None
    """The names that the serving certificate must have; None if they are unknown."""
    slices: list[JSONObject] = field(default_factory=list)
    nodes: NodeIndex | None = None
    templates: tuple[NodeTemplate, ...] = ()
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """The nodes, and what offers devices on them, that are malformed: title and problem."""
    stack: tuple[StackProblem, ...] = ()
    denied_facts: tuple[Fact, ...] = ()
    """The facts that the policy needs and that the service account may not read."""
    exempt_namespaces: dict[str, bool] = field(default_factory=dict)
    """Whether each exempt namespace that exists has a workload.

    Without ``kube-system`` and the namespaces of gpufence, which are always needed.
    """
    namespace_guard: JSONObject | None = None
    """The admission policy of the chart that limits who may create some namespaces."""
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
    def registers(self) -> bool:
        """Whether a controller writes what API servers know of the release."""
        return self.deployed is not None

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
    if installed.deployment is not None:
        account = installed.deployment["spec"]["template"]["spec"].get("serviceAccountName")
        installed.account = f"system:serviceaccount:{namespace}:{account or 'default'}"
        if (arguments := _arguments(installed.deployment, "serve")) is not None:
            installed.uses_facts, installed.follows = read_replica(arguments)
    with installed.permitted("controller"):
        installed.controller = await api.read(f"{apps}/deployments/{name}-controller")
        if installed.controller is not None:
            arguments = _arguments(installed.controller, "controller")
            installed.deployed = None if arguments is None else read_arguments(arguments)
    for kind, path in KINDS.items():
        with installed.permitted(kind):
            installed.configurations[kind] = live = await api.read(f"{path}/{name}")
            if installed.follows is None and live is not None:
                annotations = live["metadata"].get("annotations") or {}
                installed.follows = annotations.get(FENCE_POLICY)
    if policy_path is not None:
        installed.policy, installed.policy_source = load_policy(policy_path), policy_path
    elif fence_policy := fence_policy or installed.follows:
        with installed.permitted("FencePolicy"):
            await _fence_policy(api, installed, fence_policy)
    elif installed.follows is None:
        installed.policy_problem, _ = await fence_policies(api)
    with installed.permitted("admission policies"):
        installed.admission_policies = await _admission_policies(api, name)
    with installed.permitted("other releases"):
        listed = await list_all(
            api, KINDS["ValidatingWebhookConfiguration"], dict, lambda each: each
        )
        installed.other_releases = [
            other
            for each in listed
            if (other := text_at(each, "metadata", "name")) != name
            and any(is_own(text_at(own, "name")) for _, own in mappings(each.get("webhooks")))
        ]
    with installed.permitted("namespace guard"):
        guard = f"{POLICY_KINDS[POLICY_KIND]}/{name}-namespace-guard"
        installed.namespace_guard = await api.read(guard)
    if installed.deployed is not None:
        with installed.permitted("certificate"):
            secret = SecretName(namespace, installed.deployed.serving_secret)
            installed.secret = await api.read(secret.path)
            installed.leaf = read_leaf(installed.secret)
            installed.signer = read_certificate(installed.secret)
    address = installed.address
    installed.names = names_of(address) if address is not None else None
    if address is not None and address.service is not None:
        with installed.permitted("endpoints"):
            slices = await api.read(*slices_query(*address.service[:2]))
            installed.slices = (slices or {}).get("items") or []
    if installed.policy is not None:
        with installed.permitted("nodes"):
            await _nodes(api, installed, installed.policy)
        with installed.permitted("GPU stack"):
            await _stack(api, installed, installed.policy)
        with installed.permitted("cluster facts"):
            await _facts(api, installed, installed.policy)
        with installed.permitted("exempt namespaces"):
            await _exempt_namespaces(api, installed, installed.policy)
    installed.now = api.clock.now()
    return installed


async def _admission_policies(api: KubeWriter, name: str) -> AdmissionPolicies:
    """Return the admission policies of the installation."""
    names = all_names(name)
    live: AdmissionPolicies = {}
    for kind, path in POLICY_KINDS.items():
        listed = await api.read(path)
        if listed is not None:
            items = {item["metadata"]["name"]: item for item in listed.get("items") or ()}
            live[kind] = {each: items[each] for each in names if each in items}
    return live


async def _fence_policy(api: KubeWriter, installed: Installation, name: str) -> None:
    installed.policy_source = f"FencePolicy {name}"
    live = await api.read(f"{PATH}/{name}")
    if live is None:
        existing, _ = await fence_policies(api)
        installed.policy_problem = f"the cluster has no FencePolicy {name}. {existing}"
        return
    try:
        installed.policy = live_policy(name, live)
    except InputError as error:
        installed.policy_problem = " ".join(error.lines)


async def _nodes(api: KubeWriter, installed: Installation, policy: Policy) -> None:
    state, reader = ClusterState(policy), Reader(LiveObjects(api))
    await reader.objects.read(NODES, state.nodes.put, reader.failed)
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


async def _facts(api: KubeWriter, installed: Installation, policy: Policy) -> None:
    if not installed.uses_facts:
        return
    facts = [
        fact
        for fact in needed_facts(policy)
        if not all([await _may(api, installed, fact, verb) for verb in ("list", "watch")])
    ]
    installed.denied_facts = tuple(facts)


async def _may(api: KubeWriter, installed: Installation, fact: Fact, verb: str) -> bool:
    """Return whether the replicas may read the fact."""
    accounts = "system:serviceaccounts"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": installed.account,
            "groups": [accounts, f"{accounts}:{installed.namespace}", "system:authenticated"],
            "resourceAttributes": {"group": _GROUPS[fact], "resource": fact, "verb": verb},
        },
    }
    answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool((answer.get("status") or {}).get("allowed"))


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
