"""Each finding once, at the topmost owner."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from policies.decision import Decision, Verdict
from policies.finding import Finding
from policies.rules.check_pool_trespass import ID as TRESPASS
from webhook.cluster.judge import ContainerUser
from webhook.cluster.kinds import POD, Kind
from webhook.tools.audit.judge import Inventory, Judged, PodGroup, RunningPod
from webhook.tools.audit.owners import Identity, Owned
from webhook.tools.audit.pools import PoolState
from webhook.wording import MOST_NAMED, some


@dataclass(slots=True)
class Subject:
    """A topmost owner, the findings of all objects that belong to it, and its Pods.

    ``decision`` has those findings, and the mutations of the owner's own template. ``verdict`` is
    about the next creation of the owner and of its Pods. ``placed`` are the findings about where
    its Pods run: they deny nothing.
    """

    kind: Kind
    owned: Owned
    decision: Decision
    verdict: Verdict
    pods: Counter[str] = field(default_factory=Counter)
    """The running Pods by verdict."""
    placed: tuple[Finding, ...] = ()
    users: dict[ContainerUser, None] = field(default_factory=dict)
    """The containers that get another user at their next creation."""
    mutations: dict[str, None] = field(default_factory=dict)
    """The rules that change it, or its Pods, at their next creation."""
    running_users: set[int] = field(default_factory=set)
    """The users that its Pods run as, as far as nodes report them."""
    unjudged: dict[str, None] = field(default_factory=dict)
    """Why the verdict may be another one: what is unknown, malformed, or failed."""
    is_undecided: bool = False
    likeness: str = ""
    """Of a Pod without an owner: equal for Pods that were made alike."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings about the objects, and about where the Pods run."""
        return (*self.decision.findings, *self.placed)

    @property
    def place(self) -> str:
        """The name for kubectl, below the namespace: ``ml/jobs.batch/train``."""
        return f"{self.owned.namespace}/{self.kind.title}/{self.owned.name}"


@dataclass(slots=True)
class _Seen:
    """A finding, and how many objects below the owner have it, with the first of their names."""

    finding: Finding
    below: list[str] = field(default_factory=list)
    count: int = 0
    own: bool = False


def subjects(inventory: Inventory, states: Iterable[PoolState]) -> list[Subject]:
    """Return every topmost owner, by namespace, kind and name.

    Old ReplicaSets and ended Jobs are reported only if they still have a running Pod.
    """
    collected: dict[Identity, _Collector] = {}
    workloads = {judged.owned.identity: judged for judged in inventory.workloads}

    def collector(judged: Judged) -> _Collector:
        top = inventory.owners.top(judged.owned)
        if top.identity not in collected:
            owner = workloads.get(top.identity, judged)
            collected[top.identity] = _Collector(owner, inventory)
        return collected[top.identity]

    for judged in inventory.workloads:
        if not judged.is_history:
            collector(judged).take(judged)
    for group in inventory.pods.values():
        collector(group.first).take_pods(group)
    for state in states:
        for node in state.nodes.values():
            for pod in node.trespassers:
                collector(pod).take_trespass(pod, state.pool.name)
    results = [collector.subject() for collector in collected.values()]
    return sorted(results, key=lambda s: (s.owned.namespace, s.kind.kind, s.owned.name))


class _Collector:
    """Collects the findings of a topmost owner and of all objects that belong to it."""

    def __init__(self, top: Judged, inventory: Inventory) -> None:
        self._top = top
        self._subject = Subject(
            top.kind,
            top.owned,
            top.decision,
            top.verdict,
            is_undecided=top.is_undecided,
        )
        self._inventory = inventory
        self._has_top = False
        self._seen: dict[tuple[str, str, str], _Seen] = {}
        self._trespassing: defaultdict[tuple[str, tuple[str, ...]], list[RunningPod]] = defaultdict(
            list
        )

    def take(self, judged: Judged) -> None:
        """Take the decision on a workload: the owner itself, or one that belongs to it."""
        self._inventory.take_excepted(judged)
        self._add(judged)

    def take_pods(self, group: PodGroup) -> None:
        pod = group.first
        self._subject.pods[pod.verdict] += group.count
        if pod.user is not None:
            self._subject.running_users.add(pod.user)
        self._subject.likeness = pod.likeness
        self._add(pod, group.names, group.count)

    def take_trespass(self, pod: RunningPod, pool: str) -> None:
        """Record that a Pod runs on a node of a pool without requesting its devices."""
        action = self._inventory.actions_in(pod.owned.namespace)[TRESPASS]
        if action != "off" and not self._is_excepted(pod.owned):
            self._trespassing[pool, pod.decision.pools].append(pod)

    def subject(self) -> Subject:
        subject = self._subject
        if not self._has_top:  # An old object with running Pods.
            self.take(self._top)
        has_template = subject.decision.has_template
        findings = tuple(self._findings())
        subject.placed = tuple(self._trespassing_pods())
        if findings or subject.pods:
            subject.decision = replace(subject.decision, findings=findings, has_template=True)
            verdict = subject.decision.verdict
            is_changed = subject.verdict == "mutated" or (
                not has_template and subject.pods["mutated"] > 0
            )
            # Only the mutations of the owner's own template are part of the decision.
            subject.verdict = "mutated" if verdict == "allowed" and is_changed else verdict
        return subject

    def _add(self, judged: Judged, names: Sequence[str] = (), count: int = 1) -> None:
        own = judged.owned.identity == self._top.owned.identity
        self._has_top = self._has_top or own
        places = [f"{judged.kind.kind} {name}" for name in names or [judged.owned.name]]
        where = some(places, count)
        self._subject.users |= dict.fromkeys(judged.users)
        self._subject.mutations |= dict.fromkeys(judged.mutations)
        self._subject.unjudged |= dict.fromkeys(
            reason if own else f"{where}: {reason}" for reason in judged.unjudged
        )
        for finding, detail in zip(judged.decision.findings, judged.details, strict=True):
            key = finding.rule, finding.reason, detail
            repeated = self._seen.setdefault(key, _Seen(finding))
            if own:
                # The finding of the owner's own template counts.
                repeated.finding, repeated.own = finding, True
            else:
                repeated.below += places[: MOST_NAMED - len(repeated.below)]
                repeated.count += count

    def _findings(self) -> Iterator[Finding]:
        for repeated in self._seen.values():
            finding = repeated.finding
            if not repeated.own:
                detail = f"{finding.detail}; found in {some(repeated.below, repeated.count)}"
                finding = replace(finding, detail=detail)
            yield finding

    def _trespassing_pods(self) -> Iterator[Finding]:
        action = self._inventory.actions_in(self._top.owned.namespace)[TRESPASS]
        for (pool, candidates), pods in self._trespassing.items():
            if candidates:
                reason = "a GPU Pod runs on a GPU node of another pool"
                lack = f"the policy allows the Pods only pool {', '.join(candidates)}"
            else:
                reason = "a Pod without a GPU request runs on a GPU node"
                lack = "the Pods request none of its devices"
            returns = any(pod.decision.allowed and pod.may_return for pod in pods)
            outlook = "can run there again" if returns else "do not run there"
            check = "Check that the nodes have the taint of the pool. Then "
            cure = f"{check if returns else ''}{_moving(self._top)}"
            yield Finding(
                TRESPASS,
                "spec",
                reason,
                f"{some([f'Pod {pod.owned.name} on node {pod.node}' for pod in pods])}: the nodes "
                f"belong to pool {pool}, but {lack}; the next Pods {outlook}",
                cure[0].upper() + cure[1:],
                action,
            )

    def _is_excepted(self, owned: Owned) -> bool:
        inventory, labels = self._inventory, self._inventory.labels_of(owned.namespace)
        top = inventory.owners.top(owned)
        for entry in inventory.policy.exceptions:
            for candidate in (owned, top):
                key = (TRESPASS, owned.namespace, candidate.key[1], candidate.name)
                if entry.covers(*key, labels) and not entry.has_expired(inventory.today):
                    inventory.take_exception(TRESPASS, candidate)
                    return True
        return False


def _moving(top: Judged) -> str:
    if top.kind is POD:
        return "delete the Pod and create it again, because it has no controller"
    return "delete the Pods: their controller creates new ones on other nodes"
