"""The topmost owner of an object, for example the Deployment of a Pod.

Clients can write any owner reference. A reference counts only if the owner exists with that kind
and name in the same namespace, if the UIDs do not differ, and if its label selector, if any,
selects the object: controllers adopt and release objects by this selector. A dump may lack UIDs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from sys import intern

import msgspec

from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import Alternative, accepts
from webhook.cluster.kinds import GroupKind
from webhook.kube.collection import AnnotatedMetadata

_SELECTING_GROUPS = ("", "apps", "batch")

# Limits of what is kept of an object: no real one comes close.
_MOST_REQUIREMENTS = 100
_MOST_CHARACTERS = 253
"""The length of a name. A longer one in an owner reference names nothing."""

Identity = tuple[str, str, str, str]
"""Group, kind, namespace and name of an object."""

_NOTHING = Alternative({"": ""}, (), (), "")


class OwnedMetadata(AnnotatedMetadata, frozen=True, rename="camel"):
    """What an audit reads of the metadata of an object."""

    owner_references: list[JSONObject] | None = None


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


@dataclass(frozen=True, slots=True)
class Owned:
    """The ownership of an object, and a workload's selector."""

    key: GroupKind
    namespace: str
    name: str
    uid: str
    owner: Reference | None
    selector: Alternative | None = None
    is_selected: bool = True
    """Whether the selector of the owner, if it has one, selects the object."""

    @property
    def identity(self) -> Identity:
        return (*self.key, self.namespace, self.name)

    @property
    def full_name(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Owners:
    """The objects that may own others: all objects of the ``listed`` kinds."""

    def __init__(self) -> None:
        self.listed: set[GroupKind] = set()
        self._objects: dict[Identity, Owned] = {}

    def owned(self, metadata: OwnedMetadata, key: GroupKind, spec: JSONObject) -> Owned:
        """Return the ownership of an object with the metadata and the spec.

        Kinds with a selector are listed before those that they own. Labels are not kept: an object
        can have a megabyte of them.
        """
        reference = _controller(metadata.owner_references or ())
        owner = self._find(reference, metadata.namespace)
        selector = owner.selector if owner else None
        return Owned(
            key,
            intern(metadata.namespace),
            metadata.name,
            metadata.uid,
            reference,
            _selector(spec, key),
            selector is None or accepts(selector, metadata.name, metadata.labels or {}),
        )

    def add(self, kind: GroupKind, objects: Iterable[Owned]) -> None:
        """Add all objects of a kind."""
        self.listed.add(kind)
        self._objects.update((obj.identity, obj) for obj in objects)

    def top(self, obj: Owned) -> Owned:
        """Return the topmost owner, or the object itself.

        The Node that owns a static Pod does not count. Source: ``metav1.GetControllerOf``.
        """
        seen = {obj.identity}
        while (owner := self.direct(obj)) and owner.identity not in seen:
            seen.add(owner.identity)
            obj = owner
        return obj

    def direct(self, obj: Owned) -> Owned | None:
        """Return the object's own controller, if it is known and matches the reference."""
        return self._find(obj.owner, obj.namespace) if obj.is_selected else None

    def _find(self, reference: Reference | None, namespace: str) -> Owned | None:
        if reference is None:
            return None
        owner = self._objects.get((*reference.key, namespace, reference.name))
        if owner is None or (owner.uid and reference.uid and owner.uid != reference.uid):
            return None
        return owner


def _controller(references: Iterable[JSONObject]) -> Reference | None:
    """Return the controller's ``metav1.OwnerReference``. Its strings have no limit in the API.

    The API requires all of them. A dump that a person has edited may lack some.
    """
    for owner in references:
        if owner.get("controller"):
            fields = ("apiVersion", "kind", "name", "uid")
            api_version, *others = (str(owner.get(field) or "") for field in fields)
            group, slash, _ = api_version.partition("/")
            texts = (group if slash else "", *others)
            return Reference(*(intern(text[:_MOST_CHARACTERS]) for text in texts))
    return None


def _selector(spec: JSONObject, key: GroupKind) -> Alternative | None:
    """Return the selector of a workload; None for kinds without one.

    A Deployment selects its ReplicaSets by the same labels as their Pods. The meaning of a selector
    in a custom resource is unknown. A selector that is too large selects nothing.
    """
    if key[0] not in _SELECTING_GROUPS:
        return None
    selector = spec.get("selector")
    if not selector:
        return None
    if key == ("", "ReplicationController"):
        labels, expressions = selector, []
    else:
        labels = selector.get("matchLabels") or {}
        expressions = msgspec.convert(selector.get("matchExpressions") or [], list[Requirement])
    values = sum(1 + len(expression.values or ()) for expression in expressions)
    if len(labels) + values > _MOST_REQUIREMENTS:
        return _NOTHING
    return Alternative(labels, tuple(expressions), (), "")
