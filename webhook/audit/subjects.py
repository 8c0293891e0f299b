"""Each finding once, at the topmost owner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from policies.decision import Decision
from policies.engine import decide
from policies.excluded_namespaces import ALWAYS_EXCLUDED
from policies.finding import Finding
from policies.kubernetes.decoding import MalformedObjectError
from policies.kubernetes.template import field_path
from policies.kubernetes.templates import templates
from policies.policy import Policy
from policies.rules.check_pool_trespass import ID as TRESPASS
from webhook.audit.inventory import Inventory, Workload
from webhook.audit.kinds import POD
from webhook.audit.names import some
from webhook.audit.owners import Remark
from webhook.audit.pods import RunningPod
from webhook.audit.pools import PoolState

_REMARKS: dict[Remark, str] = {
    "": "",
    "dangling": "its owner reference names {}, which does not exist",
    "forged": "its owner reference names {}, but the UID, kind, name or selector of that object "
    "does not match",
    "unread": "its owner {} could not be listed",
    "clusterwide": "its owner {} is cluster-scoped",
}


@dataclass(slots=True)
class Subject:
    """A topmost owner, the findings of all objects that belong to it, and its Pods.

    ``decision`` has those findings, and the mutations of the owner's own template. ``pods`` counts
    the running Pods by verdict. ``remark`` is the reason why an object with an owner reference is
    reported itself.
    """

    workload: Workload
    decision: Decision
    pods: dict[str, int] = field(default_factory=dict)
    remark: str = ""
    error: str = ""
    """The problem of a malformed object."""


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

    Old ReplicaSets and ended Jobs are audited only if they still have a running Pod.
    """
    collected: dict[str, _Collector] = {}
    by_uid = {workload.owned.uid: workload for workload in inventory.workloads}
    trespassing = _trespassing(states)

    def collector(workload: Workload) -> _Collector:
        top, remark = inventory.owners.top(workload.owned)
        if top.uid not in collected:
            owner = by_uid.get(top.uid, workload)
            collected[top.uid] = _Collector(owner, _remark(owner, remark))
        return collected[top.uid]

    for workload in inventory.workloads:
        if not _is_history(workload):
            collector(workload).take(workload, policy, inventory)
    for pod in pods:
        collected_by = collector(pod.workload)
        collected_by.take_pod(pod)
        collected_by.take_trespass(trespassing.get(pod.workload.owned.uid, ()), policy, inventory)
    results = [collector.subject(policy, inventory) for collector in collected.values()]
    return sorted(results, key=lambda s: (*_place(s.workload), s.workload.owned.name))


class _Collector:
    """Collects the findings of a topmost owner and of all objects that belong to it."""

    def __init__(self, top: Workload, remark: str) -> None:
        self._top = top
        self._remark = remark
        self._decision: Decision | None = None
        self._error = ""
        self._seen: dict[tuple[str, str, str], _Seen] = {}
        self._trespassing: dict[tuple[str, tuple[str, ...]], list[tuple[str, str]]] = {}
        self._pods: dict[str, int] = {}

    def take(self, workload: Workload, policy: Policy, inventory: Inventory) -> None:
        """Decide on an object: the owner itself, or one that belongs to it."""
        try:
            namespace = workload.owned.namespace
            decision = decide(
                workload.obj,
                policy,
                inventory.request_in(namespace),
                inventory.facts_in(namespace),
                excluded_namespaces=ALWAYS_EXCLUDED,
            )
        except MalformedObjectError as error:
            if workload is self._top:
                self._error = str(error)
            else:
                inventory.not_judged(workload, error)
            return
        inventory.take_excepted(workload, decision)
        self._add(workload, decision)

    def take_pod(self, pod: RunningPod) -> None:
        self._pods[pod.decision.verdict] = self._pods.get(pod.decision.verdict, 0) + 1
        self._add(pod.workload, pod.decision)

    def take_trespass(
        self,
        trespasses: Iterable[tuple[RunningPod, PoolState]],
        policy: Policy,
        inventory: Inventory,
    ) -> None:
        """Record that a Pod runs on a node of a pool without requesting its devices."""
        for pod, state in trespasses:
            owned = pod.workload.owned
            if policy.actions_in(owned.namespace)[TRESPASS] != "off" and not _is_excepted(
                pod, policy, inventory
            ):
                key = state.pool.name, pod.decision.pools
                self._trespassing.setdefault(key, []).append((owned.name, pod.node))

    def subject(self, policy: Policy, inventory: Inventory) -> Subject:
        if self._decision is None and not self._error:
            # An old object with running Pods, or an owner with unknown templates.
            self.take(self._top, policy, inventory)
        decision = self._decision or Decision(self._top.obj, has_template=False)
        findings = [*self._findings(), *self._trespassing_pods(policy)]
        if findings or self._pods:
            decision = replace(decision, findings=tuple(findings), has_template=True)
        return Subject(self._top, decision, self._pods, self._remark, self._error)

    def _add(self, workload: Workload, decision: Decision) -> None:
        own = workload.owned.uid == self._top.owned.uid
        if own:
            self._decision = decision
        where = f"{workload.kind.kind} {workload.owned.name}"
        for finding in decision.findings:
            repeated = self._seen.setdefault(_key(finding, workload), _Seen(finding))
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

    def _trespassing_pods(self, policy: Policy) -> Iterator[Finding]:
        action = policy.actions_in(self._top.owned.namespace)[TRESPASS]
        for (pool, candidates), places in self._trespassing.items():
            pods = some([f"Pod {pod} on node {node}" for pod, node in places])
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
                f"{pods}: the nodes belong to pool {pool}, but {lack}",
                f"Check that the nodes have the taint of the pool. Then {_moving(self._top)}",
                action,
            )


def _moving(top: Workload) -> str:
    if top.kind is POD:
        return "delete the Pod and create it again, because it has no controller"
    return "delete the Pods: their controller creates new ones on other nodes"


def _key(finding: Finding, workload: Workload) -> tuple[str, str, str]:
    """Return a key that is equal for a finding of a template and of its Pods."""
    detail = finding.detail
    for template in templates(workload.obj):
        detail = detail.replace(field_path(template.spec_path), "spec")
    return finding.rule, finding.reason, detail


def _trespassing(states: Iterable[PoolState]) -> dict[str, list[tuple[RunningPod, PoolState]]]:
    """Return the trespassers of every pool, by uid."""
    trespasses: dict[str, list[tuple[RunningPod, PoolState]]] = {}
    for state in states:
        for node in state.nodes.values():
            for pod in node.trespassers:
                trespasses.setdefault(pod.workload.owned.uid, []).append((pod, state))
    return trespasses


def _is_excepted(pod: RunningPod, policy: Policy, inventory: Inventory) -> bool:
    owned = pod.workload.owned
    top, _ = inventory.owners.top(owned)
    for entry in policy.exceptions:
        for candidate in (owned, top):
            key = (TRESPASS, owned.namespace, candidate.key[1], candidate.name)
            if entry.covers(*key) and not entry.has_expired(inventory.today):
                inventory.excepted.add(key)
                return True
    return False


def _is_history(workload: Workload) -> bool:
    spec, status = workload.obj.get("spec") or {}, workload.obj.get("status") or {}
    if workload.owned.key == ("apps", "ReplicaSet"):
        return workload.owned.owner is not None and not spec.get("replicas")
    if workload.owned.key == ("batch", "Job"):
        return any(
            condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        )
    return False


def _remark(top: Workload, remark: Remark) -> str:
    return _REMARKS[remark].format(top.owned.owner)


def _place(workload: Workload) -> tuple[str, str]:
    return workload.owned.namespace, workload.kind.kind
