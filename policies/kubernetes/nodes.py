"""The nodes of a cluster, indexed by label.

A pure data structure: a watch keeps it current, rules only read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from policies.kubernetes.scheduling import (
    FENCING_EFFECTS,
    NODE_NAME_FIELD,
    Alternative,
    Taint,
    accepts,
)

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a Node that placement depends on."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, int] | None = None
    """The number of devices that the node offers, by extended resource; ``None`` if unknown."""

    def has_labels(self, labels: Mapping[str, str]) -> bool:
        """Return whether the node carries all of the labels."""
        own = self.labels
        # A loop: all() with a generator takes three times as long, and this runs for many nodes.
        for key, value in labels.items():  # noqa: SIM110
            if own.get(key) != value:
                return False
        return True

    def is_fenced_by(self, taints: Iterable[Taint]) -> bool:
        """Return whether the node carries one of the taints, and that taint repels Pods."""
        return any(
            taint.effect in FENCING_EFFECTS and pool_taint.includes(taint)
            for taint in self.taints
            for pool_taint in taints
        )


class NodeIndex:
    """The nodes of a cluster, updated in place.

    A lookup starts from the rarest label that a node selection requires and yields nodes one by
    one: a caller that needs only the first node does not pay for the whole cluster.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, Node] = {}
        self._names: dict[str, dict[str, set[str]]] = {}
        """Label key to label value to the names of the nodes that carry it."""
        self._marked: dict[str, set[str]] = {}
        """Key of a taint, or name of a device resource, to the names of the nodes that have it."""
        for node in nodes:
            self.update(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, name: str) -> Node | None:
        """Return the node with this name, or ``None``."""
        return self._nodes.get(name)

    def update(self, node: Node) -> bool:
        """Add or replace the node, and return whether anything changed."""
        known = self._nodes.get(node.name)
        if known == node:
            return False
        if known is not None:
            self._unindex(known)
        self._nodes[node.name] = node
        for key, value in node.labels.items():
            self._names.setdefault(key, {}).setdefault(value, set()).add(node.name)
        for mark in _marks(node):
            self._marked.setdefault(mark, set()).add(node.name)
        return True

    def remove(self, name: str) -> bool:
        """Remove the node, and return whether it was there."""
        node = self._nodes.pop(name, None)
        if node is None:
            return False
        self._unindex(node)
        return True

    def with_labels(self, labels: Mapping[str, str]) -> Iterator[Node]:
        """Yield the nodes that carry all of the labels."""
        return self.accepted_by(Alternative(labels, (), (), ""))

    def marked(self, is_mark: Callable[[str], bool]) -> Iterator[Node]:
        """Yield the nodes with a taint of such a key, or with devices of such a resource."""
        marks = [names for mark, names in self._marked.items() if is_mark(mark)]
        for name in set().union(*marks):
            yield self._nodes[name]

    def accepted_by(
        self, alternative: Alternative, labels: Mapping[str, str] = NO_LABELS
    ) -> Iterator[Node]:
        """Yield the nodes that meet one alternative of a node selection and carry the labels."""
        for name in self._candidates(alternative, labels):
            node = self._nodes[name]
            if accepts(alternative, name, node.labels) and node.has_labels(labels):
                yield node

    def _candidates(self, alternative: Alternative, labels: Mapping[str, str]) -> Iterable[str]:
        """Return the names of a superset of the nodes that ``accepted_by`` yields."""
        for field in alternative.fields:
            if field.key == NODE_NAME_FIELD and field.operator == "In":
                name = (field.values or [""])[0]
                return (name,) if name in self._nodes else ()
        required: list[tuple[str, tuple[str, ...]]] = [
            (key, (value,)) for key, value in alternative.labels.items()
        ]
        required += [
            (e.key or "", tuple(e.values or ()))
            for e in alternative.expressions
            if e.operator == "In"
        ]
        required += [(key, (value,)) for key, value in labels.items()]
        matching = [self._with_label(key, values) for key, values in required]
        # A key that must exist with any value still narrows the search.
        matching += [
            list(self._names.get(e.key or "", {}).values())
            for e in alternative.expressions
            if e.operator in ("Exists", "Gt", "Lt")
        ]
        if not matching:
            return self._nodes
        rarest = min(matching, key=lambda sets: sum(map(len, sets)))
        return rarest[0] if len(rarest) == 1 else chain.from_iterable(rarest)

    def _with_label(self, key: str, values: Iterable[str]) -> list[set[str]]:
        """Return the names of the nodes by label value. No node has two values of one key."""
        names = self._names.get(key, {})
        return [names[value] for value in dict.fromkeys(values) if value in names]

    def _unindex(self, node: Node) -> None:
        for key, value in node.labels.items():
            names = self._names[key]
            names[value].discard(node.name)
            if not names[value]:
                del names[value]
                if not names:
                    del self._names[key]
        for mark in _marks(node):
            self._marked[mark].discard(node.name)
            if not self._marked[mark]:
                del self._marked[mark]


def _marks(node: Node) -> set[str]:
    """Return what a node shows of a pool besides its labels."""
    return {taint.key for taint in node.taints} | {*(node.allocatable or ())}
