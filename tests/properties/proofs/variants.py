"""Eighteen ways to break the fence: the proof must notice each (``proofs.prove``).

Each is one edit of the sources, and a statement that it refutes.
"""

from __future__ import annotations

from typing import NamedTuple

from paths import PROJECT


class Variant(NamedTuple):
    """What is wrong in the broken code, and the edit: a text of one file and its replacement."""

    fault: str
    file: str
    before: str
    after: str

    @property
    def source(self) -> bytes:
        """The file with the fault."""
        source = (PROJECT / self.file).read_text()
        if source.count(self.before) != 1:
            raise ValueError(f"{self.file} has the text of a variant not once: {self.before!r}")
        return source.replace(self.before, self.after).encode()


_SCHEDULING = "policies/kubernetes/scheduling.py"
_SELECTOR = "policies/kubernetes/selector.py"
_AFFINITY = "policies/rules/set_pool_node_affinity.py"

VARIANTS = (
    Variant(
        "can_match knows numbers of up to 62 digits, and label values have 63",
        _SCHEDULING,
        "range(len(str(number)), 64)",
        "range(len(str(number)), 63)",
    ),
    Variant(
        "can_match lets a node lack a label that the pool has with any value",
        _SELECTOR,
        "present=key in selector)",
        "present=False)",
    ),
    Variant(
        "surely_accepts ignores matchFields", _SELECTOR, "if alternative.fields or not", "if not"
    ),
    Variant(
        "requires is content with an In that shares one value with the pool",
        _SELECTOR,
        '"In" and {*(each.values or ())} <= {*values}',
        '"In" and {*(each.values or ())} & {*values}',
    ),
    Variant(
        "confines is content if one of the allowed values leads to a pool",
        _SELECTOR,
        "return all(\n        _are_covered(",
        "return any(\n        _are_covered(",
    ),
    Variant(
        "reached_taint ignores NoExecute",
        _SCHEDULING,
        "if taint.effect in FENCING_EFFECTS and may",
        'if taint.effect == "NoSchedule" and may',
    ),
    Variant(
        "the mutation copies a term without its matchFields",
        _AFFINITY,
        "NodeSelectorTerm([*own, *other], term.match_fields)",
        "NodeSelectorTerm([*own, *other])",
    ),
    Variant(
        "the mutation completes a Pod without terms by one pool only",
        _AFFINITY,
        "for way in missing[0] if way",
        "for way in missing[0][:1] if way",
    ),
    Variant(
        "the mutation tolerates a taint with every effect",
        "policies/rules/set_pool_toleration.py",
        "Toleration(taint.key, operator, taint.value, taint.effect)",
        "Toleration(taint.key, operator, taint.value)",
    ),
    Variant(
        "the mutation excludes one pool only, of several with the same label",
        "policies/rules/set_pool_exclusion.py",
        "unwanted.setdefault(key, []).extend(values)",
        "unwanted[key] = [*values]",
    ),
    Variant(
        "the mutation requires a pool that the selection excludes",
        _AFFINITY,
        " or not _leaves_nodes(pod, missing, closed):",
        ":",
    ),
    Variant(
        "the mutation knows no pool that is closed to the Pod",
        _AFFINITY,
        "    closed = closed_pools(pod, context)\n    if closed and",
        "    closed: Closed = {}\n    if closed and",
    ),
    Variant(
        "the mutation excludes a closed pool by the first of its labels only",
        _AFFINITY,
        "for each in other.requirements]",
        "for each in other.requirements[:1]]",
    ),
    Variant(
        "a node of a requested pool is open to the Pod, also if it belongs to a closed one",
        "policies/reach.py",
        "context.requested_pools if pool not in closed.get(own, ()))",
        "context.requested_pools)",
    ),
    Variant(
        "a node belongs to a pool that leaves it out",
        "policies/pool_nodes.py",
        'nodes.accepted_by(Alternative({}, pool.requirements, (), ""))',
        "nodes.selected_by(pool.selector)",
    ),
    Variant(
        "a node with the taint of a pool belongs to it only when it has its labels",
        "policies/pool_nodes.py",
        "labeled | of_no_pool & (_fenced(pool, labeled, nodes) | having[pool])",
        "labeled",
    ),
    Variant(
        "a node whose devices a DRA driver publishes has none while they cannot be allocated",
        "policies/kubernetes/nodes.py",
        "plugged | self.published.keys() - self.remote",
        "plugged",
    ),
    Variant(
        "a Pod is kept off although its selection accepts a known node of the pool",
        "policies/reach.py",
        "if selected.all & nodes_of_pools(context.policy, nodes).of(pool):\n        return False",
        "if selected.all & nodes_of_pools(context.policy, nodes).of(pool):\n        return True",
    ),
)
