"""The objects of a cluster, as far as an audit needs them and may list them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from policies.decision import Decision
from policies.facts import Facts, Request
from policies.kubernetes.claims import read_claims
from policies.kubernetes.decoding import MalformedObjectError
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.audit.kinds import NODE, POD, WORKLOADS, Discovery, GroupKind, Kind
from webhook.audit.owners import Owned, Owners
from webhook.cluster.holders import PODS
from webhook.cluster.nodes import node_of
from webhook.cluster.templates import list_templates
from webhook.kube.client import FORBIDDEN
from webhook.kube.connection import Connection
from webhook.kube.errors import NOT_FOUND, ApiError
from webhook.kube.listing import list_all

_SERVER_ERROR = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload, or a Pod."""

    kind: Kind
    owned: Owned
    obj: JSONObject


@dataclass(slots=True)
class Inventory:
    """The listed objects. ``skipped`` has a sentence for each kind or object that is not
    audited."""

    nodes: NodeIndex | None = None
    node_uids: dict[str, str] = field(default_factory=dict)
    cordoned: set[str] = field(default_factory=set)
    workloads: list[Workload] = field(default_factory=list)
    owners: Owners = field(default_factory=Owners)
    skipped: list[str] = field(default_factory=list)
    excepted: set[tuple[str, str, str, str]] = field(default_factory=set)
    """Rule, namespace, kind and name of each finding that an exception covers."""
    facts: Facts = field(default_factory=Facts)
    """The facts of the whole cluster; ``facts_in`` returns those of a namespace."""
    today: date | None = None
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    is_whole: bool = True
    """Whether all objects were listed that decisions on workloads depend on."""

    @property
    def settled(self) -> frozenset[GroupKind]:
        """The kinds whose objects were all listed: an object that was not found does not exist.

        A finding of a Pod is reported at its owner, so without Pods no workload is complete.
        """
        nodes = {NODE} if self.nodes is not None else set()
        workloads = {*self.owners.listed, POD.key} if self.is_whole else set()
        return frozenset(nodes | workloads)

    def request_in(self, namespace: str, username: str = "") -> Request:
        """Return the request that would create an object in the namespace today."""
        return Request(namespace=namespace, username=username, today=self.today)

    def facts_in(self, namespace: str) -> Facts:
        """Return the facts for objects of the namespace."""
        return replace(self.facts, namespace_labels=self.namespace_labels.get(namespace))

    def take_excepted(self, workload: Workload, decision: Decision) -> None:
        """Record the findings on an object that an exception covers."""
        owned = workload.owned
        self.excepted.update(
            (finding.rule, owned.namespace, workload.kind.kind, owned.name)
            for finding in decision.excepted
        )

    def not_judged(self, workload: Workload, error: MalformedObjectError) -> None:
        """Record that an object is malformed, so that no rule can read it."""
        self.skipped.append(
            f"{workload.kind.kind} {workload.owned.full_name}: not audited: {error}"
        )


class _Listed(NamedTuple):
    """The fields of a Node that an audit keeps: its status can list 50 images."""

    node: Node
    uid: str
    is_cordoned: bool


class Taker:
    """Lists what an audit needs, a collection at a time, into one inventory."""

    def __init__(self, connection: Connection, policy: Policy, today: date) -> None:
        self.inventory = Inventory(today=today)
        self._connection = connection
        self._policy = policy
        self._discovery = Discovery(connection)
        self._requested: set[GroupKind] = set()

    async def take(self) -> Inventory:
        """List all but Pods.

        Raises:
            ClusterError: the cluster cannot be read. A missing permission is not an error.
        """
        await self._facts()
        for kind in WORKLOADS:
            await self._workloads(kind)
        for custom in self._policy.custom_workloads:
            for kind in await self._discovery.by_resource(custom.group, custom.resources):
                await self._workloads(kind)
            if error := self._discovery.unavailable.get(custom.group):
                self.inventory.skipped.append(
                    f"{custom.group}: not listed completely, so some objects may not be audited; "
                    f"check its API server: {error}"
                )
        return self.inventory

    async def take_owners(self, objects: Iterable[Owned]) -> None:
        """List the kinds that own one of the objects, and the owners of these, and so on.

        This finds owners of kinds that gpufence does not know.
        """
        owner_keys = {obj.owner.key for obj in objects if obj.owner}
        listed: set[GroupKind] = set()
        while missing := sorted(owner_keys - self.inventory.owners.listed - listed):
            listed.update(missing)
            for group, name in missing:
                kind = await self._discovery.by_kind(group, name) if group else None
                if kind is not None and not kind.is_namespaced:
                    self.inventory.owners.clusterwide.add(kind.key)
                elif kind is not None:
                    workloads = await self._workloads(kind)
                    owner_keys |= {workload.owner.key for workload in workloads if workload.owner}

    async def pods(self, take: Callable[[JSONObject], T]) -> list[T]:
        """Return the results of ``take`` for each Pod that has not ended.

        The list is empty if the account may not list Pods.
        """
        pods = await self._deciding(
            PODS.name, PODS.path, take, "no Pod is audited", fields=PODS.fields
        )
        return pods or []

    async def _facts(self) -> None:
        inventory, policy = self.inventory, self._policy
        nodes = await self._deciding(
            "nodes",
            "/api/v1/nodes",
            lambda obj: _Listed(node_of(obj, policy), obj["metadata"]["uid"], _is_cordoned(obj)),
            "the report does not show pools and their nodes",
        )
        if nodes is not None:
            inventory.nodes = NodeIndex(node.node for node in nodes)
            inventory.node_uids = {node.node.name: node.uid for node in nodes}
            inventory.cordoned = {node.node.name for node in nodes if node.is_cordoned}
        namespaces = await self._deciding(
            "namespaces",
            "/api/v1/namespaces",
            lambda obj: obj["metadata"],
            "rules that depend on their labels are not evaluated",
        )
        inventory.namespace_labels = {m["name"]: m.get("labels") or {} for m in namespaces or ()}
        classes = await self._deciding(
            "runtimeclasses.node.k8s.io",
            "/apis/node.k8s.io/v1/runtimeclasses",
            lambda obj: str(obj["metadata"]["name"]),
            "each RuntimeClass is assumed to exist",
        )
        inventory.facts = Facts(
            nodes=inventory.nodes,
            templates=tuple(await list_templates(self._connection)),
            runtime_classes=None if classes is None else frozenset(classes),
        )
        if policy.pools_of_class:
            await self._claims()

    async def _claims(self) -> None:
        objects: list[tuple[str, JSONObject]] = []
        version = await self._discovery.version("resource.k8s.io")
        for resource, kind in (
            ("deviceclasses", "DeviceClass"),
            ("resourceclaims", "ResourceClaim"),
            ("resourceclaimtemplates", "ResourceClaimTemplate"),
        ):
            if not version:
                return
            api_version = f"resource.k8s.io/{version}"
            items = await self._deciding(
                f"{resource}.resource.k8s.io",
                f"/apis/{api_version}/{resource}",
                lambda obj: obj,
                "Pods with claims may not count as GPU Pods",
            )
            objects += (
                (obj["metadata"].get("namespace", ""), _typed(obj, api_version, kind))
                for obj in items or ()
            )
        claims, templates, classes = read_claims(objects)
        self.inventory.facts = replace(
            self.inventory.facts,
            claims=claims,
            claim_templates=templates,
            extended_resource_classes=classes,
        )

    async def _workloads(self, kind: Kind) -> list[Owned]:
        """List a kind and return its objects; return nothing if it is already listed."""
        if kind.key in self._requested:
            return []
        self._requested.add(kind.key)
        workloads = await self._list(
            kind.title,
            kind.path,
            lambda obj: workload(obj, kind),
            "its objects are not audited",
            custom=kind not in WORKLOADS,
        )
        if workloads is None:
            return []
        owned = [workload.owned for workload in workloads]
        self.inventory.workloads += workloads
        self.inventory.owners.add(kind.key, owned)
        return owned

    async def _deciding(
        self,
        title: str,
        path: str,
        take: Callable[[JSONObject], T],
        without: str,
        *,
        fields: str = "",
    ) -> list[T] | None:
        """List a collection that decisions on workloads depend on."""
        items = await self._list(title, path, take, without, fields=fields)
        self.inventory.is_whole = self.inventory.is_whole and items is not None
        return items

    async def _list(
        self,
        title: str,
        path: str,
        take: Callable[[JSONObject], T],
        without: str,
        *,
        custom: bool = False,
        fields: str = "",
    ) -> list[T] | None:
        """List a collection; None if that is forbidden, or if there is no such collection.

        For custom resources, server errors count as well: a broken conversion webhook must not end
        the audit.
        """
        try:
            return await list_all(self._connection, path, JSONObject, take, fields=fields)
        except ApiError as error:
            if error.status == FORBIDDEN:
                remediation = "allow the verb list"
            elif custom and error.status >= _SERVER_ERROR:
                remediation = "check its API server or its conversion webhook"
            elif error.status == NOT_FOUND:
                return None
            else:
                raise
            self.inventory.skipped.append(
                f"{title}: not listed, so {without}; {remediation}: {error}"
            )
        return None


def workload(obj: JSONObject, kind: Kind) -> Workload:
    """Return an object of a list, which has no apiVersion and kind, as a workload."""
    typed = _typed(obj, kind.api_version, kind.kind)
    return Workload(kind, Owned.read(typed, kind.key), typed)


def _is_cordoned(node: JSONObject) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _typed(obj: JSONObject, api_version: str, kind: str) -> JSONObject:
    # managedFields are half of a small object, and no rule reads them.
    obj["metadata"].pop("managedFields", None)
    return {"apiVersion": api_version, "kind": kind, **obj}
