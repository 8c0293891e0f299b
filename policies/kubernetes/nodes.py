"""What is known of the cluster's nodes: names, labels and taints, found by label.

Pure data structure: a watch keeps it current, rules only read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from policies.kubernetes.scheduling import FENCING_EFFECTS, NODE_NAME_FIELD, Alternative, accepts
from policies.policy import Pool, Taint


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of a Node that placement depends on."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, int] | None = None
    """Devices of the pools that the node offers: extended resource name to a whole number; ``None``
    where it does not say."""

    def belongs_to(self, pool: Pool) -> bool:
        labels = self.labels
        # A loop: all() with a generator takes thrice the time, and this runs for many nodes a Pod.
        for key, value in pool.labels.items():  # noqa: SIM110
            if labels.get(key) != value:
                return False
        return True

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

    Nodes are found by the rarest of the labels that a node selection asks for, and given one by
    one: whoever needs to know only whether there is one pays for one, and not for the cluster.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, Node] = {}
        self._names: dict[str, dict[str, set[str]]] = {}
        """Of each label key, the names of the nodes with each of its values."""
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
        for key, value in node.labels.items():
            self._names.setdefault(key, {}).setdefault(value, set()).add(node.name)
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
        return self.accepted_by(Alternative(pool.labels, (), (), ""))

    def accepted_by(self, alternative: Alternative, pool: Pool | None = None) -> Iterator[Node]:
        """Yield the nodes, of the pool if one is given, that meet one way of a node selection."""
        for name in self._candidates(alternative, pool):
            node = self._nodes[name]
            if accepts(alternative, name, node.labels) and (pool is None or node.belongs_to(pool)):
                yield node

    def _candidates(self, alternative: Alternative, pool: Pool | None) -> Iterable[str]:
        """Return the names of some nodes, among them all that are looked for."""
        for field in alternative.fields:
            if field.get("key") == NODE_NAME_FIELD and field["operator"] == "In":
                name: str = field["values"][0]
                return (name,) if name in self._nodes else ()
        wanted = [(key, (value,)) for key, value in alternative.labels.items()]
        wanted += [
            (e["key"], e["values"]) for e in alternative.expressions if e["operator"] == "In"
        ]
        if pool is not None:
            wanted += [(key, (value,)) for key, value in pool.labels.items()]
        found = [self._with_label(key, values) for key, values in wanted]
        # A key that must be there, whatever its value, mostly tells more than none at all.
        found += [
            list(self._names.get(e["key"], {}).values())
            for e in alternative.expressions
            if e["operator"] in ("Exists", "Gt", "Lt")
        ]
        if not found:
            return self._nodes
        rarest = min(found, key=lambda sets: sum(map(len, sets)))
        return rarest[0] if len(rarest) == 1 else chain.from_iterable(rarest)

    def _with_label(self, key: str, values: Iterable[str]) -> list[set[str]]:
        """Return the names of the nodes with each of the values, which are no node's twice."""
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
