"""Each finding once, at the topmost owner."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from policies.decision import Decision, Verdict
from policies.finding import Finding
from policies.policy import Policy
from policies.rules.check_pool_trespass import ID as TRESPASS
from webhook.tools.audit.judge import Inventory, Judged, RunningPod
from webhook.tools.audit.kinds import POD, Kind
from webhook.tools.audit.owners import Owned
from webhook.tools.audit.pools import PoolState
from webhook.wording import some


@dataclass(slots=True)
class Subject:
    """A topmost owner, the findings of all objects that belong to it, and its Pods.

    ``decision`` has those findings, and the mutations of the owner's own template. ``pods`` counts
    the running Pods by verdict, and ``users`` has the users that they run as, as far as nodes
    report them. ``remark`` is the reason why an object with an owner reference is
    reported itself.
    """

    kind: Kind
    owned: Owned
    decision: Decision
    verdict: Verdict
    pods: Counter[str] = field(default_factory=Counter)
    remark: str = ""
    error: str = ""
    """The problem of a malformed object."""
    users: set[int] = field(default_factory=set)

    @property
    def place(self) -> str:
        """The name for kubectl, below the namespace: ``ml/jobs.batch/train``."""
        return f"{self.owned.namespace}/{self.kind.title}/{self.owned.name}"


@dataclass(slots=True)
class _Seen:
    """A finding, and the objects below the owner that have it."""

    finding: Finding
    below: list[str] = field(default_factory=list)
    own: bool = False


def subjects(
    policy: Policy,
    inventory: Inventory,
    pods: Sequence[RunningPod],
    states: Iterable[PoolState],
) -> list[Subject]:
    """Return every topmost owner, by namespace, kind and name.

    Old ReplicaSets and ended Jobs are reported only if they still have a running Pod.
    """
    collected: dict[str, _Collector] = {}
    by_uid = {judged.owned.uid: judged for judged in inventory.workloads}

    def collector(judged: Judged) -> _Collector:
        top, remark = inventory.owners.top(judged.owned)
        if top.uid not in collected:
            owner = by_uid.get(top.uid, judged)
            collected[top.uid] = _Collector(owner, remark, policy, inventory)
        return collected[top.uid]

    for judged in inventory.workloads:
        if not judged.is_history:
            collector(judged).take(judged)
    for pod in pods:
        collector(pod).take_pod(pod)
    for state in states:
        for node in state.nodes.values():
            for pod in node.trespassers:
                collector(pod).take_trespass(pod, state.pool.name)
    results = [collector.subject() for collector in collected.values()]
    return sorted(results, key=lambda s: (s.owned.namespace, s.kind.kind, s.owned.name))


class _Collector:
    """Collects the findings of a topmost owner and of all objects that belong to it."""

    def __init__(self, top: Judged, remark: str, policy: Policy, inventory: Inventory) -> None:
        self._top = top
        self._subject = Subject(
            top.kind, top.owned, top.decision, top.verdict, remark=remark, error=top.error
        )
        self._policy = policy
        self._inventory = inventory
        self._has_top = False
        self._seen: dict[tuple[str, str, str], _Seen] = {}
        self._trespassing: defaultdict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)

    def take(self, judged: Judged) -> None:
        """Take the decision on a workload: the owner itself, or one that belongs to it."""
        if judged.error and judged is not self._top:
            self._inventory.not_judged(judged.kind, judged.owned, judged.error)
        else:
            self._inventory.take_excepted(judged)
            self._add(judged)

    def take_pod(self, pod: RunningPod) -> None:
        self._subject.pods[pod.verdict] += 1
        if pod.user is not None:
            self._subject.users.add(pod.user)
        self._add(pod)

    def take_trespass(self, pod: RunningPod, pool: str) -> None:
        """Record that a Pod runs on a node of a pool without requesting its devices."""
        action = self._policy.actions_in(pod.owned.namespace)[TRESPASS]
        if action != "off" and not self._is_excepted(pod.owned):
            self._trespassing[pool, pod.decision.pools].append(
                f"Pod {pod.owned.name} on node {pod.node}"
            )

    def subject(self) -> Subject:
        subject = self._subject
        if not self._has_top:  # An old object with running Pods.
            self.take(self._top)
        findings = (*self._findings(), *self._trespassing_pods())
        if findings or subject.pods:
            subject.decision = replace(subject.decision, findings=findings, has_template=True)
            # Only the mutations of the owner's own template are part of the decision.
            if subject.verdict != "mutated" or subject.decision.verdict != "allowed":
                subject.verdict = subject.decision.verdict
        return subject

    def _add(self, judged: Judged) -> None:
        own = judged.owned.uid == self._top.owned.uid
        self._has_top = self._has_top or own
        where = f"{judged.kind.kind} {judged.owned.name}"
        for finding, detail in zip(judged.decision.findings, judged.details, strict=True):
            key = finding.rule, finding.reason, detail
            repeated = self._seen.setdefault(key, _Seen(finding))
            if own:
                # The finding of the owner's own template counts.
                repeated.finding, repeated.own = finding, True
            else:
                repeated.below.append(where)

    def _findings(self) -> Iterator[Finding]:
        for repeated in self._seen.values():
            finding = repeated.finding
            if not repeated.own:
                detail = f"{finding.detail}; found in {some(repeated.below)}"
                finding = replace(finding, detail=detail)
            yield finding

    def _trespassing_pods(self) -> Iterator[Finding]:
        action = self._policy.actions_in(self._top.owned.namespace)[TRESPASS]
        for (pool, candidates), pods in self._trespassing.items():
            if candidates:
                reason = "a GPU Pod runs on a GPU node of another pool"
                lack = f"the policy allows the Pods only pool {', '.join(candidates)}"
            else:
                reason = "a Pod without a GPU request runs on a GPU node"
                lack = "the Pods request none of its devices"
            yield Finding(
                TRESPASS,
                "spec",
                reason,
                f"{some(pods)}: the nodes belong to pool {pool}, but {lack}",
                f"Check that the nodes have the taint of the pool. Then {_moving(self._top)}",
                action,
            )

    def _is_excepted(self, owned: Owned) -> bool:
        inventory = self._inventory
        top, _ = inventory.owners.top(owned)
        for entry in self._policy.exceptions:
            for candidate in (owned, top):
                key = (TRESPASS, owned.namespace, candidate.key[1], candidate.name)
                if entry.covers(*key) and not entry.has_expired(inventory.today):
                    inventory.excepted.add(key)
                    return True
        return False


def _moving(top: Judged) -> str:
    if top.kind is POD:
        return "delete the Pod and create it again, because it has no controller"
    return "delete the Pods: their controller creates new ones on other nodes"
