"""What is in a cluster, as far as an audit needs it and may list it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

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
from webhook.kube.client import FORBIDDEN
from webhook.kube.connection import Connection
from webhook.kube.errors import NOT_FOUND, ApiError
from webhook.kube.listing import list_all

_SERVER_ERROR = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Workload:
    """An object that Pods may come of, or a Pod."""

    kind: Kind
    owned: Owned
    obj: JSONObject


@dataclass(slots=True)
class Inventory:
    """What was listed. ``untold`` says of each kind that was not why, and what follows of it."""

    nodes: NodeIndex | None = None
    node_uids: dict[str, str] = field(default_factory=dict)
    cordoned: set[str] = field(default_factory=set)
    workloads: list[Workload] = field(default_factory=list)
    owners: Owners = field(default_factory=Owners)
    untold: list[str] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    """What is known of the whole cluster; ``facts_in`` makes it that of a namespace."""
    today: date | None = None
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    is_whole: bool = True
    """Whether all objects were listed that decide about workloads, besides the workloads."""

    @property
    def settled(self) -> frozenset[GroupKind]:
        """The kinds of which all was seen: what was not found of their objects is not there.

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

    def not_judged(self, workload: Workload, error: MalformedObjectError) -> None:
        """Tell that an object is not as its kind should be, so that no rule can read it."""
        owned = workload.owned
        self.untold.append(
            f"{workload.kind.kind} {owned.namespace}/{owned.name}: not judged: {error}"
        )


class _Listed(NamedTuple):
    """What an audit keeps of a Node, whose status names up to 50 images as well (the default)."""

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
        self._asked: set[GroupKind] = set()

    async def take(self) -> Inventory:
        """List all but Pods.

        Raises:
            ClusterError: the cluster cannot be read. A kind that may not be listed is not an error.
        """
        await self._surroundings()
        for kind in WORKLOADS:
            await self._workloads(kind)
        for custom in self._policy.custom_workloads:
            for kind in await self._discovery.by_resource(custom.group, custom.resources):
                await self._workloads(kind)
            if error := self._discovery.away.get(custom.group):
                self.inventory.untold.append(
                    f"{custom.group}: not all of it could be looked for, so its objects may not "
                    f"have been judged; see what serves it: {error}"
                )
        return self.inventory

    async def take_owners(self, objects: Iterable[Owned]) -> None:
        """List the kinds that own one of the objects, and those that own these, where they can be.

        This finds the owners of Pods whose kinds gpufence does not know.
        """
        wanted = {each.owner.key for each in objects if each.owner}
        seen: set[GroupKind] = set()
        while missing := sorted(wanted - self.inventory.owners.listed - seen):
            seen.update(missing)
            for group, name in missing:
                kind = await self._discovery.by_kind(group, name) if group else None
                if kind is not None and not kind.is_namespaced:
                    self.inventory.owners.clusterwide.add(kind.key)
                elif kind is not None:
                    found = await self._workloads(kind)
                    wanted |= {each.owner.key for each in found if each.owner}

    async def pods(self, take: Callable[[JSONObject], T]) -> list[T]:
        """Return what ``take`` makes of each Pod that has not ended.

        That is nothing where Pods may not be listed.
        """
        found = await self._deciding(
            PODS.name, PODS.path, take, "no Pod was judged", fields=PODS.fields
        )
        return found or []

    async def _surroundings(self) -> None:
        inventory, policy = self.inventory, self._policy
        nodes = await self._deciding(
            "nodes",
            "/api/v1/nodes",
            lambda obj: _Listed(node_of(obj, policy), obj["metadata"]["uid"], _is_cordoned(obj)),
            "nothing is said of pools and their nodes",
        )
        if nodes is not None:
            inventory.nodes = NodeIndex(each.node for each in nodes)
            inventory.node_uids = {each.node.name: each.uid for each in nodes}
            inventory.cordoned = {each.node.name for each in nodes if each.is_cordoned}
        namespaces = await self._deciding(
            "namespaces",
            "/api/v1/namespaces",
            lambda obj: obj["metadata"],
            "rules that go by their labels were not decided",
        )
        inventory.namespace_labels = {m["name"]: m.get("labels") or {} for m in namespaces or ()}
        classes = await self._deciding(
            "runtimeclasses.node.k8s.io",
            "/apis/node.k8s.io/v1/runtimeclasses",
            lambda obj: str(obj["metadata"]["name"]),
            "Pods are judged as if each RuntimeClass were there",
        )
        inventory.facts = Facts(
            nodes=inventory.nodes,
            runtime_classes=None if classes is None else frozenset(classes),
        )
        if policy.pool_of_class:
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
            found = await self._deciding(
                f"{resource}.resource.k8s.io",
                f"/apis/{api_version}/{resource}",
                lambda obj: obj,
                "Pods that ask for devices by claims may be taken for others",
            )
            objects += (
                (obj["metadata"].get("namespace", ""), _typed(obj, api_version, kind))
                for obj in found or ()
            )
        claims, templates, classes = read_claims(objects)
        self.inventory.facts = replace(
            self.inventory.facts,
            claims=claims,
            claim_templates=templates,
            extended_resource_classes=classes,
        )

    async def _workloads(self, kind: Kind) -> list[Owned]:
        """List a kind, once, and return what there is of it; nothing the second time."""
        if kind.key in self._asked:
            return []
        self._asked.add(kind.key)
        found = await self._list(
            kind.title,
            kind.path,
            lambda obj: workload(obj, kind),
            "its objects were not judged",
            custom=kind not in WORKLOADS,
        )
        if found is None:
            return []
        owned = [each.owned for each in found]
        self.inventory.workloads += found
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
        """List a collection that decides about workloads of every kind."""
        found = await self._list(title, path, take, without, fields=fields)
        self.inventory.is_whole = self.inventory.is_whole and found is not None
        return found

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
        """List a collection; None where that is not allowed, or there is no such collection.

        Of custom resources also where the API server fails at it: what converts them between
        versions is a conversion webhook, and a broken one must not end every audit.
        """
        try:
            return await list_all(self._connection, path, take, fields=fields)
        except ApiError as error:
            if error.status == FORBIDDEN:
                cure = "allow the verb list"
            elif custom and error.status >= _SERVER_ERROR:
                cure = "see what serves and converts them"
            elif error.status == NOT_FOUND:
                return None
            else:
                raise
            self.inventory.untold.append(f"{title}: not listed, so {without}; {cure}: {error}")
        return None


def workload(obj: JSONObject, kind: Kind) -> Workload:
    """Return an object of a list, which says neither apiVersion nor kind, as a workload."""
    typed = _typed(obj, kind.api_version, kind.kind)
    return Workload(kind, Owned.read(typed, kind.key), typed)


def _is_cordoned(node: JSONObject) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _typed(obj: JSONObject, api_version: str, kind: str) -> JSONObject:
    # managedFields are half of a small object, and no rule reads them.
    obj["metadata"].pop("managedFields", None)
    return {"apiVersion": api_version, "kind": kind, **obj}
