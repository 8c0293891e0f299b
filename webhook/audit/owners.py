"""The topmost owner of an object, for example the Deployment of a Pod.

Clients can write any owner reference. A reference counts only if the owner exists with that UID,
kind and name in the same namespace, and if its label selector, if any, selects the object:
controllers adopt and release objects by this selector.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import Alternative, accepts
from webhook.audit.kinds import NODE, GroupKind

_SELECTING_GROUPS = ("", "apps", "batch")

Remark = Literal["", "dangling", "forged", "unread", "clusterwide"]
"""Why the chain ends at an object with an owner reference: the owner does not exist, does not match
the reference, or is of a kind that cannot be listed, or that is cluster-scoped."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The owner reference of an object's controller."""

    group: str
    kind: str
    name: str
    uid: str

    @property
    def key(self) -> GroupKind:
        return self.group, self.kind

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Owned:
    """The ownership of an object, and a workload's selector."""

    key: GroupKind
    namespace: str
    name: str
    uid: str
    labels: JSONObject
    owner: Reference | None
    selector: Alternative | None = None

    @property
    def full_name(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @classmethod
    def read(cls, obj: JSONObject, key: GroupKind) -> Owned:
        """Read an object of the API."""
        metadata = obj["metadata"]
        return cls(
            key=key,
            namespace=metadata.get("namespace") or "",
            name=metadata["name"],
            uid=metadata.get("uid") or "",
            labels=metadata.get("labels") or {},
            owner=_controller(metadata.get("ownerReferences") or ()),
            selector=_selector(obj, key),
        )


class Owners:
    """The objects that may own others: all objects of the ``listed`` kinds.

    Objects of ``clusterwide`` kinds, for example the configuration of an operator, do not count as
    owners.
    """

    def __init__(self) -> None:
        self.listed: set[GroupKind] = set()
        self.clusterwide: set[GroupKind] = set()
        self._by_uid: dict[str, Owned] = {}

    def add(self, kind: GroupKind, objects: Iterable[Owned]) -> None:
        """Add all objects of a kind."""
        self.listed.add(kind)
        self._by_uid.update((obj.uid, obj) for obj in objects)

    def top(self, obj: Owned) -> tuple[Owned, Remark]:
        """Return the topmost owner, or the object itself, and why the chain ended.

        The Node that owns a static Pod does not count. Source: ``metav1.GetControllerOf``.
        """
        seen = {obj.uid}
        while obj.owner is not None and obj.owner.key != NODE:
            owner = self._by_uid.get(obj.owner.uid)
            if owner is None:
                return obj, self._why_unknown(obj.owner.key)
            if owner.uid in seen or not _is_owner(owner, obj, obj.owner):
                return obj, "forged"
            seen.add(owner.uid)
            obj = owner
        return obj, ""

    def _why_unknown(self, kind: GroupKind) -> Remark:
        if kind in self.clusterwide:
            return "clusterwide"
        return "dangling" if kind in self.listed else "unread"

    def direct(self, obj: Owned) -> Owned | None:
        """Return the object's own controller, if it is known and matches the reference."""
        owner = self._by_uid.get(obj.owner.uid) if obj.owner else None
        return owner if owner and obj.owner and _is_owner(owner, obj, obj.owner) else None


def _is_owner(owner: Owned, obj: Owned, reference: Reference) -> bool:
    return (
        owner.key == reference.key
        and owner.name == reference.name
        and owner.namespace == obj.namespace
        and (owner.selector is None or accepts(owner.selector, obj.name, obj.labels))
    )


def _controller(references: Iterable[JSONObject]) -> Reference | None:
    for owner in references:
        if owner.get("controller"):
            group, slash, _ = str(owner["apiVersion"]).partition("/")
            return Reference(group if slash else "", owner["kind"], owner["name"], owner["uid"])
    return None


def _selector(obj: JSONObject, key: GroupKind) -> Alternative | None:
    """Return the selector of a workload; None for kinds without one.

    A Deployment selects its ReplicaSets by the same labels as their Pods. The meaning of a selector
    in a custom resource is unknown.
    """
    if key[0] not in _SELECTING_GROUPS:
        return None
    selector = (obj.get("spec") or {}).get("selector")
    if not selector:
        return None
    if key == ("", "ReplicationController"):
        return Alternative(selector, (), (), "")
    labels = selector.get("matchLabels") or {}
    expressions = msgspec.convert(selector.get("matchExpressions") or [], list[Requirement])
    return Alternative(labels, tuple(expressions), (), "")
