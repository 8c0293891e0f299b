"""The objects of an installation in its cluster, as far as the doctor may read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from certs.secret import Stored, read_secret
from policies.exemptions import ALWAYS_EXCLUDED
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.audit.advisories import NodeVersions, VersionedNode
from webhook.cel.configurations import Registration
from webhook.cluster.nodes import NODES
from webhook.cluster.state import ClusterState
from webhook.documents.document import InputError
from webhook.documents.policy_files import load_policy, policy_of_release
from webhook.kube.client import KubeApi, slices_query
from webhook.kube.errors import FORBIDDEN, ApiError
from webhook.kube.listing import list_all, list_optional
from webhook.registration.certificates import SecretName
from webhook.registration.leader_election import lease_path
from webhook.registration.registrar import (
    KINDS,
    AdmissionPolicies,
    admission_policies_of,
    other_releases,
)

_PROGRAM, _COMMAND = "gpufence", "serve"


@dataclass(frozen=True, slots=True)
class Deployed:
    """The options on the command line of the replicas.

    ``secret`` is the name of the Secret with CA and certificate, empty where the replicas
    serve with external files; ``registers`` whether they write the configurations, and
    ``admission_policies`` whether they write those, too.
    """

    registration: Registration
    secret: str
    registers: bool
    admission_policies: bool = True


@dataclass(slots=True)
class Installation:
    """The objects that were read. ``forbidden`` has the API server's error for each unreadable one.

    ``policy`` is None if there is no valid policy; ``policy_problem`` then has the reason.
    """

    namespace: str
    name: str
    version: str = ""
    """The version of the API server, such as v1.36.3; empty if it is unknown."""
    claim_versions: tuple[str, ...] = ()
    """The versions of the API group resource.k8s.io that the API server serves."""
    policy: Policy | None = None
    policy_source: str = ""
    policy_problem: str = ""
    deployment: JSONObject | None = None
    deployed: Deployed | None = None
    configurations: dict[str, JSONObject | None] = field(default_factory=dict)
    admission_policies: AdmissionPolicies = field(default_factory=dict)
    """The policies and bindings in the API server, by kind; of kinds that it serves."""
    secret: JSONObject | None = None
    stored: Stored | None = None
    slices: list[JSONObject] = field(default_factory=list)
    lease: JSONObject | None = None
    nodes: NodeIndex | None = None
    versions: NodeVersions = field(default_factory=NodeVersions)
    templates: tuple[NodeTemplate, ...] = ()
    other_releases: frozenset[str] = frozenset()
    """The namespaces of other releases in the cluster."""
    forbidden: dict[str, str] = field(default_factory=dict)

    @property
    def registers(self) -> bool:
        """Whether the leader writes what API servers know of the release."""
        return self.deployed is not None and self.deployed.registers

    @property
    def excluded_namespaces(self) -> frozenset[str]:
        """The namespaces for which API servers do not call gpufence."""
        if self.deployed is None:
            return ALWAYS_EXCLUDED
        return ALWAYS_EXCLUDED | self.deployed.registration.excluded_namespaces

    @property
    def address(self) -> Registration | None:
        """The address of gpufence: from the options of the replicas, or from a configuration.

        Replicas that do not register may have no such option.
        """
        if self.deployed is not None and self.deployed.registration.is_addressed:
            return self.deployed.registration
        for configuration in self.configurations.values():
            for webhook in (configuration or {}).get("webhooks") or ():
                return _registered(webhook, self.name)
        return None


async def examine(
    api: KubeApi,
    namespace: str,
    name: str,
    policy_path: str | None,
    read_arguments: Callable[[list[str]], Deployed],
) -> Installation:
    """Read the objects of the installation.

    The policy is that of the file, or without a path that of the release. ``read_arguments`` reads
    the command line of a replica.

    Raises:
        ClusterError: a request failed. A missing permission is not an error.
        InputError: the policy file is not a valid policy.
    """
    installed = Installation(namespace, name)

    async def read(what: str, path: str, query: dict[str, str] | None = None) -> JSONObject | None:
        try:
            return await api.read(path, query)
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            installed.forbidden[what] = str(error)
            return None

    installed.version = (await read("version", "/version") or {}).get("gitVersion", "")
    claims = await read("API groups", "/apis/resource.k8s.io") or {}
    installed.claim_versions = tuple(version["version"] for version in claims.get("versions") or ())
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    if policy_path is None:
        config_map = await read("policy", f"{core}/configmaps/{name}-policy")
        installed.policy_source = f"ConfigMap {namespace}/{name}-policy"
        try:
            installed.policy = policy_of_release(namespace, name, config_map)
        except InputError as error:
            installed.policy_problem = " ".join(error.lines)
    else:
        installed.policy, installed.policy_source = load_policy(policy_path), policy_path
    installed.deployment = await read("replicas", f"{apps}/deployments/{name}")
    if installed.deployment is not None:
        own = _own_container(containers_of(installed.deployment))
        installed.deployed = read_arguments(_arguments(own)) if own is not None else None
    for kind, path in KINDS.items():
        installed.configurations[kind] = await read(kind, f"{path}/{name}")
    try:
        installed.admission_policies = await admission_policies_of(api, name)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        installed.forbidden["admission policies"] = str(error)
    secret = installed.deployed.secret if installed.deployed else f"{name}-certificates"
    if secret:
        installed.secret = await read("certificate", SecretName(namespace, secret).path)
        installed.stored = read_secret(installed.secret) if installed.secret else None
    address = installed.address
    if address is not None and address.service is not None:
        of, service, _ = address.service
        slices = await read("endpoints", *slices_query(of, service))
        installed.slices = (slices or {}).get("items") or []
    installed.other_releases = await other_releases(api, name)
    installed.lease = await read("leader", lease_path(namespace, name))
    await _nodes(api, installed)
    return installed


async def _nodes(api: KubeApi, installed: Installation) -> None:
    if installed.policy is None:
        return
    state = ClusterState(installed.policy)

    def take(node: VersionedNode) -> None:
        state.nodes.put(node)
        installed.versions.take(node)

    try:
        await list_all(api, NODES.path, VersionedNode, take)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        installed.forbidden["nodes"] = str(error)
        return
    await list_optional(api, state.template_stores)
    installed.nodes, installed.templates = state.nodes.index, state.templates


def containers_of(deployment: JSONObject) -> list[JSONObject]:
    containers: list[JSONObject] = deployment["spec"]["template"]["spec"]["containers"]
    return containers


def _own_container(containers: list[JSONObject]) -> JSONObject | None:
    """Return the container named gpufence, as in the chart, or one that runs ``serve``.

    It is not always the first: injected sidecars can come before it.
    """
    named = [container for container in containers if container["name"] == _PROGRAM]
    serving = [container for container in containers if _serves(container)]
    return next(iter((*named, *serving)), None)


def _serves(container: JSONObject) -> bool:
    """Return whether it runs ``gpufence serve``, or ``serve`` with the entrypoint of its image."""
    words = _words(container)
    if _COMMAND not in words:
        return False
    program = words[: words.index(_COMMAND)][-1:]
    return not program or program[0].rpartition("/")[2] == _PROGRAM


def _arguments(container: JSONObject) -> list[str]:
    words = _words(container)
    return words[words.index(_COMMAND) + 1 :] if _COMMAND in words else words


def _words(container: JSONObject) -> list[str]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _registered(webhook: JSONObject, name: str) -> Registration:
    config: dict[str, Any] = webhook.get("clientConfig") or {}
    if service := config.get("service"):
        address = service["namespace"], service["name"], service.get("port") or 443
        return Registration(name=name, service=address)
    url = urlsplit(str(config.get("url") or ""))
    return Registration(name=name, url=f"{url.scheme}://{url.netloc}" if url.netloc else "")
