"""What an audit keeps of a cluster: its nodes, and the decision on each object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from msgspec.structs import replace

from policies.decision import Decision, Verdict
from policies.facts import Facts
from policies.kubernetes.nodes import NodeIndex
from webhook.audit.advisories import NodeVersions
from webhook.audit.kinds import NODE, POD, GroupKind, Kind
from webhook.audit.owners import Owned, Owners


@dataclass(frozen=True, slots=True)
class Judged:
    """An object, and the decision on it.

    ``details`` are those of the findings, with paths as in a Pod. An object of the ``history`` is
    an old ReplicaSet or an ended Job. ``error`` is the problem of a malformed object.
    """

    kind: Kind
    owned: Owned
    decision: Decision
    verdict: Verdict
    details: tuple[str, ...] = ()
    is_history: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod(Judged):
    """A Pod that has not ended. ``node`` is empty for a Pod that is not scheduled.

    ``devices`` counts the reserved devices by extended resource. ``is_agent`` is true for node
    agents: Pods of a DaemonSet, and static Pods. ``lacks_mutations`` is true for a Pod that was
    created without the mutations of the policy.
    """

    node: str
    devices: dict[str, int]
    is_agent: bool
    lacks_mutations: bool


@dataclass(slots=True)
class Inventory:
    """The listed objects. ``skipped`` has a sentence for each kind or object that is not
    audited."""

    nodes: NodeIndex | None = None
    versions: NodeVersions = field(default_factory=NodeVersions)
    node_uids: dict[str, str] = field(default_factory=dict)
    cordoned: set[str] = field(default_factory=set)
    workloads: list[Judged] = field(default_factory=list)
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

    def facts_in(self, namespace: str) -> Facts:
        """Return the facts for objects of the namespace."""
        return replace(self.facts, namespace_labels=self.namespace_labels.get(namespace))

    def take_excepted(self, judged: Judged) -> None:
        """Record the findings on an object that an exception covers."""
        owned = judged.owned
        self.excepted.update(
            (finding.rule, owned.namespace, judged.kind.kind, owned.name)
            for finding in judged.decision.excepted
        )

    def not_judged(self, kind: Kind, owned: Owned, problem: str) -> None:
        """Record that an object is malformed, so that no rule can read it."""
        self.skipped.append(f"{kind.kind} {owned.full_name}: not audited: {problem}")
