"""What is known of the cluster's nodes: names, labels and taints, found by label.

Pure data structure: a watch keeps it current, rules only read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from policies.compiled import Pool, Taint
from policies.scheduling import FENCING_EFFECTS, Alternative, accepts


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of a Node that placement depends on."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, int] | None = None
    """Devices that the node offers: extended resource name to a whole number."""

    def belongs_to(self, pool: Pool) -> bool:
        return all(self.labels.get(key) == value for key, value in pool.labels.items())

    def is_fenced_by(self, pool: Pool) -> bool:
        """Tell whether the node carries one of the pool's taints that keep Pods away."""
        return any(
            taint.effect in FENCING_EFFECTS
            and taint.key == wanted.key
            and taint.effect == wanted.effect
            and wanted.value in (None, taint.value)
            for taint in self.taints
            for wanted in pool.taints
        )


class NodeIndex:
    """The nodes of a cluster, updated in place.

    Looking up the nodes that a node selection accepts costs what the rarest of the labels that it
    names costs, and not the number of nodes.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, Node] = {}
        self._by_label: dict[tuple[str, str], set[str]] = {}
        for node in nodes:
            self.update(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, name: str) -> Node | None:
        """Return the node of that name, if it is known."""
        return self._nodes.get(name)

    def update(self, node: Node) -> bool:
        """Put the node in place of what was known of it; tell whether that changed anything."""
        known = self._nodes.get(node.name)
        if known == node:
            return False
        if known is not None:
            self._unindex(known)
        self._nodes[node.name] = node
        for label in node.labels.items():
            self._by_label.setdefault(label, set()).add(node.name)
        return True

    def remove(self, name: str) -> bool:
        """Forget the node; tell whether it was known."""
        node = self._nodes.pop(name, None)
        if node is None:
            return False
        self._unindex(node)
        return True

    def members(self, pool: Pool) -> Iterator[Node]:
        """Yield the nodes that belong to the pool."""
        for name in self._fewest(pool.labels.items()):
            node = self._nodes[name]
            if node.belongs_to(pool):
                yield node

    def accepted_by(self, alternative: Alternative) -> Iterator[Node]:
        """Yield the nodes that meet one way of a Pod's node selection."""
        named = list(alternative.labels.items())
        single = [
            (e["key"], e["values"][0])
            for e in alternative.expressions
            if e.get("operator") == "In" and len(e["values"]) == 1
        ]
        for name in self._fewest([*named, *single]):
            node = self._nodes[name]
            if accepts(alternative, node.name, node.labels):
                yield node

    def _fewest(self, labels: Iterable[tuple[str, str]]) -> Iterable[str]:
        """Return the names of the nodes with the rarest of ``labels``; all where none is given."""
        candidates = [self._by_label.get(label, set()) for label in labels]
        if not candidates:
            return self._nodes
        return min(candidates, key=len)

    def _unindex(self, node: Node) -> None:
        for label in node.labels.items():
            names = self._by_label[label]
            names.discard(node.name)
            if not names:
                del self._by_label[label]
